"""The Spark data source ``tallystick``: one table of the logs below a path.

In: options (see docs/guide/pipeline.md). Out: partitions and Arrow batches. Everything
here is picklable and without state; the work is done by `planning` and `task`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

try:
    import pyspark
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        EqualTo,
        Filter,
        In,
        InputPartition,
    )
except ImportError as error:
    from tallystick.errors import MissingExtraError

    raise MissingExtraError("pyspark", "spark") from error

from tallystick.arrow.texts import whole_text
from tallystick.errors import TallystickError
from tallystick.pipeline.options import (
    NAMES,
    OptionError,
    SourceOptions,
    columns_named,
    local_path,
    parse,
    require_kept_images,
    require_matches,
    require_once,
)
from tallystick.pipeline.planning import LOSING, Piece, Task, find, require_no_hole, tasks
from tallystick.pipeline.source.worker import STREAM_WORKER, main_module, one_sentence
from tallystick.pipeline.task import execute
from tallystick.pipeline.typed import OF_FEED, catalogue_of, typed_schema
from tallystick.systems.protocol import Collection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_OPTIONS, _KEY, _COLUMNS = "tallystick.options", "tallystick.key", "tallystick.columns"
"""Keys of a column's metadata."""


class TaskPartition(InputPartition):
    """One `Task` on its way to an executor."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class RefusedStream(DataSourceStreamReader):
    """Raises an error once it is asked for offsets.

    The worker of a stream that gets no reader raises another error, of its own, after ours.
    """

    def __init__(self, error: TallystickError) -> None:
        self._error = error

    @one_sentence()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error: a stream that begins asks this first."""
        raise self._error

    @one_sentence()
    def latestOffset(self, *_given: object) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error: a stream that goes on at a checkpoint asks this first."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Raise the error."""
        raise self._error


class TallystickDataSource(DataSource):
    """``spark.read.format("tallystick").option("table", ...).load(path)``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "tallystick"

    @one_sentence()
    def schema(self) -> StructType:
        """Return the schema of the chosen table, or of the chosen columns.

        A catalog keeps the schema of a table made by ``CREATE TABLE`` and drops its options: so
        they travel in the metadata of the first column.
        """
        options = with_collection(parse(self.options))
        given = dict(self.options)
        if options.collection is not None:  # it may be given in other letters of case
            given = {one: given[one] for one in given if one.lower() != "collection"}
            given["collection"] = options.collection
        noted = {_KEY: options.key, _COLUMNS: [name for name, _ in options.typed]}
        return _with_options(spark_schema(options.schema), given, noted)

    @one_sentence()
    def reader(self, schema: StructType | pa.Schema) -> DataSourceReader:
        """Return the batch reader of the chosen table."""
        declared = as_spark(schema)
        options = narrowed(self._parsed(declared), declared)
        if options.latest:
            raise OptionError("startingOffsets=latest is for streams: a batch reads what is there")
        require_matches(options.paths)
        # Spark refuses a reader that defines pushFilters unless push-down is switched on.
        if declared is not schema:  # Sail, which asks each reader, and checks each batch by name
            return PruningReader(options, schema)
        return PruningReader(options) if _pushing_down() else TableReader(options)

    def _parsed(self, schema: StructType) -> SourceOptions:
        options = with_collection(parse(_options_of(schema) | dict(self.options)))
        known = _noted(schema, _COLUMNS)
        if known is None:
            return options
        # A column that was added since is none of the query's: its values are rescued.
        return replace(options, typed=tuple(one for one in options.typed if one[0] in known))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the stream reader. Raises `OptionError` for a table that cannot be streamed."""
        try:
            return self._stream_reader(schema)
        except TallystickError as error:
            if main_module() != STREAM_WORKER:
                raise
            return RefusedStream(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            from tallystick.pipeline.source.stream import LogStreamReader
        except ImportError as error:  # Spark 4.1 has no read limits of Python data sources
            raise OptionError(
                "streams need PySpark 4.2 or later", found=pyspark.__version__
            ) from error

        options = narrowed(self._parsed(schema), schema)
        require_kept_images(options)
        if options.table not in ("records", "changes"):
            raise OptionError(
                "only records and changes can be streamed",
                found=f"table {options.table}",
                advice="Run the pipeline with --stream for the other tables",
            )
        return LogStreamReader(options)

    @one_sentence()
    def writer(self, schema: StructType | pa.Schema, overwrite: bool) -> DataSourceWriter:
        """Return the batch sink."""
        from tallystick.pipeline.source.sink import ShardWriter, require_body, require_room

        require_body(as_spark(schema))
        root = local_path(self.options)
        require_room(root, overwrite=overwrite)
        return ShardWriter(root, overwrite=overwrite)

    @one_sentence()
    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - a stream only appends
    ) -> DataSourceStreamWriter:
        """Return the stream sink."""
        from tallystick.pipeline.source.sink import ShardStreamWriter, require_body, require_room

        require_body(schema)
        root = local_path(self.options)
        require_room(root, overwrite=False)
        return ShardStreamWriter(root)


