"""Bodies that known applications store in journal records.

* `object_state`: an object of Narayana's transaction log (``*.txlog``): Uid, type name and state,
  each as length i4, bytes, padding to a multiple of 4; the length of the type name counts a
  closing zero byte. Newer versions put 8 bytes ``#BE`` 01 10 20 40 00 before the Uid. The log has
  one record per object: ADD for a new one, UPDATE later, DELETE at its end.
* `heuristic_xid`: the message journal's record of a heuristic outcome (user type 38).
* `xid`: the extra data of PREPARE: format id i4, length i4 + bqual, length i4 + gtrid.

In: bytes. Out: values, None where the bytes are something else.
Source: docs/formats/jboss.md, "Narayana" and "Xids".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tallystick.records import Xid
from tallystick.systems.jboss.format.layout import I4

HEURISTIC_TYPE = 38
"""User type of the record of a heuristic outcome."""
XID_PART_MAX = 64
"""Longest gtrid and bqual, in bytes."""
PACKED_MAGIC = bytes.fromhex("23424501 10204000")
"""What newer versions of Narayana put before the Uid."""
UID_SIZE = 28
"""Two i8 of address, i4 process, i4 second, i4 counter."""


@dataclass(frozen=True, slots=True)
class ObjectState:
    """One object of Narayana's store; ``magic`` is what precedes it, if anything."""

    uid: bytes
    type_name: str
    state: bytes
    magic: bytes = PACKED_MAGIC

    @property
    def uid_text(self) -> str:
        """The Uid as Narayana prints it."""
        return uid_text(self.uid)


def uid_text(uid: bytes) -> str:
    """Return a Uid as Narayana prints it: five hexadecimal numbers."""
    parts = pairwise((0, 8, 16, 20, 24, UID_SIZE))
    numbers = (int.from_bytes(uid[a:b], "big", signed=True) for a, b in parts)
    return ":".join(f"{'-' if n < 0 else ''}{abs(n):x}" for n in numbers)


def object_state(body: bytes) -> ObjectState | None:
    """Return the object in a record of Narayana's store."""
    magic = PACKED_MAGIC if body.startswith(PACKED_MAGIC) else b""
    uid, at = _unpack(body, len(magic))
    name, at = _unpack(body, at)
    state, at = _unpack(body, at)
    if uid is None or name is None or state is None or at != len(body) or len(uid) != UID_SIZE:
        return None
    if not name.endswith(b"\0"):
        return None
    try:
        return ObjectState(uid, name[:-1].decode(), state, magic)
    except UnicodeDecodeError:
        return None


def pack_object_state(one: ObjectState) -> bytes:
    """Return the body of a record of Narayana's store."""
    parts = (one.uid, one.type_name.encode() + b"\0", one.state)
    return one.magic + b"".join(_pack(part) for part in parts)


def xid(extra: bytes) -> Xid | None:
    """Return the Xid in the extra data of a PREPARE; None if anything follows it."""
    found, at = _xid(extra)
    return found if at == len(extra) else None


def pack_xid(one: Xid) -> bytes:
    """Return the Xid as extra data of a PREPARE."""
    parts = (I4.pack(one.format_id), I4.pack(len(one.bqual)), one.bqual)
    return b"".join((*parts, I4.pack(len(one.gtrid)), one.gtrid))


def heuristic_xid(body: bytes) -> tuple[Xid, bool] | None:
    """Return the Xid of a heuristic outcome, and whether it was a commit."""
    found, at = _xid(body)
    if found is None or at + 1 != len(body) or body[at] not in (0, 1):
        return None
    return found, body[at] == 1


def _xid(data: bytes) -> tuple[Xid | None, int]:
    """Return the Xid at the start of ``data`` and the offset of the byte after it."""
    at = I4.size
    parts = []
    for _ in range(2):
        if at + I4.size > len(data):
            return None, at
        size = I4.unpack_from(data, at)[0]
        at += I4.size
        if not 0 <= size <= XID_PART_MAX or at + size > len(data):
            return None, at
        parts.append(data[at : at + size])
        at += size
    return Xid(I4.unpack_from(data)[0], gtrid=parts[1], bqual=parts[0]), at


def _unpack(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the padded bytes at ``at`` and the offset of the byte after them."""
    if at + I4.size > len(data):
        return None, at
    size = I4.unpack_from(data, at)[0]
    end = at + I4.size + size
    if size < 0 or end > len(data):
        return None, at
    return data[at + I4.size : end], end + -size % 4


def _pack(part: bytes) -> bytes:
    return I4.pack(len(part)) + part + bytes(-len(part) % 4)
