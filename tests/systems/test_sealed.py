"""What is in a log whose key is not known is not said to be nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import tallystick
from tallystick.errors import TallystickError
from tallystick.pipeline.options import parse
from tallystick.pipeline.planning import tasks
from tallystick.pipeline.task import execute
from tallystick.reading.discovery import discover
from tallystick.reading.survey import verify
from tallystick.reading.triaging import triage
from tallystick.records import Answer
from tallystick.systems.protocol import LogReading, ReadOptions
from tallystick.systems.registry import system
from tests.fixtures import fixture_dir
from tests.systems.h2.test_left import LEFT

DERBY = fixture_dir("derby") / "encrypted-aes-external-key"
H2 = LEFT / "aes-1.4.200-halt.h2.db.gz"
SEALED = {"derby": DERBY, "h2": H2}
OPTIONS = {"derby": "--boot-password", "h2": "--boot-password"}


def reading_of(path: Path, options: ReadOptions | None = None) -> LogReading:
    (source,) = discover(path).logs
    return system(source.system).read(source, options or ReadOptions())


ASKED = {
    "transactions": lambda one: one.transactions(),
    "transaction batches": lambda one: one.transaction_batches(10),
    "changes": lambda one: one.changes(),
    "change batches": lambda one: one.change_batches(10),
    "fated changes": lambda one: one.fated_changes(),
    "fated batches": lambda one: one.fated_batches(10) or one.fated_changes(),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("kind", SEALED)
def test_an_encrypted_log_without_its_key_has_no_rows_but_an_error(kind: str, asked: str) -> None:
    reading: Any = reading_of(SEALED[kind])
    with pytest.raises(TallystickError, match=OPTIONS[kind]) as raised:
        every: Iterable[Any] = ASKED[asked](reading)
        list(every)
    assert "bootPassword" in str(raised.value)


@pytest.mark.parametrize("kind", SEALED)
def test_it_is_judged_and_summed_up_all_the_same(kind: str) -> None:
    (log,) = tallystick.explain(SEALED[kind]).logs
    assert log.judgement.answer is Answer.CANNOT_TELL
    assert not tallystick.inspect(SEALED[kind]).problems
    assert verify(SEALED[kind]).logs == 1
    assert not triage(SEALED[kind]).problems


@pytest.mark.parametrize("table", ["transactions", "changes"])
@pytest.mark.parametrize("kind", SEALED)
def test_a_table_of_it_fails_where_it_is_to_fail(kind: str, table: str) -> None:
    options = parse({"path": str(SEALED[kind]), "table": table, "mode": "failfast"})
    with pytest.raises(TallystickError, match=OPTIONS[kind]):
        for task in tasks(options):
            list(execute(task, options))


def test_records_of_an_encrypted_file_of_h2_are_not_said_to_be_none() -> None:
    options = parse({"path": str(H2), "table": "records", "mode": "failfast", "splitBytes": "1"})
    with pytest.raises(TallystickError, match="--boot-password"):
        for task in tasks(options):
            list(execute(task, options))
