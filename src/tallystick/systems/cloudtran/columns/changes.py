"""The changes of a block log as Arrow batches, without an object per operation of a whole block.

In: the pieces of a log in the order of reading, and the changes of carried entries. Out: batches of
the `CHANGES` schema by ascending number. The compiled code is loaded for chunks only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tallystick.arrow.schemas import batches_of_changes
from tallystick.records import Change, Clock
from tallystick.systems.cloudtran.format.entries import unsigned
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence
from tallystick.systems.cloudtran.runs.changes import plain_changes
from tallystick.systems.cloudtran.runs.pieces import Piece

if TYPE_CHECKING:
    from tallystick.systems.cloudtran.columns.chunk_changes import ChunkChanges


class ChangeBatcher:
    """Makes batches of at most ``rows`` rows; ``carried`` are merged in by their numbers."""

    def __init__(self, carried: Sequence[Change], log: str, rows: int) -> None:
        self._carried = deque(carried)
        self._log = log
        self._rows = rows
        self._waiting: list[Change] = []

    def batches(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of all pieces."""
        for piece in pieces:
            if not isinstance(piece, BlockOccurrence):
                from tallystick.systems.cloudtran.columns.chunk_changes import ChunkChanges

                yield from self._of_chunk(ChunkChanges.of(piece, self._log))
                continue
            for change in plain_changes([piece], self._log):
                self._let_wait(unsigned(change.commit_sequence))
                self._waiting.append(change)
            if len(self._waiting) >= self._rows:
                yield from self._flush()
        self._let_wait(None)
        yield from self._flush()

    def _of_chunk(self, changes: ChunkChanges) -> Iterator[pa.RecordBatch]:
        begin = 0
        while begin < changes.count:
            # What is carried stands before the first change with a greater number.
            self._let_wait(changes.number(begin))
            end = changes.count
            if self._carried:
                end = changes.first_from(unsigned(self._carried[0].commit_sequence))
            yield from self._flush()
            for place in range(begin, end, self._rows):
                yield changes.batch(place, min(place + self._rows, end))
            begin = end

    def _let_wait(self, number: int | None) -> None:
        """Have carried changes up to a number wait for the next batch; None for all."""
        carried = self._carried
        while carried and (number is None or unsigned(carried[0].commit_sequence) <= number):
            self._waiting.append(carried.popleft())

    def _flush(self) -> Iterator[pa.RecordBatch]:
        yield from batches_of_changes(self._waiting, Clock.WALL_US.value, self._rows)
        self._waiting.clear()
