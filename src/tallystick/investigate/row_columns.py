"""Rows of one log that come as columns: objects, dictionaries, lines and batches of many at once.

In: batches of the `FATED` schema. Out: what `tallystick.investigate.rows` makes of rows one by one,
byte for byte, at a fraction of the time. Memory holds a part of a batch.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.lines import (
    csv_texts,
    has_one_value,
    json_texts,
    lines,
    quoted_csv,
)
from tallystick.arrow.texts import csv_text, whole_text
from tallystick.reading.filters import time_text
from tallystick.records import Change, Clock, Fate, Kind, Row, rows_in_columns

MADE_AT_ONCE = 1000
"""Most rows of which objects are made at once."""
_BYTES_MAX = 1 << 24
"""Most bytes of rows of which lines are made at once, but for one row that has more."""
_NAMES = ("fate", "system", "log", *(
    one for one in Change.__slots__ if one not in ("system", "log")
))  # fmt: skip
"""The items of a row in JSON, in their order."""
_KINDS = {one.value: one for one in Kind}
_FATES = {one.value: one for one in Fate}


_CALLED = "names"


def names_in(batch: pa.RecordBatch) -> dict[str, tuple[str, ...]]:
    """Return what each text in a batch of the `NAMED` schema says that a collection is called."""
    if _CALLED not in batch.schema.names:
        return {}
    texts = batch.column(_CALLED).unique().drop_null().to_pylist()
    return {one: (*json.loads(one),) for one in texts}


def looked_at(batch: pa.RecordBatch, keys: Iterable[str], commits: Iterable[int]) -> pa.RecordBatch:
    """Return the rows of these keys, and of these transactions, and those that empty tables."""
    found = pc.equal(batch["kind"].cast(pa.string()), Kind.TRUNCATE.value)
    for name, kind, values in (
        ("key", pa.string(), keys),
        ("commit_sequence", pa.int64(), commits),
    ):
        found = pc.or_(found, pc.is_in(batch[name].cast(kind), pa.array([*values], kind)))
    return batch.filter(found)


Placed = tuple[Kind, tuple[str, str]]


def rekeying(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[Placed]]]:
    """Yield the number of each transaction that may have moved a row, and what it did where.

    It deletes a row, and adds another one; a row that is deleted and added again in its place at
    once is the same one. Memory holds a transaction.
    """
    waiting: list[pa.RecordBatch] = []
    last, goes, comes = None, False, False
    for batch in filter(len, batches):
        begins, gone, come = _left_over(batch)
        places = batch.select(_PLACED)
        if last != _about(batch, 0):
            if goes and comes:
                yield _placed(waiting)
            waiting, goes, comes = [], False, False
        waiting.append(places.slice(0, begins[1] if len(begins) > 1 else None))
        goes, comes = goes or gone[0], comes or come[0]
        if len(begins) > 1:
            if goes and comes:
                yield _placed(waiting)
            for at in np.flatnonzero(gone[1:-1] & come[1:-1]) + 1:
                yield _placed([places.slice(begins[at], begins[at + 1] - begins[at])])
            waiting, goes, comes = [places.slice(begins[-1])], gone[-1], come[-1]
        last = _about(batch, len(batch) - 1)
    if goes and comes:
        yield _placed(waiting)


_PLACED = ("kind", "collection", "key", "commit_sequence")
_TRANSACTION = ("transaction", "gtrid", "commit_sequence")


def _about(batch: pa.RecordBatch, at: int) -> tuple[Any, ...]:
    return tuple(batch[name][at].as_py() for name in _TRANSACTION)


def _left_over(batch: pa.RecordBatch) -> tuple[list[int], Any, Any]:
    """Return where transactions begin, and which delete and add rows, but those that do so at once.

    That is a delete before the add of the same row.
    """
    other = np.logical_or.reduce([_changes(batch[name]) for name in _TRANSACTION])
    begins = np.append(0, np.flatnonzero(other) + 1)
    deletes, adds = (_is_kind(batch, kind) for kind in (Kind.DELETE, Kind.ADD))
    same = ~(other | _changes(batch["collection"]) | _changes(batch["key"]))
    at_once = same & deletes[:-1] & adds[1:]
    deletes[:-1] &= ~at_once
    adds[1:] &= ~at_once
    gone, come = (np.logical_or.reduceat(one, begins) for one in (deletes, adds))
    return begins.tolist(), gone, come


def _is_kind(batch: pa.RecordBatch, kind: Kind) -> Any:
    return pc.equal(batch["kind"].cast(pa.string()), kind.value).to_numpy(zero_copy_only=False)


def _changes(column: pa.Array) -> Any:
    """Return for each value but the first whether it is another one than that before it."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    nothing = pc.xor(before.is_null(), after.is_null())
    found = pc.coalesce(pc.not_equal(before, after), nothing)
    return found.to_numpy(zero_copy_only=False)


