"""The reading commands over a system that a real one cannot excuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import click
import pyarrow.ipc as ipc
import pyarrow.parquet as parquet
import pytest

import tallystick
from tallystick.cli import COMMANDS
from tallystick.reading.tables import HIDDEN_BY_DAMAGE
from tests.cli.conftest import Run
from tests.kit import untouched


def test_inspect_gives_figures_per_log(run: Run, logs: Path) -> None:
    answer = run("inspect", "--json", logs)
    assert answer.code == 1
    by_name = {Path(log["path"]).name: log for log in answer.json["logs"]}
    assert by_name["good"]["files"] == 2
    assert by_name["good"]["records"] == {"valid": 4}
    assert by_name["good"]["transactions"] == {"active": 1, "prepared": 1, "committed": 2}
    assert by_name["bad"]["findings"][0]["code"] == "broken-line"
    assert answer.json["others"] == [str(logs / "notes.txt")]


def test_inspect_of_a_whole_log_exits_with_0(run: Run, logs: Path) -> None:
    answer = run("inspect", logs / "good")
    assert answer.code == 0
    assert "2 committed" in answer.out


def test_explain_prints_both_verdicts_and_their_difference(run: Run, logs: Path) -> None:
    answer = run("explain", "--json", logs)
    assert answer.code == 1
    bad = next(log for log in answer.json["logs"] if log["path"].endswith("bad"))
    assert set(bad) == {
        *("path", "name", "system", "format", "answer", "at_stake", "reason"),
        *("engine", "strict", "differences"),
        *("log_answer", "log_at_stake", "log_reason"),
    }
    assert bad["answer"] == "loses"
    assert bad["at_stake"] == {"transactions": 1, "rows": None}
    assert bad["engine"] == {"broken": 1}
    assert bad["differences"][0]["meaning"] == "it is gone"


def test_explain_speaks_to_a_tired_person(run: Run, logs: Path) -> None:
    answer = run("explain", logs)
    first_words = [line.split()[0] for line in answer.out.splitlines() if line and line[0] != " "]
    assert first_words == ["All", "LOSES", "SAFE", "SAFE", "No"]
    assert (
        "A restart would keep 2 transactions committed, leave 1 in doubt, undo 1, and lose nothing "
        "silently." in answer.out
    )
    assert "and silently lose 1." in answer.out
    assert "its own engine: skips it" in answer.out


def test_dump_prints_one_object_a_line(run: Run, logs: Path) -> None:
    answer = run("dump", "--json", logs / "good")
    assert answer.code == 0
    assert [(line["type"], line["transaction"]) for line in answer.lines] == [
        ("committed", 1),
        ("prepared", 2),
        ("committed", 3),
        ("active", 4),
    ]
    assert answer.lines[1]["gtrid"] == "aa"
    assert answer.lines[1]["attributes"] == {"format_id": 7, "bqual": "bb"}


def test_dump_marks_what_was_salvaged(run: Run, logs: Path) -> None:
    answer = run("dump", "--json", "--salvage", logs / "bad")
    assert answer.code == 1
    assert [line["attributes"] for line in answer.lines] == [{}, {"salvaged": True}, {}]


def test_dump_for_people_names_file_offset_and_type(run: Run, logs: Path) -> None:
    answer = run("dump", logs / "bad")
    assert str(logs / "bad/1.fake") in answer.out
    assert "broken" in answer.out


def test_verify_prints_findings_and_nothing_where_all_is_well(run: Run, logs: Path) -> None:
    assert run("verify", logs / "good").out == ""
    answer = run("verify", "--json", logs)
    assert answer.code == 1
    assert [line["code"] for line in answer.lines] == ["foreign-branch", "broken-line"]


def test_an_error_of_one_log_never_stops_the_others(run: Run, logs: Path) -> None:
    (logs / "bad/1.fake").write_text("FAKE\ncommitted 1\nrefuse\n")
    answer = run("explain", "--json", logs)
    assert answer.code == 1
    assert sorted(Path(log["path"]).name for log in answer.json["logs"]) == ["good", "other"]
    problem = answer.json["problems"][0]
    assert problem["code"] == "not-read"
    assert problem["offset"] == 17
    assert len(run("dump", "--json", logs).lines) == 6


@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])
def test_export_holds_every_record_in_every_form(run: Run, logs: Path, form: str) -> None:
    target = logs.parent / f"out.{form}"
    answer = run("export", logs, "--to", form, "-o", target)
    assert answer.code == 0
    if form == "jsonl":
        types = [json.loads(line)["type"] for line in target.read_text().splitlines()]
    elif form == "parquet":
        types = parquet.read_table(target).column("type").to_pylist()
    else:
        types = ipc.open_stream(target.read_bytes()).read_all().column("type").to_pylist()
    assert sorted(types) == sorted(["committed"] * 5 + ["prepared", "active", "broken"])


@pytest.mark.parametrize("table", ["files", "transactions", "changes", "findings"])
def test_export_gives_the_other_tables_too(run: Run, logs: Path, table: str) -> None:
    target = logs.parent / "out.jsonl"
    code = run("export", logs, "--to", "jsonl", "--table", table, "-o", target).code
    assert code == (table in HIDDEN_BY_DAMAGE)  # a broken line may hide some
    assert target.read_text()


def test_an_interrupted_export_leaves_no_file(logs: Path) -> None:
    from tallystick.investigate.export import export

    with pytest.raises(tallystick.TallystickError):
        export(logs / "nothing", "parquet", logs / "out.parquet")
    assert not list(logs.glob("out*"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inspect", "/nowhere/at/all"], "cannot read"),
        (["nonsense"], "No such command"),
        (["dump"], "Missing argument"),
        (["dump", "--nonsense", "x"], "No such option"),
        (["rows", "--follow", "x"], "No such option '--follow'. It is one of tallystick dump"),
        (["sql", "x", ""], "the query is empty"),
        (["sql", "x", "  "], "the query is empty"),
        (["sql", ""], "the path is empty"),
        (["export", "x", "--to", "xml"], "xml"),
        (["dump", "x", "--encryption-key", "zz"], "hexadecimal"),
        (["triage", "x", "--timezone", "Mars"], "unknown time zone 'Mars'"),
        (["pipeline", "run", "x", "--out", "y", "--conf", "nonsense"], "not NAME=VALUE"),
        (["report", "/nowhere/at/all"], "there is no such table"),
        (["rows", "x", "--set", "a=1", "--set", "a=2"], "'a' is given twice"),
        (["indoubt", "list", "--resource", "a=b:", "--resource", "a=c:"], "'a' is given twice"),
        (["pipeline", "run", "x", "--out", "y", "--conf", "a=", "--conf", "a="], "given twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_wrong_use_exits_with_2_and_a_sentence(run: Run, arguments: list[str], said: str) -> None:
    answer = run(*arguments)
    assert answer.code == 2
    assert said in answer.err
    assert answer.out == ""


def _values(command: click.Command, name: str) -> Iterator[tuple[str, ...]]:
    """Yield a command and an option of it that takes one value, for each."""
    if isinstance(command, click.Group):
        for one, below in command.commands.items():
            yield from ((name, *words) for words in _values(below, one))
    for option in command.params:
        if isinstance(option, click.Option) and not (option.multiple or option.is_flag):
            yield name, option.opts[0]


WITH_VALUES = [
    words
    for name, place in COMMANDS.items()
    for words in _values(resolve_name(f"tallystick.cli.{place}"), name)
]


def test_what_takes_one_value_takes_it_once(run: Run) -> None:
    """Of two keys the first was dropped, and the answer was that of the second alone."""
    assert len(WITH_VALUES) > 100
    for *words, option in WITH_VALUES:
        answer = run(*words, option, "1", option, "2")
        assert answer.code == 2, words
        assert f"'{option}'" in answer.err, (words, answer.err)
        assert "it is given 2 times" in " ".join(answer.err.split())


@pytest.mark.usefixtures("fake")
def test_a_folder_without_logs_is_said_to_have_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "readme").write_text("no log")
    for name in ("inspect", "explain", "verify", "dump"):
        answer = run(name, tmp_path)
        assert answer.code == 2, name
        assert "no log of any known system" in answer.out + answer.err


def test_an_unreadable_file_is_a_finding(run: Run, logs: Path) -> None:
    (logs / "good/0.fake").symlink_to(logs / "vanished")
    answer = run("verify", "--json", logs / "good")
    assert answer.code == 1
    assert answer.lines[0]["code"] == "unreadable"


def test_reading_changes_nothing(run: Run, logs: Path) -> None:
    with untouched(logs):
        for name in ("inspect", "explain", "verify", "dump"):
            run(name, logs)


def test_every_command_has_help_and_every_help_ends_well(run: Run) -> None:
    for name in COMMANDS:
        answer = run(name, "--help")
        assert answer.code == 0
        assert "Usage: tallystick " + name in answer.out


def test_a_reader_that_goes_away_is_no_error_and_no_all_clear(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tallystick import cli
from tallystick.systems import known
known.PACKAGES = {{"fake": "tests.pipeline.fake"}}
cli.main(["dump", *sys.argv[1:]])
"""
    (tmp_path / "1.fake").write_text("FAKE\n" + "committed 1\n" * 20_000)
    for extra in ([], ["--json"]):
        command = [sys.executable, "-c", program, str(tmp_path), *extra]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(30) == 128 + signal.SIGPIPE


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", ["explain", "triage", "inspect", "verify"])
@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_an_answer_nobody_reads_is_still_the_exit_code(
    command: str, extra: tuple[str, ...], tmp_path: Path
) -> None:
    """``tallystick triage LOGS | head -1`` must not look as if every log were safe."""
    with tallystick.Journal(tmp_path / "log") as log:
        log.append_many([bytes(1000)] * 50)
        log.append(b"last")
    segment = max((tmp_path / "log").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[9000] ^= 1
    segment.write_bytes(data)
    reader, writer = os.pipe()
    os.close(reader)
    arguments = [
        sys.executable,
        "-c",
        "import tallystick.cli as c; c.main()",
        command,
        *extra,
        str(tmp_path),
    ]
    answer = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert answer.returncode == 1, answer.stderr.decode()


def test_the_library_gives_what_the_commands_print(run: Run, logs: Path) -> None:
    assert run("inspect", "--json", logs).json == tallystick.inspect(logs).to_dict()
    assert run("explain", "--json", logs).json == tallystick.explain(logs).to_dict()
    records = [record.to_dict() for record in tallystick.scan(logs)]
    assert run("dump", "--json", logs).lines == records
    assert tallystick.read_arrow(logs).read_all().num_rows == len(records)


def test_scan_raises_what_nobody_collects_after_everything_else(logs: Path) -> None:
    (logs / "bad/1.fake").write_text("FAKE\nrefuse\n")
    seen: list[tallystick.Record] = []
    with pytest.raises(tallystick.TallystickError, match="the line refuses"):
        seen.extend(tallystick.scan(logs))
    assert len(seen) == 5
