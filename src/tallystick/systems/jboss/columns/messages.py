"""The rows of Artemis's messages, and of the queues that hold them, as Arrow batches.

In: raw rows of a journal in the `FATED` schema. Out: those of `collection_rows` in the `NAMED`
schema. Values of messages are not decoded: `decoded` does that of the rows that are asked for.
Memory grows with the ids of live messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.columns import coded, numbers_at, sliced, texts_of
from tallystick.arrow.schemas import NAMED, json_text
from tallystick.records import Fate, Kind
from tallystick.systems.jboss.applications.tables import MESSAGES, REFERENCES
from tallystick.systems.jboss.columns.message_texts import addresses, contents, message_texts
from tallystick.systems.jboss.format import messages

_RAW, _MESSAGE, _REFERENCE, _ACKNOWLEDGED, _DELETE = range(5)
"""What a raw row means; the first three are also collections of rows."""
_COLLECTIONS = pa.array(["", MESSAGES.name, REFERENCES.name])
_SAME, _ADD, _UPDATE, _DELETED = range(4)
_KINDS = pa.array([None, Kind.ADD.value, Kind.UPDATE.value, Kind.DELETE.value], pa.string())
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
    some = batch.take(pa.array(places))
    types = [json.loads(one)["user_type"] for one in some["values"].to_pylist()]
    keys = some["key"].to_pylist()
    texts = message_texts(np.array(types), some["after"], keys)
    values = pc.replace_with_mask(batch["values"], mine, texts)
    return batch.set_column(batch.schema.get_field_index("values"), "values", values)


class _Messages:
    def __init__(self, names: Callable[[], dict[int, str]]) -> None:
        self._names = cache(names)
        self._live: dict[int, str | None] = {}
        """By id of a message its address."""
        self._queues: dict[int, set[int]] = {}

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the raw rows of a batch make."""
        ids = batch.column("key").cast(pa.int64())
        types, meant, queues = _meant(batch)
        told = np.flatnonzero(meant == _MESSAGE)
        named = iter(addresses(types[told], batch.column("after").take(pa.array(told))))
        lasts = pc.equal(batch.column("fate"), Fate.COMMITTED.value).to_pylist()
        found: list[tuple[int, int, int, int, str | None]] = []
        given = zip(ids.to_pylist(), meant.tolist(), queues.tolist(), lasts, strict=True)
        for place, (number, code, queue, last) in enumerate(given):
            found += [(place, *one) for one in self._rows(number, code, queue, named, last=last)]
        places, collections, kinds, queue_ids, called = zip(*found, strict=True)
        return self._made(batch.take(pa.array(places)), collections, kinds, queue_ids, called)

    def _rows(
        self, number: int, code: int, queue: int, named: Iterator[str | None], *, last: bool
    ) -> list[tuple[int, int, int, str | None]]:
        """Return collection, kind, queue and address of the rows that a raw row makes."""
        held = self._queues.get(number, ())
        if code == _MESSAGE:
            before = self._live.get(number)
            kind = _UPDATE if number in self._live else _ADD
            address = next(named) or before
            if last:
                self._live[number] = address
            return [(_MESSAGE, kind, 0, address)]
        if code == _REFERENCE:
            if last:
                self._queues.setdefault(number, set()).add(queue)
            return [(_REFERENCE, _ADD, queue, None)]
        if code == _ACKNOWLEDGED and queue in held:
            if last:
                self._queues[number].remove(queue)
            return [(_REFERENCE, _DELETED, queue, None)]
        if code == _DELETE and (number in self._live or held):
            gone = [(_MESSAGE, _DELETED, 0, self._live[number])] if number in self._live else []
            rows = [*gone, *((_REFERENCE, _DELETED, one, None) for one in sorted(held))]
            if last:
                self._live.pop(number, None)
                self._queues.pop(number, None)
            return rows
        return [(_RAW, _SAME, 0, None)]

    def _made(
        self,
        taken: pa.RecordBatch,
        collections: Sequence[int],
        kinds: Sequence[int],
        queues: Sequence[int],
        called: Sequence[str | None],
    ) -> pa.RecordBatch:
        """Return the rows, of which ``taken`` has the raw ones that make them."""
        collection, kind, queue = (np.array(one) for one in (collections, kinds, queues))
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


def _meant(batch: pa.RecordBatch) -> tuple[Any, Any, Any]:
    """Return the user type of each raw row, what it means, and the queue that it names, or 0."""
    typed = batch.column("values").dictionary_encode()
    types = [json.loads(one)["user_type"] for one in typed.dictionary.to_pylist()]
    after = batch.column("after")
    adds = np.asarray(pc.equal(batch.column("kind"), Kind.ADD.value))
    # A row without values takes the first type, and is none of these: it deletes.
    code = np.array(types or [0])[np.asarray(typed.indices.fill_null(0))]
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
