"""One pass over a log: counts, transactions, damage, and what a restart would drop.

In: a `LogScan`. Out: a `LogAnalysis`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tallystick.records import Outcome
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.transactions import LoggedTransaction, TransactionCollector

_DAMAGED = (Outcome.CORRUPT, Outcome.TORN)


@dataclass(slots=True)
class LogAnalysis:
    """The result of one pass over all ranges of a log.

    Attributes:
        mark: instant up to which the data pages hold every change: nothing before it is lost.
        records: counts by outcome, and of ``salvaged`` ones.
        damaged: the first range of each run of damage.
        lost_ends: end records that a restart drops, intact ones after damage and damaged ones.
        mismatched: records that the engine accepts although their envelope is damaged.
    """

    mark: int = 0
    records: Counter[str] = field(default_factory=Counter)
    damaged: list[ByteRange] = field(default_factory=list)
    lost_bytes: int = 0
    lost_records: int = 0
    lost_ends: list[ByteRange] = field(default_factory=list)
    mismatched: list[ByteRange] = field(default_factory=list)
    _transactions: TransactionCollector = field(default_factory=TransactionCollector)

    @property
    def transactions(self) -> list[LoggedTransaction]:
        """All transactions, in order of their first records."""
        return self._transactions.all

    @property
    def lost_commits(self) -> list[ByteRange]:
        """The commits among the end records that a restart drops."""
        return [one for one in self.lost_ends if one.body and one.body.group & Group.COMMIT]

    def add(self, one: ByteRange) -> None:
        """Take in the next range."""
        dropped = one.salvaged or one.outcome in _DAMAGED
        lost = dropped and one.place >= self.mark
        self.lost_bytes += one.length if lost else 0
        if one.envelope is None:
            return
        self.records["salvaged" if one.salvaged else one.outcome.value] += 1
        if dropped:
            self._transactions.add_lost(one)
            if lost:
                self._add_lost(one)
        elif one.outcome is Outcome.VALID:
            self._transactions.add(one)
            envelope = one.envelope
            if envelope.instant != one.place or envelope.trailing != envelope.length:
                self.mismatched.append(one)

    def _add_lost(self, one: ByteRange) -> None:
        self.lost_records += 1
        if one.body is not None and one.body.group & (Group.LAST | Group.PREPARE):
            self.lost_ends.append(one)


def analyse(scan: LogScan, mark: int) -> LogAnalysis:
    """Go through the log once; ``mark`` is that of `LogAnalysis`."""
    found = LogAnalysis(mark)
    before = Outcome.VALID
    for one in scan.ranges():
        found.add(one)
        if one.outcome in _DAMAGED and one.outcome is not before:
            found.damaged.append(one)
        before = one.outcome
    return found
