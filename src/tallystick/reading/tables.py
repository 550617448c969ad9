"""The tables of one log as Arrow batches, for library, command line and Spark.

In: a `LogReading` and the name of a table. Out: batches in the order of `tallystick.arrow.schemas`.
Records come from the reader's vectorised path; the other tables are small beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from tallystick.arrow import schemas
from tallystick.arrow.schemas import BATCH_ROWS
from tallystick.reading.filters import Filter
from tallystick.reading.names import log_name, row_name
from tallystick.records import Clock, Finding, Judgement, Outcome, Record
from tallystick.storage.source import require_whole
from tallystick.systems.protocol import (
    AttributeBatches,
    ChoosesChanges,
    ChoosesRecords,
    LogReading,
    LogSource,
    Ranged,
    Split,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.systems.protocol import Longs

Judging = Callable[[LogReading], Judgement]

_ROW = "row"
"""A column that no table has: which row of a batch it was."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What of the records is asked for, so that columns of others need not be made.

    Attributes:
        columns: what it looks at.
        taken: function that returns the rows of a batch that are asked for, by these columns.
    """

    columns: Sequence[str]
    taken: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]

    def narrowed(self, batch: pa.RecordBatch, schema: pa.Schema, around: int = 0) -> pa.RecordBatch:
        """Return the rows from the first to the last one that is asked for.

        ``schema`` has the kinds that the columns have where the condition looks at them. With
        ``around``, as many rows that are not asked for stand beside them as stood there, up to so
        many; of a batch without rows that are asked for, so many are left.
        """
        found = self.rows(batch, schema)
        if not len(found):
            return batch.slice(0, around)
        # Not the rows alone: to take these of views would copy what the views are of.
        first, last = found[[0, -1]].tolist()
        first = max(first - around, 0)
        return batch.slice(first, last + 1 + around - first)

    def rows(self, batch: pa.RecordBatch, schema: pa.Schema) -> Longs:
        """Return the numbers of the rows that are asked for; ``schema`` as for `narrowed`."""
        import numpy
        import pyarrow

        looked_at = pyarrow.schema([schema.field(name) for name in self.columns])
        seen = schemas.plain(batch, looked_at)
        numbers = pyarrow.array(numpy.arange(batch.num_rows))
        found: Longs = self.taken(seen.append_column(_ROW, numbers)).column(_ROW).to_numpy()
        return found


TABLES: dict[str, pa.Schema] = {
    "files": schemas.FILES,
    "records": schemas.RECORDS,
    "transactions": schemas.TRANSACTIONS,
    "changes": schemas.CHANGES,
    "findings": schemas.FINDINGS,
    "logs": schemas.LOGS,
}
"""The schemas of the tables of one log."""
HIDDEN_BY_DAMAGE = ("changes", "transactions")
"""Tables that do not show damage in its place: it may hide rows of them."""


def batches_of(
    reading: LogReading,
    table: str,
    split: Split | None = None,
    rows: int = BATCH_ROWS,
    schema: pa.Schema | None = None,
    *,
    attributes: bool = True,
    judged: Judging = lambda reading: reading.judgement,
    condition: Condition | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the table, of at most ``rows`` rows each.

    ``schema`` (columns of the table, where not all are wanted) and ``condition`` apply to records
    only; of those that do not fit the condition some may be left out. ``split`` applies to them,
    and to changes of a system that has `ChoosesChanges`. The column ``log`` is `log_name`, so that
    no two logs share a name.

    Records are decoded in whole buffers if the schema lacks the column ``attributes``, or if
    ``attributes`` is False: the column is then null. Otherwise the records of a system that has
    no `AttributeBatches` are decoded one by one, of one that has `ChoosesRecords` only those that
    fit the condition. ``judged`` gives the answer about the log.

    Raises:
        FileShrankError: After the last batch: a file lost bytes while it was read.
    """
    from tallystick.arrow.columns import sliced

    source = reading.source
    wanted = schema or schemas.RECORDS
    if table == "records":
        found = (
            _attributed(reading, split, rows, wanted, condition)
            if attributes and "attributes" in wanted.names
            else map(_without_attributes, reading.batches(split, rows=rows))
        )
        for batch in found:
            named = _named(batch, source)
            if condition is not None:
                named = condition.narrowed(named, wanted)
            yield from sliced(schemas.plain(named, wanted), rows)
    else:
        for batch in _other_batches(reading, table, split, rows, judged):
            yield _named(batch, source)
    # After the last batch: bytes that a file lost meanwhile were read as zeros.
    require_whole(source.files)


def _other_batches(
    reading: LogReading, table: str, split: Split | None, rows: int, judged: Judging
) -> Iterator[pa.RecordBatch]:
    if table == "transactions":
        return reading.transaction_batches(rows)
    if table == "changes":
        if split is not None and isinstance(reading, ChoosesChanges):
            return reading.changes_in(split, rows)
        return reading.change_batches(rows)
    return batches_of_rows(_small_rows(reading, table, judged), TABLES[table], rows)


