"""The coordinator's own id inside the global ids that it makes.

Bitronix and Tallystick build a gtrid from the coordinator's id, 8 bytes of time and 4 bytes
of sequence; it is read from the end and compared whole: ``bank-1`` is not ``bank-10``.
"""

from __future__ import annotations

BITRONIX = 0x42746E78
"""Format id of coordinators whose records hold none."""

SUFFIX = 12
"""Bytes of time and sequence at the end of a gtrid."""

TIME = 8
"""Bytes of time, big-endian: milliseconds since boot (Bitronix before 3.0) or since 1970."""


def owner_of(gtrid: bytes) -> bytes | None:
    """Return the coordinator's id; None in a gtrid too short to hold one."""
    return gtrid[:-SUFFIX] if len(gtrid) > SUFFIX else None


def time_of(gtrid: bytes) -> int | None:
    """Return the time in the gtrid as its coordinator counts it."""
    if len(gtrid) <= SUFFIX:
        return None
    return int.from_bytes(gtrid[-SUFFIX : TIME - SUFFIX], "big")
