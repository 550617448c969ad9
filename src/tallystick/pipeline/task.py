"""What one task does: read its pieces and hand on Arrow batches.

In: a `Task` and `SourceOptions`. Out: batches exactly in the schema of the table. A log that
cannot be read does not fail the job unless the options say so: its error is a row of the findings
table. A file that went after the task was planned fails it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from tallystick.arrow.schemas import (
    BATCH_ROWS,
    CHANGES,
    COLLECTIONS,
    batches_of_changes,
    with_codes,
)
from tallystick.errors import TallystickError
from tallystick.pipeline.change_feed import (
    EVERYTHING,
    NEEDED,
    ONE_KEY,
    TIMESTAMP,
    feed,
    stamped,
    within,
)
from tallystick.pipeline.options import OptionError, SourceOptions
from tallystick.pipeline.planning import (
    JUDGED,
    LOSING,
    Piece,
    Task,
    current,
    require_no_loss,
    require_undamaged,
    went,
)
from tallystick.pipeline.row_images import BaseImagesError, images_of, without_images
from tallystick.pipeline.typed import collection_rows, typed
from tallystick.reading.coordinators import Coordinator, add_closed, add_coordinators
from tallystick.reading.names import log_name
from tallystick.reading.profiling import PROFILE, profile_rows
from tallystick.reading.settled import settled_findings, settled_judgement
from tallystick.reading.survey import error_finding
from tallystick.reading.tables import (
    batches_of,
    batches_of_rows,
    finding_batches,
    named_batches,
    salvaged_batches,
    selected,
)
from tallystick.reconcile.estate import Estate
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tallystick.records import Answer, Judgement
from tallystick.systems.protocol import (
    ClosesBySplit,
    JudgedBySplit,
    KnowsRowsBefore,
    LogReading,
    LogSource,
    Typed,
)
from tallystick.systems.registry import system, systems

if TYPE_CHECKING:
    import pyarrow as pa

JUDGED_AT_ONCE = 50_000
"""The most transactions that one task judges: they and their judgements are in memory."""

JOINED_BYTES = 1 << 20
"""Batches are joined up to this size, which also is what joining copies at most."""


def execute(task: Task, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the task's pieces, then of its findings, in the columns that are wanted."""
    planned = options.table != "findings"  # which say themselves what is gone
    pieces = (current(piece, options) if planned else piece for piece in task.pieces)
    if options.table == "global_transactions":
        batches = judged_batches(pieces, options, task.coordinators)
        yield from map(options.wanted, batches)
        return
    read = (batch for _, batch in tables_of(pieces, options, [options.table], planned=planned))
    batches = fed(read, options) if options.feeds else bounded(read, options)
    if options.timestamps:
        batches = map(stamped, batches)
    found = chain(batches, finding_batches(list(task.problems)))
    yield from _joined(map(options.wanted, found))
    _freeze_loaded_objects()


def judged_batches(
    pieces: Iterable[Piece],
    options: SourceOptions,
    coordinators: Sequence[Coordinator],
    most: int = JUDGED_AT_ONCE,
) -> Iterator[pa.RecordBatch]:
    """Yield the global transactions of all logs together, as the table of a run has them.

    Raises:
        TallystickError: there are more than ``most`` transactions, which are held in memory.
    """
    estate, count = Estate(None), 0
    for table, batch in tables_of(pieces, options, ["transactions", "findings"], planned=True):
        rows = batch.to_pylist()
        if table == "findings":
            estate.add_finding_rows(rows)
            continue
        count += len(rows)
        if count > most:
            raise TallystickError(
                f"more than {most} transactions are judged by joins, not by one query",
                advice="Run `tallystick pipeline run`, and create views of its tables",
            )
        for row in rows:
            estate.add_row(row)
    add_coordinators(estate, coordinators)
    add_closed(estate, coordinators)
    yield from batches_of_rows(estate.judged(), GLOBAL_TRANSACTIONS)


