"""The operations that a log writes of its own: begin, end, checkpoint with its transaction table.

In: plain values. Out: format id and fields as bytes, which `operations` reads back.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from tallystick.records import Xid
from tallystick.systems.derby.format.compressed_numbers import (
    compressed_int,
    compressed_long,
    format_id,
)
from tallystick.systems.derby.format.layout import (
    GLOBAL_ID,
    LOG_COUNTER,
    NULL,
    TRANSACTION_ENTRY,
    TRANSACTION_ID,
    TRANSACTION_TABLE,
    split_instant,
)
from tallystick.systems.derby.format.operations import BEGIN, CHECKPOINT, END, Fields

_BEGIN, _END, _NO_XID = format_id(BEGIN), format_id(END), format_id(NULL)


def encode_global_id(xid: Xid | None) -> bytes:
    """A global id object; null for None."""
    if xid is None:
        return _NO_XID
    parts = b"".join(len(part).to_bytes(1) + part for part in (xid.gtrid, xid.bqual))
    return format_id(GLOBAL_ID) + xid.format_id.to_bytes(4, signed=True) + parts


def encode_begin(status: int, xid: Xid | None) -> bytes:
    """A begin operation: user or internal, with its global id."""
    return _begin(status) if xid is None else _BEGIN + status.to_bytes(4) + encode_global_id(xid)


def encode_end(status: int, xid: Xid | None) -> bytes:
    """An end operation: committed, aborted or prepared."""
    return _end(status) if xid is None else _END + encode_global_id(xid) + compressed_int(status)


@cache
def _begin(status: int) -> bytes:
    """One without a global id: there are two."""
    return _BEGIN + status.to_bytes(4) + _NO_XID


@cache
def _end(status: int) -> bytes:
    """One without a global id: there are three."""
    return _END + _NO_XID + compressed_int(status)


def encode_checkpoint(redo_mark: int, undo_mark: int, table: bytes) -> bytes:
    """A checkpoint operation; ``table`` is an encoded transaction table object, or empty."""
    marks = compressed_long(redo_mark) + compressed_long(undo_mark)
    return format_id(CHECKPOINT) + marks + b"\0" + (b"\1" + table if table else b"\0")


def encode_transaction_table(entries: Iterable[Fields]) -> bytes:
    """A transaction table object from entries as `Fields`: xid, gid, first, last, status."""
    encoded = [_encode_entry(entry) for entry in entries]
    return format_id(TRANSACTION_TABLE) + compressed_int(len(encoded)) + b"".join(encoded)


def _encode_entry(entry: Fields) -> bytes:
    number = format_id(TRANSACTION_ID) + compressed_long(entry["xid"])
    counters = _encode_counter(entry["first"]) + _encode_counter(entry["last"])
    gid = encode_global_id(entry["gid"])
    status: bytes = entry["status"].to_bytes(4)
    return format_id(TRANSACTION_ENTRY) + number + gid + counters + status


def _encode_counter(instant: int | None) -> bytes:
    if instant is None:
        return format_id(NULL)
    file, position = split_instant(instant)
    return format_id(LOG_COUNTER) + compressed_long(file) + compressed_long(position)
