"""The tables of logs as views of a DuckDB connection.

In: paths. Out: a connection with a view for each table of the data source, and one for each
collection, in its own columns, in a schema by the name of its system. A query reads the columns
that it asks for, of the logs that its conditions on ``log`` and ``system`` leave, as a stream.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.acero import Declaration, FilterNodeOptions, TableSourceNodeOptions

from tallystick.arrow.schemas import with_codes
from tallystick.arrow.texts import whole_text
from tallystick.errors import TallystickError
from tallystick.investigate.rows import row_batches, row_schema
from tallystick.pipeline.change_feed import SOURCE_TABLES
from tallystick.pipeline.options import SourceOptions, matching
from tallystick.pipeline.planning import Piece, Plan, Task, find, tasks
from tallystick.pipeline.task import execute
from tallystick.pipeline.typed import OF_FEED, catalogue_of
from tallystick.printable import logger
from tallystick.reading.discovery import parent
from tallystick.reading.filters import TIME_OF_DAY
from tallystick.reading.names import log_name
from tallystick.reading.results import is_severe
from tallystick.reading.settled import add_new, damage_of, require_some
from tallystick.reading.survey import NO_LOG, deliver, error_finding, survey
from tallystick.reading.tables import HIDDEN_BY_DAMAGE, Condition
from tallystick.records import Clock, Finding, Severity
from tallystick.systems.protocol import (
    LogReading,
    LogSource,
    ReadOptions,
    Split,
    Stretch,
    chosen_changes,
    chosen_splits,
)
from tallystick.systems.registry import system, systems

Error = duckdb.Error
"""What DuckDB raises, for a statement or for what a reader raised."""

_LOGGER = logger("tallystick")

_LOCKED = (
    # A query reads these logs and nothing else, and writes nothing, wherever its text comes from.
    "SET temp_directory = ''",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


def connect(
    paths: tuple[str, ...], options: ReadOptions, problems: list[Finding] | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a connection with the views of all logs below the paths; see `tallystick.sql`."""
    asked = _Asked(paths, given=options, problems=[] if problems is None else problems)
    plan = find(asked.paths)
    if not plan.logs and problems is None:
        deliver(plan, None)
    for problem in _said(plan):
        asked.note_problem(problem)
    connection = duckdb.connect(":memory:")
    for name in SOURCE_TABLES:
        table = LogTable(replace(asked, table=name), plan)
        connection.from_arrow(table).create_view(name)
    connection.from_arrow(RowTable(asked, plan)).create_view("rows")
    _add_collections(connection, asked, plan)
    for one in _LOCKED:
        connection.execute(one)
    return connection


def _said(plan: Plan) -> Iterator[Finding]:
    """Yield what is severe, and which paths hold no log; where others hold some, a note.

    What lies beside the files of a log is none of these: a shell's ``*`` names it, too.
    """
    folders = {log.path for log in plan.logs}
    for one in plan.problems:
        if is_severe(one) or (one.code == NO_LOG and not plan.logs):
            yield one
        elif one.code == NO_LOG and parent(one.log) not in folders:
            yield replace(one, severity=Severity.INFO)


def statements(connection: duckdb.DuckDBPyConnection, text: str) -> list[str]:
    """Return the single statements of a text. Raises `Error` if it is no SQL."""
    return [one.query for one in connection.extract_statements(text)]


@dataclass(frozen=True, slots=True)
class _Asked(SourceOptions):
    """Options of the data source whose secrets are values: they stay in this process."""

    given: ReadOptions = field(default_factory=ReadOptions)
    problems: list[Finding] = field(default_factory=list)

    @property
    def reading(self) -> ReadOptions:
        return self.given

    def note_problem(self, problem: Finding) -> None:
        """Take note of a log that cannot be read, once: its findings may say so, too."""
        add_new(self.problems, [problem])

    def note_read(self, table: str, reading: LogReading) -> None:
        """Take note of damage that may hide rows or decisions."""
        hidden = table in HIDDEN_BY_DAMAGE
        if hidden or (table, self.table) == ("findings", "global_transactions"):
            known = {one.name: one for one in systems()}
            add_new(self.problems, damage_of(reading, known, self.given))


def _add_collections(
    connection: duckdb.DuckDBPyConnection, asked: SourceOptions, plan: Plan
) -> None:
    """Add a view for each collection whose columns all logs of its system agree on."""
    catalogue = catalogue_of(plan.logs, asked.reading)
    # To DuckDB these are one name: it would give the rows of the last one for those of the others.
    alike = Counter((kind, name.casefold()) for kind, name in catalogue)
    for (kind, name), found in catalogue.items():
        columns = tuple((one.name, one.kind) for one in next(iter(found)).columns)
        why = ""
        if alike[kind, name.casefold()] > 1:
            why = "the name of another one differs in letters of case alone"
        elif len(found) > 1:
            why = "its columns differ by log"
        elif OF_FEED.keys() & dict(columns):
            why = "a column has the name of one of the feed"
        if why:
            about = {"system": kind, "collection": name}
            _LOGGER.warning("collection %r has no view: %s", name, why, extra=about)
            continue
        logs = Plan([one for one in plan.logs if one.system == kind], plan.problems)
        typed = replace(asked, table="changes", collection=name, typed=columns, history=True)
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{kind}"; USE "{kind}"')
        connection.from_arrow(LogTable(typed, logs)).create_view(name)
    connection.execute("USE memory.main")


