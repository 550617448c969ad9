"""The Arrow schemas of the tables, and the bridge from records to batches.

In: `Record`, `LogFile`, `Transaction`, `Finding` and `Change` objects, or columns that a
vectorised reader made. Out: `pyarrow` schemas and batches. Times are as the log has them
(``clock`` names the unit); sequence numbers, offsets and lengths are signed 64-bit. All strings
and binaries have 32-bit offsets and every field is nullable, which is what Spark accepts.

A vectorised reader makes dictionary-encoded strings and views, which cost no time per row;
`plain` casts a batch to these schemas, only those columns that somebody has asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from tallystick.arrow.texts import whole_text
from tallystick.errors import MissingExtraError
from tallystick.records import (
    Change,
    Fate,
    Finding,
    Judgement,
    LogFile,
    Outcome,
    Record,
    Row,
    State,
    Transaction,
    jsonable,
)

try:
    import pyarrow as pa
except ImportError as error:  # pragma: no cover - the arrow extra is missing
    raise MissingExtraError("pyarrow", "arrow") from error

_text_list = pa.list_(pa.field("element", pa.string()))

RECORDS = pa.schema(
    [
        ("system", pa.string()),
        ("log", pa.string()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("outcome", pa.string()),
        ("kind", pa.string()),
        ("type", pa.string()),
        ("sequence", pa.int64()),
        ("time", pa.int64()),
        ("clock", pa.string()),
        ("transaction", pa.int64()),
        ("format_id", pa.int32()),
        ("gtrid", pa.binary()),
        ("bqual", pa.binary()),
        ("resources", _text_list),
        ("record_id", pa.int64()),
        ("body", pa.binary()),
        ("attributes", pa.string()),
    ]
)
"""One row is a physical record. ``attributes`` is a JSON object, null where empty."""

FILES = pa.schema(
    [
        ("system", pa.string()),
        ("log", pa.string()),
        ("file", pa.string()),
        ("role", pa.string()),
        ("order", pa.int32()),
        ("size", pa.int64()),
        ("identity", pa.int64()),
        ("generation", pa.int64()),
        ("clock", pa.string()),
        ("redundant", pa.bool_()),
        ("why", pa.string()),
        ("answer", pa.string()),
        *((f"{outcome.value}_bytes", pa.int64()) for outcome in Outcome),
    ]
)
"""One row is a log file; the five ``*_bytes`` columns add up to ``size``.

``answer`` is that of its log.
"""

LOGS = pa.schema(
    [
        ("system", pa.string()),
        ("log", pa.string()),
        ("format", pa.string()),
        ("answer", pa.string()),
        ("after_crash", pa.bool_()),
        ("reason", pa.string()),
        ("text", pa.string()),
        ("decided_by", pa.string()),
        ("transactions_at_stake", pa.int64()),
        ("rows_at_stake", pa.int64()),
    ]
)
"""One row is a log with the answer about it (docs/verdicts.md)."""

TRANSACTIONS = pa.schema(
    [
        ("system", pa.string()),
        ("log", pa.string()),
        ("key", pa.string()),
        ("state", pa.string()),
        ("transaction", pa.int64()),
        ("format_id", pa.int32()),
        ("gtrid", pa.binary()),
        ("bqual", pa.binary()),
        ("name", pa.string()),
        ("participants", _text_list),
        ("open_participants", _text_list),
        ("first_time", pa.int64()),
        ("last_time", pa.int64()),
        ("clock", pa.string()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("files", _text_list),
        ("complete", pa.bool_()),
        ("holes", pa.string()),
        ("evidence_file", pa.string()),
        ("evidence_offset", pa.int64()),
        ("evidence_type", pa.string()),
        ("attributes", pa.string()),
    ]
)
"""One row is a transaction in one log."""

FINDINGS = pa.schema(
    [
        ("code", pa.string()),
        ("severity", pa.string()),
        ("system", pa.string()),
        ("log", pa.string()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("message", pa.string()),
        ("expected", pa.string()),
        ("found", pa.string()),
        ("advice", pa.string()),
        ("bytes_at_risk", pa.int64()),
        ("gtrid", pa.binary()),
    ]
)
"""One row is something a person should know."""

CHANGES = pa.schema(
    [
        ("system", pa.string()),
        ("log", pa.string()),
        ("commit_sequence", pa.int64()),
        ("ordinal", pa.int64()),
        ("kind", pa.string()),
        ("collection", pa.string()),
        ("key", pa.string()),
        ("transaction", pa.string()),
        ("gtrid", pa.binary()),
        ("time", pa.int64()),
        ("clock", pa.string()),
        ("before", pa.binary()),
        ("after", pa.binary()),
        ("values", pa.string()),
        ("file", pa.string()),
        ("offset", pa.int64()),
    ]
)
"""One row is a committed row or record change; ``values`` is a JSON object or null."""

FATED = CHANGES.append(pa.field("fate", pa.string()))
"""One row is a change of any fate, as `Fate` has them."""

NAMED = FATED.append(pa.field("names", pa.string()))
"""Of some systems, with what else a row's collection is called: a list in JSON, or null."""

