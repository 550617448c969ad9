"""The records of one plain file as a step of a stream needs them, in columns.

In: a file. Out: `FileRecords` that agree with those of `read_records`, without an object per
record; a file that is not plain is read record by record.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Set
from typing import Any

import numpy as np

from tallystick.systems.jboss.columns.fields import type_table
from tallystick.systems.jboss.columns.kernels import features, fill_fields
from tallystick.systems.jboss.columns.plain_files import (
    FILE_SIZE_MAX,
    file_rows,
    is_plain,
    valid_rows,
)
from tallystick.systems.jboss.format.layout import COMMIT, IN_TRANSACTION, ROLLBACK, Shape
from tallystick.systems.jboss.read.changes import Crossing, FileRecords, read_records
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.scan import numbers as shape_numbers


def plain_records(journal: JournalFiles, file: JournalFile) -> FileRecords:
    """Read the records of a file. Raises `CorruptLogError` where some are damaged."""
    if file.size > FILE_SIZE_MAX:
        return read_records(journal, file)
    shape, data = journal.shape(file), file.data()
    rows = file_rows(file, shape)
    if not is_plain(rows, data, shape, file.stamp):
        return read_records(journal, file)
    return _PlainRecords(shape, data, valid_rows(rows))


_TRANSACTIONAL = type_table(IN_TRANSACTION)


class _PlainRecords:
    """The records of a plain file; ``rows`` are those of its scan."""

    def __init__(self, shape: Shape, data: memoryview, rows: Any) -> None:
        rows = np.ascontiguousarray(rows)
        self._rows, self._ends = rows, rows[:, 0] + rows[:, 1]
        self._kinds, fields = np.empty(len(rows), np.uint8), np.zeros((3, len(rows)), np.int64)
        raw, table = np.frombuffer(data, np.uint8), np.array(features(shape), np.int64)
        fill_fields(raw, rows, shape_numbers(shape), table, self._kinds, fields)
        self._numbers = fields[0]

    @property
    def is_empty(self) -> bool:
        return not len(self._rows)

    def has_end(self, offsets: Collection[int]) -> bool:
        return any(bool((self._ends == one).any()) for one in offsets)

    def committed(self, low: int, high: int) -> Iterable[int]:
        found: list[int] = self._numbers[(self._kinds == COMMIT) & self._within(low, high)].tolist()
        return found

    def chosen(self, numbers: Set[int], low: int, high: int) -> Iterator[tuple[int, int]]:
        inside = _TRANSACTIONAL[self._kinds]
        wanted = inside & np.isin(self._numbers, np.array(list(numbers), np.int64))
        found = self._rows[wanted | (~inside & self._within(low, high))]
        yield from zip(found[:, 0].tolist(), found[:, 1].tolist(), strict=True)

    def crossing(self) -> Crossing:
        inside = _TRANSACTIONAL[self._kinds]
        numbers, kinds = self._numbers[inside], self._kinds[inside]
        ends = (kinds == COMMIT) | (kinds == ROLLBACK)
        found, last = np.unique(numbers[::-1], return_index=True)
        return Crossing(_longs(found[~ends[::-1][last]]), _longs(np.unique(numbers[ends])))

    def _within(self, low: int, high: int) -> Any:
        return (self._ends > low) & (self._ends <= high)


def _longs(numbers: Any) -> array[int]:
    return array("q", numbers.astype(np.int64).tobytes())
