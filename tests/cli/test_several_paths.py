"""Several paths are one estate: judged together, each log once, in one answer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tallystick
from tallystick.indoubt.listing import list_in_doubt
from tallystick.reading.discovery import PATHS_MAX
from tallystick.reading.survey import NO_LOG, survey
from tests.cli.conftest import Run
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES

CASE = EXAMPLES / "h2-commit-not-flushed"
PARTS = (CASE / "bitronix", CASE / "h2")
"""A coordinator that has closed a decision, and the database that holds the branch prepared."""
LISTING = ("rows", "dump", "export", "asof")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with tallystick.Journal(tmp_path / "store") as log:
        log.append(b"one")
    return tmp_path / "store"


def test_what_two_paths_say_together_comes_first_and_the_commands_name_both(run: Run) -> None:
    lines = run("triage", *PARTS).out.splitlines()
    assert lines[0] == "All 2 logs together"
    assert lines[1].startswith("  LOSES  1 global transaction: closed by bitronix")
    assert f"    tallystick indoubt list {PARTS[0]} {PARTS[1]}" in lines
    assert sum(line.startswith("2 LOSES") for line in lines) == 1
    assert lines[-1] == "2 LOSES"


@pytest.mark.parametrize("command", ["triage", "explain", "inspect"])
def test_the_answer_is_that_of_the_tree_in_one_document(run: Run, command: str) -> None:
    apart, whole = run(command, "--json", *CASE.iterdir()), run(command, "--json", CASE)
    assert apart.code == whole.code == 1
    assert len(apart.json["logs"]) == len(whole.json["logs"])
    for key in ("answer", "reason", "global_transactions"):
        assert apart.json["estate"][key] == whole.json["estate"][key]


def test_verify_and_indoubt_judge_several_paths_together(run: Run) -> None:
    assert run("verify", "--json", *PARTS).lines[0]["code"] == "lost-commit"
    assert "lost-commit" in run("indoubt", "list", *PARTS).out


SAME: dict[str, Callable[[Path], list[str]]] = {
    "twice": lambda path: [f"{path}", f"{path}/"],
    "one below another": lambda path: [f"{path.parent}", f"{path}"],
    "its files": lambda path: [f"{one}" for one in path.iterdir()],
    "a link to it": lambda path: [f"{path}", f"{path.parent}/link"],
    "relative and whole": lambda path: [f"{path}", os.path.relpath(path)],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SAME)
def test_a_log_counts_once_however_often_its_path_is_given(
    run: Run, store: Path, name: str
) -> None:
    (store.parent / "link").symlink_to(store)
    paths = SAME[name](store)
    assert run("triage", *paths).out.splitlines()[-1] == "1 SAFE"
    assert len([*tallystick.scan(paths)]) == len([*tallystick.scan(store)])
    counts = "SELECT (SELECT count(*) FROM records) AS records, (SELECT count(*) FROM rows) AS rows"
    assert run("sql", *paths, counts, "--json").lines == [
        {"records": len([*tallystick.scan(store)]), "rows": 1}
    ]
    assert run("asof", "--lsn", "9", *paths).out == run("asof", "--lsn", "9", store).out


@pytest.mark.parametrize("part", sorted(EXAMPLES.glob("*/")), ids=lambda path: path.name)
def test_what_a_star_names_is_what_lies_below(part: Path) -> None:
    together = {log.path for log in survey(part).logs}
    for folder in sorted(together):
        files = [one for one in Path(folder).iterdir() if one.is_file()]
        assert {log.path for log in survey(files).logs} <= together
    found = survey([*part.iterdir()])
    assert {log.path for log in found.logs} == together
    assert not [one for one in found.problems if one.code == NO_LOG]


@pytest.mark.parametrize(
    "command",
    [("triage",), ("explain",), ("inspect",), ("verify",), ("scrub", "--rate", "0"), ("dump",),
     ("rows",), ("export", "--to", "csv"), ("asof", "--lsn", "1"), ("indoubt", "list"),
     ("runbook",), ("backlog",)],
    ids=" ".join,
)  # fmt: skip
def test_a_path_that_is_not_there_is_named_and_the_others_are_judged(
    run: Run, store: Path, command: tuple[str, ...]
) -> None:
    answer = run(*command, store.parent / "gone", store)
    assert answer.code == 2
    assert f"{store.parent}/gone" in answer.out + answer.err
    if command[0] in LISTING:
        assert answer.out
    if command[0] in ("triage", "explain", "inspect"):
        assert len(run(*command, "--json", store.parent / "gone", store).json["logs"]) == 1
    if command[0] == "triage":
        assert answer.out.splitlines()[-1] == "1 SAFE, 1 not read"


@pytest.mark.parametrize("command", [("sql", "FROM logs"), ("bundle", "-o", "ticket.zip")])
def test_an_answer_in_one_piece_is_not_made_of_a_part_of_the_paths(
    run: Run, store: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    answer = run(command[0], store, store.parent / "gone", *command[1:])
    assert (answer.code, answer.out) == (2, "")
    assert f"{store.parent}/gone" in answer.err
    assert not (store.parent / "ticket.zip").exists()


@pytest.mark.parametrize("mistyped", ["gone", "./my logs", "/no (such) place"])
def test_what_comes_last_and_is_no_statement_is_a_path(
    run: Run, store: Path, mistyped: str
) -> None:
    answer = run("sql", store, mistyped)
    assert (answer.code, answer.out) == (2, "")
    assert mistyped in answer.err
    assert "syntax" not in answer.err


@pytest.mark.parametrize("arguments", [["FROM logs"], ["FROM logs", "store"], ["FROM logs"] * 2])
def test_a_statement_that_does_not_come_after_all_paths_is_said_to_be_no_path(
    run: Run, store: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    answer = run("sql", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "a query comes last, after all paths" in answer.err


def test_a_path_that_is_not_there_is_named_once(run: Run, store: Path) -> None:
    for command in (("rows",), ("sql",), ("bundle", "-o", f"{store.parent}/t.zip")):
        answer = run(*command, store, store.parent / "gone")
        assert (answer.out + answer.err).count(f"{store.parent}/gone") == 1


def test_statements_come_after_all_paths(run: Run, store: Path) -> None:
    (other := store.parent / "a folder (old)").mkdir()
    with tallystick.Journal(other) as log:
        log.append(b"two")
    for query in ("FROM logs", "/* all */FROM logs", "(FROM logs)"):
        assert len(run("sql", store, other, query, "--json").lines) == 2


def test_paths_of_which_none_is_there_are_each_named(run: Run, tmp_path: Path) -> None:
    answer = run("triage", tmp_path / "a", tmp_path / "b")
    assert answer.code == 2
    assert all(str(tmp_path / name) in answer.out for name in "ab")


def test_a_path_without_a_log_beside_others_is_named_and_no_fault(run: Run, store: Path) -> None:
    (store.parent / "notes.txt").write_text("no log")
    (store.parent / "empty").mkdir()
    for command in ("triage", "explain", "inspect"):
        answer = run(command, store.parent / "notes.txt", store.parent / "empty", store)
        assert answer.code == 0
        assert "No log: notes.txt, empty, lock" in answer.out.splitlines()
    assert [*tallystick.scan([store, store.parent / "empty"])]


def test_files_of_one_name_that_are_no_log_are_counted(run: Run, store: Path) -> None:
    for name in "abc":
        (store.parent / name).mkdir()
        (store.parent / name / "notes.txt").write_text("no log")
    (store.parent / "a/other.txt").write_text("no log")
    assert "No log: notes.txt (3), other.txt, lock" in run("inspect", store.parent).out


def test_what_is_in_doubt_cannot_be_told_where_a_path_that_was_named_holds_no_log(
    run: Run, store: Path
) -> None:
    (store.parent / "typo").mkdir()
    answer = run("indoubt", "list", store, store.parent / "typo")
    assert (answer.code, answer.out.splitlines()[0][:11]) == (1, "CANNOT TELL")
    assert "No log: typo" in answer.out


def test_a_path_that_is_not_there_is_not_called_damaged(run: Run, store: Path) -> None:
    answer = run("indoubt", "list", store, store.parent / "gone")
    assert "damaged" not in answer.out
    assert answer.out.startswith("CANNOT TELL")


def test_the_decisions_of_a_coordinator_that_are_not_there_are_missed(tmp_path: Path) -> None:
    with (
        tallystick.Journal(tmp_path / "a") as one,
        tallystick.Journal(tmp_path / "b") as other,
        tallystick.TransactionManager(tmp_path / "coord", {"a": one, "b": other}) as manager,
    ):
        manager.recover()
    shutil.rmtree(tmp_path / "coord/decisions")
    report = list_in_doubt([str(tmp_path / name) for name in ("a", "coord", "b")])
    assert any("decisions of this coordinator are not there" in one for one in report.unproved)


@pytest.mark.parametrize("left_out", [0, 1])
def test_commands_name_the_folder_that_very_many_paths_fill(tmp_path: Path, left_out: int) -> None:
    for number in range(PATHS_MAX + 2):
        (tmp_path / f"log {number}").mkdir()
    shutil.copytree(CASE, tmp_path / "log 0", dirs_exist_ok=True)
    paths = sorted(tmp_path.iterdir())[: PATHS_MAX + 2 - left_out]
    command = tallystick.triage(paths).estate
    assert command is not None
    named = f"'{tmp_path / 'log 0'}'" if left_out else str(tmp_path)
    assert command.command == f"tallystick indoubt list {named}"


def test_no_path_is_a_wrong_usage(run: Run) -> None:
    for command in ("triage", "explain", "inspect", "verify", "dump"):
        assert run(command).code == 2
    with pytest.raises(ValueError, match="no path"):
        tallystick.triage([])


def test_an_error_is_looked_up_in_several_paths(run: Run, tmp_path: Path) -> None:
    old = fixture_dir("derby_databases") / "page-older-than-log"
    cut = fixture_dir("derby_databases") / "cut-in-group-with-internal-commit"
    answer = run("explain", "--error", "XSDB4", cut, old)
    assert answer.code == 1
    assert f"{old} shows it" in answer.out
    assert f"{cut} does not show it" in answer.out
    answer = run("explain", "--error", "XSDB4", cut, tmp_path / "gone")
    assert (answer.code, "gone" in answer.out) == (2, True)