class TableReader(DataSourceReader):
    """Reads one table, with partitions planned by bytes.

    With ``schema`` batches are in exactly that one, names within lists and maps included.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema | None = None) -> None:
        self.options = options
        self.schema = schema

    @one_sentence()
    def partitions(self) -> list[TaskPartition]:
        """Return a partition per task, at least one."""
        return [TaskPartition(task) for task in self._tasks()] or [TaskPartition(Task())]

    def _tasks(self) -> list[Task]:
        plan = find(self.options.paths)
        if self.options.mode == "failfast" and self.options.table in LOSING:
            for log in plan.logs:
                require_no_hole(log, self.options)
        return tasks(self.options, plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        assert isinstance(partition, TaskPartition)
        with one_sentence():
            for batch in execute(partition.task, self.options):
                yield batch if self.schema is None else batch.cast(self.schema)


class PruningReader(TableReader):
    """Skips logs that cannot hold a row for the filters; Spark still applies every filter."""

    def __init__(self, options: SourceOptions, schema: pa.Schema | None = None) -> None:
        super().__init__(options, schema)
        self.systems: frozenset[str] | None = None
        self.files: frozenset[str] | None = None

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Note what can be skipped, and hand every filter back: skipping is only a hint."""
        for one in filters:
            values = _allowed(one)
            if values is None or self.options.collection is not None:  # whose columns these are
                continue
            name = ".".join(one.attribute).lower()  # type: ignore[attr-defined]
            if name == "system":
                self.systems = values if self.systems is None else self.systems & values
            elif name == "file" and self.options.table in ("files", "records"):
                self.files = values if self.files is None else self.files & values
        return filters

    def _tasks(self) -> list[Task]:
        kept = []
        for task in super()._tasks():
            pieces = tuple(piece for piece in task.pieces if self._may_match(piece))
            if pieces or task.problems:
                kept.append(replace(task, pieces=pieces))
        return kept

    def _may_match(self, piece: Piece) -> bool:
        if self.systems is not None and piece.source.system not in self.systems:
            return False
        if self.files is None:
            return True
        files = piece.source.files if piece.split is None else (piece.split.file,)
        return not self.files.isdisjoint(map(whole_text, files))


