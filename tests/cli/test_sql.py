"""``tallystick sql``: answers on a terminal, in forms for programs, and what it refuses."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.ipc as ipc
import pyarrow.parquet as parquet
import pytest

from tests.cli.conftest import Run
from tests.cli.test_hostile_text import assert_safe
from tests.cli.test_triage import at_terminal
from tests.fixtures import fixture_dir

COUNTS = """
SELECT "offset" % 4 AS part, count(*) AS n, sum(length) AS bytes FROM records GROUP BY 1 ORDER BY 1
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    shutil.copytree(fixture_dir("bitronix") / "all-dangling", tmp_path / "log")
    return tmp_path / "log"


def test_an_answer_fits_a_terminal(log: Path) -> None:
    lines = at_terminal(24, 80, "", "sql", str(log), "FROM records")
    assert max(map(len, lines)) <= 80
    assert "64 rows (40 shown)" in lines[-1]


def test_every_form_has_the_same_rows(run: Run, log: Path, tmp_path: Path) -> None:
    rows = run("sql", log, COUNTS, "--json").lines
    assert len(rows) > 1
    assert {type(value) for row in rows for value in row.values()} == {int}
    assert run("sql", log, COUNTS, "--to", "jsonl").lines == rows
    read = list(csv.DictReader(io.StringIO(run("sql", log, COUNTS, "--to", "csv").out)))
    assert read == [{name: str(value) for name, value in row.items()} for row in rows]
    answer = run("sql", log, COUNTS, "--to", "parquet", "-o", tmp_path / "out.parquet")
    assert (answer.code, answer.out) == (0, "")
    assert parquet.read_table(tmp_path / "out.parquet").to_pylist() == rows


def test_json_is_valid_whatever_a_query_gives(run: Run, log: Path) -> None:
    query = (
        "SELECT 'NaN'::DOUBLE AS a, ['-Infinity'::FLOAT] AS b, 'infinity'::TIMESTAMP AS c, "
        "'12000-01-02'::DATE AS d, TIMESTAMP '2026-01-02 03:04:05' AS e"
    )
    answer = run("sql", log, query, "--json")
    (row,) = (json.loads(one, parse_constant=pytest.fail) for one in answer.out.splitlines())
    assert (row["a"], row["b"], row["e"]) == ("NaN", ["-Infinity"], "2026-01-02T03:04:05")
    assert "12000-01-02" in row["d"]
    assert row["c"] == "infinity"


@pytest.mark.parametrize("table", ["records", "changes", "rows", "transactions"])
def test_a_log_that_cannot_be_read_is_said_once_beside_the_rows_of_others(
    run: Run, log: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(log, log.parent / "other")
    unread, opened = str(log.parent / "other/btm1"), os.open

    def refuse(path: str | Path, *given: Any, **named: Any) -> int:
        if str(path).startswith(unread):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(path, *given, **named)

    monkeypatch.setattr(os, "open", refuse)
    answer = run("sql", log.parent, f"SELECT log FROM {table}; SELECT count(*) FROM {table}")
    assert answer.code == 1
    assert answer.err.count("cannot read: Permission denied") == 1
    assert unread in answer.err


def test_a_query_that_is_no_utf8_is_refused(run: Run, log: Path) -> None:
    answer = run("sql", log, "SELECT 'a\udcff' AS a")
    assert (answer.code, "the query is not UTF-8" in answer.err) == (2, True)


def test_without_standard_input_there_is_no_statement(log: Path) -> None:
    words = [sys.executable, "-m", "tallystick", "sql", str(log)]
    shell = ["sh", "-c", f"exec {shlex.join(words)} <&-"]
    ran = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_times_and_lists_have_a_form_for_programs(run: Run, log: Path) -> None:
    query = (
        "SELECT TIMESTAMPTZ '2026-01-02 03:04:05+00' AS t, DATE '2026-01-02' AS d, "
        "1.5::DECIMAL(3, 1) AS n, [1, 2] AS l, {'a': 'x'} AS s, 'a'::BLOB AS b, uuid() IS NULL AS u"
    )
    (row,) = run("sql", log, query, "--json").lines
    assert row == {
        "t": "2026-01-02T03:04:05+00:00", "d": "2026-01-02", "n": "1.5", "l": [1, 2],
        "s": {"a": "x"}, "b": "61", "u": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT x FROM records", 'Referenced column "x" not found'),
        ("FROM nothing", "nothing does not exist"),
        ("COPY records TO 'out.csv'", "disabled by configuration"),
        ("SELECT 1; SELECT 2", "one statement"),
    ],
)
def test_what_cannot_be_answered_is_an_error_of_one_sentence(
    run: Run, log: Path, query: str, said: str
) -> None:
    answer = run("sql", log, query, "--to", "jsonl")
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert "\\n" not in answer.err
    assert "^" not in answer.err


