"""Following a log from another process, and up to a full segment."""

from __future__ import annotations

from itertools import islice

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.read_back import groups_from
from tallystick.systems.tally.live.tail import Tail
from tallystick.testing import MemoryFileSystem
from tests.systems.tally.build import FOLDER, TINY, tiny_log


def _sequences(tail: Tail) -> list[int | None]:
    return [record.sequence for record in tail.read()]


@pytest.mark.parametrize("size", range(100, 3000, 256))
def test_every_segment_is_followed_to_its_end(size: int) -> None:
    """Sizes at which the index stands right after the last group are among them."""
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    tail = Tail(FOLDER, fs=fs, durable=lambda: log.durable_lsn)
    seen = []
    for _ in range(40):
        log.append(bytes(size)).wait()
        seen += _sequences(tail)
    log.close()
    assert seen == list(range(1, 41))


def test_another_process_sees_a_group_once_something_proves_it_durable() -> None:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    tail = Tail(FOLDER, fs=fs)
    assert _sequences(tail) == []
    log.append(b"one").wait()
    assert _sequences(tail) == []
    log.append(b"two").wait()
    assert _sequences(tail) == [1]
    log.mark()
    assert _sequences(tail) == [2]
    log.roll()
    log.append(b"three").wait()
    log.close()
    assert _sequences(tail) == [3]
    tail.close()


def test_following_from_the_middle() -> None:
    fs = MemoryFileSystem()
    with TallyLog(FOLDER, settings=TINY, fs=fs) as log:
        for _ in range(30):
            log.append(bytes(900)).wait()
        tail = Tail(FOLDER, from_lsn=25, fs=fs, durable=lambda: log.durable_lsn)
        assert _sequences(tail) == list(range(25, 31))


@pytest.mark.parametrize("stop", range(1, 7))
def test_a_reading_that_stops_in_the_middle_of_a_group_goes_on_after_it(stop: int) -> None:
    fs = MemoryFileSystem()
    with TallyLog(FOLDER, settings=TINY, fs=fs) as log:
        for group in ([b"1", b"2", b"3", b"4", b"5", b"6"], [b"7", b"8"]):
            [log.append(body) for body in group][-1].wait()
        tail = Tail(FOLDER, fs=fs, durable=lambda: log.durable_lsn)
        seen = [record.sequence for record in islice(tail.read(), stop)]
        assert [*seen, *_sequences(tail)] == list(range(1, 9))
        tail.close()


def _checkpoint_after_each(log: TallyLog, records: int) -> None:
    for _ in range(records):
        log.append(bytes(900)).wait()
        log.reclaim(log.next_lsn)


def test_records_given_up_before_they_were_read_are_named_in_the_error() -> None:
    fs = MemoryFileSystem()
    with TallyLog(FOLDER, settings=TINY, fs=fs) as log:
        log.append(bytes(900)).wait()
        tail = Tail(FOLDER, fs=fs, durable=lambda: log.durable_lsn)
        assert _sequences(tail) == [1]
        _checkpoint_after_each(log, 60)
        first = next(groups_from(log))[0].first_lsn
        with pytest.raises(LogUnreadableError, match=f"records 2 to {first - 1} were given up"):
            _sequences(tail)


def test_records_given_up_while_they_are_read_are_not_called_damaged() -> None:
    fs = MemoryFileSystem()
    with TallyLog(FOLDER, settings=TINY, fs=fs) as log:
        for _ in range(3):
            log.append(bytes(900)).wait()

        def durable() -> int:  # asked for between the header of a group and its content
            known = log.durable_lsn
            for _ in range(30):
                log.append(b"x" * 900).wait()
                log.reclaim(log.next_lsn)
            return known

        tail = Tail(FOLDER, fs=fs, durable=durable)
        with pytest.raises(LogUnreadableError, match="were given up before they were read"):
            _sequences(tail)


def test_a_tail_of_a_log_of_this_process_reads_what_a_checkpoint_gave_up_meanwhile() -> None:
    fs = MemoryFileSystem()
    with TallyLog(FOLDER, settings=TINY, fs=fs) as log:
        log.append(bytes(900)).wait()
        tail = Tail(FOLDER, fs=fs, durable=lambda: log.durable_lsn, hold=log.hold)
        assert _sequences(tail) == [1]
        _checkpoint_after_each(log, 60)
        kept = len(fs.list(FOLDER))
        assert _sequences(tail) == list(range(2, 62))
        log.append(bytes(900)).wait()
        log.reclaim(log.next_lsn)
        assert len(fs.list(FOLDER)) < kept  # what was read is free
        tail.close()
