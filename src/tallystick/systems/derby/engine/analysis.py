"""One pass over a log: counts, transactions, damage, and what a restart would drop.

In: the pieces of a log. Out: a `LogAnalysis`. Memory grows with what is open, damaged or lost.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tallystick.records import Kind, Outcome
from tallystick.systems.derby.format.layout import Group, make_instant
from tallystick.systems.derby.format.operations import (
    BEGIN,
    CHECKPOINT,
    STATUS_INTERNAL,
    keeps_house,
)
from tallystick.systems.derby.format.record_body import Body, kind_of
from tallystick.systems.derby.read.files import LogBytes
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.transactions import TransactionCollector
from tallystick.systems.derby.runs.pieces import file_pieces
from tallystick.systems.runs import RunCount

if TYPE_CHECKING:
    from tallystick.systems.derby.runs.chunk import Chunk, Runs

_COMMIT = int(Group.COMMIT)
_DAMAGED = (Outcome.CORRUPT, Outcome.TORN)


class End(NamedTuple):
    """A record that ends or prepares a transaction."""

    file: LogBytes
    offset: int
    length: int
    transaction: int | None
    operation: int
    group: int

    @property
    def place(self) -> int:
        """The instant of its first byte."""
        return make_instant(self.file.number, self.offset)

    @property
    def kind(self) -> Kind:
        """What it does."""
        return kind_of(self.operation, self.group)


class _Known(NamedTuple):
    """What is known of a transaction: the engine's own; it changes rows, tables or indexes."""

    internal: bool
    changes: bool


