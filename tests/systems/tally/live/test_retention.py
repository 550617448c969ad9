"""A reader that holds segments of a native log loses no record, whatever frees its segments."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tallystick
from tallystick.disposal.disposers import DeleteDisposer, MoveDisposer
from tallystick.disposal.retention import Chain, Copying, KeepForReader, ReaderOffset
from tallystick.disposal.worker import Disposal
from tallystick.roles import Operation, OperationCode
from tallystick.systems.tally.format.layout import segment_name
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import TallyPersistLog
from tallystick.systems.tally.live.roles.journal import open_journal
from tallystick.systems.tally.live.settings import Settings

SMALL = Settings(segment_size=64 << 10, preallocate=False, idle_mark_s=None)
OPERATIONS = (Operation(OperationCode.OPAQUE, "t", b"k", bytes(10_000)),)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def numbers(path: Path) -> list[int]:
    """The numbers that a reader finds in the log."""
    return [one.record_id or 0 for one in tallystick.scan(path) if one.type == "persisting"]


def filled(path: Path, *, recycle: bool) -> tuple[TallyPersistLog, list[int]]:
    """A log over several segments that nothing is pending in, and the numbers in it."""
    log = TallyPersistLog(TallyLog(str(path), settings=replace(SMALL, recycle=recycle)))
    written = []
    for _ in range(20):
        number, ticket = log.persisting(("a",), OPERATIONS)
        ticket.wait()
        log.persisted(number, ("a",))
        written.append(number)
    log.roll()
    return log, written


@pytest.mark.parametrize("recycle", [False, True])
def test_slow_reader_finds_every_record_until_it_is_through(tmp_path: Path, recycle: bool) -> None:
    path = tmp_path / "log"
    log, written = filled(path, recycle=recycle)
    offset = ReaderOffset(str(tmp_path / "hold"), "stream")
    disposer = KeepForReader(offset, DeleteDisposer())
    disposal = Disposal(log, disposer, poll_seconds=0.005)
    until(lambda: disposal.counters.postponed > 2)
    log.carry_forward()
    assert numbers(path) == written
    offset.commit(segment_name(2))
    until(lambda: not (path / segment_name(2)).exists())
    kept = numbers(path)
    assert kept == written[-len(kept) :]
    assert log.log.first_segment == 3
    offset.commit(segment_name(log.log.last_segment))
    until(lambda: log.log.first_segment == log.log.last_segment)
    disposal.close(1)
    log.close()
    assert numbers(path) == []


def test_reader_that_cannot_be_asked_keeps_everything(tmp_path: Path) -> None:
    log, written = filled(tmp_path / "log", recycle=False)

    def committed() -> str:
        raise OSError("the offset cannot be read")

    disposer = KeepForReader(committed, DeleteDisposer())
    disposal = Disposal(log, disposer, poll_seconds=0.005, retry_seconds=0.005)
    until(lambda: disposal.counters.failed > 1)
    disposal.close(1)
    log.close()
    assert numbers(tmp_path / "log") == written
    assert "cannot be read" in disposal.counters.last_error


def test_hold_inside_a_chain_or_a_copy_reaches_the_log(tmp_path: Path) -> None:
    log, written = filled(tmp_path / "log", recycle=False)
    offset = ReaderOffset(str(tmp_path / "hold"), "stream")
    copies = KeepForReader(offset, MoveDisposer(str(tmp_path / "archive")))
    chain = Chain([DeleteDisposer(), Copying(copies)])
    disposal = Disposal(log, chain, poll_seconds=0.005)
    until(lambda: disposal.counters.postponed > 2)
    disposal.close(1)
    log.close()
    assert numbers(tmp_path / "log") == written


def test_journal_recycles_nothing_that_its_reader_wants(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "log"), settings=SMALL)
    assert isinstance(journal.log, TallyLog)
    asked: list[str] = []

    def may_go(path: str) -> bool:
        asked.append(Path(path).name)
        return Path(path).name <= segment_name(1)

    journal.log.ask_before_reclaiming(may_go)
    for _ in range(20):
        journal.append(bytes(10_000)).wait()
    journal.reclaim(journal.next_lsn)
    journal.reclaim()
    assert journal.log.first_segment == 2
    assert asked == [segment_name(number) for number in (1, 2, 2)]
    journal.close()


def test_failing_answer_frees_nothing_and_leaves_the_log_alive(tmp_path: Path) -> None:
    log, written = filled(tmp_path / "log", recycle=True)

    def fails(path: str) -> bool:
        raise OSError(path)

    log.log.ask_before_reclaiming(fails)
    with pytest.raises(OSError):
        log.disposable()
    with pytest.raises(OSError):
        log.carry_forward()
    number, ticket = log.persisting(("a",), OPERATIONS)
    ticket.wait()
    log.close()
    assert numbers(tmp_path / "log") == [*written, number]
