"""Bytes of the native log: encode and decode, for any values, and for damaged bytes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.records import Xid
from tallystick.roles import Operation, OperationCode
from tallystick.systems.tally.format.bodies import (
    Ending,
    decision_names,
    decode_decision,
    decode_ending,
    decode_names,
    decode_row,
    encode_decision,
    encode_ending,
    encode_names,
    encode_row,
    name_set,
)
from tallystick.systems.tally.format.columns import (
    UnplacedRecord,
    decode_columns,
    encode_columns,
    encode_plain,
    encode_records,
)
from tallystick.systems.tally.format.entries import decode_entry, encode_entry
from tallystick.systems.tally.format.headers import (
    Control,
    SegmentHeader,
    decode_control,
    decode_segment_header,
    encode_control,
    encode_segment_header,
)
from tallystick.systems.tally.format.index import decode_index, encode_index
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import (
    HEADER_SIZE,
    SECTOR_SIZES,
    GroupHeader,
    decode_group_header,
    encode_group_header,
    group_length,
    segment_name,
    segment_number,
)

U32 = st.integers(0, 2**32 - 1)
U63 = st.integers(0, 2**63 - 1)
POSITIVE = st.integers(1, 2**63 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
SIZES = st.integers(16 << 10, 2**31 - 1)
SECTORS = st.sampled_from(SECTOR_SIZES)
IDENTITY = st.binary(min_size=16, max_size=16)
RECORDS_OF_A_GROUP = st.lists(
    st.builds(
        UnplacedRecord,
        st.sampled_from([int(code) for code in Code]),
        st.binary(max_size=40),
        st.none() | U63,
        st.none() | I64,
        st.integers(-128, 127),
        st.binary(max_size=8),
    ),
    min_size=1,
    max_size=40,
)
CONTROLS = st.builds(
    Control, IDENTITY, SIZES, SECTORS, U63, U63, U63, U63, U63, U63, U63, I64, U32, U32
).map(lambda one: replace(one, durable_lsn=max(one.durable_lsn, one.checkpoint_lsn)))
SEGMENTS = st.builds(
    SegmentHeader, IDENTITY, POSITIVE, POSITIVE, SIZES, SECTORS, I64,
    U63, U63, U63, U32, U32,
)  # fmt: skip


@given(CONTROLS)
def test_control_block_comes_back(control: Control) -> None:
    assert decode_control(encode_control(control)) == control


@given(CONTROLS)
def test_control_block_with_a_checkpoint_that_was_not_durable_is_none(control: Control) -> None:
    beyond = replace(control, checkpoint_lsn=control.durable_lsn + 2)
    assert decode_control(encode_control(beyond)) is None


@given(SEGMENTS)
def test_segment_header_comes_back(header: SegmentHeader) -> None:
    encoded = encode_segment_header(header)
    assert len(encoded) == 512
    assert decode_segment_header(b"x" * 64 + encoded, 64) == header


@given(st.data())
def test_group_header_comes_back_and_no_flipped_bit_passes(data: st.DataObject) -> None:
    header = GroupHeader(
        flags=data.draw(st.integers(0, 15)),
        length=4096,
        segment=data.draw(U63),
        offset=data.draw(U63),
        first_lsn=data.draw(st.integers(0, 2**63 - 1001)),
        count=data.draw(st.integers(0, 1000)),
        columns=data.draw(U32),
        stored=data.draw(st.integers(0, 3000)),
        raw=data.draw(U32),
        time_us=data.draw(I64),
        durable_lsn=data.draw(U63),
        payload_crc=data.draw(U32),
        chain=data.draw(U32),
        tag=data.draw(st.binary(min_size=8, max_size=8)),
        nonce=data.draw(st.binary(min_size=12, max_size=12)),
        shard=data.draw(U32),
    )
    encoded = encode_group_header(header)
    found = decode_group_header(encoded, 0)
    assert found is not None
    assert encode_group_header(found) == encoded
    bit = data.draw(st.integers(0, 8 * HEADER_SIZE - 1))
    flipped = bytearray(encoded)
    flipped[bit // 8] ^= 1 << bit % 8
    assert decode_group_header(bytes(flipped), 0) is None


@given(RECORDS_OF_A_GROUP)
def test_records_come_back_from_columns(records: list[UnplacedRecord]) -> None:
    payload = encode_records(records)
    data = b"".join(payload.buffers)
    assert len(data) == payload.size
    assert list(decode_columns(data, len(records), payload.columns).records()) == records


@given(
    st.lists(
        st.tuples(st.sampled_from([2, 3, 4]), st.binary(max_size=9), U63, st.none() | U63),
        min_size=1,
        max_size=20,
    )
)
def test_records_of_transactions_come_back_from_columns(
    rows: list[tuple[int, bytes, int, int | None]],
) -> None:
    records = [UnplacedRecord(*row) for row in rows]
    payload = encode_columns(
        [one.code for one in records],
        [0, *itertools.accumulate(len(one.body) for one in records)],
        [row[2] for row in rows],
        [one.key or 0 for one in records],
        sum(1 << place for place, one in enumerate(records) if one.key is not None),
        [one.body for one in records],
    )
    data = b"".join(payload.buffers)
    assert len(data) == payload.size
    assert list(decode_columns(data, len(records), payload.columns).records()) == records


@given(st.sets(st.text(max_size=5), max_size=3), st.integers(-(2**63), 2**63 - 1))
def test_decisions_come_back_with_the_time_of_one_that_is_written_again(
    names: set[str], since: int
) -> None:
    again = encode_decision(names, since)
    assert decode_decision(again) == (tuple(sorted(names)), since)
    assert decode_decision(encode_names(names)) == (tuple(sorted(names)), None)
    assert decision_names(again) == (frozenset(names), since)
    assert name_set(again) == frozenset(names)


def test_a_body_that_is_too_long_to_be_remembered_is_read_all_the_same() -> None:
    names = {f"resource {number}" for number in range(40)}
    body = encode_decision(names, 7)
    assert len(body) > 256
    assert decision_names(body) == (frozenset(names), 7)
    assert decode_names(body)[0] == tuple(sorted(names))


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=30))
def test_plain_records_come_back_from_columns(bodies: list[bytes]) -> None:
    payload = encode_plain(Code.APPEND, bodies)
    columns = decode_columns(b"".join(payload.buffers), len(bodies), payload.columns)
    assert list(columns.records()) == [UnplacedRecord(Code.APPEND, body) for body in bodies]


@given(st.binary(max_size=300), st.integers(1, 2**31 - 2), U32)
def test_any_bytes_are_columns_or_corrupt(data: bytes, count: int, bits: int) -> None:
    try:
        list(decode_columns(data, count, bits).records())
    except CorruptLogError:
        return


@given(
    st.lists(st.tuples(U63, U32), max_size=5),
    st.none()
    | st.builds(Xid, st.integers(-(2**31), 2**31 - 1), st.just(b"g"), st.binary(max_size=64)),
    st.binary(max_size=20),
)
def test_endings_come_back(pairs: list[tuple[int, int]], xid: Xid | None, extra: bytes) -> None:
    ending = Ending(tuple(pairs), xid, extra)
    assert decode_ending(encode_ending(ending), b"g") == ending


@given(st.sets(st.text(max_size=10), max_size=5), st.binary(max_size=10))
def test_names_come_back_in_order(names: set[str], rest: bytes) -> None:
    assert decode_names(encode_names(names, rest)) == (tuple(sorted(names)), rest)


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=20))
def test_rows_come_back(table: int, row: bytes) -> None:
    assert decode_row(encode_row(table, row)) == (table, row)


@given(
    st.lists(
        st.builds(
            Operation,
            st.sampled_from(OperationCode),
            st.text(max_size=5),
            st.binary(max_size=9),
            st.none() | st.binary(max_size=9),
            st.none() | st.sampled_from(("a", "größe")),
        ),
        max_size=4,
    )
)
def test_entries_come_back(operations: list[Operation]) -> None:
    body = encode_entry(("a", "größe"), "ref", operations)
    assert decode_entry(body) == (("a", "größe"), "ref", tuple(operations))


@given(st.binary(max_size=60))
@pytest.mark.parametrize("decode", [decode_ending, decode_names, decode_row, decode_entry])
def test_any_body_is_decoded_or_corrupt(decode: object, body: bytes) -> None:
    assert callable(decode)
    try:
        decode(body)
    except CorruptLogError:
        return


@given(st.lists(st.tuples(U63, U63, I64), max_size=20))
def test_index_comes_back(groups: list[tuple[int, int, int]]) -> None:
    index = decode_index(encode_index(groups))
    assert list(zip(*index, strict=True)) == groups


@pytest.mark.parametrize("decode", [decode_control, decode_segment_header])
def test_later_version_is_refused_not_misread(decode: object) -> None:
    from tallystick.storage.crc import crc32

    made = {
        decode_control: encode_control(Control(bytes(16), 1 << 20)),
        decode_segment_header: encode_segment_header(SegmentHeader(bytes(16), 1, 1, 1 << 20)),
    }
    assert callable(decode)
    block = bytearray(made[decode])
    block[8] = 2
    block[508:] = crc32(bytes(block[:508])).to_bytes(4, "little")
    with pytest.raises(UnsupportedFormatError, match="version 2"):
        decode(bytes(block))


def test_names_of_segments() -> None:
    assert segment_name(7) == "0000000000000007.tally"
    assert segment_number("0000000000000007.tally") == 7
    assert segment_number("control.tally") is None
    assert segment_number("7.tally") is None


def test_a_group_is_padded_to_whole_sectors_with_both_headers() -> None:
    assert group_length(0, 512) == 512
    assert group_length(256, 512) == 512
    assert group_length(257, 512) == 1024


@pytest.mark.parametrize("number", [(1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_number_that_no_signed_column_holds_is_no_whole_header(number: int) -> None:
    possible = number < 1 << 63
    control = Control(bytes(16), 1 << 20, durable_lsn=(1 << 63) - 1)
    for name in ("generation", "first_segment", "last_segment", "checkpoint_lsn", "durable_lsn"):
        found = decode_control(encode_control(_with(control, name, number)))
        assert (found is not None) is possible
    whole = replace(control, next_transaction=number, next_key=number)
    assert decode_control(encode_control(whole)) == whole
    segment = SegmentHeader(bytes(16), 1, 1, 1 << 20)
    for name in ("number", "first_lsn", "previous", "previous_end", "previous_lsn"):
        found_segment = decode_segment_header(encode_segment_header(_with(segment, name, number)))
        assert (found_segment is not None) is possible
    for count in (0, 1):
        group = GroupHeader(0, 512, 1, 8192, number, count, 0, 8, 8, 0, 0, 0, 0, bytes(8))
        decoded = decode_group_header(encode_group_header(group), 0)
        assert (decoded is not None) is (number + count < 1 << 63)


def _with(header: Any, name: str, number: int) -> Any:
    return replace(header, **{name: number})
