"""The changes of one collection with the collection's own columns.

In: batches of the change feed. Out: batches with a column for each column of the collection, in
its type, and the columns of the feed that name and order changes, with ``_`` before their names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.pipeline.change_feed import CHANGE_TYPE, DELETE, FEED, UPDATE_AFTER, UPDATE_BEFORE
from tallystick.reading.names import log_name
from tallystick.systems.protocol import (
    LOST,
    Catalogued,
    Collection,
    LogReading,
    LogSource,
    ReadOptions,
    Typed,
)
from tallystick.systems.registry import system

RESCUED, KEY_CHANGED = "_rescued", "_key_changed"

OF_FEED = {
    "_change_type": "_change_type",
    "_commit_version": "_commit_version",
    "_commit_timestamp": "_commit_timestamp",
    "_ordinal": "ordinal",
    "_key": "key",
    "_transaction": "transaction",
    "_gtrid": "gtrid",
    "_log": "log",
    KEY_CHANGED: None,
    RESCUED: None,
}
"""The columns that follow those of the collection, and the columns of the feed that they are.

Two are made here. The key changed in both rows of an update that changes the primary key, but for
an old row whose key another row of the commit got before; null is no update, no primary key, or an
old row that is not known. Of the values only those are rescued, as JSON by column, that the types
of their columns cannot hold or that have none of the columns, and what is known of those that are
lost.
"""

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

_MADE = {KEY_CHANGED: pa.bool_(), RESCUED: pa.string()}

_BELOW_MICROSECONDS = re.compile(r"(?<=\.\d{6})\d+")

Rows = list[dict[str, object]]
"""Values by column."""

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def collections_of(reading: LogReading) -> tuple[Collection, ...]:
    """Return the collections of a log; none where its system tells no columns."""
    return tuple(reading.collections()) if isinstance(reading, Catalogued) else ()


def catalogue_of(
    logs: Iterable[LogSource], options: ReadOptions
) -> dict[tuple[str, str], dict[Collection, str]]:
    """Return the collections by system and name; more than one of a name have other columns.

    Each has the name of the first log in which it was found.
    """
    found: dict[tuple[str, str], dict[Collection, str]] = {}
    for source in logs:
        for one in collections_of(system(source.system).read(source, options)):
            found.setdefault((source.system, one.name), {}).setdefault(one, log_name(source))
    return found


def collection_rows(reading: LogReading, log: str, *, count: bool) -> Iterator[dict[str, Any]]:
    """Yield rows of `COLLECTIONS`: one for each column. With ``count`` all changes are read."""
    row = {"system": reading.source.system, "log": log}
    counted = Counter(one.collection for one in reading.changes()) if count else Counter()
    found = {
        one: one.stored or (() if isinstance(reading, Typed) else (one.name,))
        for one in collections_of(reading)
    }
    shared = Counter(name for names in found.values() for name in names)
    for one, stored in found.items():
        changes = sum(counted[name] for name in stored)
        # A name that was given again, once its table was renamed, tells of two collections.
        alone = all(shared[name] == 1 for name in stored)
        if count and isinstance(reading, Typed) and not (stored and alone):
            changes = sum(1 for _ in reading.changes_of(one.name))
        named = row | {"collection": one.name, "changes": changes if count else None}
        for position, column in enumerate(one.columns):
            texts = {"column": column.name, "declared": column.declared, "kind": column.kind}
            places = {"position": position, "key_position": column.key_position}
            yield named | texts | places | {"stored": stored}
    for name, changes in sorted(counted.items()):
        if name in shared:
            continue
        yield row | {"collection": name, "changes": changes, "stored": (name,)}


def typed_schema(columns: Iterable[tuple[str, str]]) -> pa.Schema:
    """Return the schema of a collection with these names and kinds of columns."""
    own = [pa.field(name, _arrow_type(kind)) for name, kind in columns]
    types = {name: FEED.field(of).type for name, of in OF_FEED.items() if of is not None} | _MADE
    return pa.schema([*own, *((name, types[name]) for name in OF_FEED)])


def typed(
    batches: Iterable[pa.RecordBatch],
    collection: str,
    columns: Iterable[tuple[str, str]],
    key: Sequence[str] = (),
    left_out: Container[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a collection with these names and kinds of columns.

    ``key`` names those of its primary key, ``left_out`` others of its columns.

    A change of which the log has no columns (the old row of an H2 delete, say) has nulls. So has a
    value that its column cannot hold, which stands in ``_rescued``; so do those of columns that are
    not among these, which were added after a stream began, or dropped.
    """
    columns = tuple(columns)
    schema, known = typed_schema(columns), {name for name, _ in columns}
    moves = _Moves(key)
    for batch in batches:
        ours = batch.filter(pc.equal(batch["collection"], collection))
        if not ours.num_rows:
            continue
        rows = [{} if text is None else json.loads(text) for text in ours["values"].to_pylist()]
        rescued = [
            {name: row[name] for name in row if name not in known and name not in left_out}
            for row in rows
        ]
        arrays = [_column(rows, name, _arrow_type(kind), rescued) for name, kind in columns]
        texts = [json.dumps(one) if one else None for one in rescued]
        made = {
            KEY_CHANGED: moves.changed(ours, rows),
            RESCUED: pa.array(texts, pa.string()),
        }
        of_feed = [made[name] if of is None else ours[of] for name, of in OF_FEED.items()]
        yield pa.RecordBatch.from_arrays([*arrays, *of_feed], schema=schema)


