"""The rows of Artemis's messages, and of the queues that hold them, as Arrow batches.

In: raw rows of a journal in the `FATED` schema. Out: those of `collection_rows` in the `NAMED`
schema. Values of messages are not decoded: `decoded` does that of the rows that are asked for.
Memory grows with the ids of live messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.columns import coded, numbers_at, sliced, texts_of
from tallystick.arrow.schemas import NAMED, json_text
from tallystick.records import Fate, Kind
from tallystick.systems.jboss.applications.tables import MESSAGES, REFERENCES
from tallystick.systems.jboss.columns.message_texts import addresses, contents, message_texts
from tallystick.systems.jboss.format import messages

if TYPE_CHECKING:
    from tallystick.systems.protocol import Longs

_RAW, _MESSAGE, _REFERENCE, _ACKNOWLEDGED, _DELETE = range(5)
"""What a raw row means; the first three are also collections of rows."""
_COLLECTIONS = pa.array(["", MESSAGES.name, REFERENCES.name])
_SAME, _ADD, _UPDATE, _DELETED = range(4)
_KINDS = pa.array([None, Kind.ADD.value, Kind.UPDATE.value, Kind.DELETE.value], pa.string())
# A raw row makes one of a collection, where nothing else is known; a deletion makes none.
_MADE_OF = np.array([_RAW, _MESSAGE, _REFERENCE, _REFERENCE, _RAW])
_KIND_OF = np.array([_SAME, _ADD, _ADD, _DELETED, _SAME])
_Made = tuple[int, int, int, str | None]
"""Collection, kind, queue and address of a row."""
_QUEUE_SIZE = 8
_BYTES_MAX = 1 << 26
"""Most bytes of rows that are decoded at once, but for one row that has more."""


def message_batches(
    batches: Iterable[pa.RecordBatch], names: Callable[[], dict[int, str]], rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most ``rows`` rows; ``names`` gives those of queues."""
    followed = _Messages(names)
    for batch in filter(None, batches):
        yield from sliced(followed.batch(batch), rows)


