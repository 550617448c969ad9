"""One pass over all pieces of a log, and what comes out of it.

In: the walk. Out: counts, transactions, damage, and what a boot would drop.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tallystick.records import Outcome
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.read.byte_ranges import Piece
from tallystick.systems.derby.read.scan import Walk
from tallystick.systems.derby.read.transactions import Histories


@dataclass(slots=True)
class Account:
    """One pass over all pieces: what counts, what the engine believes, what lies behind.

    ``mark`` is the instant up to which the data pages hold everything: nothing before it is lost.
    """

    mark: int = 0
    records: Counter[str] = field(default_factory=Counter)
    histories: Histories = field(default_factory=Histories)
    damaged: list[Piece] = field(default_factory=list)
    """First piece of each run of damage."""
    lost_bytes: int = 0
    lost_records: int = 0
    lost_ends: list[Piece] = field(default_factory=list)
    """End records that a boot drops: of intact groups behind damage, and of damaged groups."""
    odd: list[Piece] = field(default_factory=list)
    """Records that the engine accepts although their envelope is damaged."""

    def take(self, walk: Walk) -> Account:
        """Go through the log once."""
        before = Outcome.VALID
        for piece in walk.pieces():
            self._take(piece)
            bad = piece.outcome in (Outcome.CORRUPT, Outcome.TORN)
            if bad and piece.outcome is not before:
                self.damaged.append(piece)
            before = piece.outcome
        return self

    def _take(self, piece: Piece) -> None:
        dropped = piece.salvaged or piece.outcome in (Outcome.CORRUPT, Outcome.TORN)
        lost = dropped and piece.place >= self.mark
        self.lost_bytes += piece.length if lost else 0
        if piece.envelope is None:
            return
        self.records["salvaged" if piece.salvaged else piece.outcome.value] += 1
        if dropped:
            self.histories.add_lost(piece)
            if lost:
                self._take_lost(piece)
        elif piece.outcome is Outcome.VALID:
            self.histories.add(piece)
            own = piece.envelope.instant == piece.place
            if not own or piece.envelope.trailing != piece.envelope.length:
                self.odd.append(piece)

    def _take_lost(self, piece: Piece) -> None:
        self.lost_records += 1
        if piece.body is not None and piece.body.group & (Group.LAST | Group.PREPARE):
            self.lost_ends.append(piece)

    def lost_commits(self) -> list[Piece]:
        """The commits among the end records that a boot drops."""
        return [one for one in self.lost_ends if one.body and one.body.group & Group.COMMIT]
