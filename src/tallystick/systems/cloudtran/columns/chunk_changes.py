"""The operations of a chunk of whole blocks as columns of the `CHANGES` schema.

In: a `Chunk`. Out: `ChunkChanges`: the operations of its entries in their first place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import byte_ranges, coded, constant, numbers, table_batch
from tallystick.arrow.schemas import CHANGES, plain
from tallystick.records import Clock
from tallystick.systems.cloudtran.columns import kernels
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.runs import walk
from tallystick.systems.cloudtran.runs.changes import CHANGE_KINDS, key_text
from tallystick.systems.cloudtran.runs.chunk import Chunk

_KINDS = pa.array([CHANGE_KINDS[code].value for code in sorted(CHANGE_KINDS)])


@dataclass(frozen=True, slots=True)
class ChunkChanges:
    """The changes of a chunk.

    Attributes:
        entries: the table of their entries.
        offsets: where the entries stand in the file.
        operations: the table of operations; places count in ``window``.
        greatest: for each operation the greatest number up to it.
        text_keys: whether every key is UTF-8.
    """

    log: str
    file: str
    window: Any
    entries: Any
    offsets: Any
    operations: Any
    greatest: Any
    text_keys: bool

    @classmethod
    def of(cls, chunk: Chunk, log: str) -> ChunkChanges:
        """Return the changes of a chunk."""
        entries = chunk.entries[:, chunk.in_first_place()]
        starts = entries[walk.TARGETS_END].view(np.int64) - chunk.base
        count = int(entries[walk.OPERATIONS].sum())
        operations: Any = np.empty((kernels.OPERATION_COLUMNS, count), np.int64)
        text_keys = kernels.put_operations(chunk.window, starts, operations)
        found = entries[walk.NUMBER][operations[kernels.ENTRY]]
        # Numbers mostly grow, but need not; the maximum so far always does, and can be searched.
        greatest = np.maximum.accumulate(found)
        offsets, _ = chunk.places(entries)
        return cls(
            log, chunk.file.path, chunk.window, entries, offsets, operations, greatest, text_keys
        )

    @property
    def count(self) -> int:
        """How many changes there are."""
        return int(self.operations.shape[1])

    def number(self, index: int) -> int:
        """Return the number of the transaction of one change."""
        return int(self.entries[walk.NUMBER, self.operations[kernels.ENTRY, index]])

    def first_from(self, number: int) -> int:
        """Return the index of the first change whose number is not below this one."""
        # Unsigned, as the array is: with a signed number both would be compared as floats.
        return int(np.searchsorted(self.greatest, np.uint64(number)))

    def batch(self, begin: int, end: int) -> pa.RecordBatch:
        """Return some of the changes."""
        operations = self.operations[:, begin:end]
        count = operations.shape[1]
        chosen = operations[kernels.ENTRY]
        found = self.entries[walk.NUMBER][chosen]
        columns = {
            "system": constant(SYSTEM_NAME, count),
            "log": constant(self.log, count),
            "commit_sequence": numbers(found.view(np.int64), None),
            "ordinal": numbers(np.ascontiguousarray(operations[kernels.ORDINAL]), None),
            "kind": coded(operations[kernels.CODE].astype(np.int8), _KINDS),
            "collection": self._texts(operations[kernels.NAME], operations[kernels.NAME_LENGTH]),
            "key": self._keys(operations),
            "transaction": pa.array(found).cast(pa.string()),
            "time": numbers(self.entries[walk.TIME].view(np.int64)[chosen], None),
            "clock": constant(Clock.WALL_US.value, count),
            "after": self._bytes(operations[kernels.VALUE], operations[kernels.VALUE_LENGTH]),
            "file": constant(self.file, count),
            "offset": numbers(self.offsets.view(np.int64)[chosen], None),
        }
        return plain(table_batch(CHANGES, columns, count), CHANGES)

    def _keys(self, operations: Any) -> pa.Array:
        starts, lengths = operations[kernels.KEY], operations[kernels.KEY_LENGTH]
        if self.text_keys:
            return self._texts(starts, lengths)
        keys = self._bytes(starts, lengths).to_pylist()
        return pa.array(map(key_text, keys), pa.string(), size=len(keys))

    def _texts(self, starts: Any, lengths: Any) -> pa.Array:
        return self._bytes(starts, lengths).cast(pa.binary()).view(pa.string())

    def _bytes(self, starts: Any, lengths: Any) -> pa.Array:
        return byte_ranges(self.window, starts, lengths)