def decoded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield some rows of a batch of `message_batches` with the values of messages."""
    for part in sliced(batch, max(1, batch.num_rows * _BYTES_MAX // max(1, batch.nbytes))):
        yield _decoded(part)


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    mine = pc.and_(pc.equal(batch.column("collection"), MESSAGES.name), batch["values"].is_valid())
    places = np.flatnonzero(mine)
    if not len(places):
        return batch
    some = batch.select(["values", "after", "key"]).take(pa.array(places))
    types = _user_types(some["values"])
    texts = message_texts(types, some["after"], some["key"].to_pylist())
    values = pc.replace_with_mask(batch["values"], mine, texts)
    return batch.set_column(batch.schema.get_field_index("values"), "values", values)


class _Messages:
    def __init__(self, names: Callable[[], dict[int, str]]) -> None:
        self._names = cache(names)
        self._live: dict[int, str | None] = {}
        """By id of a message its address."""
        # Tuples: a set of each message takes much of the time of the collector of garbage.
        self._queues: dict[int, tuple[int, ...]] = {}

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the raw rows of a batch make."""
        ids = batch.column("key").cast(pa.int64())
        types, meant, queues = _meant(batch)
        told = np.flatnonzero(meant == _MESSAGE)
        called = np.full(len(batch), None, object)
        called[told] = addresses(types[told], batch.column("after").take(pa.array(told)))
        lasts = pc.equal(batch.column("fate"), Fate.COMMITTED.value)
        given = (ids, meant, queues, called, lasts)
        others = self._others(zip(*(one.tolist() for one in given), strict=True))
        counts, other = np.ones(len(batch), np.int64), [*others]
        counts[other] = [*map(len, others.values())]
        places = np.repeat(np.arange(len(batch)), counts)
        columns = [_MADE_OF[meant][places], _KIND_OF[meant][places], queues[places], called[places]]
        at = np.flatnonzero(np.isin(places, other))
        for column, values in zip(
            columns, zip(*chain(*others.values()), strict=True), strict=False
        ):
            column[at] = np.array(values, column.dtype)
        # Where each raw row makes one, as mostly, nothing has to be copied.
        alike = bool((counts == 1).all())
        return self._made(batch if alike else batch.take(pa.array(places)), *columns)

    def _others(
        self, given: Iterable[tuple[int, int, int, str | None, bool]]
    ) -> dict[int, list[_Made]]:
        """Return, by place, what raw rows make that is not what they seem to make by themselves."""
        found: dict[int, list[_Made]] = {}
        live, queues = self._live, self._queues
        for place, (number, code, queue, address, last) in enumerate(given):
            if code == _MESSAGE:
                if number in live:
                    address = address or live[number]
                    found[place] = [(_MESSAGE, _UPDATE, 0, address)]
                if last:
                    live[number] = address
            elif code == _REFERENCE:
                if last and queue not in (held := queues.get(number, ())):
                    queues[number] = (*held, queue)
            elif code == _ACKNOWLEDGED:
                if queue not in (held := queues.get(number, ())):
                    found[place] = [(_RAW, _SAME, 0, None)]
                elif last:
                    queues[number] = tuple(one for one in held if one != queue)
            elif code == _DELETE and (rows := self._deleted(number, last=last)):
                found[place] = rows
        return found

    def _deleted(self, number: int, *, last: bool) -> list[_Made]:
        rows: list[_Made] = []
        if number in self._live:
            rows.append((_MESSAGE, _DELETED, 0, self._live[number]))
        held = sorted(self._queues.get(number, ()))
        rows += [(_REFERENCE, _DELETED, one, None) for one in held]
        if last:
            self._live.pop(number, None)
            self._queues.pop(number, None)
        return rows

    def _made(
        self,
        taken: pa.RecordBatch,
        collection: Longs,
        kind: Longs,
        queue: Longs,
        called: Any,
    ) -> pa.RecordBatch:
        """Return the rows, of which ``taken`` has the raw ones that make them."""
        of_queue = pa.array(collection == _REFERENCE)
        deleted = pa.array(kind == _DELETED)
        values = pc.binary_join_element_wise(
            '{"message_id":', taken["key"], texts_of(queue, self._rest_of_values), ""
        )
        values = pc.if_else(of_queue, values, taken["values"])
        key = pc.binary_join_element_wise(taken["key"], texts_of(queue, str), ":")
        names = pa.array(called, pa.string()).dictionary_encode()
        texts = [json.dumps([one]) for one in names.dictionary.to_pylist()]
        columns = {
            "collection": coded(collection, _COLLECTIONS).cast(pa.string()),
            "kind": _KINDS.take(pa.array(kind)).fill_null(taken["kind"]),
            "key": pc.if_else(of_queue, key, taken["key"]),
            "values": pc.if_else(deleted, pa.scalar(None, pa.string()), values),
            "names": pc.if_else(
                of_queue,
                texts_of(queue, self._names_of),
                pa.array(texts, pa.string()).take(names.indices),
            ),
        }
        arrays = [columns[one] if one in columns else taken[one] for one in NAMED.names]
        return pa.RecordBatch.from_arrays(arrays, schema=NAMED)

    def _rest_of_values(self, queue: int) -> str:
        values = {"queue_id": queue, "queue": self._names().get(queue)}
        return f",{(json_text(values) or '')[1:]}"

    def _names_of(self, queue: int) -> str | None:
        found = [str(one) for one in (self._names().get(queue), queue) if one]
        return json.dumps(found) if found else None


def _user_types(values: pa.Array) -> Any:
    """Return the user type of each raw row, 0 of one that deletes: it has no values."""
    typed = values.dictionary_encode()
    types = [json.loads(one)["user_type"] for one in typed.dictionary.to_pylist()]
    return np.array([*types, 0])[np.asarray(typed.indices.fill_null(len(types)))]


def _meant(batch: pa.RecordBatch) -> tuple[Any, Any, Any]:
    """Return the user type of each raw row, what it means, and the queue that it names, or 0."""
    after = batch.column("after")
    adds = np.asarray(pc.equal(batch.column("kind"), Kind.ADD.value))
    code = _user_types(batch.column("values"))
    deletes = np.asarray(pc.equal(batch.column("kind"), Kind.DELETE.value))
    sizes = np.asarray(pc.binary_length(after).fill_null(0))
    queued = (sizes >= _QUEUE_SIZE) & ~deletes
    meant = np.full(len(batch), _RAW)
    meant[np.isin(code, messages.MESSAGES) & adds] = _MESSAGE
    meant[(code == messages.REFERENCE) & queued] = _REFERENCE
    meant[(code == messages.ACKNOWLEDGED) & queued] = _ACKNOWLEDGED
    meant[deletes] = _DELETE
    queues = np.zeros(len(batch), np.int64)
    of_queue = np.isin(meant, (_REFERENCE, _ACKNOWLEDGED))
    begins, data = contents(after)
    queues[of_queue] = numbers_at(data, begins[:-1][of_queue], ">i8")
    return code, meant, queues
