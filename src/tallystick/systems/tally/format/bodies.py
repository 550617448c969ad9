"""The bodies of records of the native log, where they are not the application's bytes.

In: what a record says. Out: its body, and back. Pure functions, no I/O; integers are
little-endian. Which code has which body: `tallystick.systems.tally.format.kinds`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Collection
from dataclasses import dataclass

from tallystick.errors import CorruptLogError
from tallystick.records import State, Xid

_PAIR = struct.Struct("<QI")
COUNT = struct.Struct("<H")
_XID = struct.Struct("<iBB")
_ROW = struct.Struct("<i")
_TIME = struct.Struct("<q")

ROW_HEAD_SIZE = _ROW.size
"""Bytes before the row in the body of a redo record."""


# -- endings: prepare and commit ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """The body of a prepare or commit record.

    ``pairs`` are (segment, number of the transaction's elements in it), so that a hole or a
    missing segment is seen. ``xid`` names the branch, ``extra`` belongs to the application.
    The gtrid of the xid is in the record's own column.
    """

    pairs: tuple[tuple[int, int], ...]
    xid: Xid | None = None
    extra: bytes = b""


def encode_ending(ending: Ending) -> bytes:
    """count u16, pairs (u64, u32); xid present u8, [format i32, bqual length u8]; bqual; extra."""
    pairs = b"".join(_PAIR.pack(*pair) for pair in ending.pairs)
    xid = ending.xid
    form, bqual = (0, b"") if xid is None else (xid.format_id, xid.bqual)
    head = _XID.pack(form, len(bqual), xid is not None)
    return COUNT.pack(len(ending.pairs)) + pairs + head + bqual + ending.extra


def decode_ending(body: bytes, gtrid: bytes = b"") -> Ending:
    """The ending in a body. Raises `CorruptLogError`."""
    cursor = Cursor(body)
    (count,) = cursor.take(COUNT)
    pairs = tuple(
        (segment, number) for segment, number in (cursor.take(_PAIR) for _ in range(count))
    )
    form, size, present = cursor.take(_XID)
    bqual = cursor.piece(size)
    return Ending(pairs, Xid(form, gtrid, bqual) if present else None, cursor.rest())


# -- rows of the undo/redo log ------------------------------------------------------------


def encode_row(table: int, row: bytes = b"") -> bytes:
    """table i32, row."""
    return _ROW.pack(table) + row


def decode_row(body: bytes) -> tuple[int, bytes]:
    """Table and row. Raises `CorruptLogError`."""
    cursor = Cursor(body)
    (table,) = cursor.take(_ROW)
    return table, cursor.rest()


# -- decisions and targets ----------------------------------------------------------------


def encode_names(names: Collection[str], rest: bytes = b"") -> bytes:
    """count u16; per name length u16 and UTF-8, in order of names; then ``rest``."""
    pieces = [COUNT.pack(len(names))]
    for name in sorted(names):
        text = name.encode()
        pieces += (COUNT.pack(len(text)), text)
    return b"".join(pieces) + rest


def decode_names(body: bytes) -> tuple[tuple[str, ...], bytes]:
    """Names, and what follows them. Raises `CorruptLogError`."""
    return _known_names(body) if len(body) <= _KNOWN_BYTES else _names(body)


def _names(body: bytes) -> tuple[tuple[str, ...], bytes]:
    cursor = Cursor(body)
    (count,) = cursor.take(COUNT)
    names = tuple(cursor.text() for _ in range(count))
    return names, cursor.rest()


# A coordinator has few sets of resources, and ends two records with one of them each time.
_KNOWN_BYTES = 256
_known_names = functools.lru_cache(maxsize=256)(_names)


def encode_decision(names: Collection[str], since_us: int) -> bytes:
    """names, then the time i64 of the decision: for one that is written again."""
    return encode_names(names, _TIME.pack(since_us))


def decode_decision(body: bytes) -> tuple[tuple[str, ...], int | None]:
    """Names, and the time of a decision that was written again. Raises `CorruptLogError`."""
    names, rest = decode_names(body)
    return names, _TIME.unpack(rest)[0] if len(rest) == _TIME.size else None


def encode_note(state: State, resources: Collection[str]) -> bytes:
    """names, then the state as text."""
    return encode_names(resources, state.value.encode())


class Cursor:
    """Reads a body front to back; every way to run over its end is a `CorruptLogError`."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._place = 0

    @property
    def at_end(self) -> bool:
        return self._place >= len(self._body)

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.piece(form.size))

    def piece(self, size: int) -> bytes:
        start = self._place
        if size < 0 or start + size > len(self._body):
            raise self.unfit(f"{size} bytes more", f"{len(self._body) - start}")
        self._place = start + size
        return self._body[start : self._place]

    def text(self) -> str:
        (size,) = self.take(COUNT)
        return self.utf8(self.piece(size))

    def utf8(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.unfit("UTF-8", data.hex()) from error

    def rest(self) -> bytes:
        return self.piece(len(self._body) - self._place)

    def unfit(self, expected: str, found: str) -> CorruptLogError:
        return CorruptLogError("the body of a record does not fit", expected=expected, found=found)
