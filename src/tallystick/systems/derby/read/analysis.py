"""One pass over a log: counts, transactions, damage, and what a restart would drop.

In: a `LogScan`. Out: a `LogAnalysis`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tallystick.records import Outcome
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.format.operations import CHECKPOINT
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.transactions import LoggedTransaction, TransactionCollector

_DAMAGED = (Outcome.CORRUPT, Outcome.TORN)


@dataclass(slots=True)
class LogAnalysis:
    """The result of one pass over all ranges of a log.

    Attributes:
        mark: instant up to which the data pages hold every change: nothing before it is lost.
        checkpoint: instant of the checkpoint that the control file names, and the number of its
            transaction: its record may be damaged.
        records: counts by outcome, and of ``salvaged`` ones.
        damaged: the first range of each run of damage.
        lost_ends: end records that a restart drops, intact ones after damage and damaged ones; not
            those of checkpoints, which change nothing.
        unheld: end records from the mark on after the last checkpoint: all that the data pages may
            not hold.
        mismatched: records that the engine accepts although their envelope is damaged.
        checkpoints: instants of the checkpoint records.
    """

    mark: int = 0
    checkpoint: tuple[int, int | None] = 0, None
    records: Counter[str] = field(default_factory=Counter)
    damaged: list[ByteRange] = field(default_factory=list)
    lost_bytes: int = 0
    lost_records: int = 0
    lost_ends: list[ByteRange] = field(default_factory=list)
    unheld: list[ByteRange] = field(default_factory=list)
    mismatched: list[ByteRange] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    _transactions: TransactionCollector = field(default_factory=TransactionCollector)
    _checkpointing: set[int | None] = field(default_factory=set)

    @property
    def transactions(self) -> list[LoggedTransaction]:
        """All transactions, in order of their first records."""
        return self._transactions.all

    def lost_commits(self, *, whole_log: bool = False) -> list[ByteRange]:
        """Return the commits among the end records that a restart drops, or drops with the log."""
        ends = self.unheld if whole_log else self.lost_ends
        return [one for one in ends if one.body and one.body.group & Group.COMMIT]

    def add(self, one: ByteRange) -> None:
        """Take in the next range."""
        dropped = one.salvaged or one.outcome in _DAMAGED
        lost = dropped and one.place >= self.mark
        self.lost_bytes += one.length if lost else 0
        if one.envelope is None:
            return
        self.records["salvaged" if one.salvaged else one.outcome.value] += 1
        if dropped or one.outcome is Outcome.VALID:
            self._note(one)
        if dropped:
            self._transactions.add_lost(one)
            if lost:
                self._add_lost(one)
        elif one.outcome is Outcome.VALID:
            self._transactions.add(one)
            envelope = one.envelope
            if one.body is not None and one.body.operation == CHECKPOINT:
                self.checkpoints.append(one.place)
            if envelope.instant != one.place or envelope.trailing != envelope.length:
                self.mismatched.append(one)

    def _add_lost(self, one: ByteRange) -> None:
        self.lost_records += 1
        if self._ends(one):
            self.lost_ends.append(one)

    def _note(self, one: ByteRange) -> None:
        body = one.body
        if one.place == self.checkpoint[0]:
            self._checkpointing.add(self.checkpoint[1])
        if body is None:
            return
        if body.operation == CHECKPOINT:
            self._checkpointing.add(body.transaction)
            self.unheld.clear()
        elif body.group & Group.FIRST:
            self._checkpointing.discard(body.transaction)
        if one.place >= self.mark and self._ends(one):
            self.unheld.append(one)

    def _ends(self, one: ByteRange) -> bool:
        """Return whether the record ends or prepares a transaction that is no checkpoint."""
        body = one.body
        if body is None or body.transaction in self._checkpointing:
            return False
        return bool(body.group & (Group.LAST | Group.PREPARE))


def analyse(
    scan: LogScan, mark: int, checkpoint: tuple[int, int | None] = (0, None)
) -> LogAnalysis:
    """Go through the log once; ``mark`` and ``checkpoint`` are those of `LogAnalysis`."""
    found = LogAnalysis(mark, checkpoint)
    before = Outcome.VALID
    for one in scan.ranges():
        found.add(one)
        if one.outcome in _DAMAGED and one.outcome is not before:
            found.damaged.append(one)
        before = one.outcome
    return found
