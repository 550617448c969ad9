"""Keep the records of some user types that a load lists, as columns of integers.

In: records that count, as an analysis in runs applies them. Out: what messages wait for, and the
contents of the others. It holds at most twice as many as are live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any

import numpy as np

from tallystick.arrow.byte_kernels import Bytes, be_int64
from tallystick.arrow.neighbours import Bits, Longs, among, lasts_of, marked, starts_of
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.jboss.format import layout, messages
from tallystick.systems.jboss.read.files import JournalFile
from tallystick.systems.jboss.read.replay import PlacedRecord, RecordFile
from tallystick.systems.jboss.read.scan import OFFSET, SIZE, VALID
from tallystick.systems.jboss.runs.chunk import INSIDE, Chunk, chunk_of

_ID, _TYPE, _QUEUE, _ORDER, _BEGIN, _END = range(6)
"""Record id, user type, the first number of the body, order of the file, and the body's place."""
HELD_MIN = 1 << 16
"""Least number of records of which those that are not live any more are taken out."""


class ListedRecords:
    """The records of some user types; ``live`` has the ids of those that are live now."""

    def __init__(self, user_types: Collection[int], live: Mapping[int, object]) -> None:
        self._types, self._live = frozenset(user_types), live
        # User types are signed bytes.
        self._listed_types = marked(one & 0xFF for one in user_types)
        self._parts = [np.empty((0, _END + 1), np.int64)]
        self._count, self._most = 0, HELD_MIN

    def queues_of(self, where: RecordFile, records: Chunk) -> Longs:
        """Return the first number in the body of each record of these types; 0 of others."""
        queues, chosen = np.zeros(len(records.rows), np.int64), self._chosen(records)
        queues[chosen] = self._rows(where, records.at(chosen))[:, _QUEUE]
        return queues

    def add(self, where: RecordFile, records: Chunk, queues: Longs | None = None) -> None:
        """Add what counts of the records of a file; ``queues`` as `queues_of` gives them."""
        chosen = self._chosen(records)
        if not chosen.any():
            return
        part = self._rows(where, records.at(chosen), None if queues is None else queues[chosen])
        self._parts.append(part)
        self._count += len(part)
        if self._count > self._most:
            self._most = max(HELD_MIN, 2 * len(self._listed()))

    def _chosen(self, records: Chunk) -> Bits:
        found: Bits = self._listed_types[records.counts & 0xFF]
        return found

    def _rows(self, where: RecordFile, found: Chunk, queues: Longs | None = None) -> Longs:
        # Before a body: the transaction, the id, the size of the body and the user type.
        fields = layout.ID_SIZE * (1 + INSIDE[found.kinds]) + layout.COUNT_SIZE
        fields += where.shape.fields_at + layout.USER_TYPE_SIZE
        part = np.empty((len(found.rows), _END + 1), np.int64)
        part[:, _ID], part[:, _TYPE], part[:, _ORDER] = found.ids, found.counts, where.order
        part[:, _BEGIN] = found.rows[:, OFFSET] + fields
        part[:, _END] = found.rows[:, OFFSET] + found.rows[:, SIZE] - layout.CHECK_SIZE
        if queues is not None:
            part[:, _QUEUE] = queues
        elif len(part):
            fill_queues(np.frombuffer(where.file.data(), np.uint8), part)
        return part

    def add_one(self, placed: PlacedRecord) -> None:
        """Add a record that counts, where it is of these types."""
        if placed.value in self._types:
            row = np.array([[placed.offset, placed.end - placed.offset, VALID, 0]], np.int64)
            where = placed.where
            self.add(where, chunk_of(where.shape, where.file.data(), row))

    def waiting(self, large: Set[int]) -> tuple[Counter[int], Set[int]]:
        """Return how many messages wait for each queue, and which of the large ones for any."""
        found = self._listed()
        of_queue = np.isin(found[:, _TYPE], (messages.REFERENCE, messages.ACKNOWLEDGED))
        found = found[of_queue & (found[:, _END] - found[:, _BEGIN] >= layout.ID_SIZE)]
        # Stable: the last record of a message and a queue tells whether it waits for it.
        found = found[np.lexsort((found[:, _QUEUE], found[:, _ID]))]
        lasts = found[lasts_of(starts_of(found[:, _ID], found[:, _QUEUE]), len(found))]
        held = lasts[lasts[:, _TYPE] == messages.REFERENCE]
        queues, counts = np.unique(held[:, _QUEUE], return_counts=True)
        numbers = held[:, _ID]
        by_queue = dict(zip(queues.tolist(), counts.tolist(), strict=True))
        return Counter(by_queue), set(numbers[among(numbers, large)].tolist())

    def contents(
        self, files: list[JournalFile], user_types: Collection[int]
    ) -> Iterator[layout.Contents]:
        """Yield the contents of those of some of the types; ``files`` in their order."""
        found = self._listed()
        found = found[np.isin(found[:, _TYPE], list(user_types))]
        for number, user_type, _, order, begin, end in found.tolist():
            yield number, user_type, bytes(files[order].data()[begin:end])

    def _listed(self) -> Longs:
        """Return those that are live now."""
        found = np.concatenate(self._parts)
        self._parts = [found[among(found[:, _ID], self._live)]]
        self._count = len(self._parts[0])
        return self._parts[0]


@kernel
def fill_queues(data: Bytes, found: Any) -> None:
    """Fill in the first number of each body; 0 where it ends before."""
    for row in range(len(found)):
        begin = int(found[row, _BEGIN])
        whole = found[row, _END] - begin >= layout.ID_SIZE
        found[row, _QUEUE] = be_int64(data, begin) if whole else 0
