"""Filters, counts, context and following, as they are typed."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import click
import pytest

from tallystick import Journal
from tallystick.cli.filtering import last_moment_of
from tests.cli.conftest import Run
from tests.cli.test_triage import at_terminal
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES

ESTATE = EXAMPLES / "mid-phase-two"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "typed",
    [
        "dump ESTATE --stats",
        "dump ESTATE --stats --where-body transfer",
        "dump ESTATE/derby --from-lsn 4294990000 --to-lsn 4294990100 -C 1",
        "history ESTATE ID=10009 --in-doubt --kind add",
        "rows ESTATE --outcome in-doubt --resource APP.ACCOUNTS",
        "asof ESTATE/derby --before 269 --table APP.TRANSFERS",
        "diff ESTATE ESTATE",
        "sql ESTATE/derby ESTATE/h2 'SELECT system, log, answer FROM logs'",
    ],
)
def test_each_fits_a_terminal(typed: str) -> None:
    lines = at_terminal(24, 80, "", *shlex.split(typed.replace("ESTATE", str(ESTATE))))
    assert 0 < len(lines) <= 24
    long = [line for line in lines if len(line) > 80 and str(EXAMPLES) not in line]
    assert not long or typed.startswith("dump ESTATE/derby")  # a record is one line


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("rows ESTATE --transaction abc", "no transaction here is 'abc'. Did you mean"),
        ("history ESTATE 251 --transaction 999999", "Did you mean"),
        ("dump ESTATE --transaction 999999", "Did you mean"),
        ("dump ESTATE --stats --transaction 999999", "Did you mean"),
        ("export ESTATE --to jsonl --table changes --transaction x -o OUT", "Did you mean"),
        ("dump ESTATE --gtrid 6", "too short"),
        ("dump ESTATE --kind nothing", "is not one of"),
        ("dump ESTATE --outcome nothing", "expected one of valid"),
        ("dump ESTATE --where-body 0x1", "pairs of digits after 0x"),
        ("dump ESTATE --from-lsn x", "is not a valid integer"),
        ("dump ESTATE --stats --follow", "exclude each other"),
        ("dump ESTATE/h2 --follow", "written over at once"),
        ("rows ESTATE --timezone Mars/Phobos", "unknown time zone 'Mars/Phobos'"),
        ("triage ESTATE/bitronix --timezone Mars/Phobos", "unknown time zone"),
        ("scrub ESTATE --every 0s", "never rests"),
        ("scrub ESTATE --every 0", "never rests"),
        ("asof ESTATE/h2 --lsn 0", "the log begins after that moment"),
        ("asof ESTATE/h2 --time 2026-01-01", "no log here holds times of day"),
        ("asof ESTATE/h2 --time yesterday", "is no time"),
        ("asof ESTATE/h2", "name one moment"),
        ("asof ESTATE/h2 --lsn 5 --before 3", "name one moment"),
        ("asof ESTATE/h2 --before 6", "Name its global id"),
        ("diff ESTATE nothing", "nothing"),
    ],
)
def test_what_cannot_be_meant_is_an_error(run: Run, tmp_path: Path, typed: str, said: str) -> None:
    text = typed.replace("ESTATE", str(ESTATE)).replace("OUT", str(tmp_path / "out"))
    answer = run(*shlex.split(text))
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert list(tmp_path.iterdir()) == []


def test_bodies_that_are_text_are_text_and_times_have_their_zone(run: Run, tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        for body in (b"order 7", "Größe".encode(), b"\x00\xff", b"a\nb", b"x" * 100):
            journal.append(body)
    lines = run("dump", tmp_path).out.splitlines()[1:]
    shown = [line.partition("body ")[2] for line in lines]
    assert shown == ["order 7", "Größe", "00ff", r"a\nb", f"{'x' * 64}... (100 bytes)"]
    assert all(line.partition("time ")[2].split()[0].endswith("Z") for line in lines)
    ((counts),) = run("dump", tmp_path, "--stats", "--json").lines
    assert (counts["records"], counts["kinds"]) == (5, {"add": 5})
    assert counts["first"] <= counts["last"] <= "9"
    assert "times         2" in run("dump", tmp_path, "--stats").out


def test_two_copies_that_differ_exit_with_one(run: Run, tmp_path: Path) -> None:
    for name, bodies in (("a", (b"1", b"2")), ("b", (b"1", b"3", b"4"))):
        with Journal(tmp_path / name) as journal:
            for number, body in enumerate(bodies):
                journal.add(number, body)
    answer = run("diff", tmp_path / "a", tmp_path / "b")
    assert answer.code == 1
    assert "A alone: 2 records" in answer.out  # of another log each
    (told,) = run("diff", tmp_path / "a", tmp_path / "b", "--json").lines
    assert (told["same"], told["b"]["records"]) == (False, 3)
    assert run("diff", tmp_path / "a", tmp_path / "a").code == 0


def test_rows_of_a_moment_are_json_lines(run: Run) -> None:
    lines = run("asof", ESTATE / "derby", "--before", "288", "--json").lines
    assert {line["known"] for line in lines} <= {"whole", "in_part", "not_known"}
    assert {line["collection"] for line in lines} >= {"APP.ACCOUNTS", "APP.TRANSFERS"}


def test_context_is_marked(run: Run) -> None:
    lines = run("dump", ESTATE / "h2", "--kind", "prepare", "-C", "1").out.splitlines()
    assert len([line for line in lines if line.endswith("near yes")]) > 2
    assert all("near yes" in line for line in lines[1:] if "PREPARE" not in line)


def test_a_journal_is_followed_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tallystick", "dump", str(tmp_path), "-f", "--json"]
    with Journal(tmp_path) as journal:
        journal.append(b"0")
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"},
        ) as running:  # fmt: skip
            assert running.stdout is not None
            assert running.stderr is not None
            for number in range(3):
                line = json.loads(running.stdout.readline())
                assert bytes.fromhex(line["body"]) == b"%d" % number
                journal.append(b"%d" % (number + 1))
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == 0
            assert running.stderr.read() == ""


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("2026-07-05", "2026-07-05T23:59:59.999999"),
        ("2026-07-05T03", "2026-07-05T03:59:59.999999"),
        ("2026-07-05T03:04", "2026-07-05T03:04:59.999999"),
        ("2026-07-05 03:04:05Z", "2026-07-05T03:04:05.999999+00:00"),
        ("2026-07-05T03:04:05.678+02:00", "2026-07-05T03:04:05.678999+02:00"),
        ("2026-07-05T03:04:05.678901", "2026-07-05T03:04:05.678901"),
        ("9999-12-31", "9999-12-31T23:59:59.999999"),
    ],
)
def test_until_a_day_or_a_shown_time_means_to_its_end(until: str, last: str) -> None:
    command = click.Command("x", params=[])
    moment = last_moment_of(click.Context(command), click.Option(["--until"]), until)
    assert moment == datetime.fromisoformat(last)
    assert last_moment_of(click.Context(command), click.Option(["--until"]), None) is None


def test_no_output_takes_the_place_of_another_log(run: Run, tmp_path: Path) -> None:
    packed = fixture_dir("h2") / "committed-2048" / "db.h2.db.gz"
    before, file = gzip.decompress(packed.read_bytes()), tmp_path / "db.h2.db"
    file.write_bytes(before)
    path = fixture_dir("estate") / "orphan"
    for typed in (["bundle", path, "-o", file], ["export", path, "--to", "csv", "-o", file],
                  ["rows", path, "--to", "csv", "-o", file]):  # fmt: skip
        answer = run(*typed)
        assert answer.code == 2
        assert "the place of a file of a log" in answer.err
    assert file.read_bytes() == before


def test_a_resource_that_is_not_there_is_an_error(run: Run) -> None:
    answer = run("rows", fixture_dir("estate") / "orphan", "--resource", "jdbc/branch-z")
    assert answer.code == 2
    assert "is called 'jdbc/branch-z'" in answer.err
