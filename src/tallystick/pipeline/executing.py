"""What one task does: read its pieces and hand on Arrow batches.

In: a `Task` and `SourceOptions`. Out: batches exactly in the schema of the table. A log that
cannot be read never fails the job: its error is a row of the findings table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tallystick.errors import TallystickError
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import Piece, Task
from tallystick.reading import error_finding
from tallystick.records import Finding
from tallystick.schemas import finding_rows
from tallystick.systems import system
from tallystick.tables import TABLES, batches_of, batches_of_rows, salvaged_batches

if TYPE_CHECKING:
    import pyarrow as pa


def execute(task: Task, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The rows of the task's pieces, then of its findings."""
    for piece in task.pieces:
        yield from _guarded(piece, options)
    yield from _finding_batches(list(task.problems))


def _guarded(piece: Piece, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    try:
        yield from _read(piece, options)
    except (TallystickError, OSError) as error:
        if options.mode == "failfast":
            raise
        if options.table == "findings":
            yield from _finding_batches([error_finding(piece.source, error)])


def _read(piece: Piece, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    reading = system(piece.source.system).read(piece.source, options.reading)
    if options.salvage and options.table == "records":
        return salvaged_batches(reading)
    return batches_of(reading, options.table, piece.split)


def _finding_batches(findings: list[Finding]) -> Iterator[pa.RecordBatch]:
    yield from batches_of_rows(finding_rows(findings), TABLES["findings"])