def table_of(
    rows: Rows, columns: Iterable[tuple[str, str]]
) -> tuple[pa.Table, list[dict[str, object]]]:
    """Return rows of a collection as a table with these names and kinds of columns.

    Values are those of JSON, binary as hexadecimal. A value that its column cannot hold is null,
    and stands in the second list, which has a mapping for each row.
    """
    columns, rescued = tuple(columns), [dict[str, object]() for _ in rows]
    arrays = [_column(rows, name, _arrow_type(kind), rescued) for name, kind in columns]
    return pa.table(arrays, names=[name for name, _ in columns]), rescued


@dataclass(slots=True)
class _Moves:
    """Tells the updates of one feed that change the primary key, which these columns are."""

    key: Sequence[str]
    commit: tuple[str, int] = ("", -1)
    takers: dict[str, str] = field(default_factory=dict)
    """The rows that an update of the commit gave a key, by that key."""
    taken: dict[str, str] = field(default_factory=dict)
    """The keys that they have, by row."""

    def changed(self, changes: pa.RecordBatch, rows: Rows) -> pa.Array:
        """Return `KEY_CHANGED`; the old row of an update stands directly before the new one."""
        found: list[bool | None] = [None] * len(rows)
        types = changes[CHANGE_TYPE].to_pylist()
        names = ("key", "log", "_commit_version")
        places = zip(*(changes[name].to_pylist() for name in names), strict=True)
        for at, (row, *commit) in enumerate(places if self.key else ()):
            if types[at] == UPDATE_AFTER and at and types[at - 1] == UPDATE_BEFORE:
                self._enter((commit[0], commit[1]))
                found[at - 1], found[at] = self._moved(row, rows[at - 1], rows[at])
            elif types[at] == DELETE and row in self.taken:
                self.takers.pop(self.taken.pop(row), None)
        return pa.array(found, pa.bool_())

    def _enter(self, commit: tuple[str, int]) -> None:
        if commit != self.commit:
            self.commit = commit
            self.takers.clear()
            self.taken.clear()

    def _moved(
        self, row: str, old: dict[str, object], new: dict[str, object]
    ) -> tuple[bool | None, bool | None]:
        """Return whether a row gave its key up, and whether it got another one.

        Engines look at the end of a statement whether keys are unique (``SET ID = ID + 1``). A row
        whose key belongs to another row by then does not give it up: a delete by this key would hit
        the other row.
        """
        if not all(name in old and name in new for name in self.key):
            return None, None
        if all(old[name] == new[name] for name in self.key):
            return False, False
        before, after = (json.dumps([one[name] for name in self.key]) for one in (old, new))
        gives_up = self.takers.get(before, row) == row
        if gives_up:
            self.takers.pop(before, None)
        self.takers[after], self.taken[row] = row, after
        return gives_up, True


def _column(rows: Rows, name: str, kind: pa.DataType, rescued: Rows) -> pa.Array:
    values = [row.get(name) for row in rows]
    if pa.types.is_temporal(kind):
        cut = _BELOW_MICROSECONDS.sub
        values = [cut("", one) if isinstance(one, str) else one for one in values]
    try:
        return _array(values, kind)
    except (pa.ArrowInvalid, TypeError, ValueError):
        pass
    held = []
    for value, row, others in zip(values, rows, rescued, strict=True):
        try:
            held.append(_array([value], kind))
        except (pa.ArrowInvalid, TypeError, ValueError):
            held.append(pa.nulls(1, kind))
            others[name] = value[LOST] if isinstance(value, dict) and LOST in value else row[name]
    return pa.concat_arrays(held)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values in a type; raises an error if one is not in it."""
    if any(isinstance(one, dict) for one in values):
        raise TypeError
    if pa.types.is_binary(kind):
        return pa.array([None if one is None else bytes.fromhex(one) for one in values], kind)
    texts = [one if one is None or isinstance(one, str) else json.dumps(one) for one in values]
    found = pa.array(texts, pa.string()).cast(kind)
    if pa.types.is_temporal(kind) and pc.any(pc.equal(pc.year(found), 0)).as_py():
        raise ValueError  # Arrow has this year, Python and Spark begin with the next one
    return found


def _arrow_type(kind: str) -> pa.DataType:
    if match := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _ARROW[kind]