def test_what_a_log_holds_is_shown_not_obeyed(run: Run, tmp_path: Path) -> None:
    import tallystick

    with tallystick.Journal(tmp_path / "log") as journal:
        journal.append(b"\x1b]0;owned\x07\x1b[2J")
    answer = run(
        "sql", tmp_path / "log", "SELECT decode(body), body FROM records WHERE kind = 'add'"
    )
    assert answer.code == 0
    assert_safe(answer.out)
    assert "owned" in answer.out


def test_statements_come_from_standard_input(log: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tallystick", "sql", str(log)],
        input="CREATE TABLE seen AS SELECT count(*) AS n FROM records;\nSELECT n + 1 FROM seen;",
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "65" in done.stdout


def test_a_prompt_answers_statement_by_statement(log: Path) -> None:
    typed = ["SELECT count(*)", "FROM logs;", "FRO logs;", "", "SELECT 6 * 7;"]
    before = f"""
import builtins, sys
typed = iter({typed!r})
def read(prompt):
    print(prompt, end="")
    for line in typed:
        print(line)
        return line
    raise EOFError
builtins.input, sys.stdin.isatty, sys.stderr = read, lambda: True, sys.stdout
"""
    shown = at_terminal(24, 80, before, "sql", str(log))
    assert [line for line in shown if line.startswith(("sql> ", "...> "))] == [
        "sql> SELECT count(*)", "...> FROM logs;", "sql> FRO logs;", "sql> ", "sql> SELECT 6 * 7;",
        "sql> ",
    ]  # fmt: skip
    assert any("syntax error" in line for line in shown)
    assert any("42" in line for line in shown)


@pytest.mark.parametrize("word", ["quit", "exit;", r"\q", ".exit"])
def test_a_prompt_ends_as_those_of_others_do(log: Path, word: str) -> None:
    before = f"""
import builtins, sys
typed = iter([{word!r}, "SELECT 6 * 7;"])
builtins.input, sys.stdin.isatty = lambda prompt: next(typed), lambda: True
"""
    assert not any("42" in line for line in at_terminal(24, 80, before, "sql", str(log)))


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMPTZ"])
@pytest.mark.parametrize("word", ["infinity", "-infinity"])
def test_a_day_without_end_is_called_so(run: Run, log: Path, kind: str, word: str) -> None:
    query = f"SELECT {kind} '{word}' AS a, {kind} '20000-01-01' AS b"
    assert run("sql", log, query, "--to", "csv").out.splitlines()[1].startswith(f"{word},20000-")
    (row,) = run("sql", log, query, "--json").lines
    assert row["a"] == word


def test_the_end_of_a_day_is_not_its_begin(run: Run, log: Path) -> None:
    query = "SELECT unnest([TIME '24:00:00', TIME '00:00:00', NULL]) AS a"
    lines = run("sql", log, query, "--to", "csv").out.splitlines()
    assert lines == ["a", "24:00:00", "00:00:00", ""]
    rows = run("sql", log, query, "--json").lines
    assert [row["a"] for row in rows] == ["24:00:00", "00:00:00", None]


def test_a_type_that_parquet_has_not_is_named(run: Run, log: Path, tmp_path: Path) -> None:
    answer = run(
        "sql", log, "SELECT INTERVAL 1 DAY AS i", "--to", "parquet", "-o", tmp_path / "out"
    )
    assert (answer.code, "Parquet has no type for a column" in answer.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_below_a_folder_without_a_log_nothing_is_asked_or_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none/readme.txt").write_text("hello")
    answer = run("sql", tmp_path / "none", "SELECT 1", "--to", "csv", "-o", tmp_path / "out.csv")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == run("rows", tmp_path / "none").err
    assert "no log of any known system" in answer.err
    assert not (tmp_path / "out.csv").exists()


def test_a_path_without_a_log_is_named_beside_others(run: Run, log: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    answer = run("sql", tmp_path / "none", log, "SELECT 1")
    assert (answer.code, answer.err) == (0, "No log: none\n")


@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])
def test_columns_of_one_name_get_names_of_their_own(
    run: Run, log: Path, tmp_path: Path, form: str
) -> None:
    query = "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a, 5 AS A, 6 AS a_1"
    assert run("sql", log, query, "--to", form, "-o", tmp_path / "out").code == 0
    readers: dict[str, Any] = {
        "jsonl": lambda path: [json.loads(path.read_text())],
        "parquet": lambda path: parquet.read_table(path).to_pylist(),
        "arrow": lambda path: ipc.open_stream(path.read_bytes()).read_all().to_pylist(),
    }
    expected = {"a": 1, "a_2": 2, "a_1": 3, "a_3": 4, "A": 5, "a_1_1": 6}
    assert readers[form](tmp_path / "out") == [expected]
    assert run("sql", log, query, "--to", "csv").out.splitlines()[0] == "a,a,a_1,a,A,a_1"


INTERRUPTED = {
    "the engine works": "SELECT count(*) FROM range(1000000) a, range(1000000) b "
    "WHERE a.range * b.range % 7 = 3",
    "a log is read": "SELECT count(*) FROM records",
}


@pytest.mark.parametrize("query", INTERRUPTED.values(), ids=INTERRUPTED)
def test_a_query_is_interrupted_as_any_command(log: Path, query: str) -> None:
    # It tells that it runs: its threads have taken time. The log has no end.
    program = """
import sys, threading, time
from tallystick.investigate import sql_views
from tallystick.cli import main
from tallystick.cli.look import sql

def reading(*given):
    while True:
        yield from execute(*given)

execute, sql_views.execute = sql_views.execute, reading

def watch():
    while not begun.wait(0.01):
        pass
    before = time.process_time()
    while time.process_time() < before + 0.5:
        time.sleep(0.01)
    print("running", file=sys.stderr, flush=True)

begun = threading.Event()

class Held:
    def __init__(self, found):
        self.found = found
    def materialize(self):
        begun.set()
        return self.found.materialize()

tables = sql._tables
sql._tables = lambda found: tables(Held(found))
threading.Thread(target=watch, daemon=True).start()
main()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, "sql", str(log), query],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, said) == (130, "tallystick: interrupted\n")


def test_a_pipe_gets_every_row_and_every_value_whole(run: Run, log: Path) -> None:
    query = "SELECT range AS n, repeat('x', 500) AS long, [range] AS l FROM range(12345)"
    rows = [line.split() for line in run("sql", log, query).out.splitlines() if "xx" in line]
    assert [row[1] for row in rows] == [str(number) for number in range(12345)]
    assert {row[3] for row in rows} == {"x" * 500}
    assert run("sql", log, "FROM records LIMIT 0").out.count("file") == 1


def test_a_terminal_is_shown_the_names_of_all_tables(log: Path) -> None:
    lines = at_terminal(60, 80, "", "sql", str(log), "SHOW ALL TABLES")
    assert max(map(len, lines)) <= 80
    names = {line.split("\u2502")[2].strip() for line in lines if "\u2502 main" in line}
    assert names >= {"logs", "rows", "records", "global_transactions"}


@pytest.mark.parametrize("comment", ["-- how many\n", "--how=many\n\n", "--\n", "/* how */ "])
def test_a_query_begins_with_a_comment(run: Run, log: Path, comment: str) -> None:
    answer = run("sql", log, comment + "SELECT 6 * 7 AS n", "--json")
    assert (answer.code, answer.lines) == (0, [{"n": 42}])


def test_an_unknown_option_is_no_query(run: Run, log: Path) -> None:
    answer = run("sql", log, "--nothing", "SELECT 1")
    assert (answer.code, "No such option" in answer.err) == (2, True)
