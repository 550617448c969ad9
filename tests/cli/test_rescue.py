"""``tallystick repair``, ``salvage`` and ``bundle``, at a terminal and for programs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tallystick
from tallystick.errors import LogUnreadableError
from tallystick.rescue.salvaging import FORMS
from tests.cli.conftest import Run
from tests.cli.test_triage import at_terminal
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES
from tests.rescue.kit import SETTINGS, case, change, content, names, on_device, unpacked
from tests.systems.jboss.applications.test_object_store import NAMES, put

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "examples/incident/logs"


def test_a_repair_fits_a_terminal(tmp_path: Path) -> None:
    # A copy: while another test repairs the same log, it is held.
    logs = Path(shutil.copytree(LOGS / "bitronix", tmp_path / "logs"))
    before = content(logs)
    lines = at_terminal(24, 80, "", "repair", str(logs), "--to", str(tmp_path / "m"))
    assert len(lines) <= 24
    assert not [line for line in lines if len(line) > 80 and str(tmp_path) not in line]
    assert lines[0] == "part1.tlog offset 4, 8 bytes"
    assert lines[-2:] == ["Mended in 1 place", f"    tallystick explain {tmp_path / 'm'}"]
    assert content(logs) == before


def test_damage_that_is_left_stands_below_its_own_log(run: Run, tmp_path: Path) -> None:
    case("bitronix", "rollover-1", tmp_path / "logs/a")
    case("bitronix", "damaged-crc-flip", tmp_path / "logs/b")
    case("h2", "corrupt-checksum-2048", tmp_path / "logs/c")
    case("bitronix", "all-dangling", tmp_path / "logs/d")
    answer = run("repair", tmp_path / "logs", "--to", tmp_path / "copy")
    assert answer.code == 1
    header, below = "", dict[str, list[str]]()
    for line in answer.out.splitlines():
        if line.startswith(("bitronix  ", "h2  ")):
            header = line.rpartition("/")[2]
        elif line.startswith("      at "):
            below.setdefault(header, []).append(line)
    assert sorted(below) == ["b", "c"]
    for name, places in below.items():
        assert all(f"/copy/{name}/" in line for line in places)
    told = run("repair", tmp_path / "logs", "--to", tmp_path / "again", "--json").json["logs"]
    unsafe = {one["path"] for one in told if one["after"]["answer"] != "safe"}
    assert unsafe
    for path in unsafe:
        assert f"  {tmp_path / 'copy' / path}\n" in answer.out
    (last,) = (line for line in answer.out.splitlines() if line.startswith("Mended in"))
    assert "; the copy: " in last
    assert "SAFE" in last


def test_damage_of_what_is_not_copied_stands_below_its_log(run: Run, tmp_path: Path) -> None:
    log = case("bitronix", "damaged-crc-flip", tmp_path / "log")
    answer = run("repair", log, "--to", tmp_path / "copy")
    assert answer.out.splitlines()[0] == f"bitronix  {log}"


def test_the_copy_of_a_file_is_named(run: Run, tmp_path: Path) -> None:
    log = case("h2", "committed-2048", tmp_path / "log")
    change(log / "db.h2.db", 3, b"XYZ")
    answer = run("repair", log / "db.h2.db", "--to", tmp_path / "m.h2.db")
    assert f"h2  {tmp_path / 'm.h2.db'}\n" in answer.out


def test_an_estate_is_mended_whole_and_says_so_to_programs(run: Run, tmp_path: Path) -> None:
    answer = run("repair", LOGS, "--to", tmp_path / "mended", "--json")
    assert answer.code == 0
    told = answer.json
    assert [(one["file"], one["offset"]) for one in told["mends"]] == [
        ("bitronix/part1.tlog", 4), ("derby/log/log.ctrl", 0), ("h2/bank.h2.db", 0),
    ]  # fmt: skip
    assert {one["system"]: one["before"]["answer"] for one in told["logs"]} == {
        "bitronix": "loses", "derby": "cannot-tell", "h2": "refuses", "jboss": "safe",
    }  # fmt: skip
    assert {one["after"]["answer"] for one in told["logs"]} == {"safe"}
    assert told["left"] == []
    assert run("triage", tmp_path / "mended").out.endswith("4 SAFE AFTER A CRASH\n")


def test_nothing_to_mend_is_said_and_nothing_written(run: Run, tmp_path: Path) -> None:
    answer = run("repair", EXAMPLES / "orphan", "--to", tmp_path / "copy")
    assert answer.code == 1
    assert answer.out == "Nothing to mend: nothing is damaged. No copy was made\n"
    assert names(tmp_path) == []


def test_a_log_that_is_brought_into_the_copy_is_told_in_a_line(run: Run, tmp_path: Path) -> None:
    device, copy = tmp_path / "dev", tmp_path / "copy"
    database = on_device(tmp_path, device)
    answer = run("repair", database, "--to", copy)
    said = (
        f"its log is copied from {device}/log into its own folder log, and {SETTINGS} no longer "
        "names that place"
    )
    assert f"{copy}: {said}\n" in answer.out
    told = run("repair", database, "--to", tmp_path / "again", "--json").json
    assert [one["path"] for one in told["logs"]] == ["log"]
    assert told["own_logs"] == [{"path": ".", "origin": f"{device}/log", "text": said}]


@pytest.mark.parametrize(
    ("system", "case", "words", "text"),
    [
        ("derby_databases", "page-older-than-log", "REFUSES", "(XSDB4)"),
        ("brokers", "bindings-missing", "LOSES", "A start drops 153 messages"),
        ("bitronix", "damaged-missing-second", "REFUSES", "The manager does not start"),
        ("h2", "corrupt-checksum-2048", "LOSES", "log page 9 is damaged"),
    ],
)
def test_what_no_mend_changes_is_said_as_explain_says_it(
    system: str, case: str, words: str, text: str, tmp_path: Path, run: Run
) -> None:
    log = Path(shutil.copytree(fixture_dir(system) / case, tmp_path / "log"))
    answer = run("repair", log, "--to", tmp_path / "copy")
    assert answer.code == 1
    assert "nothing is damaged" not in answer.out
    assert f"{words}  {'jboss' if system == 'brokers' else system.partition('_')[0]}  {log}" in (
        answer.out
    )
    assert text in " ".join(answer.out.split())
    assert answer.out.endswith(f"    tallystick explain {log}\n")
    (one,) = json.loads(run("repair", log, "--to", tmp_path / "copy", "--json").out)["unmended"]
    told = json.loads(run("explain", log, "--json").out)["databases"][0]
    assert (one["answer"], one["reason"]) == (told["answer"], told["reason"])


def test_a_salvage_says_what_is_brought_and_left(run: Run, tmp_path: Path) -> None:
    answer = run("salvage", EXAMPLES / "orphan/h2", "--as", "h2-script", "--to", tmp_path / "o.sql")
    assert answer.code == 1
    assert "left: 3 changes in doubt" in answer.out
    assert f"Written: {tmp_path / 'o.sql'}" in answer.out
    shown = at_terminal(24, 80, "", "salvage", str(EXAMPLES / "orphan/derby"), "--as",
                        "derby-import", "--to", str(tmp_path / "d"))  # fmt: skip
    assert len(shown) <= 24
    assert not [line for line in shown if len(line) > 80 and str(tmp_path) not in line]
    told = run("salvage", EXAMPLES / "orphan/h2", "--as", "h2-script", "--to", tmp_path / "b.sql",
               "--json").json  # fmt: skip
    assert told["left"] == {"changes in doubt": 3}


def test_a_salvage_over_something_that_exists_is_refused(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.h2.db"
    other.write_bytes(b"a database")
    for form in FORMS:
        answer = run("salvage", EXAMPLES / "orphan/h2", "--as", form, "--to", other)
        assert (answer.code, answer.out) == (2, "")
        assert "exists already" in answer.err
    assert content(tmp_path) == {"other.h2.db": b"a database"}


def test_a_bundle_is_written_where_it_is_named(run: Run, tmp_path: Path) -> None:
    answer = run("bundle", LOGS, "-o", tmp_path / "ticket.zip")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == f"8 files in {tmp_path / 'ticket.zip'}\n"
    first = (tmp_path / "ticket.zip").read_bytes()
    assert run("bundle", LOGS, "-o", tmp_path / "ticket.zip").code == 0
    assert (tmp_path / "ticket.zip").read_bytes() == first
    assert names(tmp_path) == ["ticket.zip"]
    assert "among the logs" in run("bundle", LOGS, "-o", LOGS / "ticket.zip").err


def test_a_bundle_says_what_could_not_be_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = unpacked(LOGS, tmp_path / "logs")
    (logs / "h2/closed").mkdir()
    file, folder = str(logs / "bitronix/part2.tlog"), str(logs / "h2/closed")
    opened, listed = os.open, os.scandir

    def denied(path: Any) -> Any:
        if str(path) in (file, folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return path

    monkeypatch.setattr(
        os, "open", lambda path, *more, **named: opened(denied(path), *more, **named)
    )
    monkeypatch.setattr(os, "scandir", lambda path=".": listed(denied(path)))
    answer = run("bundle", logs, "-o", tmp_path / "ticket.zip")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.count("cannot read: Permission denied") == 2
    assert all(answer.err.count(one) >= 1 for one in (file, folder))
    with zipfile.ZipFile(tmp_path / "ticket.zip") as packed:
        told = {one["file"]: one for one in json.loads(packed.read("files.json"))}
        named = [one["file"] for one in json.loads(packed.read("explain.json"))["problems"]]
    assert told["bitronix/part2.tlog"]["error"] == "PermissionError"
    assert "first" in told["bitronix/part1.tlog"]
    assert named == ["PATH/bitronix/part2.tlog", "PATH/h2/closed"]
    with pytest.raises(LogUnreadableError, match="Permission denied"):
        tallystick.bundle(logs, tmp_path / "other.zip")
    assert names(tmp_path) == ["logs", "ticket.zip"]


def test_a_bundle_of_what_is_no_log_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/notes.txt").write_text("none")
    answer = run("bundle", tmp_path / "here", "-o", tmp_path / "ticket.zip")
    assert answer.code == 2
    assert "no log of any known system" in answer.err
    assert names(tmp_path) == ["here", "ticket.zip"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((LOGS,), "Missing option '--to'"),
        ((LOGS, "--to", LOGS), "exists already"),
        (("gone", "--to", "copy"), "No such file"),
        ((ROOT / "docs", "--to", "copy"), "no log"),
    ],
)
def test_wrong_use_is_one_sentence(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str | Path, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run("repair", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert names(tmp_path) == []


@pytest.mark.parametrize(("size", "said"), [
    (20, "3 damaged pieces of the source"), (None, "3 transactions that nothing opens"),
])  # fmt: skip
def test_a_salvage_that_brings_nothing_writes_nothing_and_says_so(
    run: Run, tmp_path: Path, size: int | None, said: str
) -> None:
    root = tmp_path / "store/ShadowNoFileLockStore/defaultStore"
    for last, data in NAMES.items():
        put(root, last, data[:size])
    answer = run("salvage", root, "--as", "journal", "--to", tmp_path / "new")
    assert answer.code == 1
    assert " ".join(answer.out.split()) == (
        f"{root}: nothing could be brought, and nothing was written: {said}"
    )
    assert names(tmp_path) == ["store"]
    told = run("salvage", root, "--as", "journal", "--to", tmp_path / "new", "--json").json
    assert (told["target"], told["brought"]) == (None, {})
    assert run("convert", root, tmp_path / "c", "--to", "jboss", "--force").code == 1


def test_a_salvage_without_anything_open_says_what_was_brought(run: Run, tmp_path: Path) -> None:
    log = case("bitronix", "committed-2pc", tmp_path / "log")
    answer = run("salvage", log, "--as", "journal", "--to", tmp_path / "new")
    assert answer.code == 0
    assert "brought: 0 open decisions" in answer.out
    assert "are over" in answer.out


def test_what_of_a_native_log_is_new_is_said(run: Run, tmp_path: Path) -> None:
    with tallystick.Journal(tmp_path / "log") as journal:
        journal.add(1, b"body")
    answer = run("salvage", tmp_path / "log", "--as", "journal", "--to", tmp_path / "new")
    assert "note: times and offsets of records are those of the new log" in answer.out
