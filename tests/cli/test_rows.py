"""``tallystick rows``, and the filters that it shares with dump and export."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import textwrap
import time
from pathlib import Path

import pytest

from tallystick import Journal
from tallystick.cli.look.rows import row_lines
from tallystick.printable import printable
from tests.cli.conftest import Run
from tests.cli.test_triage import at_terminal
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES
from tests.systems.h2.test_left import LEFT

ROOT = Path(__file__).parents[2]
ESTATE = EXAMPLES / "mid-phase-two"
ORPHAN = "6272616e63682d6f66666963652d3900000000004ecec600000015"


def test_rows_in_doubt_fit_a_terminal() -> None:
    lines = at_terminal(24, 80, "", "rows", "--in-doubt", str(EXAMPLES / "orphan"))
    assert len(lines) <= 24
    paths = [line for line in lines if str(EXAMPLES) in line]
    assert all(len(line) <= 80 for line in lines if line not in paths)
    assert lines.count(f"    {ORPHAN}") == 3  # once in each log, whole
    assert lines[-1] == "7 rows: 7 in doubt"
    assert any(line.startswith("  IN DOUBT  transaction 351") for line in lines)
    assert "    update APP.ACCOUNTS 1:25: BALANCE 74" in lines


def test_every_line_fits_whatever_a_row_is() -> None:
    lines = at_terminal(24, 80, "", "rows", str(ESTATE))
    assert not [line for line in lines if len(line) > 80 and str(EXAMPLES) not in line]
    assert lines[-1] == "248 rows: 219 committed, 17 undone, 12 in doubt"


@pytest.mark.parametrize("text", ["x" * 60, "x" * 61, "x " * 31, "a  b ", "a\u00a0b", "\u2028"])
def test_a_line_that_fits_is_as_the_others_are(text: str) -> None:
    row = {"kind": "add", "collection": "T", "key": "1", "values": {"A": text}, "after": None}
    shown = textwrap.wrap(
        printable(f"add T 1: A {text}"), 80, initial_indent=" " * 4, subsequent_indent=" " * 6
    )
    assert row_lines(row | {"before": None}) == shown


def test_an_id_with_hyphens_stays_whole_on_a_line() -> None:
    one = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    row = {"kind": "add", "collection": "T", "key": "1", "values": {"A": "x" * 50, "B": one}}
    assert any(one in line for line in row_lines(row | {"after": None, "before": None}))


def test_a_text_is_told_apart_from_no_value() -> None:
    row = {"kind": "add", "collection": "T", "key": "1", "after": None, "before": None}
    values = {"A": None, "B": "null", "C": "NULL", "D": "", "E": " ", "F": "nullable"}
    shown = "    add T 1: A null, B 'null', C 'NULL', D '', E ' ', F nullable"
    assert row_lines(row | {"values": values}) == [shown]


def test_json_and_csv_have_the_same_rows(run: Run) -> None:
    told = run("rows", "--json", "--in-doubt", ESTATE)
    assert told.code == 0
    assert run("rows", "--to", "jsonl", "--in-doubt", ESTATE).out == told.out
    read = list(csv.DictReader(io.StringIO(run("rows", "--to", "csv", "--in-doubt", ESTATE).out)))
    assert [one["key"] for one in read] == [one["key"] for one in told.lines]
    assert {one["fate"] for one in told.lines} == {"in_doubt"}


def test_a_time_that_is_shown_is_a_moment_after_what_it_is_shown_of(
    run: Run, tmp_path: Path
) -> None:
    """What is shown has milliseconds; the log has microseconds."""
    with Journal(tmp_path / "log") as journal:
        for number in range(3):
            journal.add(number, b"row")
            time.sleep(0.002)
    shown = [one["time"] for one in run("rows", "--json", tmp_path).lines]
    for count, moment in enumerate(shown, 1):
        found = run("asof", "--json", "--time", moment, tmp_path)
        assert [row["key"] for row in found.lines] == ["0", "1", "2"][:count], found.err


def test_a_file_is_written_where_it_is_named_and_nowhere_else(run: Run, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in ESTATE.rglob("*")}
    answer = run("rows", ESTATE, "--in-doubt", "--to", "parquet", "-o", tmp_path / "rows.parquet")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == f"12 rows in {tmp_path / 'rows.parquet'}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
    assert before == {path: path.stat().st_mtime_ns for path in ESTATE.rglob("*")}


@pytest.mark.parametrize("command", ["rows", "dump", "export"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gtrid", "6"], "too short"),
        (["--gtrid", "62616e6b"], "Give more of it"),
        (["--gtrid", "abcd"], "no global transaction here begins with 'abcd'"),
        (["--since", "yesterday"], "is no time. Expected as"),
        (["--since", "1711112200000"], "is no time. Expected as"),
        (["--since", "2026-01-02", "--until", "2026-01-01"], "--since is after --until"),
        (["--from-lsn", "3", "--to-lsn", "2"], "--from-lsn is after --to-lsn"),
    ],
)
def test_what_cannot_be_meant_is_an_error_and_nothing_is_written(
    run: Run, tmp_path: Path, command: str, arguments: list[str], said: str
) -> None:
    more = ["--to", "jsonl", "-o", str(tmp_path / "out")] if command == "export" else []
    answer = run(command, ESTATE, *arguments, *more)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert list(tmp_path.iterdir()) == []


def test_logs_without_times_are_named_in_one_warning(run: Run) -> None:
    answer = run("rows", ESTATE, "--until", "2026-01-01")
    warned = answer.err.partition("warning no-times")[2]
    assert "warning" not in warned
    assert f"      {ESTATE}/derby/log\n" in warned
    assert warned.endswith("      and 1 log more\n")
    many = [EXAMPLES / name / "h2" for name in ("mid-phase-two", "orphan")]
    several = run("rows", *many, *(one.parent / "derby" for one in many), "--until", "2026-01-01")
    assert several.err.count("no-times") == 1
    assert several.err.endswith("      and 1 log more\n")


def test_a_table_that_is_not_there_names_the_nearest(run: Run) -> None:
    answer = run("rows", ESTATE, "--table", "APP.ACCOUNT")
    assert (answer.code, answer.out) == (2, "")
    assert "Did you mean APP.ACCOUNTS" in answer.err
    answer = run("export", ESTATE, "--to", "jsonl", "--collection", "APP.ACCOUNTS")
    assert (answer.code, answer.out) == (2, "")
    assert "the table records has no table to filter by" in answer.err


@pytest.mark.parametrize("command", [["rows", ESTATE, "--key"], ["history", ESTATE]])
def test_a_column_that_no_table_has_names_the_nearest(run: Run, command: list[object]) -> None:
    answer = run(*command, "balanc=3")
    assert (answer.code, answer.out) == (2, "")
    assert "no table here has a column 'balanc'" in answer.err
    assert "Did you mean BALANCE" in answer.err
    assert run(*command, "amount=-49").code == 0


def test_no_row_is_said_and_is_no_error(run: Run) -> None:
    answer = run("rows", ESTATE, "--lost", "--where-body", 'a,"\n')
    assert (answer.code, answer.out, answer.err) == (0, "No row\n", "")


def test_the_history_of_a_row_has_every_fate(run: Run) -> None:
    lines = run("history", "--json", ESTATE, "251", "--table", "PUBLIC.ACCOUNTS_2").lines
    assert [line["fate"] for line in lines] == [
        *["committed"] * (len(lines) - 2),
        *["in_doubt"] * 2,
    ]
    assert len(lines) > 2
    answer = run("history", ESTATE, 'a,"\n')
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert run("history", ESTATE, "1", "--table", "nothing").code == 2
    shown = at_terminal(24, 80, "", "history", str(ESTATE / "h2"), "251")
    assert not [line for line in shown if len(line) > 80 and str(EXAMPLES) not in line]
    assert shown[-1].endswith("2 in doubt")


GUIDE = (ROOT / "docs/guide/investigating.md").read_text("utf-8")
SHOWN = re.findall(r"^\$ (tallystick .*)\n((?:(?!```|\$ ).*\n)*)", GUIDE, re.MULTILINE)


@pytest.mark.parametrize(("typed", "printed"), SHOWN)
def test_the_guide_shows_what_is_printed(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: str, printed: str
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    answer = run(*shlex.split(typed)[1:])
    assert answer.code == 0
    assert answer.out + answer.err == printed


def test_a_folder_without_a_log_is_an_error(run: Run, tmp_path: Path) -> None:
    assert run("rows", tmp_path).code == 2


@pytest.mark.parametrize("command", ["history", "rows"])
def test_a_decision_is_found_by_its_id_in_any_spelling(command: str, run: Run) -> None:
    whole = "62616e6b2d3100000000004e6e560000005d"
    key = ["--key"] if command == "rows" else []
    expected = run(command, "--json", ESTATE / "bitronix", *key, whole).lines
    assert expected
    for spelled in (whole.upper(), f"0x{whole}", f"XID_1114926712__{whole.upper()}", whole[:-4]):
        assert run(command, "--json", ESTATE / "bitronix", *key, spelled).lines == expected


def test_dump_and_export_take_the_same_filters(run: Run) -> None:
    one = ["--gtrid", "62616E6B2D3100000000004E6E51", "--json"]
    told = run("dump", ESTATE, *one).lines
    assert {line["gtrid"] for line in told} == {"62616e6b2d3100000000004e6e5100000059"}
    rows = run("export", ESTATE, "--to", "jsonl", "--table", "changes", "--key", "251").out
    assert {json.loads(line)["key"] for line in rows.splitlines()} == {"251"}
    assert run("dump", ESTATE, "--transaction", "295", "--json").lines


DERBY_LOG = EXAMPLES / "orphan/derby"
EXPORT = ["export", "--to", "csv", "-o", "OUT", "--table", "changes"]
UNKNOWN = [
    (["history", "99:99"], "nothing here has the key '99:99'. Did you mean"),
    (["history", "ID=40007"], "nothing here has the key 'ID=40007'. Did you mean ID=40006"),
    (["history", "--table", "APP.TRANSFERS", "ID=402"], "nothing here has the key 'ID=402'"),
    (["rows", "--key", "99:99"], "nothing here has the key '99:99'. Did you mean"),
    (["rows", "--transaction", "99999"], "no transaction here is '99999'. Did you mean"),
    (["rows", "--table", "APP.TRANSFER"], "is called 'APP.TRANSFER'. Did you mean APP.TRANSFERS"),
    (["rows", "--resource", "APP.TRANSFER"], "Did you mean APP.TRANSFERS"),
    (["rows", "--gtrid", "ffffffff"], "ffffffff"),
    (["dump", "--key", "nothing"], "nothing here has the key 'nothing'"),
    (["dump", "--stats", "--key", "nothing"], "nothing here has the key 'nothing'"),
    (["dump", "--resource", "jdbc/branch-x"], "no resource here is called 'jdbc/branch-x'"),
    (["dump", "--transaction", "99999"], "no transaction here is '99999'. Did you mean"),
    ([*EXPORT, "--key", "99:99"], "nothing here has the key '99:99'"),
    ([*EXPORT, "--collection", "APP.NO"], "no table, queue or resource here is called 'APP.NO'"),
    (["asof", "--lsn", "999999999999", "--table", "APP.TRANSFER"], "Did you mean APP.TRANSFERS"),
    (["asof", "--before", "99999"], "no transaction here is '99999'. Did you mean"),
    (["undo", "--transaction", "99999"], "99999"),
]


@pytest.mark.parametrize(("words", "said"), UNKNOWN, ids=str)
def test_a_name_that_is_in_no_log_is_an_error_with_what_may_be_meant(
    run: Run, tmp_path: Path, words: list[str], said: str
) -> None:
    words = [word.replace("OUT", str(tmp_path / "out")) for word in words]
    answer = run(words[0], DERBY_LOG, *words[1:])
    assert (answer.code, said in answer.err) == (2, True), answer
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(("words", "said"), UNKNOWN, ids=str)
def test_where_no_log_is_that_is_said_and_not_that_a_name_is_unknown(
    run: Run, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    words = [word.replace("OUT", str(tmp_path / "out")) for word in words]
    answer = run(words[0], tmp_path / "empty", *words[1:])
    assert answer.code == 2
    assert "there is no log of any known system" in answer.err
    assert said not in answer.err


def test_a_form_and_another_exclude_each_other(run: Run) -> None:
    for words in (["rows", DERBY_LOG], ["sql", DERBY_LOG, "select 1"]):
        answer = run(*words, "--json", "--to", "csv")
        assert (answer.code, answer.out) == (2, "")
        assert "--json is --to jsonl, and excludes --to csv" in answer.err
        assert run(*words, "--json", "--to", "jsonl").code == 0


def test_records_without_a_key_are_a_row_each_and_no_database_is_spoken_of(
    run: Run, tmp_path: Path
) -> None:
    with Journal(tmp_path / "log") as log:
        for number in range(3):
            log.append(b"record %d" % number)
    answer = run("asof", tmp_path, "--lsn", "3")
    assert [line.strip() for line in answer.out.splitlines()[1:]] == [
        "record 0", "record 1", "record 2", "3 rows: 3 whole",
    ]  # fmt: skip
    assert run("asof", EXAMPLES / "orphan/bitronix", "--lsn", "3").out == "No row\n"
    answer = run("history", tmp_path, "x")
    assert (answer.code, "Nothing here has a key" in answer.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ["rows", "--where-body", "no such text"],
        ["rows", "--kind", "truncate"],
        ["rows", "--from-lsn", "999999999999999"],
        ["rows", "--key", "1:25", "--lost"],
        ["history", "ID=40006", "--kind", "delete"],
        ["history", "--lost", "ID=40006"],
        ["dump", "--where-body", "no such text"],
        ["dump", "--transaction", "351", "--kind", "commit"],
    ],
    ids=str,
)
def test_what_may_fit_nothing_says_so_in_a_line(run: Run, words: list[str]) -> None:
    answer = run(words[0], DERBY_LOG, *words[1:])
    assert (answer.code, answer.out.splitlines()) in [(0, ["No row"]), (0, ["No record"])], answer


@pytest.mark.parametrize("log", ["orphan/derby", "orphan/h2"])
def test_a_column_of_numbers_has_a_value_however_it_is_written(run: Run, log: str) -> None:
    folder = EXAMPLES / log
    first = next(
        one for one in run("rows", folder, "--json").lines if "ID" in (one["values"] or {})
    )
    value, owner = first["values"]["ID"], first["values"]["OWNER"]
    told = run("history", folder, f"ID={value}", "--json").lines
    assert told
    for written in (f"{value}.0", f"0{value}", f"+{value}"):
        assert run("history", folder, f"id={written}", "--json").lines == told
    for no_number in ("NaN", "sNaN", "1e999999999999", ""):
        assert run("history", folder, f"ID={no_number}").code == 2
    assert run("history", folder, f"OWNER={owner}", "--json").lines
    assert run("history", folder, f"OWNER={owner} ").code == 2, "a text is that text alone"


def test_the_number_of_a_transaction_is_shown_as_it_is_typed(run: Run) -> None:
    lines = run("rows", DERBY_LOG).out.splitlines()
    (shown,) = {one.split()[-1] for one in lines if "COMMITTED  transaction 185@" in one}
    (told,) = {
        one["transaction"] for one in run("rows", DERBY_LOG, "--transaction", shown, "--json").lines
    }
    assert told == "185"
    assert run("undo", DERBY_LOG, "--transaction", shown).code == 0
    assert any(one.endswith("  transaction 351") for one in lines), "it has no commit"


def test_of_a_log_that_cannot_be_read_nobody_knows_its_keys(run: Run, logs: Path) -> None:
    (logs / "bad/1.fake").write_text("FAKE\nrefuse\n")
    answer = run("history", logs, "99:99")
    assert (answer.code, answer.out, "has the key" in answer.err) == (1, "No row\n", False), answer
    (logs / "bad/1.fake").unlink()
    answer = run("history", logs, "99:99")
    assert (answer.code, "has the key '99:99'" in answer.err) == (2, True), answer


SEALED = [LEFT / "aes-1.4.200-halt.h2.db.gz", fixture_dir("derby") / "encrypted-aes-external-key"]


@pytest.mark.parametrize("log", SEALED, ids=["h2", "derby"])
@pytest.mark.parametrize(
    "words",
    [
        ["rows"],
        ["export", "--table", "changes", "--to", "jsonl"],
        ["export", "--table", "transactions", "--to", "jsonl"],
        ["sql", "--json", "SELECT key FROM changes"],
        ["sql", "--json", "SELECT state FROM transactions"],
    ],
    ids=" ".join,
)
def test_of_a_log_without_its_key_nobody_says_that_it_has_none(
    run: Run, log: Path, words: list[str]
) -> None:
    """SQL counted 0 rows, with exit code 0."""
    answer = run(words[0], log, *words[1:])
    assert (answer.code, "--boot-password; in Spark bootPassword" in answer.err) == (1, True), (
        answer
    )


def test_an_encrypted_file_of_h2_is_not_said_to_have_no_record(run: Run) -> None:
    for words in (["dump"], ["sql", "--json", "SELECT type FROM records"]):
        answer = run(words[0], SEALED[0], *words[1:])
        assert (answer.code, "--boot-password" in answer.err) == (1, True), answer


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ('{\n\t"käse": 1\r\n}'.encode(), '{\\n\\t"käse": 1\\r\\n}'),
        (b"one line", "one line"),
        (b"\n\t", "0a09"),
        (b"a\x00b", "610062"),
        (b"\xff\n", "ff0a"),
    ],
)
def test_a_body_of_several_lines_is_text_and_shown_on_one(
    run: Run, tmp_path: Path, body: bytes, shown: str
) -> None:
    with Journal(tmp_path / "log") as journal:
        journal.add(1, body)
    for command in ("rows", "dump"):
        lines = run(command, tmp_path / "log").out.splitlines()
        assert any(line.endswith(shown) for line in lines), lines
