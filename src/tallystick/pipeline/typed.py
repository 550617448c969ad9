"""The changes of one collection with the collection's own columns.

In: batches of the change feed. Out: batches with a column for each column of the collection, in
its type, and the columns of the feed that name and order changes, with ``_`` before their names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.errors import CorruptLogError
from tallystick.pipeline.change_feed import FEED
from tallystick.systems.protocol import Catalogued, Collection, LogReading, Typed

OF_FEED = {
    "_change_type": "_change_type",
    "_commit_version": "_commit_version",
    "_commit_timestamp": "_commit_timestamp",
    "_ordinal": "ordinal",
    "_key": "key",
    "_transaction": "transaction",
    "_gtrid": "gtrid",
    "_log": "log",
}
"""The columns that follow those of the collection, and the columns of the feed that they are."""

_ARROW = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "string": pa.string(),
}
"""By kind of a `Column` its Arrow type."""

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def collections_of(reading: LogReading) -> tuple[Collection, ...]:
    """Return the collections of a log; none where its system tells no columns."""
    return tuple(reading.collections()) if isinstance(reading, Catalogued) else ()


def collection_rows(reading: LogReading, log: str, *, count: bool) -> Iterator[dict[str, Any]]:
    """Yield rows of `COLLECTIONS`: one for each column. With ``count`` all changes are read."""
    row = {"system": reading.source.system, "log": log}
    counted = Counter(one.collection for one in reading.changes()) if count else Counter()
    for one in collections_of(reading):
        stored = one.stored or (() if isinstance(reading, Typed) else (one.name,))
        changes = sum(counted.pop(name, 0) for name in stored)
        if count and not stored and isinstance(reading, Typed):
            changes = sum(1 for _ in reading.changes_of(one.name))
        named = row | {"collection": one.name, "changes": changes if count else None}
        for position, column in enumerate(one.columns):
            texts = {"column": column.name, "declared": column.declared, "kind": column.kind}
            yield named | texts | {"position": position, "stored": stored}
    for name, changes in sorted(counted.items()):
        yield row | {"collection": name, "changes": changes, "stored": (name,)}


def typed_schema(columns: Iterable[tuple[str, str]]) -> pa.Schema:
    """Return the schema of a collection with these names and kinds of columns."""
    own = [pa.field(name, _arrow_type(kind)) for name, kind in columns]
    return pa.schema([*own, *(pa.field(name, FEED.field(of).type) for name, of in OF_FEED.items())])


def typed(
    batches: Iterable[pa.RecordBatch], collection: str, columns: Iterable[tuple[str, str]]
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a collection with these names and kinds of columns.

    A change of which the log has no columns (the old row of an H2 delete, say) has nulls.

    Raises:
        CorruptLogError: a value is none of its column's type.
    """
    columns = tuple(columns)
    schema = typed_schema(columns)
    for batch in batches:
        ours = batch.filter(pc.equal(batch["collection"], collection))
        if not ours.num_rows:
            continue
        rows = [{} if text is None else json.loads(text) for text in ours["values"].to_pylist()]
        arrays = [_column(rows, name, _arrow_type(kind), ours) for name, kind in columns]
        arrays += [ours[of] for of in OF_FEED.values()]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(
    rows: list[dict[str, object]], name: str, kind: pa.DataType, batch: pa.RecordBatch
) -> pa.Array:
    texts = [row.get(name) for row in rows]
    try:
        if pa.types.is_binary(kind):
            return pa.array([None if one is None else bytes.fromhex(str(one)) for one in texts])
        plain = [one if one is None or isinstance(one, str) else json.dumps(one) for one in texts]
        return pa.array(plain, pa.string()).cast(kind)
    except (pa.ArrowInvalid, ValueError) as error:
        raise CorruptLogError(
            f"column {name} holds a value that is no {kind}: {error}", file=batch["file"][0].as_py()
        ) from error


def _arrow_type(kind: str) -> pa.DataType:
    if match := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _ARROW[kind]
