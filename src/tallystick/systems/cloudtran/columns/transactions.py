"""The transactions of a block log as Arrow batches, without an object per plain one.

In: the pieces of a log in the order of reading. Out: batches of the `TRANSACTIONS` schema by
ascending number. The compiled code is loaded for chunks only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from tallystick.arrow.schemas import batches_of_transactions, rebatched
from tallystick.records import Clock, Transaction
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence
from tallystick.systems.cloudtran.read.interval_set import IntervalSet
from tallystick.systems.cloudtran.read.transactions import TransactionFold
from tallystick.systems.cloudtran.runs.pieces import Piece
from tallystick.systems.cloudtran.runs.transactions import add_rows

if TYPE_CHECKING:
    from tallystick.systems.cloudtran.columns.chunk_transactions import ChunkTransactions
    from tallystick.systems.cloudtran.runs.chunk import Chunk

_CLOCK = Clock.WALL_US.value


class TransactionBatcher:
    """Makes batches of at most ``rows`` rows.

    Transactions that begin and end in one chunk are held as columns, all others as objects, until
    the end of the log: a later entry may belong to any of them.
    """

    def __init__(self, log: str, rows: int) -> None:
        self._rows = rows
        self._log = log
        self._fold = TransactionFold(log)
        self._chunks: list[ChunkTransactions] = []
        self._settled = IntervalSet()
        """The numbers of the transactions in ``_chunks``."""
        self._last = 0

    def batches(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch] | None:
        """Return all transactions; None if one has entries after the chunk that ended it.

        None, too, if numbers do not grow from chunk to chunk.
        """
        for piece in pieces:
            if isinstance(piece, BlockOccurrence):
                taken = self._take_block(piece)
            else:
                taken = self._take_chunk(piece)
            if not taken:
                return None
        return rebatched(self._pieces(), self._rows)

    def _take_block(self, occurrence: BlockOccurrence) -> bool:
        entries = occurrence.block.entries if occurrence.block.readable else ()
        if any(placed.entry.number in self._settled for placed in entries):
            return False
        if entries:
            self._fold.add_block(occurrence)
        return True

    def _take_chunk(self, chunk: Chunk) -> bool:
        if any(map(self._settled.meets, chunk.numbers())):
            return False
        from tallystick.systems.cloudtran.columns.chunk_transactions import settled_in

        settled, rows = settled_in(chunk, self._fold.numbers(), self._log)
        add_rows(self._fold, chunk.file.path, chunk.data, rows)
        keys = settled.keys
        if not len(keys):
            return True
        first, self._last, before = int(keys[0]), int(keys[-1]), self._last
        for numbers in settled.ranges():
            self._settled.add_range(numbers)
        self._chunks.append(settled)
        # `_pieces` takes the chunks for sorted.
        return first > before

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        """Yield the transactions by number: those of chunks, cut where others come between."""
        others = sorted(self._fold.known)
        at = 0
        for one in self._chunks:
            batch, begin = one.batch(), 0
            last = bisect_left(others, int(one.keys[-1]), at)
            while at < last:
                # Unsigned, as the keys are: with a signed number both would be compared as floats.
                place = int(one.keys.searchsorted(one.keys.dtype.type(others[at])))
                end = bisect_left(others, int(one.keys[place]), at)
                yield batch.slice(begin, place - begin)
                yield from self._objects(others[at:end])
                begin, at = place, end
            yield batch.slice(begin)
        yield from self._objects(others[at:])

    def _objects(self, some: list[int]) -> Iterator[pa.RecordBatch]:
        found: list[Transaction] = [self._fold.known[number] for number in some]
        return batches_of_transactions(found, _CLOCK, self._rows)
