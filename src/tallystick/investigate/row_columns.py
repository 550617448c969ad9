"""Rows of one log that come as columns: objects, dictionaries, lines and batches of many at once.

In: batches of the `FATED` schema. Out: what `tallystick.investigate.rows` makes of rows one by one,
byte for byte, at a fraction of the time. Memory holds a part of a batch.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, TypeAlias
from weakref import ReferenceType, ref

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.lines import csv_text, csv_texts, json_texts, lines, quoted_csv
from tallystick.arrow.texts import whole_text
from tallystick.reading.filters import time_text
from tallystick.records import (
    Change,
    Clock,
    Fate,
    Kind,
    Row,
    fill_values,
    lacks_values,
    rows_in_columns,
)

LISTED_AT_ONCE = 1000
"""Most rows whose fields are taken out of columns at once."""
MADE_AT_ONCE = 150
"""Most rows of which objects are made at once.

There are three for each, and those before are looked at after these: where who asks for rows lets
go of them, that is no work for the collector of garbage, which comes when 700 more are there.
"""
_BYTES_MAX = 1 << 24
"""Most bytes of rows of which lines are made at once, but for one row that has more."""
_NAMES = ("fate", "system", "log", *(
    one for one in Change.__slots__ if one not in ("system", "log")
))  # fmt: skip
"""The items of a row in JSON, in their order."""
_KINDS = {one.value: one for one in Kind}
_FATES = {one.value: one for one in Fate}
_FIELDS = [one for one in Change.__slots__ if one != "values"]
_CHANGE = operator.attrgetter("change")
_CALLED = "names"
_Columns: TypeAlias = Mapping[str, Iterator[Any]]
Decode: TypeAlias = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]


def names_in(batch: pa.RecordBatch) -> dict[str, tuple[str, ...]]:
    """Return what each text in a batch of the `NAMED` schema says that a collection is called."""
    if _CALLED not in batch.schema.names:
        return {}
    texts = batch.column(_CALLED).unique().drop_null().to_pylist()
    return {one: (*json.loads(one),) for one in texts}


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows of a log.

    Attributes:
        batch: their columns, in the `FATED` or the `NAMED` schema.
        log: takes the place of the name of the log, if there is one.
        clock: that of the log.
        stored: by collection what else it is called; and `names_in` the batch.
        decode: as `DecodesLater.decoded`, for a batch whose values are not decoded.
    """

    batch: pa.RecordBatch
    log: str | None
    clock: Clock
    stored: Mapping[str, tuple[str, ...]]
    decode: Decode | None = None

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self.batch.num_rows)

    @property
    def size(self) -> int:
        """The bytes of memory that they take."""
        return int(self.batch.nbytes)

    def whole(self) -> Iterator[RowColumns]:
        """Yield the rows with their values, as all that is below but `rows` needs them."""
        for batch in (self.batch,) if self.decode is None else self.decode(self.batch):
            yield replace(self, batch=batch, decode=None)

    def rows(self) -> Iterator[Row]:
        """Yield the rows as objects, whose values are made when they are asked for."""
        texts, begin = _Texts(self.batch, self.decode), 0
        given = None
        for part in self._parts(LISTED_AT_ONCE):
            fates, names, columns = part._fields()
            for first in range(0, part.count, MADE_AT_ONCE):
                late = _LateValues(texts, begin + first)
                count = min(MADE_AT_ONCE, part.count - first)
                made = rows_in_columns(count, fates, names, columns, late)
                late.belong_to(made)
                left = iter(made)
                del made  # or it would hold the rows that have been given away
                yield from left
                # Of those before these: who asks for rows still holds the last one of these.
                if given is not None:
                    given.let_go()
                given = late
            begin += part.count
        if given is not None:
            given.let_go()

    def _fields(self) -> tuple[Iterator[Fate], Iterator[tuple[str, ...]], _Columns]:
        """Return fates and further names of the rows, and the fields of changes but values."""
        columns = self._lists(_FIELDS)
        fates = map(_FATES.__getitem__, self.batch.column("fate").to_pylist())
        names = map(self.stored.get, columns["collection"], repeat(()))
        if _CALLED in self.batch.schema.names:
            also = map(self.stored.get, self.batch.column(_CALLED).to_pylist(), repeat(()))
            names = map(operator.add, also, names)
        kinds = map(_KINDS.__getitem__, columns["kind"])
        return fates, names, {**{one: iter(columns[one]) for one in columns}, "kind": kinds}

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as plain JSON values; ``time`` is ISO where the clock allows."""
        for part in self._parts(LISTED_AT_ONCE):
            columns = part._lists(_NAMES)
            columns["values"] = _loaded(part.batch.column("values"))
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
                parts.append(part._json(name))
            yield lines([*parts, b"}\n"])

    def csv_lines(self, names: Sequence[str]) -> Iterator[memoryview]:
        """Yield the rows as lines of CSV, many at once."""
        for part in self._sized():
            parts: list[pa.Array | bytes] = []
            for name in names:
                parts += [b"," if parts else b"", part._csv(name)]
            yield lines([*parts, b"\r\n"])

    def batch_of(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows in a schema of which ``time`` is text."""
        columns = {name: self.batch.column(name) for name in schema.names}
        columns["time"] = self._times().fill_null(columns["time"].cast(pa.string()))
        if self.log is not None:
            columns["log"] = pa.repeat(pa.scalar(whole_text(self.log), pa.string()), self.count)
        return pa.RecordBatch.from_arrays([*columns.values()], schema=schema)

    def _json(self, name: str) -> pa.Array | bytes:
        if name == "log" and self.log is not None:
            return json.dumps(self.log).encode()
        column = self.batch.column(name)
        if name == "values":  # they are JSON already
            return column.fill_null("null")
        if name == "time":
            shown = self._times()
            return pc.if_else(shown.is_valid(), json_texts(shown), json_texts(column))
        return json_texts(column)

    def _csv(self, name: str) -> pa.Array | bytes:
        if name == "log" and self.log is not None:
            return csv_text(self.log).encode("utf-8", "surrogateescape")
        column = self.batch.column(name)
        if name == "values":
            return quoted_csv(column)
        if name == "time":
            return csv_texts(self._times().fill_null(column.cast(pa.string())))
        return csv_texts(column)

    def _lists(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return some columns as lists."""
        found = {name: self.batch.column(name).to_pylist() for name in names}
        if self.log is not None:
            found["log"] = [self.log] * self.count
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


class _Texts:
    """The values of a batch as texts, which are decoded when the first one is asked for."""

    def __init__(self, batch: pa.RecordBatch, decode: Decode | None) -> None:
        self._batch, self._decode = batch, decode
        self._decoded: pa.ChunkedArray | None = None

    def of(self, begin: int, count: int) -> pa.ChunkedArray:
        """Return those of some rows that follow each other."""
        if self._decoded is None:
            batches = [self._batch] if self._decode is None else self._decode(self._batch)
            self._decoded = pa.chunked_array([one.column("values") for one in batches])
        return self._decoded.slice(begin, count)

    def taken(self, places: Sequence[int]) -> _Texts:
        """Return those of some rows, which hold nothing of the others."""
        return _Texts(self._batch.take(pa.array(places, pa.int64())), self._decode)


class _LateValues:
    """The values of some rows, made of all of them when the first one is asked for.

    Who keeps one row in a thousand keeps this, too: so it lets go of what belongs to the others.
    """

    def __init__(self, texts: _Texts, begin: int) -> None:
        # Together, as one thread may read the rows and others look at them.
        self._held: tuple[_Texts, int, Sequence[ReferenceType[Change]]] = texts, begin, ()

    def belong_to(self, rows: Iterable[Row]) -> None:
        """Take in the rows; who holds one holds this, and not the other way."""
        self._held = (*self._held[:2], [*map(ref, map(_CHANGE, rows))])

    def fill(self) -> None:
        """Give their values to those rows that are still there."""
        texts, begin, changes = self._held
        fill_values([one() for one in changes], _loaded(texts.of(begin, len(changes))))

    def let_go(self) -> None:
        """Forget the values of those that nobody can ask for, if they are many; called once."""
        texts, begin, changes = self._held
        there = [change() for change in changes]
        left = [at for at, one in enumerate(there) if one is not None and lacks_values(one)]
        if 0 < 2 * len(left) < len(there):  # else what is held takes as much as they do
            texts = texts.taken([begin + one for one in left])
            self._held = texts, 0, [changes[one] for one in left]


def _loaded(texts: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values as JSON means them."""
    found: list[Any] = json.loads(f"[{','.join(one or 'null' for one in texts.to_pylist())}]")
    return found
