"""What a part of a block log closes, as Arrow batches.

In: a split, and a function that opens its file. Out: batches of the tables ``transactions`` and
``changes``, and the `Rest`. The part must be whole blocks from its beginning to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tallystick.arrow.columns import sliced
from tallystick.arrow.schemas import batches_by_table
from tallystick.records import Clock, State, Transaction
from tallystick.systems.cloudtran.columns.chunk_changes import ChunkChanges
from tallystick.systems.cloudtran.columns.chunk_transactions import settled_in
from tallystick.systems.cloudtran.read.block_order import BlockOrder, Opener
from tallystick.systems.cloudtran.read.files import BlockFile
from tallystick.systems.cloudtran.read.transactions import TransactionFold
from tallystick.systems.cloudtran.runs import walk
from tallystick.systems.cloudtran.runs.chunk import Chunk, Chunks
from tallystick.systems.cloudtran.runs.rests import Extent, Left, Rest
from tallystick.systems.cloudtran.runs.transactions import entry_of_row
from tallystick.systems.protocol import Split

Batches = Iterator[tuple[str, pa.RecordBatch]]


@dataclass(slots=True)
class ClosingSplit:
    """The closing of one split."""

    file: BlockFile
    opened: Opener
    split: Split
    log: str
    rows: int
    _rest: Rest = field(init=False)
    _open: dict[int, list[Left]] = field(default_factory=dict)
    """The entries of transactions that are not closed yet, by number."""
    _plain: bool = False

    def __post_init__(self) -> None:
        self._rest = Rest(self.file.path, Extent(self.split.end))

    def batches(self) -> Batches:
        """Yield what the split closes; nothing more once it proves not to be plain."""
        order, offset, split = BlockOrder(), self.split.begin, self.split
        order.enter(self.file.serial)
        with self.opened(self.file) as scan:
            stop, chunks = min(split.end, scan.end), Chunks(scan, order, 0, self.file)
            while offset < stop:
                chunk = chunks.next(offset, stop)
                # An entry after the one that closed its transaction here: only the whole log tells
                # what it means.
                if chunk is None or any(map(self._rest.closed.meets, chunk.numbers())):
                    return
                self._note(chunk)
                yield from self._changes(chunk)
                yield from self._close(chunk)
                offset = chunk.end
            at_end = offset == split.end or offset >= scan.end
            self._rest.extent = replace(self._rest.extent, size=len(scan.data))
            self._plain = at_end and len(scan.data) > 0

    def rest(self) -> bytes | None:
        """Return what the split leaves open; None if it is not plain."""
        if not self._plain:
            return None
        self._rest.left = [one for entries in self._open.values() for one in entries]
        return self._rest.packed()

    def _note(self, chunk: Chunk) -> None:
        self._rest.serial = int(chunk.table[0][walk.SERIAL])
        self._rest.unbroken += chunk.unbroken()
        before = self._rest.extent
        self._rest.extent = replace(
            before,
            end=chunk.end,
            valid_bytes=before.valid_bytes + chunk.valid_bytes,
            entries=before.entries + chunk.count,
            ends_closed=int(chunk.ends_closed),
        )
        for numbers in chunk.logged():
            self._rest.logged.add_range(numbers)
        self._rest.carried += chunk.carried()

    def _changes(self, chunk: Chunk) -> Batches:
        changes = ChunkChanges.of(chunk, self.log)
        for begin in range(0, changes.count, self.rows):
            yield "changes", changes.batch(begin, min(begin + self.rows, changes.count))

    def _close(self, chunk: Chunk) -> Batches:
        """Yield the transactions that a chunk ends and that began in the split."""
        settled, rows = settled_in(chunk, self._open, self.log)
        for batch in sliced(settled.batch(), self.rows):
            yield "transactions", batch
        touched: dict[int, None] = {}
        for row in rows:
            one = entry_of_row(self.file.path, chunk.data, row)
            self._open.setdefault(one[0], []).append(one)
            touched[one[0]] = None
        closed = {number: _closed(self._open[number], self.log) for number in touched}
        ended = {number: one for number, one in sorted(closed.items()) if one is not None}
        for number in ended:
            del self._open[number]
            self._rest.closed.add(number)
        for numbers in settled.ranges():
            self._rest.closed.add_range(numbers)
        yield from batches_by_table(ended.values(), (), Clock.WALL_US.value, self.rows)


def _closed(entries: list[Left], log: str) -> Transaction | None:
    """Return the transaction of entries that begin with its first and close it, else None."""
    fold = TransactionFold(log)
    for one in entries:
        fold.add(*one)
        if not fold.known:
            return None  # it began in an earlier part
    (closed,) = fold.known.values()
    carried = "carried_forward" in closed.attributes
    return None if carried or closed.state is State.PENDING else closed
