"""Encodings at their borders; whatever bytes come, an error of ours and no more."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import LogFormatError
from tallystick.records import Xid
from tallystick.systems.derby.format import operation_encoders as encoders
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import (
    Cursor,
    compressed_int,
    compressed_long,
)
from tallystick.systems.derby.format.crypto import LogCipher, key_of_password
from tallystick.systems.derby.format.layout import (
    Control,
    Group,
    decode_control,
    encode_control,
    instant_text,
    make_instant,
    split_instant,
)
from tallystick.systems.derby.format.page_rows import images_of
from tallystick.systems.derby.format.record_body import decode_body, encode_body


@pytest.mark.parametrize(
    ("value", "size"),
    [(0, 1), (63, 1), (64, 2), (16_383, 2), (16_384, 4), ((1 << 31) - 1, 4)],
)
def test_compressed_int_takes_the_shortest_form(value: int, size: int) -> None:
    data = compressed_int(value)
    assert len(data) == size
    assert Cursor(data).compressed_int() == value


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 2),
        (16_383, 2),
        (16_384, 4),
        ((1 << 30) - 1, 4),
        (1 << 30, 8),
        ((1 << 63) - 1, 8),
    ],
)
def test_compressed_long_takes_the_shortest_form(value: int, size: int) -> None:
    data = compressed_long(value)
    assert len(data) == size
    assert Cursor(data).compressed_long() == value


@pytest.mark.parametrize("data", ["4001", "80000001"])
def test_longer_forms_are_accepted(data: str) -> None:
    assert Cursor(bytes.fromhex(data)).compressed_int() == 1


@given(st.integers(0, (1 << 31) - 1))
def test_any_int_comes_back(value: int) -> None:
    assert Cursor(compressed_int(value)).compressed_int() == value


@given(st.integers(1, (1 << 31) - 1), st.integers(0, 0x0FFFFFFF))
def test_instants_are_file_and_position(file: int, position: int) -> None:
    instant = make_instant(file, position)
    assert split_instant(instant) == (file, position)
    assert instant_text(instant) == f"({file},{position})"


xids = st.builds(
    Xid,
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.binary(max_size=64),
    st.binary(max_size=64),
)


@given(st.integers(1, 1 << 40), st.none() | xids, st.sampled_from([1, 2, 4]))
def test_begin_and_end_come_back(number: int, xid: Xid | None, status: int) -> None:
    begin = encode_body(Group.FIRST, number, encoders.encode_begin(16, xid))
    end = encode_body(Group.LAST, number, encoders.encode_end(status, xid))
    assert decode_body(begin).xid == decode_body(end).xid == xid
    assert decode_body(end).transaction == number
    assert decode_body(end).fields["transactionStatus"] == status


@given(st.integers(0, (1 << 62)), st.integers(0, (1 << 62)), st.none() | xids)
def test_checkpoint_with_its_table_comes_back(redo: int, undo: int, xid: Xid | None) -> None:
    entries = [{"xid": 7, "gid": xid, "first": make_instant(1, 61), "last": None, "status": 2}]
    table = encoders.encode_transaction_table(entries)
    fields = decode_body(
        encode_body(Group.RAWSTORE, 7, encoders.encode_checkpoint(redo, undo, table))
    ).fields
    assert fields == {"redoLWM": redo, "undoLWM": undo, "transactionTable": entries}


_OPERATIONS = sorted(operations.OPERATIONS)


@given(st.sampled_from(_OPERATIONS), st.sampled_from([0x100, 0x184, 0x900]), st.binary())
def test_hostile_bodies_end_in_an_error_of_ours(operation: int, group: int, rest: bytes) -> None:
    head = b"\0\x81" + compressed_int(group) + b"\0\x93\0\1" + operation.to_bytes(2)
    with contextlib.suppress(LogFormatError):
        body = decode_body(head + rest)
        if body.operation in (operations.INSERT, operations.UPDATE_ROW):
            images_of(body)


@given(st.binary(max_size=60))
def test_hostile_control_files_end_in_an_error_of_ours(data: bytes) -> None:
    with contextlib.suppress(LogFormatError):
        decode_control(data)


def test_control_file_comes_back() -> None:
    control = Control(make_instant(1, 41_502), 10, 14, -1, 2)
    assert decode_control(encode_control(control)) == control
    head = bytes.fromhex("00000080 00000009 000000010000a21e 0000000a 0000000e ffffffff 02")
    assert encode_control(control).startswith(head)


@pytest.mark.parametrize(
    ("algorithm", "sealed", "bits", "block"),
    [
        ("AES/CBC/NoPadding", "2f519463efd8aee64725dd6f8b5250f1-19110", "128-16", 16),
        ("DES/CBC/NoPadding", "ecfdeb1b2b83c486-31647", "56-8", 8),
    ],
)
def test_boot_password_opens_the_sealed_key_and_another_does_not(
    algorithm: str, sealed: str, bits: str, block: int
) -> None:
    """Sealed by Derby 10.14.2.0 under this password."""
    properties = {
        "encryptionAlgorithm": algorithm,
        "encryptedBootPassword": sealed,
        "encryptionKeyLength": bits,
    }
    key = key_of_password(properties, "Geheim-12345")
    assert len(key) == block
    assert LogCipher(algorithm, key).block_size == block
    for odd in ("\u00b2", "\u00b2-\u00b2", "9" * 5000):
        whole = key_of_password(properties | {"encryptionKeyLength": odd}, "Geheim-12345")
        assert whole[:block] == key
    with pytest.raises(LogFormatError, match="boot password is wrong"):
        key_of_password(properties, "Geheim-54321")


@given(st.binary(min_size=1, max_size=64))
def test_encrypted_bodies_come_back(data: bytes) -> None:
    for algorithm, key in (
        ("AES/CBC/NoPadding", bytes(range(16))),
        ("DES/CBC/NoPadding", bytes(range(8))),
        ("DESede/CFB/NoPadding", bytes(range(24))),
        ("Blowfish/OFB/NoPadding", bytes(range(16))),
        ("AES/ECB/NoPadding", bytes(range(32))),
    ):
        cipher = LogCipher(algorithm, key)
        padded = data + bytes(-len(data) % cipher.block_size)
        assert cipher.decrypt(cipher.encrypt(padded)) == padded
    with pytest.raises(LogFormatError):
        LogCipher("AES/CBC/NoPadding", bytes(16)).decrypt(bytes(15))
    with pytest.raises(LogFormatError):
        LogCipher("AES/CBC/NoPadding", bytes(15))
