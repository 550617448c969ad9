"""The transactions that begin and end in a chunk of whole blocks, as columns of `TRANSACTIONS`.

In: a `Chunk`. Out: `ChunkTransactions`, by ascending number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import (
    byte_ranges,
    constant,
    numbers,
    one_each,
    repeated,
    table_batch,
    texts_of,
    whole_transactions,
)
from tallystick.arrow.schemas import TRANSACTIONS, json_text, plain
from tallystick.records import Clock, State
from tallystick.systems.cloudtran.columns.batches import target_lists
from tallystick.systems.cloudtran.format.entries import ENTRY_HEAD_SIZE, EntryKind
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.records import TYPES
from tallystick.systems.cloudtran.runs import walk
from tallystick.systems.cloudtran.runs.chunk import Chunk, Row, ranges

_PERSISTED = TYPES[EntryKind.PERSISTED]
_LIST = TRANSACTIONS.field("files").type


@dataclass(frozen=True, slots=True)
class ChunkTransactions:
    """The transactions of a chunk.

    Attributes:
        keys: their numbers, unsigned and ascending.
        times: rows of the times of their first and last entries.
        places: rows of the offset of the last entry, and of the length of both.
        operations: how many operations each has.
        names: their references.
        targets: lists of their targets.
    """

    log: str
    file: str
    keys: Any
    times: Any
    places: Any
    operations: Any
    names: pa.Array
    targets: pa.Array

    @classmethod
    def of(cls, chunk: Chunk, firsts: Any, seconds: Any, log: str) -> ChunkTransactions:
        """Return the transactions of these first and last entries of a chunk."""
        begun, ended = chunk.entries[:, firsts], chunk.entries[:, seconds]
        lengths, (offsets, rest) = chunk.places(begun)[1], chunk.places(ended)
        names = begun[walk.PLACE].view(np.int64) + (ENTRY_HEAD_SIZE - chunk.base)
        bodies = begun[walk.BODY].view(np.int64) - chunk.base
        # An empty reference is null in the table.
        sizes = np.where(bodies > names, bodies - names, -1)
        return cls(
            log,
            chunk.file.path,
            np.ascontiguousarray(begun[walk.NUMBER]),
            np.stack((begun[walk.TIME], ended[walk.TIME])).view(np.int64),
            np.stack((offsets, lengths + rest)).view(np.int64),
            np.ascontiguousarray(begun[walk.OPERATIONS]),
            byte_ranges(chunk.window, names, sizes).cast(pa.binary()).view(pa.string()),
            target_lists(chunk.window, bodies, begun[walk.TARGETS]).cast(_LIST),
        )

    def ranges(self) -> list[range]:
        """Return their numbers as ranges."""
        return ranges(self.keys)

    def batch(self) -> pa.RecordBatch:
        """Return all of them."""
        count = len(self.keys)
        columns = whole_transactions(SYSTEM_NAME, self.log, Clock.WALL_US, count) | {
            "key": pa.array(self.keys).cast(pa.string()),
            "state": constant(State.COMMITTED.value, count),
            "transaction": numbers(self.keys.view(np.int64), None),
            "name": self.names,
            "participants": self.targets,
            "first_time": numbers(self.times[0], None),
            "last_time": numbers(self.times[1], None),
            "records": numbers(np.full(count, 2), None),
            "bytes": numbers(self.places[1], None),
            "files": one_each(repeated(self.file, count)),
            "evidence_file": constant(self.file, count),
            "evidence_offset": numbers(self.places[0], None),
            "evidence_type": constant(_PERSISTED, count),
            "attributes": texts_of(self.operations.view(np.int64), _attributes),
        }
        return plain(table_batch(TRANSACTIONS, columns, count), TRANSACTIONS)


def _attributes(operations: int) -> str | None:
    return json_text({"operations": operations})


def settled_in(
    chunk: Chunk, met: Collection[int], log: str
) -> tuple[ChunkTransactions, Iterator[Row]]:
    """Return the transactions that begin and end in a chunk, and the entries of all others.

    Those whose numbers were ``met`` before it are among the others.
    """
    firsts, seconds = chunk.settled(met)
    return ChunkTransactions.of(chunk, firsts, seconds, log), chunk.rows(firsts, seconds)