_TIMES = ("time", "first_time", "last_time", "_commit_timestamp")
"""Columns that are null in all rows of a log without a clock."""


_HELD = ("records", "transactions", "changes")
"""Tables of what logs hold; the others tell of the logs themselves."""

_CODED = ("system", "log", "file", "outcome", "kind", "type", "clock")
"""Columns of records with few texts: engines group by codes in a fifth of the time."""


class LogTable(ds.Dataset):  # type: ignore[misc] # pyarrow has no types
    """One table of logs as a dataset of Arrow, as far as engines ask for one.

    Args:
        options: Which table, and how to read it.
        plan: The logs.
    """

    def __init__(self, options: SourceOptions, plan: Plan) -> None:
        self._options, self._plan = options, plan

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, as a scan has them."""
        return with_codes(self._plain, _CODED if self._options.table == "records" else ())

    @property
    def _plain(self) -> pa.Schema:
        """The columns as a filter has them."""
        return self._options.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        **_others: Any,
    ) -> Scan:
        """Return a scan of the rows that a filter leaves, in these columns.

        Args:
            columns: Names; None for all. The filter may have others.
            filter: Applied whole: engines do not apply again what they hand over.
            _others: What Arrow has for files: sizes of batches, readahead.
        """
        schema = self.schema
        asked = schema.names if columns is None else columns
        tested = [] if filter is None else _columns_of(filter, self._plain)
        read = tuple(dict.fromkeys([*asked, *tested])) or (schema.names[0],)
        names = schema.names if columns is None else list(columns)
        projected = pa.schema([schema.field(name) for name in names])
        return Scan(projected, self._batches(read, filter, tested), filter)

    def _batches(
        self, columns: tuple[str, ...], wanted: pc.Expression | None, tested: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the table in these columns, of the logs that a filter leaves; it has ``tested``."""
        coded = tuple(name for name in _CODED if name not in tested)
        read, plan = replace(self._options, columns=columns, coded=coded), self._plan
        if wanted is not None and tested:
            read = replace(read, condition=Condition(tested, partial(_taken, wanted)))
        if read.table != "global_transactions":  # judged together
            plan = Plan(self._logs(wanted), plan.problems)
        given = read.table not in _HELD
        for task in self._tasks(read, plan, wanted):
            for batch in execute(task, read):
                given = given or batch.num_rows > 0
                yield batch
        self._note_unread([] if given else plan.logs)

    def _note_unread(self, logs: Iterable[LogSource]) -> None:
        """Note of which logs nothing can be read."""
        known, options = {one.name: one for one in systems()}, self._options.reading
        for source in logs:
            try:
                require_some(known[source.system].read(source, options), known, options)
            except (TallystickError, OSError) as error:
                self._options.note_problem(error_finding(source, error))

    def _tasks(self, read: SourceOptions, plan: Plan, wanted: pc.Expression | None) -> list[Task]:
        """Return what is to be read: of logs that tell where that is, parts of them."""
        parted = read.table == "records" or (read.table == "changes" and not read.history)
        if not parted or read.salvage or wanted is None:
            return tasks(read, plan)
        left = {log: self._splits(log, wanted) for log in plan.logs}
        others = [log for log in plan.logs if left[log] is None]
        parts = [
            Task(tuple(Piece(log, one) for one in splits)) for log, splits in left.items() if splits
        ]
        return parts + tasks(read, Plan(others, plan.problems))

    def _splits(self, log: LogSource, wanted: pc.Expression) -> list[Split] | None:
        try:
            reading = system(log.system).read(log, self._options.reading)
            of_table = chosen_changes if self._options.table == "changes" else chosen_splits
            return of_table(reading, partial(self._stretches, wanted, reading.clock))
        except (TallystickError, OSError):
            return None  # who reads the whole log says why

    def _stretches(
        self, wanted: pc.Expression, clock: Clock, few: Sequence[Stretch]
    ) -> list[Stretch]:
        """Return those of which a row can be what is wanted, by file, LSN and time alone."""
        known = [_known_of(self._options.table, clock, one) for one in few]
        return [few[number] for number in _possible(known, self._plain, wanted)]

    def _logs(self, wanted: pc.Expression | None) -> list[LogSource]:
        logs = self._plan.logs
        if wanted is None:
            return logs
        return _logs_with(logs, self._plain, wanted, [self._timeless(one) for one in logs])

    def _timeless(self, log: LogSource) -> list[str]:
        """Return the columns of times, if the log tells none."""
        try:
            clock = system(log.system).read(log, self._options.reading).clock
        except (TallystickError, OSError):
            return []  # who reads the whole log says why
        return [one for one in _TIMES if one in self.schema.names and clock is Clock.NONE]