def spark_schema(schema: pa.Schema) -> StructType:
    """Return an Arrow schema in Spark's types, every field nullable."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def as_spark(schema: StructType | pa.Schema) -> StructType:
    """Return the schema of a query: Spark hands on its own type, Sail that of Arrow."""
    import pyarrow

    return spark_schema(schema) if isinstance(schema, pyarrow.Schema) else schema


def narrowed(options: SourceOptions, schema: StructType) -> SourceOptions:
    """Return the options with the columns of a schema: what a query declares is all that is made.

    A name may be in other letters of case, as everywhere in Spark: its rows are called so.

    Raises `OptionError` for a column that the table has not, or has in another type.
    """
    whole = replace(options, columns=()).schema
    known = {field.name: field.dataType for field in spark_schema(whole)}
    alike = {name.lower(): name for name in known}
    columns = []
    for field in schema:
        name = field.name if field.name in known else alike.get(field.name.lower())
        if name is None or known[name] != field.dataType:
            raise OptionError(
                f"the schema does not fit the table {options.table}",
                expected="columns of "
                + ", ".join(f"{n} {t.simpleString()}" for n, t in known.items()),
                found=f"{field.name} {field.dataType.simpleString()}",
            )
        if not field.nullable:  # Spark would fail in a task, with the traceback of its own
            raise OptionError("a column of a log may be null", found=f"{field.name} NOT NULL")
        columns.append(name)
    require_once(columns)
    return replace(options, columns=tuple(columns), declared=tuple(schema.names))


def _with_options(
    schema: StructType, options: Mapping[str, str], noted: Mapping[str, Sequence[str]]
) -> StructType:
    names = {name.lower() for name in NAMES}
    kept = {name: value for name, value in options.items() if name.lower() in names}
    values = {_OPTIONS: kept, **noted}
    schema.fields[0].metadata = {name: json.dumps(value) for name, value in values.items()}
    return schema


def _options_of(schema: StructType) -> dict[str, str]:
    """Return the options that `schema` noted when the table was made; none for other schemas."""
    noted: dict[str, str] = _noted(schema, _OPTIONS) or {}
    return noted


def _noted(schema: StructType, name: str) -> Any:
    noted = [field.metadata.get(name) for field in schema if field.metadata]
    return next((json.loads(text) for text in noted if text), None)


def collection_of(schema: StructType) -> tuple[str | None, tuple[str, ...]]:
    """Return the collection whose changes have this schema, and the columns of its primary key.

    None where none was asked for.
    """
    noted = {name.lower(): value for name, value in _options_of(schema).items()}
    return noted.get("collection"), tuple(_noted(schema, _KEY) or ())


def _allowed(one: Filter) -> frozenset[str] | None:
    """Return the values that a filter lets through if it compares for equality, else None."""
    values: tuple[Any, ...]
    if isinstance(one, EqualTo):
        values = (one.value,)
    elif isinstance(one, In):
        values = one.value
    else:
        return None
    return frozenset(values)


def _pushing_down() -> bool:
    """Return True in the worker that Spark starts for push-down.

    Spark does not pass the setting itself to a data source.
    """
    worker = "pyspark.sql.worker.data_source_pushdown_filters"
    return worker in sys.modules or main_module() == worker


def with_collection(options: SourceOptions) -> SourceOptions:
    """Return the options with the columns of their collection, as the logs' catalogues have them.

    Raises:
        OptionError: no log has such a collection, or logs have it with different columns.
    """
    if options.collection is None:
        return options
    catalogue = catalogue_of(find(options.paths).logs, options.reading)
    name = _collection_named(options.collection, {name for _, name in catalogue})
    found: dict[Collection, str] = {}
    for (_, known), ones in catalogue.items():
        found |= ones if known == name else {}
    if len(found) != 1:
        different = "; ".join(f"{log}: {_text(one)}" for one, log in found.items())
        raise OptionError(
            "logs have this collection with different columns: load them one by one",
            found=different,
        )
    (collection,) = found
    typed = tuple((one.name, one.kind) for one in collection.columns)
    if taken := {name for name, _ in typed} & OF_FEED.keys():
        raise OptionError("a column has the name of one of the feed", found=", ".join(taken))
    columns = columns_named(options.columns, typed_schema(typed).names, name)
    return replace(options, collection=name, typed=typed, key=collection.key, columns=columns)


def _collection_named(name: str, names: Set[str]) -> str:
    """Return the name of a collection, which may be given in other letters of case.

    Raises:
        OptionError: there is none, or several differ in case only.
    """
    if name in names:
        return name
    alike = [one for one in names if one.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    ends = [one for one in names if one.lower().endswith(f".{name.lower()}")]
    near = alike or ends or get_close_matches(name, names, 1, 0.5)
    raise OptionError(
        "no log has this collection, or no log here tells columns",
        expected=f"one of {', '.join(sorted(names))}" if names else None,
        found=name,
        advice=f"Did you mean {' or '.join(sorted(near))}?" if near else None,
    )


def _text(one: Collection) -> str:
    columns = ", ".join(f"{column.name} {column.declared}" for column in one.columns)
    return f"{columns}, primary key ({', '.join(one.key)})" if one.key else columns
