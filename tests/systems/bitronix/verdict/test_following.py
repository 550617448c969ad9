"""Whether the newer file goes on where the older one ends: by numbers of records, and by copies.

In: pairs made here, the older file full. Out: the answers. The real manager was asked of such pairs
in tests/interop/differential, and so was what it leaves by itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.records import Answer, Judgement
from tallystick.systems.bitronix.format.layout import (
    COMMITTED,
    COMMITTING,
    HEADER_LENGTH,
    sequence_number,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tests.systems.bitronix.logs import NAMES, file_bytes, gtrid, record, write_pair

Records = list[TransactionLogRecord]

FAR = 10_000
"""A number that no process has soon after its start."""
FULL = 20
OPEN = record(COMMITTING, 0, *NAMES, gtrid=gtrid(1_000_000))
NO_RESOURCE = record(COMMITTING, 0, gtrid=gtrid(1_000_000))
IN_PART = record(COMMITTED, 0, NAMES[0], gtrid=OPEN.gtrid)
REST = record(COMMITTED, 0, NAMES[1], gtrid=OPEN.gtrid)


def done(first: int, count: int = FULL) -> Records:
    """As many transactions, decided and closed."""
    keys = (gtrid(number) for number in range(first, first + count))
    return [record(status, 0, *NAMES, gtrid=key) for key in keys for status in (8, COMMITTED)]


def numbered(number: int, records: Records, *order: int) -> Records:
    """The records with numbers from ``number`` on; ``order`` adds to those of the first ones."""
    more = dict(enumerate(order))
    return [
        record(
            one.status,
            sequence_number(number + at + more.get(at, 0)),
            *one.unique_names,
            gtrid=one.gtrid,
        )
        for at, one in enumerate(records)
    ]


def judged(
    folder: Path, older: Records, newer: Records, states: tuple[int, int], put_in_use: int = 6_500
) -> Judgement:
    size = HEADER_LENGTH + sum(len(one.encode()) for one in older) + 2
    one, two = (
        file_bytes(records, timestamp, size, state)
        for records, timestamp, state in zip(
            (older, newer), (5_000, put_in_use), states, strict=True
        )
    )
    return write_pair(folder, one, two).judgement


NEWER = done(FULL, 3)
NEXT = FAR + 2 * FULL
"""The number that follows those of `FILLED`."""
FILLED = numbered(FAR, done(0))
AFTER_OPEN = numbered(NEXT + 1, NEWER)
TOLD = Answer.CANNOT_TELL, "other-time"
WHOLE = Answer.SAFE, "unclean-header"
LOST = Answer.LOSES, "decision-changed"
PAIRS: dict[str, tuple[Records, Records, tuple[Answer, str]]] = {
    "in one process": (FILLED, numbered(NEXT, NEWER), WHOLE),
    "in one process whose counter begins anew": (
        numbered((1 << 31) - 2 * FULL, done(0)),
        numbered(1 << 31, NEWER),
        WHOLE,
    ),
    "in a process that has just started": (FILLED, numbered(1, NEWER), WHOLE),
    "in threads": (
        numbered(FAR, done(0), 0, 0, 400, -1),
        numbered(NEXT + 500, NEWER),
        WHOLE,
    ),
    "numbers are missing": (FILLED, numbered(NEXT + 500, NEWER), TOLD),
    "numbers go back": (FILLED, numbered(NEXT - 500, NEWER), TOLD),
    "a decision that was closed in part took numbers": (
        numbered(FAR, [OPEN, IN_PART, REST, *done(0)]),
        numbered(NEXT + 500, NEWER),
        WHOLE,
    ),
    "an open decision is copied": (
        numbered(FAR, [*done(0), OPEN]),
        [*numbered(NEXT + 2, [OPEN]), *AFTER_OPEN],
        WHOLE,
    ),
    "an open decision is not copied": (numbered(FAR, [*done(0), OPEN]), AFTER_OPEN, TOLD),
    "an open decision of an earlier start is not copied": (
        [*numbered(FAR, [OPEN]), *numbered(1, done(0)), *numbered(150, done(2 * FULL))],
        numbered(150 + 2 * FULL, NEWER),
        LOST,
    ),
    "an open decision of a start that was as short is not copied": (
        [*numbered(1, [*done(0), OPEN]), *numbered(1, done(2 * FULL, 3 * FULL))],
        numbered(1 + 6 * FULL, NEWER),
        LOST,
    ),
    "a start right before the change does not copy": (
        numbered(FAR, [*done(0), OPEN]),
        numbered(1, NEWER),
        LOST,
    ),
    "3.0 does not copy a decision without a resource": (
        numbered(FAR, [*done(0), NO_RESOURCE]),
        AFTER_OPEN,
        LOST,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_follows_goes_on_with_numbers_and_open_decisions(name: str, tmp_path: Path) -> None:
    older, newer, answer = PAIRS[name]
    found = judged(tmp_path, older, newer, (-1, -1))
    assert (found.answer, found.reason) == answer
    if answer == TOLD:
        assert "does not go on" in found.text
        assert (OPEN.gtrid.hex() in found.text) == (OPEN.gtrid in {one.gtrid for one in older})


@pytest.mark.parametrize(
    ("older", "states", "answer"),
    [
        (numbered(1, done(0)), (-1, 0), (Answer.SAFE, "closed-header")),
        # The manager changes files twice to come back to one, so the other one was used.
        (FILLED, (-1, 0), TOLD),
        # Our writer wipes a file that it is about to use.
        (FILLED, (-1, -1), WHOLE),
        (numbered(1, [*done(0), OPEN]), (-1, 0), TOLD),
    ],
)
def test_a_file_that_was_never_used_follows_the_first_use_of_the_other_one(
    older: Records, states: tuple[int, int], answer: tuple[Answer, str], tmp_path: Path
) -> None:
    found = judged(tmp_path, older, [], states)
    assert (found.answer, found.reason) == answer


def test_a_file_that_a_first_start_has_made_copied_nothing(tmp_path: Path) -> None:
    """A change of files gives a file its time when the first record is there to be written."""
    found = judged(tmp_path, numbered(FAR, [*done(0), OPEN]), numbered(1, NEWER), (-1, -1), 5_999)
    assert (found.answer, found.reason) == TOLD
    found = judged(tmp_path, FILLED, numbered(1, NEWER), (-1, -1), 5_999)
    assert (found.answer, found.reason) == WHOLE


@pytest.mark.parametrize(
    ("newer", "expected"),
    [
        (numbered(NEXT, NEWER), (Answer.CANNOT_TELL, "damaged")),
        ([*numbered(NEXT, [OPEN]), *numbered(NEXT + 1, NEWER)], (Answer.CANNOT_TELL, "damaged")),
    ],
)
def test_what_a_change_of_files_did_not_copy_was_closed_where_the_older_file_is_damaged(
    newer: Records, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """The real 3.0 manager starts with such a pair, and has all that was open: that was `loses`."""
    older = [OPEN, *done(0)]
    size = HEADER_LENGTH + sum(len(one.encode()) for one in older) + 2
    content = bytearray(file_bytes(numbered(FAR, older), 5_000, size, -1))
    begin = HEADER_LENGTH + len(older[0].encode()) + 20
    content[begin : begin + 300] = bytes(300)
    reading = write_pair(tmp_path, bytes(content), file_bytes(newer, 6_500, size, -1))
    assert (reading.judgement.answer, reading.judgement.reason) == expected
    assert not [one for one in reading.verdict().differences if one.what.startswith("decision")]