def _attributed(
    reading: LogReading,
    split: Split | None,
    rows: int,
    schema: pa.Schema,
    condition: Condition | None,
) -> Iterator[pa.RecordBatch]:
    if isinstance(reading, AttributeBatches):
        return reading.attribute_batches(split, rows)
    if split is not None and isinstance(reading, Ranged):
        found = reading.records_of(split)
    else:
        found = (
            record
            for record in chosen(reading, condition, schema)
            if split is None
            or (record.file == split.file and split.begin <= record.offset < split.end)
        )
    return schemas.record_batches(found, reading.source.path, reading.clock.value, rows)


def condition_of(wanted: Filter, table: str, clock: Clock) -> Condition | None:
    """Return what a filter asks for of a table; None if it asks for nothing by a column."""
    looked_at = wanted.columns_of(table)
    taken = partial(wanted.taken_of, table=table, clock=clock)
    return Condition(looked_at, taken) if looked_at else None


def chosen(
    reading: LogReading, condition: Condition | None, schema: pa.Schema = schemas.RECORDS
) -> Iterator[Record]:
    """Yield the records that fit a condition, and maybe others, with their attributes."""
    if condition is None or not isinstance(reading, ChoosesRecords):
        return reading.records()

    def fitting(batch: pa.RecordBatch) -> Longs:
        return condition.rows(_named(batch, reading.source), schema)

    return reading.chosen_records(fitting)


def _without_attributes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without the attributes that some systems add to records read one by one."""
    import pyarrow

    at = batch.schema.get_field_index("attributes")
    if at < 0 or batch.column(at).null_count == batch.num_rows:
        return batch
    field = batch.schema.field(at)
    return batch.set_column(at, field, pyarrow.nulls(batch.num_rows, field.type))


def salvaged_batches(reading: LogReading) -> Iterator[pa.RecordBatch]:
    """Return records and those after damage; the latter are marked in ``attributes``."""
    records = reading.records(salvage=True)
    name = log_name(reading.source)
    return schemas.record_batches(records, name, reading.clock.value, BATCH_ROWS)


def selected(table: str, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of some columns of a table, or of all where none are named.

    Raises:
        ValueError: there is no such table, or it has no such column.
    """
    import pyarrow

    whole = TABLES.get(table)
    if whole is None:
        raise ValueError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    if unknown := sorted(set(columns) - set(whole.names)):
        raise ValueError(f"the table {table} has no column {', '.join(unknown)}")
    return pyarrow.schema([whole.field(name) for name in columns or whole.names])


def named_batches(
    batches: Iterable[tuple[str, pa.RecordBatch]], source: LogSource
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield what a `ClosesBySplit` gives with `log_name` as the column ``log``, by table.

    Raises:
        FileShrankError: After the last batch: a file lost bytes while it was read.
    """
    for table, batch in batches:
        yield table, _named(batch, source)
    require_whole(source.files)


def finding_batches(findings: Iterable[Finding]) -> Iterator[pa.RecordBatch]:
    """Return the rows of findings, of whatever logs, as batches."""
    return batches_of_rows(schemas.finding_rows(findings), TABLES["findings"])


def damaged_files(batch: pa.RecordBatch) -> list[str]:
    """Return the files in which a row of the batch is corrupt; none of tables without outcomes."""
    import pyarrow.compute

    if "outcome" not in batch.schema.names:
        return []
    corrupt = pyarrow.compute.equal(batch.column("outcome"), Outcome.CORRUPT.value)
    if not pyarrow.compute.any(corrupt).as_py():
        return []
    files = batch.filter(corrupt).column("file").unique().to_pylist()
    return [one for one in files if one is not None]


def reader_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return the columns of the schema as one stream, which polars, duckdb and others take too."""
    import pyarrow

    wanted = (batch.select(schema.names) for batch in batches)
    return pyarrow.RecordBatchReader.from_batches(schema, wanted)


def batches_of_rows(
    rows: Iterable[dict[str, Any]], schema: pa.Schema, size: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Dictionaries as batches of at most ``size`` rows."""
    source = iter(rows)
    while chunk := list(islice(source, size)):
        yield schemas.batch_of(chunk, schema)


def _named(batch: pa.RecordBatch, source: LogSource) -> pa.RecordBatch:
    if not source.name:
        return batch
    import pyarrow

    name = row_name(source)
    names = pyarrow.array([name] * batch.num_rows, pyarrow.string())
    return batch.set_column(batch.schema.get_field_index("log"), "log", names)


def _small_rows(reading: LogReading, table: str, judged: Judging) -> Iterable[dict[str, Any]]:
    system, log = reading.source.system, reading.source.path
    if table == "logs":
        return [schemas.log_row(judged(reading), system, log, reading.format)]
    if table == "files":
        answer = judged(reading).answer.value  # first: some find the files with it
        return schemas.file_rows(reading.files(), system, log, answer)
    return schemas.finding_rows(reading.findings())