COLLECTIONS = pa.schema(
    [
        ("system", pa.string()),
        ("log", pa.string()),
        ("collection", pa.string()),
        ("position", pa.int32()),
        ("column", pa.string()),
        ("declared", pa.string()),
        ("kind", pa.string()),
        ("key_position", pa.int32()),
        ("changes", pa.int64()),
        ("stored", pa.list_(pa.string())),
    ]
)
"""One row is a column of a collection; ``kind`` is its type in SQL, ``position`` counts from 0.

``key_position`` is the column's place in the primary key, from 1; null where it is not in it.

``stored`` is what the column ``collection`` of the changes of a whole log has for it: a table of
Derby is a number there, and another one after it was emptied; what a journal's application keeps
is nothing there.

``changes`` is the number of committed changes in the collection. A collection whose columns nobody
tells is one row without a column.
"""

BATCH_ROWS = 10_000
"""Most rows of a batch, where the caller does not say."""
_REPEATED_MIN, _REPEATED_ROWS = 1024, 16384
"""Rows of a column that repeats one text for which `plain` slices an array that it keeps: larger
ones would take too much memory, and it takes several small ones to pay for making it."""


def record_batches(
    records: Iterable[Record], log: str, clock: str, rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Make batches of at most ``rows`` rows in the `RECORDS` schema, one object at a time.

    For small logs and for what a vectorised reader leaves over. ``clock`` is the unit of the
    times, the ``value`` of a `Clock`.
    """
    constant = {"log": log, "clock": clock}
    return _batches_of_objects(records, RECORDS, _RECORD_COLUMNS, constant, rows)


def log_row(one: Judgement, system: str, log: str, log_format: str) -> dict[str, Any]:
    """Make a row of the `LOGS` schema."""
    return {
        "system": system,
        "log": log,
        "format": log_format,
        "answer": one.answer.value,
        "after_crash": one.after_crash,
        "reason": one.reason,
        "text": one.text,
        "decided_by": one.decided_by or None,
        "transactions_at_stake": one.at_stake.transactions,
        "rows_at_stake": one.at_stake.rows,
    }


def file_rows(files: Iterable[LogFile], system: str, log: str, answer: str) -> list[dict[str, Any]]:
    """Make rows of the `FILES` schema."""
    return [
        {
            "system": system,
            "log": log,
            "file": file.path,
            "role": file.role,
            "order": file.order,
            "size": file.size,
            "identity": file.identity,
            "generation": file.generation,
            "clock": file.clock.value,
            "redundant": file.redundant,
            "why": file.why,
            "answer": answer,
            **{f"{key.value}_bytes": size for key, size in file.bytes_by_outcome().items()},
        }
        for file in files
    ]


def batches_of_transactions(
    transactions: Iterable[Transaction], clock: str, rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Make batches of at most ``rows`` rows in the `TRANSACTIONS` schema."""
    constant = {"clock": clock}
    return _batches_of_objects(transactions, TRANSACTIONS, _TRANSACTION_COLUMNS, constant, rows)


def transactions_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Transaction]:
    """Yield the rows of batches in the `TRANSACTIONS` schema as objects."""
    for row in chain.from_iterable(batch.to_pylist() for batch in batches):
        del row["clock"]
        file, offset = row.pop("evidence_file"), row.pop("evidence_offset")
        row["state"], row["evidence"] = State(row["state"]), file and (file, offset)
        row["attributes"] = json.loads(row["attributes"] or "{}")
        lists = {name: tuple(row[name]) for name in ("participants", "open_participants", "files")}
        yield Transaction(**row | lists)


def finding_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Make rows of the `FINDINGS` schema."""
    return [
        {name: getattr(one, name) for name in FINDINGS.names} | {"severity": one.severity.value}
        for one in findings
    ]


def batches_of_changes(
    changes: Iterable[Change], clock: str, rows: int = BATCH_ROWS, *, log: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Make batches of at most ``rows`` rows in the `CHANGES` schema.

    ``log`` takes the place of the changes' own name of their log.
    """
    constant = {"clock": clock} if log is None else {"clock": clock, "log": log}
    return _batches_of_objects(changes, CHANGES, _CHANGE_COLUMNS, constant, rows)


