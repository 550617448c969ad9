"""What a split of a native log closes, as Arrow batches.

In: the walk over a split; later the rests of all splits. Out: batches of the tables
``transactions`` and ``changes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import sliced
from tallystick.arrow.schemas import batches_by_table
from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.records import Change, Clock, Transaction
from tallystick.systems.protocol import LogSealedError
from tallystick.systems.tally.columns.changes import chunk_changes
from tallystick.systems.tally.columns.splits import SplitWalk
from tallystick.systems.tally.read.closing import (
    Closed,
    Edges,
    NotPlainError,
    Rest,
    SplitCloser,
)
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.records import require_key, step_records
from tallystick.systems.tally.read.walk import Expected, Place
from tallystick.systems.tally.runs.chunk import Numbers
from tallystick.systems.tally.runs.pieces import Runs, chunk_of

Batches = Iterator[tuple[str, pa.RecordBatch]]


@dataclass
class ClosingSplit:
    """The closing of one split."""

    walk: SplitWalk
    key: bytes | None
    rows: int
    _closer: SplitCloser = field(init=False)
    _plain: bool = True
    _told: bool = True
    _count: int = 0
    _clear: int = 0
    _numbers: list[Numbers] = field(default_factory=list)

    def batches(self) -> Batches:
        """Yield what the split closes; nothing more once it proves not to be plain."""
        try:
            yield from batches_of_closed(self._closed(), self.rows)
        except (NotPlainError, CorruptLogError, UnsupportedFormatError, LogSealedError):
            self._plain = False

    def _closed(self) -> Iterator[Closed | pa.RecordBatch]:
        file = self.walk.file
        if file is None or file.header is None:
            raise NotPlainError("the segment is gone", file=self.walk.split.file)
        log, segment = self.walk.catalog.folder, file.header.number
        self._closer = SplitCloser(log, segment)
        size = self.walk.split.end - self.walk.split.begin
        for step in self.walk.steps(Runs(size, self.key)):
            if step.place.case is Case.CORRUPT:
                raise NotPlainError("a split is damaged", file=file.path)
            require_key(step, self.key)
            self._look_at(step.place)
            chunk = chunk_of(step.place)
            if chunk is None:
                yield from self._closer.take(step_records(step, self.key))
                continue
            # Before its records are taken: transactions that began in an earlier chunk are not
            # whole here.
            work = chunk.sorted(segment, self._closer.begun)
            self._numbers.append(work.numbers)
            yield from (one for _, one in work.transactions(log, file.path))
            yield from sliced(chunk_changes(log, file.path, work), self.rows)
            yield from self._closer.take(work.other_records(file.path))

    def _look_at(self, place: Place) -> None:
        """Count the records of whole groups, as long as nothing has to be said of a group."""
        if place.case is Case.VALID:
            self._count += place.count
            self._clear += place.count_in_clear
            self._told = self._told and (self.key is not None or self._clear == self._count)
        self._told = self._told and place.case is not Case.REPAIRED

    def rest(self) -> bytes | None:
        """Return what the split leaves open; None if it is not plain."""
        begin, end, file = self.walk.begin, self.walk.end, self.walk.file
        if not self._plain or begin is None or end is None or file is None or not file.header:
            return None
        numbers = np.unique(np.concatenate([*self._numbers, np.empty(0, np.int64)]))
        closed, handed = self._closer.close(numbers.tolist())
        edges = Edges(file.header.number, _due(begin), _due(end))
        counts = (self._count, self._clear) if self._told else (-1, -1)
        return Rest(edges, closed, handed, counts).packed()


def _due(one: Expected) -> tuple[int, int, int]:
    return one.offset, one.lsn, one.chain


def batches_of_closed(closed: Iterable[Closed | pa.RecordBatch], rows: int) -> Batches:
    """Yield transactions and changes by table, in batches of at most ``rows`` rows.

    What is a batch already has changes.
    """
    transactions: list[Transaction] = []
    changes: list[Change] = []
    clock = Clock.WALL_US.value
    for one in closed:
        if isinstance(one, Transaction):
            transactions.append(one)
        elif isinstance(one, Change):
            changes.append(one)
        elif one.num_rows:
            yield "changes", one
        if len(changes) == rows or len(transactions) == rows:
            yield from batches_by_table(transactions, changes, clock, rows)
            transactions, changes = [], []
    yield from batches_by_table(transactions, changes, clock, rows)
