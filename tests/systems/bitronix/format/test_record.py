"""One record: the document's vectors, the originals' CRC rules, and Hypothesis."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from time import time_ns

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import RecordTooLargeError
from tallystick.storage.crc import crc32
from tallystick.systems.bitronix.format.layout import (
    COMMITTING,
    FORMAT_ID,
    FileHeader,
    GtridParts,
    make_gtrid,
    sequence_number,
    signed32,
    split_gtrid,
    state_name,
    status_name,
)
from tallystick.systems.bitronix.format.record import (
    TransactionLogRecord,
    decode_record,
    encode_names,
    java_ascii,
    stored_names,
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.sets(st.text(st.characters(max_codepoint=127), max_size=40), max_size=6)

COMMITTING_2PC = bytes.fromhex(
    "00000008 0000004b 0000001c 000000000029b679 00000004 b6168689"
    "16 62746d2d746573742d31 000000000029b655 00000001"
    "00000002 000b 6a6462632f6f7264657273 0009 6a6d732f7175657565 786e7442"
)


@given(INT32, st.binary(max_size=127), NAMES, INT64, INT32)
def test_a_created_record_is_restored(
    status: int, gtrid: bytes, names: set[str], time: int, sequence: int
) -> None:
    made = TransactionLogRecord.create(status, gtrid, names, time, sequence)
    assert len(made.encode()) == made.size == made.record_length + 8
    raw, inside = made.encode(), b"xx" + made.encode() + b"yy"
    assert decode_record(raw, 0, len(raw)) == made
    assert decode_record(inside, 2, len(inside)) == made


@given(st.binary(max_size=200), st.integers(0, 100))
def test_random_bytes_are_a_record_or_none(data: bytes, offset: int) -> None:
    decode_record(data, offset, len(data))


@given(st.integers(0, len(COMMITTING_2PC) - 1), st.integers(0, 7))
def test_every_flipped_bit_but_in_nothing_is_noticed(place: int, bit: int) -> None:
    flipped = bytearray(COMMITTING_2PC)
    flipped[place] ^= 1 << bit
    assert decode_record(bytes(flipped), 0, len(flipped)) is None


def test_bytes_of_a_real_record() -> None:
    made = TransactionLogRecord.create(
        COMMITTING, make_gtrid("btm-test-1", 2733653, 1), ["jms/queue", "jdbc/orders"], 2733689, 4
    )
    assert made.encode() == COMMITTING_2PC
    assert signed32(made.crc32) == -1240037751


def test_crc_of_a_record_from_production() -> None:
    made = TransactionLogRecord.create(
        3,
        bytes.fromhex("626974726F6E697853657276657249440000011C31FD45510000955B"),
        ["com.mysql.jdbc.jdbc2.optional.MysqlXADataSource", "ActiveMQ"],
        1220609394845,
        38266,
    )
    assert made.record_length == 116
    assert signed32(made.crc32) == -1380478121
    assert split_gtrid(made.gtrid).server_id == "bitronixServerID"
    assert split_gtrid(made.gtrid).time == 1220609394001


def test_text_form_is_the_originals_and_names_the_end_record_too() -> None:
    assert str(decode_record(COMMITTING_2PC, 0, len(COMMITTING_2PC))) == (
        "a Bitronix TransactionLogRecord with status=COMMITTING, recordLength=75, "
        "headerLength=28, time=2733689, sequenceNumber=4, crc32=-1240037751, "
        "gtrid=62746D2D746573742D31000000000029B65500000001, uniqueNames=jdbc/orders,jms/queue, "
        f"endRecord={0x786E7442}"
    )


def test_text_form_names_every_field() -> None:
    record = decode_record(COMMITTING_2PC, 0, len(COMMITTING_2PC))
    assert record is not None
    names = {re.sub("_([a-z])", lambda m: m[1].upper(), f.name) for f in fields(record)}
    assert names == set(re.findall(r"(\w+)=", str(record)))


def test_a_new_record_takes_time_and_number_of_its_process() -> None:
    before = time_ns() // 1_000_000
    first, second = (TransactionLogRecord.create(COMMITTING, b"g", ["a"]) for _ in range(2))
    assert before <= first.time <= second.time <= time_ns() // 1_000_000
    assert second.sequence_number == first.sequence_number + 1
    assert first.is_crc32_correct()
    assert not replace(first, time=first.time + 1).is_crc32_correct()


def test_the_nine_fields_restore_a_record() -> None:
    made = TransactionLogRecord.create(COMMITTING, b"g", ["a", "b"], 7, 8)
    restored = TransactionLogRecord(
        made.status,
        made.record_length,
        made.header_length,
        made.time,
        made.sequence_number,
        made.crc32,
        made.gtrid,
        made.unique_names,
        made.end_record,
    )
    assert restored == made
    assert restored.calculate_crc32() == made.crc32


@pytest.mark.parametrize(
    ("gtrid", "names"),
    [(bytes(128), []), (b"", ["x" * 32768]), (b"", ["caf\u00e9"])],
    ids=["gtrid of 128", "name of 32768", "name not ASCII"],
)
def test_what_the_originals_cannot_read_back_is_refused(gtrid: bytes, names: list[str]) -> None:
    with pytest.raises(RecordTooLargeError):
        TransactionLogRecord.create(8, gtrid, names, 1, 1)


def test_a_record_that_is_cut_is_not_decoded() -> None:
    cut = COMMITTING_2PC[:-1]
    assert decode_record(cut, 0, len(cut)) is None


def test_header_of_21_bytes() -> None:
    header = FileHeader(2733617, 0, 1194)
    assert header.encode().hex(" ") == (
        "42 74 6e 78 00 00 00 00 00 29 b6 31 00 00 00 00 00 00 00 04 aa"
    )
    assert FileHeader.decode(header.encode()) == header
    assert FileHeader.decode(header.encode()[:20]) is None
    assert header.format_id == FORMAT_ID


@pytest.mark.parametrize(
    ("size", "known"),
    [(3, "---"), (4, "--s"), (11, "--s"), (12, "-ts"), (13, "its")],
)
def test_a_short_gtrid_says_less(size: int, known: str) -> None:
    parts = split_gtrid(bytes(size))
    found = (parts.server_id, parts.time, parts.sequence)
    assert [one is not None for one in found] == [one != "-" for one in known]


def test_a_server_id_is_cut_at_51_bytes() -> None:
    assert len(make_gtrid("x" * 60, 0, 0)) == 63
    assert make_gtrid("\u00e9", 0, 0)[:1] == b"?"


def test_sequence_numbers_wrap_as_java_does() -> None:
    assert [sequence_number(n) for n in (1, (1 << 31) - 1, 1 << 31)] == [1, 2**31 - 1, -(2**31)]


def test_an_unknown_status_is_printed_as_the_original_does() -> None:
    assert status_name(8) == "COMMITTING"
    assert status_name(42) == "!incorrect status (42)!"


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (0, "ACTIVE"),
        (9, "ROLLING_BACK"),
        (10, "!incorrect status (10)!"),
        (-1, "!incorrect status (-1)!"),
    ],
)
def test_a_status_has_its_name_or_the_words_of_the_original(status: int, name: str) -> None:
    assert status_name(status) == name


@given(INT64, st.integers(-128, 127), INT32, INT32)
def test_a_header_comes_back_whatever_it_says(
    timestamp: int, state: int, position: int, format_id: int
) -> None:
    header = FileHeader(timestamp, state, position, format_id)
    assert FileHeader.decode(header.encode() + b"more") == header


@given(st.text(st.characters(max_codepoint=127), min_size=1, max_size=51), INT64, INT32)
def test_the_parts_of_a_gtrid_come_back(server_id: str, time: int, sequence: int) -> None:
    gtrid = make_gtrid(server_id, time, sequence)
    assert split_gtrid(gtrid) == GtridParts(server_id, time, sequence)
    assert split_gtrid(gtrid[-12:]) == GtridParts(None, time, sequence)
    assert split_gtrid(gtrid[-4:]) == GtridParts(None, None, sequence)


def test_each_byte_above_7f_of_a_name_is_one_replacement() -> None:
    assert java_ascii(b"a\x7f\x80\xc3\xa9") == "a\x7f" + "\ufffd" * 3
    assert java_ascii(b"jdbc/a") == "jdbc/a"


def stored(record: TransactionLogRecord, **fields: int) -> bytes:
    """A record with other fields and the check of these."""
    changed = replace(record, **fields)  # type: ignore[arg-type]
    return replace(changed, crc32=changed.calculate_crc32()).encode()


MADE = TransactionLogRecord.create(COMMITTING, b"gtrid", ["a", "bc"], 5, 6)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("end_record", MADE.end_record + 1),
        ("end_record", 0),
        ("record_length", MADE.record_length - 1),
        ("record_length", MADE.record_length + 1),
        ("record_length", 0),
    ],
)
def test_a_record_whose_end_is_not_where_its_length_says_is_none(field: str, value: int) -> None:
    raw = stored(MADE, **{field: value}) + bytes(8)
    assert decode_record(raw, 0, len(raw)) is None
    assert decode_record(stored(MADE), 0, MADE.size) == MADE


@pytest.mark.parametrize(
    ("place", "bad"),
    [
        (28, "ff"),  # the size of the gtrid
        (28, "7f"),
        (34, "00000003"),  # the count of the names
        (34, "7fffffff"),
        (38, "ffff"),  # the size of a name
        (38, "7fff"),
        (41, "0006"),
    ],
)
def test_sizes_that_reach_beyond_a_record_are_none(place: int, bad: str) -> None:
    """Each with the check that a reader would compute, were it to read on."""
    raw = bytearray(MADE.encode())
    raw[place : place + len(bad) // 2] = bytes.fromhex(bad)
    raw[24:28] = crc32(raw[29:], crc32(raw[:24])).to_bytes(4)
    assert decode_record(bytes(raw), 0, len(raw)) is None


def test_a_record_that_ends_beyond_its_limit_is_none() -> None:
    raw = MADE.encode() + bytes(4)
    assert decode_record(raw, 0, len(raw) - 5) is None
    assert decode_record(raw, 0, len(raw) - 4) == MADE


def test_a_name_that_is_not_ascii_is_checked_and_written_with_question_marks() -> None:
    raw = encode_names(["a\u00e9\u20ac"], 1)
    assert raw == b"\0\0\0\1\0\3a??\0\0\0\1"
    assert stored_names(raw[:-4]) == ("a??",)


@pytest.mark.parametrize(
    ("state", "name"),
    [(0, "CLEAN_LOG_STATE"), (-1, "UNCLEAN_LOG_STATE"), (7, "!invalid state (7)!")],
)
def test_a_state_has_its_name_or_the_words_of_the_original(state: int, name: str) -> None:
    assert state_name(state) == name
