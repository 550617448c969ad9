"""One pass over a log: counts, transactions, damage, and what a restart would drop.

In: a `LogScan`. Out: a `LogAnalysis`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tallystick.records import Outcome
from tallystick.systems.derby.format.layout import HEADER_SIZE, Group
from tallystick.systems.derby.format.operations import CHECKPOINT
from tallystick.systems.derby.read.scan import FileScan, LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.transactions import LoggedTransaction, TransactionCollector

TakeRun = Callable[["LogAnalysis", FileScan], int]
"""Takes the run of plain records that a file begins with; returns the offset after it."""

Collect = Callable[[TransactionCollector], None]
"""Collects transactions from records that were taken in."""

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
            not hold. Those of runs that were taken at once are left out.
        mismatched: records that the engine accepts although their envelope is damaged.
        checkpoints: instants of the checkpoint records.
        checkpointing: numbers of transactions that make a checkpoint.
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
    checkpointing: set[int | None] = field(default_factory=set)
    _before: Outcome = Outcome.VALID
    _collector: TransactionCollector = field(default_factory=TransactionCollector)
    _later: list[Collect] = field(default_factory=list)

    @property
    def transactions(self) -> list[LoggedTransaction]:
        """All transactions, in order of their first records."""
        return self._collected().all

    def collect_later(self, collect: Collect) -> None:
        """Have the transactions of the next records collected once they are asked for."""
        self._later.append(collect)

    def _collected(self) -> TransactionCollector:
        for collect in self._later:
            collect(self._collector)
        self._later.clear()
        return self._collector

    def lost_commits(self, *, whole_log: bool = False) -> list[ByteRange]:
        """Return the commits among the end records that a restart drops, or drops with the log."""
        ends = self.unheld if whole_log else self.lost_ends
        return [one for one in ends if one.body and one.body.group & Group.COMMIT]

    def add_valid(self, count: int, begun: Iterable[int | None]) -> None:
        """Count records of a run; ``begun`` are the transactions that begin in it."""
        self._before = Outcome.VALID
        self.records[Outcome.VALID.value] += count
        self.checkpointing.difference_update(begun)

    def add(self, one: ByteRange, *, collected: bool = False) -> None:
        """Take in the next range; if ``collected``, without its transaction."""
        if one.outcome in _DAMAGED and one.outcome is not self._before:
            self.damaged.append(one)
        self._before = one.outcome
        self._add(one, collected)

    def _add(self, one: ByteRange, collected: bool) -> None:
        dropped = one.salvaged or one.outcome in _DAMAGED
        lost = dropped and one.place >= self.mark
        self.lost_bytes += one.length if lost else 0
        if one.envelope is None:
            return
        self.records["salvaged" if one.salvaged else one.outcome.value] += 1
        if dropped or one.outcome is Outcome.VALID:
            self._note(one)
        if dropped:
            self._collected().add_lost(one)
            if lost:
                self._add_lost(one)
        elif one.outcome is Outcome.VALID:
            if not collected:
                self._collected().add(one)
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
            self.checkpointing.add(self.checkpoint[1])
        if body is None:
            return
        if body.operation == CHECKPOINT:
            self.checkpointing.add(body.transaction)
            self.unheld.clear()
        elif body.group & Group.FIRST:
            self.checkpointing.discard(body.transaction)
        if one.place >= self.mark and self._ends(one):
            self.unheld.append(one)

    def _ends(self, one: ByteRange) -> bool:
        """Return whether the record ends or prepares a transaction that is no checkpoint."""
        body = one.body
        if body is None or body.transaction in self.checkpointing:
            return False
        return bool(body.group & (Group.LAST | Group.PREPARE))


def analyse(
    scan: LogScan,
    mark: int,
    checkpoint: tuple[int, int | None] = (0, None),
    take: TakeRun | None = None,
) -> LogAnalysis:
    """Go through the log once; ``mark`` and ``checkpoint`` are those of `LogAnalysis`."""
    found = LogAnalysis(mark, checkpoint)
    for number in scan.log.files:
        file = scan.file(number)
        found.add(file.header())
        for one in file.rest(take(found, file) if take is not None else HEADER_SIZE):
            found.add(one)
    return found
