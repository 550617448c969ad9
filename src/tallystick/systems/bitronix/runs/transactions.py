"""How many global transactions of a journal are in which state, and which have not ended.

In: the pieces of both files. Out: `States`; memory grows with the transactions that are open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from tallystick.systems.bitronix.format.layout import CLOSING, GTRID_TAIL
from tallystick.systems.bitronix.read.files import DualFiles
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions
from tallystick.systems.bitronix.read.scan import RecordSpan
from tallystick.systems.bitronix.read.transactions import state_of, united
from tallystick.systems.bitronix.runs.pieces import pieces

if TYPE_CHECKING:
    from tallystick.systems.bitronix.runs.chunk import Chunk
    from tallystick.systems.bitronix.runs.pieces import Piece

CLOSED_MAX = 1 << 16
"""Ends of gtrids of closed transactions that are kept, the latest ones."""
_TAIL_SIZE = GTRID_TAIL.size
_ENDED = {status: state_of(status, is_open=False).value for status in CLOSING}
"""The words for the states of those that have ended; an enum takes as long as the rest to say."""


class Unfinished(NamedTuple):
    """A transaction without an end so far: its last status, and the names of all its records."""

    status: int
    names: tuple[str, ...]


class States:
    """How many transactions there are by state, and those that have not ended.

    A transaction that has ended is counted and forgotten, but for the end of its gtrid (time and
    number, which only grow). Of these the latest are kept, so that a gtrid of a closed transaction
    is known where it is met again. It is then in ``again``, and the records are to be read once
    more, by a fold that never forgets it.
    """

    def __init__(self, decisions: OpenDecisions, kept: Collection[bytes] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self.unfinished: dict[bytes, Unfinished] = {}
        self.again: set[bytes] = set()
        self._decisions = decisions
        self._kept = kept
        self._closed: set[bytes] = set()
        self._below = b""
        """The largest gtrid end that was dropped from `_closed`: one up to it may be known."""

    def take(self, piece: Piece) -> None:
        """Take the next piece of the journal."""
        if not isinstance(piece, RecordSpan):
            self._take_chunk(piece)
        elif (one := piece.whole) is not None and self._stays(one.gtrid, one.status):
            self._unite(one.gtrid, one.status, one.unique_names)

    def _take_chunk(self, chunk: Chunk) -> None:
        firsts, lasts = chunk.ends()
        gtrids, statuses = chunk.gtrids(firsts), chunk.columns["statuses"][lasts].tolist()
        stays = {
            number: gtrid
            for number, gtrid in enumerate(gtrids)
            if self._stays(gtrid, statuses[number])
        }
        rows = chunk.rows_of(list(stays))
        groups = chunk.groups.of_rows[rows].tolist()
        for number, names in zip(groups, chunk.names(rows), strict=True):
            self._unite(stays[number], statuses[number], names)

    def _stays(self, gtrid: bytes, status: int) -> bool:
        """Return whether a transaction is unfinished after records of which the last is this."""
        # Time and number, big-endian: bytes of one length sort as these numbers do.
        end = gtrid[-_TAIL_SIZE:]
        known = gtrid in self.unfinished
        if not known and gtrid not in self._kept and (end <= self._below or end in self._closed):
            self.again.add(gtrid)
        if status not in CLOSING or gtrid in self._decisions or gtrid in self._kept:
            return True
        if known:
            del self.unfinished[gtrid]
        self.counts[_ENDED[status]] += 1
        self._closed.add(end)
        # At twice the number, so that a sort is paid for by as many transactions as it drops.
        if len(self._closed) > 2 * CLOSED_MAX:
            ends = sorted(self._closed)
            self._below, self._closed = ends[-CLOSED_MAX - 1], set(ends[-CLOSED_MAX:])
        return False

    def _unite(self, gtrid: bytes, status: int, names: tuple[str, ...]) -> None:
        known = self.unfinished.get(gtrid)
        every = names if known is None else united(known.names, names)
        self.unfinished[gtrid] = Unfinished(status, every)

    def finish(self) -> None:
        """Count the unfinished ones."""
        for gtrid, one in self.unfinished.items():
            state = state_of(one.status, is_open=gtrid in self._decisions)
            self.counts[state.value] += 1


def states_of(pair: DualFiles, decisions: OpenDecisions) -> States:
    """Return the transactions by state, where these decisions are open after the last record."""
    kept: set[bytes] = set()
    while True:
        found = States(decisions, kept)
        for part in pair.order():
            for piece in pieces(part, pair.newest):
                found.take(piece)
        if not found.again:
            found.finish()
            return found
        kept |= found.again
