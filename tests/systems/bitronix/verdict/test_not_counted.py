"""Records after the position in the header: what a crash leaves there is not counted as lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tallystick.records import Answer, Fate, Severity
from tallystick.systems.bitronix.format.layout import (
    COMMITTED,
    COMMITTING,
    HEADER_LENGTH,
    PREPARED,
    PREPARING,
    UNKNOWN,
    FileHeader,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.reader import BitronixReading
from tests.systems.bitronix.logs import file_bytes, gtrid, record, write_pair

SECTOR = 512
CLOCKS = {"2.1.4": 6_000, "3.0": 1_700_000_000_000}


def left(
    folder: Path, time: int, counted: Sequence[TransactionLogRecord], *after: TransactionLogRecord
) -> BitronixReading:
    """A journal of which the header of the file in use counts the first records only."""
    content = bytearray(file_bytes([*counted, *after], time, state=-1))
    position = HEADER_LENGTH + sum(one.size for one in counted)
    header = FileHeader.decode(memoryview(content))
    assert header is not None
    content[:HEADER_LENGTH] = FileHeader(time, header.state, position).encode()
    return write_pair(folder, bytes(content), file_bytes([], time - 1))


def one(status: int, number: int, time: int, *names: str) -> TransactionLogRecord:
    return record(status, 10 * number + status, *names, gtrid=gtrid(number), time=time + number)


@pytest.mark.parametrize("line", CLOCKS)
@pytest.mark.parametrize("several", [1, 3], ids=["one", "of one forced batch"])
def test_a_decision_that_was_never_forced_is_in_doubt(
    tmp_path: Path, line: str, several: int
) -> None:
    """A kill between record and position, or a power cut before the force: nobody was told."""
    time = CLOCKS[line]
    reading = left(
        tmp_path,
        time,
        [one(COMMITTING, 1, time, "a", "b"), one(COMMITTED, 2, time, "a")],
        *(one(COMMITTING, 3 + n, time, "a", "b") for n in range(several)),
    )
    judgement = reading.judgement
    assert (judgement.answer, judgement.reason) == (Answer.CANNOT_TELL, "decision-not-counted")
    assert judgement.at_stake.transactions == several
    assert reading.verdict().strict["lost"] == []
    assert not any(found.severity is Severity.LOSS for found in reading.findings())
    fates = {row.change.gtrid: row.fate for row in reading.fated_changes()}
    assert {fates[gtrid(3 + n)] for n in range(several)} == {Fate.UNKNOWN}
    assert fates[gtrid(1)] is Fate.COMMITTED


@pytest.mark.parametrize("line", CLOCKS)
@pytest.mark.parametrize(
    ("gap", "answer"),
    [
        (0, Answer.SAFE),
        ("sector", Answer.SAFE),
        (40, Answer.CANNOT_TELL),
        (600, Answer.CANNOT_TELL),
    ],
)
def test_a_part_of_a_record_after_a_gap_is_no_write_that_a_crash_ended(
    gap: int | str, answer: Answer, line: str, tmp_path: Path
) -> None:
    """Nothing was ever here before: what stood in the gap is gone, as where a block was put back.

    A sector that was not written ends where the next one begins.
    """
    time = CLOCKS[line]
    counted = [one(COMMITTING, 1, time, "a", "b"), one(COMMITTED, 2, time, "a")]
    content = bytearray(file_bytes(counted, time, state=-1))
    header = FileHeader.decode(memoryview(content))
    assert header is not None
    apart = -header.position % SECTOR if gap == "sector" else int(gap)
    part = one(COMMITTING, 3, time, "a", "b").encode()[20:]
    content[header.position + apart : header.position + apart + len(part)] = part
    reading = write_pair(tmp_path, bytes(content), file_bytes([], time - 1))
    assert reading.judgement.answer is answer


@pytest.mark.parametrize("line", CLOCKS)
@pytest.mark.parametrize("status", [PREPARING, PREPARED, COMMITTED])
def test_a_last_record_that_decides_nothing_leaves_the_journal_safe(
    tmp_path: Path, line: str, status: int
) -> None:
    time = CLOCKS[line]
    names = ("a", "b")
    counted = [one(COMMITTING, 1, time, *names), one(PREPARING, 2, time, *names)]
    closes = record(status, 99, *names, gtrid=gtrid(1), time=time + 9)
    judgement = left(tmp_path, time, counted, closes).judgement
    assert (judgement.answer, judgement.reason) == (Answer.SAFE, "notes-not-counted")
    assert judgement.after_crash


def test_a_heuristic_end_that_is_not_counted_is_in_doubt(tmp_path: Path) -> None:
    ended = record(UNKNOWN, 99, "a", "b", gtrid=gtrid(1), time=6_009)
    judgement = left(tmp_path, 6_000, [one(COMMITTING, 1, 6_000, "a", "b")], ended).judgement
    assert (judgement.answer, judgement.reason) == (Answer.CANNOT_TELL, "decision-not-counted")


def test_what_was_forced_before_a_later_record_is_lost(tmp_path: Path) -> None:
    """Two resources are told after a force: who is closed behind the position had it on disk."""
    reading = left(
        tmp_path,
        6_000,
        [one(PREPARING, 1, 6_000, "a", "b")],
        one(COMMITTING, 2, 6_000, "a", "b"),
        one(COMMITTING, 3, 6_000, "a", "b"),
        record(COMMITTED, 99, "a", "b", gtrid=gtrid(3), time=6_009),
    )
    judgement = reading.judgement
    assert (judgement.answer, judgement.reason) == (Answer.LOSES, "decision-changed")
    assert len(reading.verdict().strict["lost"]) == 1


@pytest.mark.parametrize("position", [0, HEADER_LENGTH + 5])
def test_a_position_that_no_writer_leaves_is_no_crash(tmp_path: Path, position: int) -> None:
    content = bytearray(file_bytes([one(COMMITTING, n, 6_000, "a") for n in (1, 2)], 6_000))
    content[13:21] = position.to_bytes(8, "big")
    reading = write_pair(tmp_path, bytes(content), file_bytes([], 5_999))
    assert reading.judgement.answer in (Answer.LOSES, Answer.REFUSES)
    assert any(found.severity is Severity.LOSS for found in reading.findings())


@pytest.mark.parametrize("line", CLOCKS)
def test_records_behind_a_gap_are_of_no_earlier_life_before_the_first_change_of_files(
    tmp_path: Path, line: str
) -> None:
    """A block of yesterday at the begin of a file had the real manager go on from yesterday."""
    time = CLOCKS[line]
    counted, *after = [one(COMMITTING, number, time, "a", "b") for number in range(1, 9)]
    assert left(tmp_path, time, [counted]).judgement.answer is Answer.SAFE
    left(tmp_path, time, [counted], *after)
    path = tmp_path / "btm1.tlog"
    content, end = bytearray(path.read_bytes()), HEADER_LENGTH + counted.size
    content[end : end + after[0].size] = bytes(after[0].size)
    two = (tmp_path / "btm2.tlog").read_bytes()
    judgement = write_pair(tmp_path, bytes(content), two).judgement
    assert (judgement.answer, judgement.reason) == (Answer.CANNOT_TELL, "no-proof")