def batches_by_table(
    transactions: Iterable[Transaction], changes: Iterable[Change], clock: str, rows: int
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Make batches of at most ``rows`` rows, each with the name of its table."""
    for batch in batches_of_transactions(transactions, clock, rows):
        yield "transactions", batch
    for batch in batches_of_changes(changes, clock, rows):
        yield "changes", batch


def rebatched(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches as batches of ``rows`` rows; the last one may have less."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if (count := sum(one.num_rows for one in waiting)) >= rows:
            # Into one chunk, because a batch never spans two.
            table = pa.Table.from_batches(waiting).combine_chunks()
            whole = count - count % rows
            yield from table.slice(0, whole).to_batches(rows)
            waiting = table.slice(whole).to_batches()
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def batch_of_fated(rows: Sequence[Row], clock: str) -> pa.RecordBatch:
    """Make one batch in the `FATED` schema of at least one row; further names are left out."""
    (batch,) = batches_of_changes((one.change for one in rows), clock, len(rows))
    return batch.append_column("fate", pa.array([one.fate.value for one in rows], pa.string()))


def batches_of_fated(
    rows: Iterable[Row], clock: str, at_most: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Make batches of at most ``at_most`` rows in the `FATED` schema."""
    source = iter(rows)
    while some := list(islice(source, at_most)):
        yield batch_of_fated(some, clock)


def fated(batch: pa.RecordBatch, fate: Fate) -> pa.RecordBatch:
    """Return a batch in the `CHANGES` schema as one in `FATED`, all rows with one fate."""
    return batch.append_column("fate", pa.repeat(pa.scalar(fate.value), batch.num_rows))


def _batches_of_objects(
    objects: Iterable[Any],
    schema: pa.Schema,
    columns: Mapping[str, Callable[[Any], Any]],
    constant: Mapping[str, str],
    rows: int,
) -> Iterator[pa.RecordBatch]:
    """Make columns of what ``columns`` gives of each object: else the attribute of that name."""
    getters = [columns.get(name) or attrgetter(name) for name in schema.names]
    source = iter(objects)
    while chunk := list(islice(source, rows)):
        arrays = [
            pa.repeat(pa.scalar(whole_text(constant[field.name]), field.type), len(chunk))
            if field.name in constant
            # A callable, because half a pair of surrogates makes `_array` begin once more.
            else _array(partial(map, get, chunk), field.type, len(chunk))
            for field, get in zip(schema, getters, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Callable[[], Iterable[Any]], kind: pa.DataType, count: int) -> pa.Array:
    """Make a column; what is no UTF-8 is written as `whole_text` says."""
    try:
        return pa.array(values(), kind, size=count)
    except UnicodeEncodeError:
        return pa.array(map(whole_text, values()), kind, size=count)


def batch_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Make a batch of dictionaries; keys that the schema lacks are left out."""
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        columns.append(_array(values.__iter__, field.type, len(rows)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def plain(batch: pa.RecordBatch, schema: pa.Schema = RECORDS) -> pa.RecordBatch:
    """Cast the batch to ``schema``: decode dictionaries, copy views.

    Spark takes neither. Columns that the schema lacks are left out, and not decoded.
    """
    columns = [_plain(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_codes(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return a schema whose texts of these names are dictionary-encoded; `plain` keeps them so."""
    for name in {*names}.intersection(schema.names):
        schema = schema.set(schema.get_field_index(name), pa.field(name, _CODED))
    return schema


_CODED = pa.dictionary(pa.int32(), pa.string())


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    count = len(column)
    if (
        kind != _CODED
        and _REPEATED_MIN <= count <= _REPEATED_ROWS
        and pa.types.is_dictionary(column.type)
        and len(column.dictionary) == 1
        and not column.null_count
    ):
        return _repeated(column.dictionary[0].as_py(), kind).slice(0, count)
    return column.cast(kind)


@lru_cache(maxsize=16)
def _repeated(text: str, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(text, kind), _REPEATED_ROWS)


def json_text(value: Mapping[str, Any] | None) -> str | None:
    """Return compact JSON of a dictionary, None where it is empty."""
    return _encoded(dict(value)) if value else None


_encoded = json.JSONEncoder(separators=(",", ":"), default=jsonable).encode


def signed64(value: int | None) -> int | None:
    """Return the signed 64-bit number with the bits of an unsigned one."""
    if value is None or value < 1 << 63:
        return value
    return value - (1 << 64)


_RECORD_COLUMNS: dict[str, Callable[[Record], Any]] = {
    "outcome": lambda one: one.outcome.value,
    "kind": lambda one: one.kind.value,
    "sequence": lambda one: signed64(one.sequence),
    "transaction": lambda one: signed64(one.transaction),
    "record_id": lambda one: signed64(one.record_id),
    "attributes": lambda one: json_text(one.attributes),
}
"""Of the columns that are not just the attribute of that name, what they hold of an object."""
_TRANSACTION_COLUMNS: dict[str, Callable[[Transaction], Any]] = {
    "state": lambda one: one.state.value,
    "transaction": lambda one: signed64(one.transaction),
    "evidence_file": lambda one: one.evidence[0] if one.evidence else None,
    "evidence_offset": lambda one: one.evidence[1] if one.evidence else None,
    "attributes": lambda one: json_text(one.attributes),
}
_CHANGE_COLUMNS: dict[str, Callable[[Change], Any]] = {
    "kind": lambda one: one.kind.value,
    "values": lambda one: json_text(one.values),
}
