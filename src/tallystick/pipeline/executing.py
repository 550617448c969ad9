"""What one task does: read its pieces and hand on Arrow batches.

In: a `Task` and `SourceOptions`. Out: batches exactly in the schema of the table. A log that
cannot be read never fails the job: its error is a row of the findings table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tallystick.errors import TallystickError
from tallystick.pipeline.feeds import feeding
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import Piece, Task
from tallystick.reading import error_finding
from tallystick.records import Finding
from tallystick.schemas import finding_rows
from tallystick.systems import system
from tallystick.tables import TABLES, batches_of, batches_of_rows, salvaged_batches, selected

if TYPE_CHECKING:
    import pyarrow as pa


def execute(task: Task, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The rows of the task's pieces, then of its findings, in the columns that are wanted."""
    schema = selected(options.table, options.columns)
    for piece in task.pieces:
        for batch in _guarded(piece, options, schema):
            yield batch.select(schema.names)
    for batch in _finding_batches(list(task.problems)):
        yield batch.select(schema.names)


def _guarded(piece: Piece, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        yield from _read(piece, options, schema)
    except (TallystickError, OSError) as error:
        if options.mode == "failfast":
            raise
        if options.table == "findings":
            yield from _finding_batches([error_finding(piece.source, error)])


def _read(piece: Piece, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reading = system(piece.source.system).read(piece.source, options.reading)
    if options.table in ("transactions", "changes"):
        reading = feeding(reading, options.reading)
    if options.salvage and options.table == "records":
        return salvaged_batches(reading)
    return batches_of(reading, options.table, piece.split, schema=schema)


def _finding_batches(findings: list[Finding]) -> Iterator[pa.RecordBatch]:
    yield from batches_of_rows(finding_rows(findings), TABLES["findings"])