@dataclass(frozen=True, slots=True)
class Scan:
    """What engines take of a scanner of Arrow.

    Arrow's own reads ahead in a thread, also where nobody wants more: of an answer that is cut by
    ``LIMIT`` it then waits for the interpreter as that ends, or for a lock that waits for it. Here
    whoever asks for a batch reads it.
    """

    projected_schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    wanted: pc.Expression | None

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._projected())

    def to_table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(self._projected(), self.projected_schema)

    def _projected(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            found = _taken(self.wanted, batch)
            found = found.select(self.projected_schema.names)
            if found.schema != self.projected_schema:  # a filter has taken texts of codes
                found = found.cast(self.projected_schema)
            yield from found.to_batches()


class RowTable(LogTable):
    """The rows of logs, whatever their fate, as `tallystick.investigate.rows` has them."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of rows."""
        return row_schema()

    _plain = schema

    def _batches(
        self, columns: tuple[str, ...], wanted: pc.Expression | None, tested: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        del tested  # rows come as they are
        left = {log_name(one) for one in self._logs(wanted)}
        paths = [*chain.from_iterable(map(matching, self._options.paths))]
        found = survey(paths, options=self._options.reading)
        found.logs = [one for one in found.logs if log_name(one) in left]
        for batch in row_batches(found):
            yield batch.select(columns)
        for one in filter(is_severe, found.problems):
            self._options.note_problem(one)


def _taken(wanted: pc.Expression | None, batch: pa.RecordBatch) -> pa.Table:
    found = pa.Table.from_batches([batch])
    if wanted is None:
        return found
    # As `Table.filter` has it, but for the threads: to hand one batch over takes longer than this.
    source = Declaration("table_source", TableSourceNodeOptions(found))
    steps = [source, Declaration("filter", FilterNodeOptions(wanted))]
    return Declaration.from_sequence(steps).to_table(use_threads=False)


def _columns_of(wanted: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns that an expression needs, or Arrow cannot bind it."""
    return [name for name in schema.names if not _binds(wanted, _without(schema, name))]


def _without(schema: pa.Schema, name: str) -> pa.Schema:
    return schema.remove(schema.get_field_index(name))


def _binds(wanted: pc.Expression, schema: pa.Schema) -> bool:
    try:
        ds.Scanner.from_batches(iter(()), schema=schema, filter=wanted)
    except pa.ArrowInvalid:
        return False
    return True


def _logs_with(
    logs: list[LogSource],
    schema: pa.Schema,
    wanted: pc.Expression,
    nulls: Sequence[Sequence[str]],
) -> list[LogSource]:
    """Return the logs of which a row can be what is wanted, by name, system, and what they lack.

    ``nulls`` are the columns that have no value in each. Arrow has that for folders that are named
    after a value: each log is such a folder.
    """
    names: dict[str, Callable[[LogSource], str]] = {
        "system": lambda log: log.system, "log": log_name, "_log": log_name,
    }  # fmt: skip
    told = {name: of for name, of in names.items() if name in schema.names}
    known = [
        _all(
            [ds.field(name) == of(log) for name, of in told.items()]
            + [ds.field(name).is_null() for name in without]
        )
        for log, without in zip(logs, nulls, strict=True)
    ]
    return [logs[number] for number in _possible(known, schema, wanted)]


def _known_of(table: str, clock: Clock, one: Stretch) -> pc.Expression:
    """Return what is known of records of a stretch, or of changes that it commits."""
    if table == "records":
        of_file = ds.field("file") == whole_text(one.split.file)
        return _all([of_file, *_between("sequence", one.lsns), *_between("time", one.times)])
    found = [*_between("time", one.times)]
    for name in ("commit_sequence", "_commit_version"):
        found += _between(name, one.lsns)
    if (unit := TIME_OF_DAY.get(clock)) is not None:
        moments = (None if time is None else _moment(time * unit) for time in one.times)
        found += _between("_commit_timestamp", (next(moments), next(moments)))
    return _all(found)


def _moment(nanoseconds: int) -> pa.Scalar:
    return pa.scalar(nanoseconds // 1000, pa.timestamp("us", "UTC"))


def _between(name: str, bounds: tuple[Any, Any]) -> Iterator[pc.Expression]:
    # Arrow reduces a filter by single comparisons of what may be null, and by no others.
    column, (least, most) = ds.field(name), bounds
    if least is not None:
        yield (column >= least) | column.is_null()
    if most is not None:
        yield (column <= most) | column.is_null()


def _possible(
    known: Sequence[pc.Expression], schema: pa.Schema, wanted: pc.Expression
) -> list[int]:
    """Return the numbers of what a filter leaves, by what is known of each."""
    folders = ds.FileSystemDataset.from_paths(
        [str(number) for number in range(len(known))], schema=schema,
        format=ds.IpcFileFormat(), filesystem=pa.fs.LocalFileSystem(), partitions=known,
    )  # fmt: skip
    return sorted(int(one.path) for one in folders.get_fragments(filter=wanted))


def _all(conditions: Iterable[pc.Expression]) -> pc.Expression:
    return reduce(operator.and_, conditions)
