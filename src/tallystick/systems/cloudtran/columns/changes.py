"""The changes of a block log as Arrow batches, without an object per operation of a whole block.

In: blocks and runs of blocks in the order of reading, and the changes of carried entries. Out:
batches of the `CHANGES` schema by ascending number. The compiled code is loaded for runs only.
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
from tallystick.systems.cloudtran.read.changes import plain_changes
from tallystick.systems.cloudtran.read.whole_blocks import RunOccurrence

if TYPE_CHECKING:
    from tallystick.systems.cloudtran.columns.run_changes import RunChanges


class ChangeBatcher:
    """Makes batches of at most ``rows`` rows; ``carried`` are merged in by their numbers."""

    def __init__(self, carried: Sequence[Change], log: str, rows: int) -> None:
        self._carried = deque(carried)
        self._log = log
        self._rows = rows
        self._waiting: list[Change] = []

    def batches(
        self, occurrences: Iterable[BlockOccurrence | RunOccurrence]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the changes of blocks and runs."""
        for occurrence in occurrences:
            if isinstance(occurrence, RunOccurrence):
                yield from self._of_run(_run_changes(occurrence, self._log))
                continue
            for change in plain_changes([occurrence], self._log):
                self._let_wait(unsigned(change.commit_sequence))
                self._waiting.append(change)
            if len(self._waiting) >= self._rows:
                yield from self._flush()
        self._let_wait(None)
        yield from self._flush()

    def _of_run(self, changes: RunChanges) -> Iterator[pa.RecordBatch]:
        begin = 0
        while begin < changes.count:
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


def _run_changes(occurrence: RunOccurrence, log: str) -> RunChanges:
    from tallystick.systems.cloudtran.columns.run_changes import RunChanges

    return RunChanges.of(occurrence, log)