@dataclass(slots=True)
class LogAnalysis:
    """The result of one pass over all ranges of a log.

    Attributes:
        written: instant up to which the data pages hold every change, or 0 where the checkpoint
            does not tell it.
        checkpoint: instant of the checkpoint that the control file names, and the number of its
            transaction: its record may be damaged.
        records: counts by outcome, and of ``salvaged`` ones.
        damaged: the first range of each run of damage.
        lost_ends: end records that a restart drops, intact ones after damage and damaged ones; not
            those of checkpoints, which change nothing, nor of transactions that nobody misses: the
            engine's own, and those that change no row, table or index.
        unheld: end records from the mark on after the last checkpoint: all that the data pages may
            not hold. Those of chunks are left out.
        mismatched: records that the engine accepts although their envelope is damaged.
        checkpoints: instants of the checkpoint records.
        checkpointing: numbers of transactions that make a checkpoint.
        transactions: those of all records.
        run_count: how many records were read in runs, and one by one.
    """

    written: int = 0
    checkpoint: tuple[int, int | None] = 0, None
    records: Counter[str] = field(default_factory=Counter)
    damaged: list[ByteRange] = field(default_factory=list)
    lost_bytes: int = 0
    lost_records: int = 0
    lost_ends: list[End] = field(default_factory=list)
    unheld: list[End] = field(default_factory=list)
    mismatched: list[ByteRange] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    checkpointing: set[int | None] = field(default_factory=set)
    _before: Outcome = Outcome.VALID
    _dropped: dict[int, _Known] = field(default_factory=dict)
    """What is known of the transactions of dropped records."""
    transactions: TransactionCollector = field(default_factory=TransactionCollector)
    run_count: RunCount = field(default_factory=RunCount)

    @property
    def mark(self) -> int:
        """Instant before which nothing is lost: the data pages hold every change."""
        return self.written or self.checkpoint[0]

    def lost_commits(self, *, whole_log: bool = False) -> list[End]:
        """Return the commits among the end records that a restart drops, or drops with the log."""
        ends = self.unheld if whole_log else self.lost_ends
        return [one for one in ends if one.group & _COMMIT]

    def forgive_from(self, instant: int) -> None:
        """Leave out the ends of transactions from an instant on: none was acknowledged."""
        self.lost_ends = [one for one in self.lost_ends if one.place < instant]
        self.unheld = [one for one in self.unheld if one.place < instant]

    def add(self, one: ByteRange) -> None:
        """Take in the next range."""
        self._add(one)
        if one.envelope is None:
            return
        self.run_count.one_by_one += 1
        if one.salvaged or one.outcome in _DAMAGED:
            body = one.body
            if body is not None and body.transaction is not None:
                self.transactions.add_lost(body.transaction, body.name)
        elif one.outcome is Outcome.VALID:
            self.transactions.add(one)

    def _add(self, one: ByteRange) -> None:
        """Take in the next range, without its transaction."""
        if one.outcome in _DAMAGED and one.outcome is not self._before:
            self.damaged.append(one)
        self._before = one.outcome
        dropped = one.salvaged or one.outcome in _DAMAGED
        lost = dropped and one.place >= self.mark
        self.lost_bytes += one.length if lost else 0
        if one.envelope is None:
            return
        self.records["salvaged" if one.salvaged else one.outcome.value] += 1
        if dropped:
            self._follow(one.body, one.place)
        if dropped or one.outcome is Outcome.VALID:
            self._note(one)
        if lost:
            self.lost_records += 1
            self.lost_ends += self._end_of(one)
        if not dropped and one.outcome is Outcome.VALID:
            envelope = one.envelope
            if one.body is not None and one.body.operation == CHECKPOINT:
                self.checkpoints.append(one.place)
            if envelope.instant != one.place or envelope.trailing != envelope.length:
                self.mismatched.append(one)

    def add_chunk(self, scan: LogScan, chunk: Chunk) -> None:
        """Take in the next chunk of a log with such a scan."""
        self.run_count.in_runs += chunk.size
        self._collect(chunk)
        begin = 0
        for row in chunk.marking(self.checkpoint[0]):
            self._add_plain(chunk.rows(begin, row))
            self._add(chunk.range(row, scan))
            begin = row + 1
        self._add_plain(chunk.rows(begin, chunk.size))

    def _collect(self, chunk: Chunk) -> None:
        from tallystick.systems.derby.runs.transactions import collect

        if not chunk.dropped:
            collect(self.transactions, chunk)
        elif self.transactions.keep_all:  # else nobody asks which records are lost
            for number, name in chunk.names():
                self.transactions.add_lost(number, name)

    def _add_plain(self, chunk: Chunk) -> None:
        """Take in records that make no checkpoint."""
        if not chunk.size:
            return
        self._before = Outcome.VALID
        self.records["salvaged" if chunk.dropped else Outcome.VALID.value] += chunk.size
        if chunk.dropped:
            lost = chunk.lengths[chunk.instants >= self.mark]
            self.lost_bytes += int(lost.sum())
            self.lost_records += lost.size
            at = int((chunk.instants < self.written).sum())
            self._add_ends(chunk.rows(0, at), counts=False)
            self._add_ends(chunk.rows(at, chunk.size), counts=True)
        # Of most chunks nothing is to be found here.
        if self.checkpointing:
            self.checkpointing.difference_update(chunk.begun())

    def _add_ends(self, chunk: Chunk, *, counts: bool) -> None:
        """Take in the ends of dropped records, each with what is known by then.

        Args:
            chunk: of them.
            counts: whether their changes are missed.
        """
        from tallystick.systems.derby.runs.transactions import (
            BEGINS,
            CHANGES,
            FIRST,
            INTERNAL,
            NUMBER,
            summed,
        )

        columns = summed(chunk)[[FIRST, NUMBER, BEGINS, INTERNAL, CHANGES]]
        begun: deque[tuple[int, int, int, int, int]] = deque(zip(*columns.tolist(), strict=True))

        def know_until(place: float) -> None:
            while begun and begun[0][0] <= place:
                _, number, begins, internal, changes = begun.popleft()
                self._know(number, bool(begins), bool(internal), counts and bool(changes))

        # A number may be used again within the chunk: each end is judged by what was begun up to
        # it.
        for one in chunk.ends(self.mark, self.checkpointing):
            end = End(chunk.file, *one)
            know_until(end.place)
            if self._is_missed(end.transaction):
                self.lost_ends.append(end)
        know_until(math.inf)

    def _follow(self, body: Body | None, place: int) -> None:
        """Take in what a dropped record says of its transaction.

        A change that the pages hold is not missed: no restart knows of it, or takes it back.
        """
        if body is not None and body.transaction is not None:
            begins = body.operation == BEGIN
            internal = begins and body.fields["transactionStatus"] == STATUS_INTERNAL
            changes = place >= self.written and not keeps_house(body.operation, body.fields)
            self._know(body.transaction, begins, internal, changes)

    def _know(self, number: int, begins: bool, internal: bool, changes: bool) -> None:
        known = _Known(internal, False) if begins else self._known(number)
        self._dropped[number] = _Known(known.internal, known.changes or changes)

    def _known(self, number: int) -> _Known:
        if (found := self._dropped.get(number)) is not None:
            return found
        one = self.transactions.open_one(number)
        return _Known(False, True) if one is None else _Known(one.internal, one.changes)

    def _is_missed(self, number: int | None) -> bool:
        """Return whether somebody misses a transaction whose end is dropped."""
        known = _Known(False, True) if number is None else self._known(number)
        return known.changes and not known.internal

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
        if one.place >= self.mark:
            self.unheld += self._end_of(one)

    def _end_of(self, one: ByteRange) -> list[End]:
        """Return the record if it ends or prepares a transaction that is no checkpoint."""
        body = one.body
        if body is None or body.transaction in self.checkpointing:
            return []
        if not body.group & (Group.LAST | Group.PREPARE) or not self._is_missed(body.transaction):
            return []
        group = int(body.group)
        return [End(one.file, one.offset, one.length, body.transaction, body.operation, group)]


def analyse(
    scan: LogScan,
    written: int,
    checkpoint: tuple[int, int | None] = (0, None),
    runs: Runs | None = None,
    *,
    keep_all: bool = False,
) -> LogAnalysis:
    """Go through the log once; twice if transactions go on after their ends.

    Args:
        scan: of the log.
        written: that of `LogAnalysis`.
        checkpoint: that of `LogAnalysis`.
        runs: of the log.
        keep_all: keep all transactions.
    """
    transactions = TransactionCollector(keep_all=keep_all)
    found = LogAnalysis(written, checkpoint, transactions=transactions)
    for number in scan.log.files:
        for piece in file_pieces(scan.file(number), runs):
            if isinstance(piece, ByteRange):
                found.add(piece)
            else:
                found.add_chunk(scan, piece)
    if found.transactions.again:
        return analyse(scan, written, checkpoint, runs, keep_all=True)
    return found