def _placed(parts: Sequence[pa.RecordBatch]) -> tuple[int, list[Placed]]:
    found: list[Placed] = []
    for part in parts:
        kinds, collections, keys = (part[name].to_pylist() for name in _PLACED[:3])
        places = zip(collections, keys, strict=True)
        found += zip(map(_KINDS.__getitem__, kinds), places, strict=True)
    return parts[0]["commit_sequence"][0].as_py(), found


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows of a log.

    Attributes:
        batch: their columns, in the `FATED` or the `NAMED` schema.
        log: takes the place of the name of the log, if there is one.
        clock: that of the log.
        stored: by collection what else it is called; and `names_in` the batch.
    """

    batch: pa.RecordBatch
    log: str | None
    clock: Clock
    stored: Mapping[str, tuple[str, ...]]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self.batch.num_rows)

    @property
    def size(self) -> int:
        """The bytes of memory that they take."""
        return int(self.batch.nbytes)

    def rows(self) -> Iterator[Row]:
        """Yield the rows as objects."""
        for part in self._parts(MADE_AT_ONCE):
            columns = part._lists(Change.__slots__)
            columns["kind"] = [*map(_KINDS.__getitem__, columns["kind"])]
            fates = map(_FATES.__getitem__, part.batch.column("fate").to_pylist())
            names = [self.stored.get(one, ()) for one in columns["collection"]]
            if _CALLED in part.batch.schema.names:
                also = (self.stored.get(one, ()) for one in part.batch.column(_CALLED).to_pylist())
                names = [*map(operator.add, also, names)]
            yield from rows_in_columns(fates, names, columns)

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as plain JSON values; ``time`` is ISO where the clock allows."""
        for part in self._parts(MADE_AT_ONCE):
            columns = part._lists(_NAMES)
            for name in ("gtrid", "before", "after"):
                columns[name] = [None if one is None else one.hex() for one in columns[name]]
            shown = part._times().to_pylist()
            pairs = zip(shown, columns["time"], strict=True)
            columns["time"] = [time if text is None else text for text, time in pairs]
            for values in zip(*(columns[name] for name in _NAMES), strict=True):
                yield dict(zip(_NAMES, values, strict=True))

    def json_lines(self) -> Iterator[memoryview]:
        """Yield the rows as lines of JSON, many at once."""
        for part in self._sized():
            parts: list[pa.Array | bytes] = []
            for name in _NAMES:
                parts.append(f'{"," if parts else "{"}"{name}":'.encode())
                parts.append(part._written(RowColumns._json, name))
            yield lines([*parts, b"}\n"], part.count, "null")

    def csv_lines(self, names: Sequence[str]) -> Iterator[memoryview]:
        """Yield the rows as lines of CSV, many at once."""
        for part in self._sized():
            parts: list[pa.Array | bytes] = []
            for name in names:
                parts += [b"," if parts else b"", part._written(RowColumns._csv, name)]
            yield lines([*parts, b"\r\n"], part.count)

    def batch_of(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows in a schema of which ``time`` is text."""
        columns = {name: self.batch.column(name) for name in schema.names}
        columns["time"] = self._times().fill_null(columns["time"].cast(pa.string()))
        if self.log is not None:
            columns["log"] = pa.repeat(pa.scalar(whole_text(self.log), pa.string()), self.count)
        return pa.RecordBatch.from_arrays([*columns.values()], schema=schema)

    def _written(
        self, write: Callable[[RowColumns, str], pa.Array | bytes], name: str
    ) -> pa.Array | bytes:
        """Return what is written of a column; once, where all rows have one value."""
        if self.count < 2 or not has_one_value(self.batch.column(name)):
            return write(self, name)
        found = write(replace(self, batch=self.batch.slice(0, 1)), name)
        return found if isinstance(found, bytes) else bytes(lines([found], 1, "null"))

    def _json(self, name: str) -> pa.Array | bytes:
        if name == "log" and self.log is not None:
            return json.dumps(self.log).encode()
        column = self.batch.column(name)
        if name == "values":  # they are JSON already
            return column
        if name == "time":
            shown = self._times()
            return pc.if_else(shown.is_valid(), json_texts(shown), json_texts(column))
        return json_texts(column)

    def _csv(self, name: str) -> pa.Array | bytes:
        if name == "log" and self.log is not None:
            return csv_text(whole_text(self.log)).encode()
        column = self.batch.column(name)
        if name == "values":
            return quoted_csv(column)
        if name == "time":
            return csv_texts(self._times().fill_null(column.cast(pa.string())))
        return csv_texts(column)

    def _lists(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return some columns as lists, ``values`` as JSON means them."""
        found = {name: self.batch.column(name).to_pylist() for name in names}
        if self.log is not None:
            found["log"] = [self.log] * self.count
        found["values"] = json.loads(f"[{','.join(one or 'null' for one in found['values'])}]")
        return found

    def _times(self) -> pa.Array:
        """Return the times as ISO with their zone; null where the clock does not tell them."""
        coded = self.batch.column("time").dictionary_encode()
        shown = [time_text(one, self.clock) for one in coded.dictionary.to_pylist()]
        return pa.array(shown, pa.string()).take(coded.indices)

    def _sized(self) -> Iterator[RowColumns]:
        return self._parts(max(1, self.count * _BYTES_MAX // max(1, self.size)))

    def _parts(self, rows: int) -> Iterator[RowColumns]:
        for begin in range(0, self.count, rows):
            yield replace(self, batch=self.batch.slice(begin, rows))
