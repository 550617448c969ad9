"""The fast paths of the live journal give what the slow ones give: encoding, sizes, copies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import RecordTooLargeError
from tallystick.systems.bitronix.format.layout import (
    COMMITTED,
    COMMITTING,
    NO_TRANSACTION,
    PREPARED,
    ROLLEDBACK,
    UNKNOWN,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.live.carry_over import CarriedRecords
from tallystick.systems.bitronix.live.encoder import KNOWN_MAX, RecordEncoder

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.lists(st.text(st.characters(max_codepoint=127), max_size=20), max_size=5)
CALLS = st.tuples(INT32, st.binary(max_size=127), NAMES, INT64, INT32)
STATUSES = st.sampled_from([COMMITTING, COMMITTED, ROLLEDBACK, UNKNOWN, NO_TRANSACTION, PREPARED])
STEPS = st.lists(
    st.tuples(STATUSES, st.sampled_from([b"a", b"bb"]), st.sets(st.sampled_from("xyz")))
)


@given(st.lists(CALLS, max_size=5))
def test_bytes_are_those_of_the_record(calls: list[tuple[int, bytes, list[str], int, int]]) -> None:
    encoder = RecordEncoder()
    for call in calls:
        record, data = encoder.encode(*call)
        assert record == TransactionLogRecord.create(*call)
        assert data == record.encode()


def test_names_that_cannot_be_read_back_are_refused_each_time() -> None:
    encoder = RecordEncoder()
    for _ in range(2):
        with pytest.raises(RecordTooLargeError, match="not ASCII"):
            encoder.encode(COMMITTING, b"g", ["café"], 1, 1)
        with pytest.raises(RecordTooLargeError, match="gtrid"):
            encoder.encode(COMMITTING, bytes(128), ["a"], 1, 1)


def test_known_names_are_bounded() -> None:
    encoder = RecordEncoder()
    for number in range(3 * KNOWN_MAX):
        encoder.encode(COMMITTING, b"g", [f"name-{number}"], 1, 1)
    encoder.encode(COMMITTING, b"g", ["x" * 30_000], 1, 1)
    assert len(encoder._known) <= KNOWN_MAX


@given(STEPS)
def test_size_is_that_of_the_copies_and_the_quick_bound_is_not_below_the_exact(
    steps: list[tuple[int, bytes, set[str]]],
) -> None:
    carried = CarriedRecords()
    for number, (status, gtrid, names) in enumerate(steps):
        record = TransactionLogRecord.create(status, gtrid, names, 1, number)
        assert carried.size_with(record) <= carried.size_with_max(record)
        carried.apply(record)
        assert carried.size == sum(map(len, carried.copies(1, number)))
