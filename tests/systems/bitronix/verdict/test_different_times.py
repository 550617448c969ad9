"""Two files that the manager has not left at one moment: one put back, or a clock that went back.

In: pairs made here. Out: the answers. The real manager was asked of such pairs, and of those that
changes of files leave, in tests/interop/differential.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tallystick.records import Answer
from tallystick.systems.bitronix.format.layout import COMMITTED, COMMITTING, HEADER_LENGTH
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.live.log import DiskJournal
from tests.systems.bitronix.logs import (
    NAMES,
    SMALL,
    file_bytes,
    gtrid,
    reading_of,
    record,
    write_pair,
)

Records = list[TransactionLogRecord]


def done(first: int, count: int) -> Records:
    """As many transactions, decided and closed."""
    found = Records()
    for number in range(first, first + count):
        key, time = gtrid(number), 6_000 + number
        found.append(record(COMMITTING, 2 * number, *NAMES, gtrid=key, time=time))
        found.append(record(COMMITTED, 2 * number + 1, *NAMES, gtrid=key, time=time))
    return found


OPEN = record(COMMITTING, 1, *NAMES, gtrid=gtrid(1_000_000))
FULL = 20
"""Transactions that fill a file; with an open decision, the last one is not closed."""
REBUILT = record(COMMITTING, 99, NAMES[0], gtrid=gtrid(1_000_000), time=9_000)
"""The copy of it that 3.0 makes: it would have fitted into the older file."""
LEFT = [OPEN, *done(0, FULL)][:-1]
GOES_ON = [OPEN, *done(FULL - 1, 4)]
SIZE = HEADER_LENGTH + sum(len(one.encode()) for one in (*LEFT, REBUILT)) + 2
PAIRS: dict[str, tuple[Records, Records, tuple[Answer, str]]] = {
    "the older one is full": (done(0, FULL), done(FULL, 3), (Answer.SAFE, "unclean-header")),
    "its open decision is copied": (
        LEFT,
        GOES_ON,
        (Answer.SAFE, "unclean-header"),
    ),
    "its open decision is copied with another time": (
        LEFT,
        [REBUILT, *GOES_ON[1:]],
        (Answer.SAFE, "unclean-header"),
    ),
    "nothing but copies with another time yet": (
        [REBUILT],
        LEFT,
        (Answer.SAFE, "unclean-header"),
    ),
    "nothing but copies yet": (
        [OPEN],
        LEFT,
        (Answer.SAFE, "unclean-header"),
    ),
    "never used": ([], done(0, 3), (Answer.SAFE, "unclean-header")),
    "the newer one is empty": (done(0, FULL), [], (Answer.SAFE, "unclean-header")),
    "the newer one is empty, and the older one has room": (
        done(0, FULL // 2),
        [],
        (Answer.CANNOT_TELL, "other-time"),
    ),
    "the older one has room": (
        done(0, FULL // 2),
        done(FULL, 3),
        (Answer.CANNOT_TELL, "other-time"),
    ),
    "the clock went back when the files changed": (
        GOES_ON,
        LEFT,
        (Answer.CANNOT_TELL, "other-time"),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_files_change_only_when_one_is_full(name: str, tmp_path: Path) -> None:
    older, newer, answer = PAIRS[name]
    pair = file_bytes(older, 5_000, SIZE, -1), file_bytes(newer, 5_500, SIZE, -1)
    for one, two in (pair, pair[::-1]):
        found = write_pair(tmp_path, one, two).judgement
        assert (found.answer, found.reason) == answer


def test_a_decision_that_only_a_file_of_another_time_has_may_be_of_another_journal(
    tmp_path: Path,
) -> None:
    """The real manager lost two decisions in one such case, which are in neither file, and none in
    another, where only the file of another journal has an open one.
    """
    other = [*done(0, FULL // 2), OPEN]
    for records in ([], done(FULL, 3)):
        pair = file_bytes(other, 5_000, SIZE, -1), file_bytes(records, 5_500, SIZE, -1)
        found = write_pair(tmp_path, *pair).judgement
        assert (found.answer, found.reason) == (Answer.CANNOT_TELL, "other-time")
        assert OPEN.gtrid.hex() in found.text


def test_an_older_state_of_the_file_in_use_is_a_whole_journal(tmp_path: Path) -> None:
    """Nothing tells it from one that was killed then: the other file has not changed since."""
    unused = file_bytes([], 5_000, SIZE)
    for records in (done(0, FULL // 2), done(0, FULL // 2 + 1)):
        found = write_pair(tmp_path, file_bytes(records, 5_500, SIZE, -1), unused).judgement
        assert (found.answer, found.reason) == (Answer.SAFE, "unclean-header")


@pytest.mark.parametrize(("apart", "safe"), [(102, True), (1_000, True), (1_400, False)])
def test_a_file_in_use_beside_one_that_was_never_used_is_of_the_same_first_start(
    apart: int, *, safe: bool, tmp_path: Path
) -> None:
    """2.1.4 found twelve decisions lost and three of another journal, whose file was put here."""
    unused, used = file_bytes([], 5_000, SIZE), file_bytes(done(0, 3), 5_000 + apart, SIZE, -1)
    found = write_pair(tmp_path, used, unused).judgement
    assert found.reason == ("unclean-header" if safe else "other-time")
    assert safe or "never used" in found.text


@pytest.mark.parametrize("count", [3, FULL], ids=["old records behind", "full again"])
def test_a_file_that_is_in_use_again_has_no_other_one_that_was_never_used(
    count: int, tmp_path: Path
) -> None:
    """Both lines found the open decisions lost; the files were of two days of one journal."""
    first, again = done(0, FULL), done(5 * FULL, count)
    used = bytearray(file_bytes(first, 5_102, SIZE))
    records = file_bytes(again, 6_000 + 4 * FULL, SIZE, -1)
    end = HEADER_LENGTH + sum(len(one.encode()) for one in again)
    used[:end] = records[:end]
    unused = file_bytes([], 6_000 + 4 * FULL - 102, SIZE)
    found = write_pair(tmp_path, bytes(used), unused).judgement
    assert (found.answer, found.reason) == (Answer.CANNOT_TELL, "other-time")
    assert "never used" in found.text


def test_a_file_that_is_to_be_used_again_was_used(tmp_path: Path) -> None:
    """A change of files first sets back the position; a kill there leaves the old records."""
    to_be_used = bytearray(file_bytes(done(0, FULL), 5_000, SIZE))
    to_be_used[:HEADER_LENGTH] = file_bytes([], 5_000, SIZE)[:HEADER_LENGTH]
    in_use = file_bytes(done(FULL, FULL), 9_000_000, SIZE, -1)
    found = write_pair(tmp_path, bytes(to_be_used), in_use).judgement
    assert found.reason == "unclean-header"


def test_a_file_that_a_repair_has_made_was_never_used(tmp_path: Path) -> None:
    made = file_bytes([], 0, SIZE)
    found = write_pair(tmp_path, file_bytes(done(0, 3), 9_000_000, SIZE, -1), made).judgement
    assert found.reason == "unclean-header"


def test_a_gtrid_that_is_everywhere_takes_no_time(tmp_path: Path) -> None:
    """A name of a resource holds it as often as a file has room for."""
    name = "\1a" * 2000
    tiny = [record(COMMITTING, one, name, gtrid=b"a") for one in range(200)]
    pair = write_pair(tmp_path, file_bytes(tiny, 1, 1 << 20), file_bytes(tiny, 2, 1 << 20))
    begin = time.process_time()
    assert pair.judgement.answer is not Answer.REFUSES
    assert time.process_time() - begin < 20


def test_a_journal_of_ours_that_changes_its_files_is_of_one_time(tmp_path: Path) -> None:
    with DiskJournal(str(tmp_path), max_log_size=SMALL) as journal:
        for number in range(60):
            journal.log(COMMITTING, gtrid(number), NAMES)
            if number % 20:
                journal.log(COMMITTED, gtrid(number), NAMES)
            journal.force()
            assert reading_of(tmp_path).judgement.reason != "other-time"
