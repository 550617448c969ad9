"""What one task does: read its pieces and hand on Arrow batches.

In: a `Task` and `SourceOptions`. Out: batches exactly in the schema of the table. A log that
cannot be read never fails the job: its error is a row of the findings table.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain, groupby
from typing import TYPE_CHECKING

from tallystick.arrow.schemas import BATCH_ROWS
from tallystick.errors import TallystickError
from tallystick.pipeline.change_feed import feed
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import Piece, Task
from tallystick.reading.settled import settled_findings, settled_judgement
from tallystick.reading.survey import error_finding
from tallystick.reading.tables import (
    batches_of,
    finding_batches,
    salvaged_batches,
    selected,
)
from tallystick.systems.protocol import LogReading, LogSource
from tallystick.systems.registry import system, systems

if TYPE_CHECKING:
    import pyarrow as pa

JOINED_BYTES = 1 << 20
"""Batches are joined up to this size, which also is what joining copies at most."""


def execute(task: Task, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the task's pieces, then of its findings, in the columns that are wanted."""
    names = options.schema.names
    read = (batch for _, batch in tables_of(task.pieces, options, [options.table]))
    batches = feed(read) if options.feeds else read
    for batch in _joined(chain(batches, finding_batches(list(task.problems)))):
        yield batch.select(names)
    _freeze_loaded_objects()


def tables_of(
    pieces: Iterable[Piece], options: SourceOptions, tables: Sequence[str]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield batches with the table they belong to: piece after piece, table after table.

    A log is opened once for all of its tables, and for its pieces that follow each other: to open
    it takes a look at each of its files.
    """
    for source, parts in groupby(pieces, lambda piece: piece.source):
        opening = _LazyReading(source, options)
        for piece in parts:
            yield from _tables_of(opening, piece, options, tables)


def _tables_of(
    opening: _LazyReading, piece: Piece, options: SourceOptions, tables: Sequence[str]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    for table in tables:
        try:
            for batch in _read(opening.reading, piece, table, options):
                yield table, batch
        except (TallystickError, OSError) as error:
            if options.mode == "failfast":
                raise
            if table == "findings":
                batches = finding_batches([error_finding(piece.source, error)])
                yield from ((table, batch) for batch in batches)


@dataclass
class _LazyReading:
    """A log that is opened when it is needed, and tried again where that failed."""

    source: LogSource
    options: SourceOptions

    @cached_property
    def reading(self) -> LogReading:
        return system(self.source.system).read(self.source, self.options.reading)


def _read(
    reading: LogReading, piece: Piece, table: str, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    if options.salvage and table == "records":
        return salvaged_batches(reading)
    known = {one.name: one for one in systems()}
    if table == "findings":
        return finding_batches(settled_findings(reading, known, options.reading))
    columns = options.columns if table == options.table == "records" else ()
    schema, attributes = selected(table, columns), "attributes" in columns
    judged = partial(settled_judgement, known=known, options=options.reading)
    return batches_of(
        reading, table, piece.split, schema=schema, attributes=attributes, judged=judged
    )


@cache
def _freeze_loaded_objects() -> None:
    """Exclude the objects of loaded libraries from garbage collection, once per worker.

    Spark collects garbage after every task: those objects would cost it 50 ms each time.
    """
    gc.freeze()


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows without small batches side by side: Spark takes its time for each."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        more = batch.nbytes
        if waiting and (rows + batch.num_rows > BATCH_ROWS or size + more > JOINED_BYTES):
            yield from _one(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += more
    if waiting:
        yield from _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    import pyarrow

    joined: list[pa.RecordBatch] = pyarrow.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
