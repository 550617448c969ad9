"""The records of one plain file as a step of a stream needs them, in columns.

In: a file. Out: `FileRecords` that agree with those of `read_records`, without an object per
record; a file that is not plain is read record by record.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Set
from typing import Any

import numpy as np

from tallystick.systems.jboss.format.layout import COMMIT, ROLLBACK
from tallystick.systems.jboss.read.changes import Crossing, FileRecords, RecordsOf, read_records
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.scan import OFFSET, SIZE
from tallystick.systems.jboss.runs.chunk import INSIDE, Chunk, chunk_of
from tallystick.systems.jboss.runs.pieces import (
    FILE_SIZE_MAX,
    file_rows,
    is_plain,
    valid_rows,
)


def plain_records(
    journal: JournalFiles, file: JournalFile, one_by_one: RecordsOf = read_records
) -> FileRecords:
    """Read the records of a file. Raises what ``one_by_one`` does, which reads damaged ones."""
    if file.size > FILE_SIZE_MAX:
        return one_by_one(journal, file)
    shape, data = journal.shape(file), file.data()
    rows = file_rows(file, shape)
    if not is_plain(rows, data, shape, file.stamp):
        return one_by_one(journal, file)
    return _PlainRecords(chunk_of(shape, data, valid_rows(rows)))


class _PlainRecords:
    """The records of a plain file."""

    def __init__(self, records: Chunk) -> None:
        self._records = records
        self._ends = records.rows[:, OFFSET] + records.rows[:, SIZE]

    @property
    def is_empty(self) -> bool:
        return not len(self._ends)

    def has_end(self, offsets: Collection[int]) -> bool:
        return any(bool((self._ends == one).any()) for one in offsets)

    def committed(self, low: int, high: int) -> Iterable[int]:
        commits = (self._records.kinds == COMMIT) & self._within(low, high)
        found: list[int] = self._records.transactions[commits].tolist()
        return found

    def chosen(self, numbers: Set[int], low: int, high: int) -> Iterator[tuple[int, int]]:
        inside = INSIDE[self._records.kinds]
        wanted = np.isin(self._records.transactions, np.array(list(numbers), np.int64))
        found = self._records.rows[np.where(inside, wanted, self._within(low, high))]
        yield from zip(found[:, OFFSET].tolist(), found[:, SIZE].tolist(), strict=True)

    def crossing(self) -> Crossing:
        inside = self._records.at(INSIDE[self._records.kinds])
        ends = (inside.kinds == COMMIT) | (inside.kinds == ROLLBACK)
        # `unique` returns the place of the first occurrence: reversed, that of the last record.
        found, last = np.unique(inside.transactions[::-1], return_index=True)
        ended = np.unique(inside.transactions[ends])
        return Crossing(_longs(found[~ends[::-1][last]]), _longs(ended))

    def _within(self, low: int, high: int) -> Any:
        return (self._ends > low) & (self._ends <= high)


def _longs(numbers: Any) -> array[int]:
    return array("q", numbers.tobytes())
