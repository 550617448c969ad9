"""One file of a pair put over the other: which one was in use is not known any more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tallystick import explain
from tallystick.records import Answer
from tallystick.systems.bitronix.format.layout import (
    COMMITTED,
    COMMITTING,
    HEADER_LENGTH,
    MEGABYTE,
    UNCLEAN_LOG_STATE,
    make_gtrid,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.live.log import DiskJournal
from tests.systems.bitronix.logs import NAMES, PAIR_SIZE, file_bytes, record, write_pair

FILES = ("btm1.tlog", "btm2.tlog")


def _answer(folder: Path) -> tuple[Answer, str]:
    (verdict,) = explain(folder).logs
    return verdict.judgement.answer, verdict.judgement.reason


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    with DiskJournal(str(tmp_path), max_log_size=MEGABYTE) as log:
        log.log_forced(COMMITTING, b"global", ("one", "two")).wait()
    return tmp_path


def test_a_closed_pair_is_safe(journal: Path) -> None:
    assert _answer(journal) == (Answer.SAFE, "closed-header")


@pytest.mark.parametrize("names", [FILES, FILES[::-1]])
def test_of_two_files_with_one_time_neither_is_proved_to_be_the_last(
    journal: Path, names: tuple[str, str]
) -> None:
    shutil.copyfile(journal / names[0], journal / names[1])
    assert _answer(journal) == (Answer.CANNOT_TELL, "same-time")


def _later(*records: TransactionLogRecord, size: int = PAIR_SIZE) -> bytes:
    return file_bytes(records, 9_000, size, state=UNCLEAN_LOG_STATE)


OPEN = record(COMMITTING, 1, *NAMES)
"""A decision that the earlier file leaves open."""
OTHER = record(COMMITTING, 2, *NAMES, gtrid=make_gtrid("node", 5_001, 2), time=6_001)


def test_a_change_of_files_copies_the_decisions_that_are_open(tmp_path: Path) -> None:
    reading = write_pair(tmp_path, file_bytes([OPEN], 8_000), _later(OPEN, OTHER))
    assert reading.judgement.answer is Answer.SAFE


def test_a_later_file_without_these_copies_is_of_another_moment(tmp_path: Path) -> None:
    """The manager reads it alone: the decision may be closed since, or lost."""
    reading = write_pair(tmp_path, file_bytes([OPEN], 8_000), _later(OTHER))
    assert (reading.judgement.answer, reading.judgement.reason) == (
        Answer.CANNOT_TELL,
        "parts-apart",
    )


@pytest.mark.parametrize("room", [0, 1])
def test_a_file_in_use_may_be_full_as_the_manager_stops(tmp_path: Path, room: int) -> None:
    size = HEADER_LENGTH + 2 * OPEN.size
    full = _later(OPEN, record(COMMITTED, 2, *NAMES, time=6_001), size=size + OPEN.size - room)
    reading = write_pair(tmp_path, file_bytes([], 8_000, len(full)), full)
    assert reading.judgement.answer is Answer.SAFE
