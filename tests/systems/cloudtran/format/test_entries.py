"""Entries parse exactly, or raise the documented error."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.errors import LogFormatError
from tallystick.systems.cloudtran.format.entries import (
    ALL_TARGETS,
    Entry,
    EntryKind,
    Operation,
    OperationKind,
    PersistedFlag,
    Suspect,
    encode_all_persisted,
    encode_entry,
    parse_entries,
    parse_suspects,
    signed,
    unsigned,
)
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


def persisting(**fields: object) -> Entry:
    """An entry with all parts."""
    rows = (Operation(None, OperationKind.DELETE, "c", b"k", None),)
    made = Entry(EntryKind.PERSISTING, 7, -5, ("a", "bc"), rows, "ref", 1)
    return made._replace(**fields)  # type: ignore[arg-type]


RAW = bytes.fromhex(
    "31000000 01 01 0300 0700000000000000 fbffffffffffffff"
    "726566 0200 01 61 02 6263 01000000 ffff 03 0100 63 01000000 6b ffffffff"
)


def test_an_entry_has_the_bytes_of_the_document() -> None:
    assert encode_entry(persisting()).hex() == RAW.hex()
    (placed,) = parse_entries(RAW)
    assert (placed.entry, placed.offset, placed.length) == (persisting(), 0, len(RAW))
    assert placed.body == RAW[27:]


ALL = encode_all_persisted(9, 1)


def test_every_target_holds_a_transaction_by_one_flag() -> None:
    whole = Entry(EntryKind.PERSISTED, 9, 1, (), flags=ALL_TARGETS)
    assert encode_entry(whole) == ALL
    assert [one.entry for one in parse_entries(ALL)] == [whole]
    given_up = whole._replace(flags=ALL_TARGETS | PersistedFlag.DISCARDED)
    assert whole.all_targets
    assert not whole.discarded
    assert given_up.discarded
    assert not given_up.carried_forward
    assert persisting().carried_forward
    assert not persisting().all_targets


@pytest.mark.parametrize(
    ("kind", "place", "bad", "said"),
    [
        (1, 4, "00", "not an entry"),  # no kind
        (1, 4, "03", "not an entry"),
        (1, 5, "02", "not an entry"),  # no flag of this kind
        (2, 5, "02", "not an entry"),  # discarded without all targets
        (1, 8, "00", "not an entry"),  # transactions count from 1
        (2, 5, "00", "disagree"),
        (1, 0, "30", "beyond its entry"),
        (1, 0, "32", "longer than its block"),
        (1, 6, "ff", "longer than its block"),
        (1, 24, "ff", "not UTF-8"),
        (1, 29, "00", "has no name"),
        (1, 29, "30", "beyond its entry"),
        (1, 34, "00", "left-over"),
        (1, 34, "02", "beyond its entry"),
        (1, 38, "0200", "not an operation"),  # of the third target of two
        (1, 40, "04", "not an operation"),
        (1, 41, "ff", "beyond its entry"),
    ],
)
def test_a_wrong_value_in_a_field_is_refused(kind: int, place: int, bad: str, said: str) -> None:
    wrong = bytearray(RAW if kind == 1 else ALL)
    wrong[place : place + len(bad) // 2] = bytes.fromhex(bad)
    with pytest.raises(LogFormatError, match=said):
        parse_entries(bytes(wrong))


@pytest.mark.parametrize("cut", range(1, len(RAW)))
def test_an_entry_that_is_cut_is_refused(cut: int) -> None:
    with pytest.raises(LogFormatError):
        parse_entries(RAW + RAW[:cut])


@pytest.mark.parametrize(
    "fields",
    [
        {"number": 0},
        {"number": 1 << 64},
        {"targets": ()},
        {"targets": ("a", "")},
        {"targets": ("a", "b" * 256)},
        {"targets": ("a",) * 65536},
        {"reference": "r" * 65536},
        {"operations": (Operation(2, OperationKind.INSERT, "c", b"", b""),)},
        {"operations": (Operation(-1, OperationKind.INSERT, "c", b"", b""),)},
        {"operations": (Operation(0, OperationKind.INSERT, "c" * 65536, b"", b""),)},
    ],
)
def test_what_fits_no_field_is_not_written(fields: dict[str, object]) -> None:
    with pytest.raises(LogFormatError):
        encode_entry(persisting(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"number": (1 << 64) - 1, "time": -(1 << 63), "flags": 0},
        {"time": (1 << 63) - 1, "targets": ("a", "b" * 255)},
        {"targets": ("a",) * 65535},
        {"reference": "r" * 65535},
        {"operations": (Operation(1, OperationKind.OPAQUE, "c" * 65535, b"", b""),)},
        {"operations": ()},
    ],
)
def test_the_greatest_values_of_each_field_come_back(fields: dict[str, object]) -> None:
    made = persisting(**fields)
    assert [one.entry for one in parse_entries(encode_entry(made))] == [made]


def test_suspects_go_up_to_the_first_that_is_none() -> None:
    both = [
        Suspect(EntryKind.PERSISTING, 7, -5, 0, len(RAW)),
        Suspect(EntryKind.PERSISTED, 9, 1, len(RAW), len(ALL)),
    ]
    assert parse_suspects(RAW + ALL) == both
    assert parse_suspects(RAW + ALL[:-1]) == both[:1]
    assert parse_suspects(ALL[:23]) == []
    for place, bad in ((4, 0), (4, 3), (8, 0), (0, 19), (0, 0)):
        wrong = bytearray(RAW + ALL)
        wrong[place] = bad
        assert parse_suspects(bytes(wrong)) == [], (place, bad)
    assert [one.length for one in parse_suspects(b"\x14\0\0\0" + ALL[4:24])] == [24]


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, 0), ((1 << 63) - 1, (1 << 63) - 1), (1 << 63, -(1 << 63)), ((1 << 64) - 1, -1)],
)
def test_a_number_of_64_bits_has_its_signed_one(number: int, shown: int) -> None:
    assert signed(number) == shown
    assert unsigned(shown) == number
