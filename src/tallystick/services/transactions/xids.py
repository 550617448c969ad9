"""Global transaction ids and branch ids of this coordinator.

In: a node id, the time, a counter. Out: XA ids built like Bitronix's (server id, 8 bytes
of time, 4 bytes of sequence) but in ASCII throughout: time and sequence are digits of an
alphabet of 64 whose order is that of the bytes, so ids sort by time, and every database
and driver spells them alike: psycopg and pgjdbc give the same text.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from tallystick.arguments import text
from tallystick.errors import TransactionUsageError
from tallystick.reconcile.ids import ALPHABET, number_of
from tallystick.records import Xid
from tallystick.storage.scheduling import time

FORMAT_ID = 0x42746E78
"""Bitronix's format id: its tools and ours see each other's branches."""

NODE_MAX = 51
"""Bytes of a node id: 64 less the 12 of time and sequence, less one as Bitronix counts."""

TIME_DIGITS = 8
SEQUENCE_DIGITS = 4
_SUFFIX = TIME_DIGITS + SEQUENCE_DIGITS
_SEQUENCES = 1 << (6 * SEQUENCE_DIGITS)


_MEMBER_SHIFT = 6 * SEQUENCE_DIGITS - 8
"""Bits of a sequence number below the number of the process."""


def check_node(node: str) -> str:
    """Return the node id if it can be one.

    Raises:
        TypeError: it is no text.
        TransactionUsageError: it is empty, too long, or not printable ASCII.
    """
    if not text(node, "node").isascii() or not node.isprintable() or not 1 <= len(node) <= NODE_MAX:
        raise TransactionUsageError(
            f"{node!r} cannot be a node id",
            expected=f"1 to {NODE_MAX} printable ASCII characters",
            advice="Give every coordinator a stable id of its own, such as 'orders-1'",
        )
    return node


def node_of(gtrid: bytes) -> str | None:
    """Return the node id in a global id, read from the end; None if there is none."""
    if len(gtrid) <= _SUFFIX:
        return None
    return gtrid[:-_SUFFIX].decode("ascii", "replace")


def time_of(gtrid: bytes) -> int | None:
    """Return the time in a global id of ours, in milliseconds since 1970; None in another."""
    return number_of(gtrid[-_SUFFIX:-SEQUENCE_DIGITS]) if len(gtrid) >= _SUFFIX else None


def member_of(gtrid: bytes) -> int | None:
    """Return the number of the process in a global id of a node that processes share."""
    value = number_of(gtrid[-SEQUENCE_DIGITS:])
    return None if value is None else value >> _MEMBER_SHIFT


# Two digits at a time: a transaction over two resources makes three ids.
_PAIRS: tuple[bytes, ...] = tuple(f"{high}{low}".encode() for high in ALPHABET for low in ALPHABET)


def _digits(value: int, count: int) -> bytes:
    """Return ``count`` digits, an even number, most significant first."""
    pairs = [_PAIRS[(value >> shift) & 4095] for shift in range(count * 6 - 12, -1, -12)]
    return b"".join(pairs)


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class XidFactory:
    """Makes ids that are unique for a node.

    The counter starts at random in every process, so that an id does not come again after the
    clock was set back. ``clock`` returns milliseconds since 1970. Where several processes share a
    node, the first 8 bits of a sequence number are those of ``member``, the number of the process,
    and no time is before ``since``, when the process got it.
    """

    node: str
    clock: Callable[[], int] = _milliseconds
    member: int | None = None
    since: int = 0
    _first: int = field(default_factory=lambda: secrets.randbelow(_SEQUENCES))
    _counter: itertools.count[int] = field(init=False)

    _prefix: tuple[int, bytes] = (-1, b"")
    """The last millisecond, and the bytes that every id of it begins with."""

    def __post_init__(self) -> None:
        check_node(self.node)
        self._counter = itertools.count(self._first)

    def gtrid(self) -> bytes:
        """Return a new global id, at most 63 bytes."""
        now = self.clock()
        if now < self.since:
            now = self.since
        moment, prefix = self._prefix
        if now != moment:
            prefix = self.node.encode("ascii") + _digits(now, TIME_DIGITS)
            self._prefix = now, prefix
        return prefix + self._sequence()

    def branch(self, gtrid: bytes) -> Xid:
        """Return the id of a new branch of a global transaction of this node.

        Its bqual has node and time of the gtrid and a sequence number of its own.
        """
        return Xid(FORMAT_ID, gtrid, gtrid[:-SEQUENCE_DIGITS] + self._sequence())

    def has_made(self, gtrid: bytes) -> bool:
        """Return True for an id that this factory has made, by its sequence number.

        Of another factory of the node only as chance has it, by as much as its numbers overlap.
        """
        number, count = number_of(gtrid[-SEQUENCE_DIGITS:]), _SEQUENCES
        if self.member is not None:
            count = 1 << _MEMBER_SHIFT
            if member_of(gtrid) != self.member:
                return False
        made = next(self._counter) - self._first  # a number may be left out
        return number is not None and (number - self._first) % count < made

    def _sequence(self) -> bytes:
        sequence = next(self._counter) % _SEQUENCES
        if self.member is not None:
            sequence = self.member << _MEMBER_SHIFT | sequence % (1 << _MEMBER_SHIFT)
        return _PAIRS[sequence >> 12] + _PAIRS[sequence & 4095]
