"""Entries parse exactly, or raise the documented error."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.errors import LogFormatError
from tallystick.systems.cloudtran.format.entries import Entry, encode_entry, parse_entries
from tests.systems.cloudtran.blocks import entry
from tests.systems.cloudtran.strategies import entries


def test_length_fields_are_checked_before_anything_is_allocated() -> None:
    huge = encode_entry(entry(1))
    body = bytearray(huge)
    body[-13:-9] = (0xFFFFFFF0).to_bytes(4, "little")
    tracemalloc.start()
    with pytest.raises(LogFormatError):
        parse_entries(bytes(body))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@settings(max_examples=200)
@given(st.lists(entries, min_size=1, max_size=4), st.data())
def test_changed_entries_parse_or_raise_the_documented_error(
    made: list[Entry], data: st.DataObject
) -> None:
    raw = bytearray(b"".join(map(encode_entry, made)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        parsed = parse_entries(bytes(raw))
    except LogFormatError:
        return
    assert b"".join(encode_entry(one.entry) for one in parsed) == raw
