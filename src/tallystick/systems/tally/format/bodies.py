"""Encode and decode the bodies of records, where they are not the application's bytes.

In: what a record says. Out: its body, and back. Pure functions, no I/O; integers are
little-endian. Which code has which body: `tallystick.systems.tally.format.kinds`; the bodies of
the persist log are in `tallystick.systems.tally.format.entries`.
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
_NO_XID = _XID.pack(0, 0, False)
ROW_HEAD = struct.Struct("<i")
"""What comes before the row in the body of a redo record: its table."""
TABLE_MIN = -(1 << 31)
TABLE_MAX = (1 << 31) - 1
FORMAT_ID_MIN, FORMAT_ID_MAX = TABLE_MIN, TABLE_MAX
NAME_MAX = (1 << 16) - 1
"""Bytes of a name at most, and how many names a body holds."""
_TIME = struct.Struct("<q")

ROW_HEAD_SIZE = ROW_HEAD.size
PAIR_COUNT_AT = COUNT.size + struct.calcsize("<Q")
"""Where the body of an ending has the number of elements of its first pair."""


# -- endings: prepare and commit ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """The body of a prepare or commit record.

    Attributes:
        pairs: (segment, number of the transaction's elements in it), so that a missing element or
            segment is seen.
        xid: the branch; its gtrid is in the record's own column.
        extra: bytes of the application.
    """

    pairs: tuple[tuple[int, int], ...]
    xid: Xid | None = None
    extra: bytes = b""


def encode_ending(ending: Ending) -> bytes:
    """Encode the body of a prepare or commit record.

    count u16, pairs (u64, u32); xid present u8, [format i32, bqual length u8]; bqual; extra.
    """
    pairs, xid = _encode_pairs(ending.pairs), ending.xid
    if xid is None:
        return pairs + _NO_XID + ending.extra
    return pairs + _XID.pack(xid.format_id, len(xid.bqual), True) + xid.bqual + ending.extra


@functools.lru_cache(maxsize=256)
def _encode_pairs(pairs: tuple[tuple[int, int], ...]) -> bytes:
    """Encode pairs; cached, as transactions of the same size repeat in a segment."""
    return COUNT.pack(len(pairs)) + b"".join(_PAIR.pack(*pair) for pair in pairs)


def decode_ending(body: bytes, gtrid: bytes = b"") -> Ending:
    """Decode the body of a prepare or commit record with this gtrid.

    Raises:
        CorruptLogError: the parts do not fit the body.
    """
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
    """Encode a row of the undo/redo log: table i32, row."""
    return ROW_HEAD.pack(table) + row


def decode_row(body: bytes) -> tuple[int, bytes]:
    """Return table and row.

    Raises:
        CorruptLogError: the body is shorter than the number of a table.
    """
    cursor = Cursor(body)
    (table,) = cursor.take(ROW_HEAD)
    return table, cursor.rest()


# -- decisions and targets ----------------------------------------------------------------


def encode_names(names: Collection[str], rest: bytes = b"") -> bytes:
    """Encode names in order: count u16; for each its length u16 and UTF-8; then ``rest``."""
    pieces = [COUNT.pack(len(names))]
    for name in sorted(names):
        text = name.encode()
        pieces += (COUNT.pack(len(text)), text)
    return b"".join(pieces) + rest


def decode_names(body: bytes) -> tuple[tuple[str, ...], bytes]:
    """Return the names, and the bytes after them.

    Raises:
        CorruptLogError: the parts do not fit the body.
    """
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
    """Encode a decision that is written again: names, time i64 of the decision."""
    return encode_names(names, _TIME.pack(since_us))


def decode_decision(body: bytes) -> tuple[tuple[str, ...], int | None]:
    """Return the names, and the time of a decision that was written again.

    Raises:
        CorruptLogError: the parts do not fit the body.
    """
    names, rest = decode_names(body)
    return names, _TIME.unpack(rest)[0] if len(rest) == _TIME.size else None


def decision_names(body: bytes) -> tuple[frozenset[str], int | None]:
    """Return the names as a set, and the time, as `decode_decision` does."""
    return _known_decision(body) if len(body) <= _KNOWN_BYTES else _decision(body)


def name_set(body: bytes) -> frozenset[str]:
    """Return the names as a set, as `decode_names` does."""
    return decision_names(body)[0]


def _decision(body: bytes) -> tuple[frozenset[str], int | None]:
    names, since = decode_decision(body)
    return frozenset(names), since


_known_decision = functools.lru_cache(maxsize=256)(_decision)


def encode_note(state: State, resources: Collection[str]) -> bytes:
    """Encode a note: names, then the state as text."""
    return encode_names(resources, state.value.encode())


class Cursor:
    """Reads a body front to back; reading beyond its end raises `CorruptLogError`."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._place = 0

    @property
    def at_end(self) -> bool:
        """True if nothing is left."""
        return self._place >= len(self._body)

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        """Read the fields of a structure."""
        return form.unpack(self.piece(form.size))

    def piece(self, size: int) -> bytes:
        """Read ``size`` bytes."""
        start = self._place
        if size < 0 or start + size > len(self._body):
            raise self.unfit(f"{size} bytes more", f"{len(self._body) - start}")
        self._place = start + size
        return self._body[start : self._place]

    def text(self) -> str:
        """Read a text: length u16, UTF-8."""
        (size,) = self.take(COUNT)
        return self.utf8(self.piece(size))

    def utf8(self, data: bytes) -> str:
        """Decode a text."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.unfit("UTF-8", data.hex()) from error

    def rest(self) -> bytes:
        """Read what is left."""
        return self.piece(len(self._body) - self._place)

    def unfit(self, expected: str, found: str) -> CorruptLogError:
        """Return the error for a body of another form."""
        return CorruptLogError("the body of a record does not fit", expected=expected, found=found)
