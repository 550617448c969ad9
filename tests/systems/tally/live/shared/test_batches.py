"""Items and answers as bytes, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import CorruptLogError, LogFullError
from tallystick.records import Xid
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.live.items import Bundle, Item, UnplacedEnding
from tallystick.systems.tally.live.shared import batches

_LONG = st.integers(-(1 << 63), (1 << 63) - 1)
_NUMBER = st.none() | _LONG
_RECORDS = st.builds(
    UnplacedRecord, st.integers(1, 127), st.binary(max_size=50), _NUMBER, _NUMBER,
    st.integers(-128, 127), st.binary(max_size=64),
)  # fmt: skip
_XIDS = st.builds(
    Xid, st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=64), st.binary(max_size=64)
)
_ENDINGS = st.builds(
    UnplacedEnding, st.integers(1, 127), _LONG, st.none() | _XIDS, st.binary(max_size=50)
)
_BUNDLES = st.builds(Bundle, st.lists(_RECORDS, min_size=1, max_size=3).map(tuple))


@given(st.lists(_RECORDS | _ENDINGS | _BUNDLES, min_size=1, max_size=8))
def test_items_come_back_as_they_were(items: list[Item]) -> None:
    assert batches.decode_items(batches.encode_items(items)) == items


@given(st.lists(st.binary(max_size=100), min_size=1))
def test_plain_records_come_back_as_they_were(bodies: list[bytes]) -> None:
    assert batches.decode_items(batches.encode_items(bodies)) == bodies


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_read_but_raise_nothing_else(data: bytes) -> None:
    try:
        batches.decode_items(b"M" + data)
    except CorruptLogError:
        return


@given(st.lists(st.integers(-3, 1 << 62), min_size=1))
def test_numbers_come_back_as_they_were(lsns: list[int]) -> None:
    assert list(batches.decode_lsns(batches.encode_lsns(lsns))) == lsns
    run = range(lsns[-1] + 4, lsns[-1] + 100)
    assert batches.decode_lsns(batches.encode_lsns(run)) == run


def test_errors_come_back_as_they_were() -> None:
    error = LogFullError("no space", expected="space", advice="Free space")
    with pytest.raises(LogFullError, match=r"no space; expected space\. Free space"):
        batches.decode_lsns(batches.encode_error(error))