def bounded(batches: Iterable[pa.RecordBatch], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records or changes that lie between the bounds of the options."""
    return iter(batches) if options.bounds == EVERYTHING else within(batches, options.bounds)


def fed(batches: Iterable[pa.RecordBatch], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield changes as a feed, in the columns of their collection where one is wanted."""
    condition, batches = options.condition, bounded(batches, options)
    if condition is not None and not options.typed and ONE_KEY.issuperset(condition.columns):
        # A delete and an add that are an update follow each other, and fit both or neither.
        batches = (condition.narrowed(one, CHANGES, around=1) for one in batches)
    rows = feed(batches)
    if not options.typed:
        return rows
    asked = options.schema.names
    columns = [(name, kind) for name, kind in options.typed if name in asked]
    left_out = {name for name, _ in options.typed if name not in asked}
    return typed(rows, options.collection or "", columns, options.key, left_out)


def tables_of(
    pieces: Iterable[Piece],
    options: SourceOptions,
    tables: Sequence[str],
    *,
    planned: bool = False,
    judged: bool = False,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield batches with the table they belong to: piece after piece, table after table.

    A log is opened once for all of its tables, and for its pieces that follow each other: to open
    it takes a look at each of its files. With ``planned`` a file that is gone fails it in any mode.
    With ``judged`` somebody else looks whether the log has lost something.
    """
    for source, parts in groupby(pieces, lambda piece: piece.source):
        opening = _LazyReading(source, options)
        for piece in parts:
            yield from _tables_of(opening, piece, options, tables, planned=planned, judged=judged)


@dataclass(slots=True)
class SplitClosing:
    """The closing of some splits of one log; ``rests`` are what they leave open, in their order.

    A rest is None where the whole log has to be read.
    """

    pieces: Sequence[Piece]
    options: SourceOptions
    rests: list[bytes | None] = field(default_factory=list)

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the transactions and changes that begin and end in each split, by table."""
        for source, pieces in groupby(self.pieces, lambda piece: piece.source):
            reading = _closing(source, self.options)
            for piece in pieces:
                assert piece.split is not None
                closed = reading.close_split(piece.split, BATCH_ROWS)
                yield from named_batches(closed.batches, source)
                self.rests.append(closed.rest())


def rest_batches(
    source: LogSource, options: SourceOptions, rests: Sequence[bytes]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield what no split of the log gave alone, by table.

    These are transactions and changes that no split closed, and the tables that all splits tell
    together, where the system can.

    Raises:
        TallystickError: the whole log has to be read, or with `failfast` it has lost something.
    """
    reading = _closing(source, options)
    yield from named_batches(reading.close_rests(rests, BATCH_ROWS), source)
    if isinstance(reading, JudgedBySplit):
        known = reading.knowing(rests)
        if options.mode == "failfast":
            require_no_loss(known, options)
        for table in JUDGED:
            for batch in batches_in(known, Piece(source), table, options):
                yield table, batch


def _closing(source: LogSource, options: SourceOptions) -> ClosesBySplit:
    reading = system(source.system).read(source, options.reading)
    assert isinstance(reading, ClosesBySplit)
    return reading


def _tables_of(
    opening: _LazyReading,
    piece: Piece,
    options: SourceOptions,
    tables: Sequence[str],
    *,
    planned: bool,
    judged: bool,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    strict = options.mode == "failfast"
    for table in tables:
        try:
            if strict and table in LOSING and piece.first and not judged:
                _require_no_loss(opening, piece, options)
            for batch in batches_in(opening.reading, piece, table, options):
                yield table, batch
            if piece.split is None:
                options.note_read(table, opening.reading)
        except (TallystickError, OSError) as error:
            # What was asked for is wrong, and would be of every log: not one that cannot be read.
            asked_wrongly = isinstance(error, OptionError | BaseImagesError)
            if strict or asked_wrongly or (planned and went(piece.source, options)):
                raise
            options.note_problem(problem := error_finding(piece.source, error))
            if table == "findings":
                batches = finding_batches([problem])
                yield from ((table, batch) for batch in batches)


def _require_no_loss(opening: _LazyReading, piece: Piece, options: SourceOptions) -> None:
    """Check that the log of a piece lost nothing; a part of it has some of the files only."""
    if piece.split is None:
        require_no_loss(opening.reading, options)
    else:
        require_undamaged(piece.source, options)


@dataclass
class _LazyReading:
    """A log that is opened when it is needed, and tried again where that failed."""

    source: LogSource
    options: SourceOptions

    @cached_property
    def reading(self) -> LogReading:
        return system(self.source.system).read(self.source, self.options.reading)


def batches_in(
    reading: LogReading, piece: Piece, table: str, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in a piece of a log that is open. Raises what reading it raises."""
    if options.salvage and table == "records":
        return salvaged_batches(reading)
    known = {one.name: one for one in systems()}
    if table == "findings":
        return finding_batches(settled_findings(reading, known, options.reading))
    if table == "profile":
        return batches_of_rows(profile_rows(reading), PROFILE)
    if table == "collections":
        count = "changes" in options.schema.names
        rows = collection_rows(reading, log_name(reading.source), count=count)
        return batches_of_rows(rows, COLLECTIONS)
    columns = options.columns if table == options.table == "records" else ()
    if options.timestamps and columns:  # made of two others
        needed = dict.fromkeys([*columns, "time", "clock"])
        columns = tuple(name for name in needed if name != TIMESTAMP)
    if options.bounds != EVERYTHING and columns:
        columns = tuple(dict.fromkeys([*columns, *NEEDED]))
    schema, attributes = selected(table, columns), "attributes" in columns
    judged = partial(settled_judgement, known=known, options=options.reading)
    batches = batches_of(
        reading,
        table,
        piece.split,
        schema=with_codes(schema, options.coded),
        attributes=attributes,
        judged=judged,
        condition=options.condition,
    )
    if table == "changes" and options.collection is not None and isinstance(reading, Typed):
        found = reading.changes_of(options.collection)
        batches = batches_of_changes(found, reading.clock.value, log=log_name(reading.source))
    if table == "changes" and options.history:
        return _with_images(batches, reading, options, judged(reading))
    return batches


def _with_images(
    batches: Iterator[pa.RecordBatch],
    reading: LogReading,
    options: SourceOptions,
    judgement: Judgement,
) -> Iterator[pa.RecordBatch]:
    """Yield changes with old images, except those that a change may have followed that is lost."""
    if judgement.answer is not Answer.SAFE:
        yield from without_images(batches)
        return
    collection, name = options.collection, log_name(reading.source)
    rows: Iterable[tuple[str, dict[str, Any]]] = ()
    if collection is not None and isinstance(reading, KnowsRowsBefore):
        rows = reading.rows_before(collection)
    with images_of(None, options.base_images, name, collection, rows) as images:
        yield from images.filled(batches)


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
