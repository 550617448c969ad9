"""What is read of a database: its answer is that of all of its logs and of what is beside them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tallystick
from tallystick.cli import tallystick as command
from tallystick.reading import inspect, triage
from tallystick.reading.databases import databases, strangers
from tallystick.records import Answer, Judgement, Part, Surroundings
from tallystick.systems.protocol import ReadOptions
from tests.fixtures import fixture_dir

ANSWERED = ("answer", "reason", "at_stake")


def around(path: str, *parts: str) -> Surroundings:
    return Surroundings(path, "broker", tuple(Part(one, one, "layout") for one in parts))


def test_logs_of_one_broker_have_its_gravest_answer() -> None:
    safe, lost = Judgement(Answer.SAFE), Judgement(Answer.LOSES)
    found, each = databases(
        [
            ("/a/journal", around("/a", "bindings", "paging"), safe),
            ("/a/bindings", around("/a", "paging"), lost),
            ("/b/journal", around("/b"), safe),
            ("/log", None, safe),
            ("/log", None, lost),
        ]
    )
    assert [one.judgement for one in each] == [lost, lost, safe, safe, lost]
    assert [(one.path, one.kind, one.judgement, one.logs) for one in found] == [
        ("/a", "broker", lost, ("/a/journal", "/a/bindings")),
        ("/b", "broker", safe, ("/b/journal",)),
        ("/log", "log", safe, ("/log",)),
        ("/log", "log", lost, ("/log",)),
    ]
    assert [one.part for one in found[0].parts] == ["bindings", "paging"]


@pytest.fixture
def headless(tmp_path: Path) -> Path:
    """A database of which only service.properties is missing."""
    return Path(
        shutil.copytree(fixture_dir("derby_databases") / "no-service-properties", tmp_path / "db")
    )


def test_a_script_for_the_keys_of_one_log_gets_the_answer_of_its_database(headless: Path) -> None:
    found = tallystick.explain(headless).to_dict()
    (log,) = found["logs"]
    (database,) = found["databases"]
    assert found["schema"] == 2
    assert {"path", "system", "format", "engine", "strict", "differences", *ANSWERED} <= set(log)
    assert set(log["at_stake"]) == {"transactions", "rows"}
    assert [log[name] for name in ANSWERED] == [database[name] for name in ANSWERED]
    assert (log["answer"], log["log_answer"]) == ("refuses", "safe")
    assert log["path"] == f"{headless}/log"
    assert (database["path"], database["kind"]) == (str(headless), "database")
    assert database["logs"] == [log["path"]]
    (part, *_) = database["surroundings"]
    assert set(part) == {"part", "path", "found_by", "there", "fits", "why"}
    assert (part["part"], part["there"]) == ("service.properties", False)


@pytest.mark.parametrize("given", [".", "./log.ctrl", "log1.dat", "../log", "../../db"])
def test_a_database_is_judged_whole_from_inside_its_log(
    given: str, headless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(headless / "log")
    assert tallystick.explain(given).logs[0].judgement.answer is Answer.REFUSES


def test_with_log_only_the_answer_is_that_of_the_log(headless: Path) -> None:
    found = tallystick.explain(headless, options=ReadOptions(log_only=True))
    assert (found.exit_code, found.logs[0].judgement.answer) == (0, Answer.SAFE)
    assert found.to_dict()["databases"][0]["kind"] == "log"


def test_a_log_of_a_system_that_looks_for_nothing_is_as_before(tmp_path: Path) -> None:
    with tallystick.Journal(tmp_path) as log:
        log.append(b"one")
    found = tallystick.explain(tmp_path).to_dict()
    (log_entry,) = found["logs"]
    assert log_entry["log_answer"] == log_entry["answer"] == "safe"
    assert found["databases"] == [
        {
            **{name: log_entry[name] for name in ANSWERED},
            "path": str(tmp_path),
            "kind": "log",
            "surroundings": [],
            "logs": [str(tmp_path)],
        }
    ]


@pytest.mark.parametrize("read", [tallystick.explain, inspect, triage])
def test_all_commands_exit_alike_over_a_part_that_is_missing(
    read: Callable[[Path], Any], headless: Path
) -> None:
    assert read(headless).exit_code == 1


def told(*arguments: str) -> str:
    return CliRunner().invoke(command, arguments).output


def test_explain_begins_with_the_whole_answer_and_has_that_of_the_log_beside_it(
    headless: Path,
) -> None:
    text = told("explain", str(headless))
    assert text.startswith(f"REFUSES  derby  {headless}  (10.14)\n")
    assert "The log alone: SAFE AFTER A CRASH" in text
    assert text.count("XJ004") == 1
    only = told("explain", "--log-only", str(headless))
    assert only.startswith(f"SAFE AFTER A CRASH  derby  {headless}/log")
    assert "XJ004" not in only


def test_inspect_lists_what_a_restart_opens_besides_the_log(headless: Path) -> None:
    assert "service.properties: not there" in told("inspect", str(headless))
    (log,) = json.loads(told("inspect", "--json", str(headless)))["logs"]
    assert "service.properties" in [one["part"] for one in log["surroundings"]]


def test_a_log_alone_is_said_to_be_alone(headless: Path) -> None:
    shutil.rmtree(headless / "seg0")
    found = tallystick.explain(headless)
    assert (found.exit_code, found.databases[0].kind) == (0, "log")
    assert told("explain", str(headless)).count("about the log alone") == 1


def test_files_of_a_database_are_no_strangers() -> None:
    lost = Judgement(Answer.LOSES)
    found, _ = databases([("/a/journal", around("/a"), lost), ("/log", None, lost)])
    others = ["/a/large-messages/1.msg", "/ab/notes.txt", "/log/notes.txt"]
    assert strangers(others, found) == ["/ab/notes.txt", "/log/notes.txt"]
