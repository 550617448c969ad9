"""The rows of Artemis's messages, and of the queues that hold them, as Arrow batches.

In: raw rows of a journal in the `FATED` schema. Out: those of `collection_rows` in the `NAMED`
schema. Values of messages are not decoded: `decoded` does that of the rows that are asked for.
Memory grows with the ids of live messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.columns import coded, numbers_at, sliced, texts_of
from tallystick.arrow.neighbours import firsts, lasts_of, starts_of
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
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
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
    texts = message_texts(types, some["after"], np.asarray(some["key"].cast(pa.int64())))
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
        ids = np.asarray(batch.column("key").cast(pa.int64()))
        types, meant, queues = _meant(batch)
        lasts = np.asarray(pc.equal(batch.column("fate"), Fate.COMMITTED.value))
        told = np.flatnonzero(meant == _MESSAGE)
        called = np.full(len(batch), None, object)
        bodies = batch.column("after").take(pa.array(told))
        called[told] = [one or None for one in addresses(types[told], bodies)]
        there = self._there(ids, meant, called, lasts)
        places, of_queue = self._held(ids, meant, queues, lasts)
        deletes = meant == _DELETE
        taken = np.zeros(len(batch), np.bool_)
        taken[places] = True
        # What is taken of a queue that does not hold it makes no row of a collection.
        own = np.where((meant == _ACKNOWLEDGED) & ~taken, _RAW, meant)
        collection, kind = _MADE_OF[own], _KIND_OF[own]
        collection[deletes & there], kind[deletes & there] = _MESSAGE, _DELETED
        kind[(meant == _MESSAGE) & there] = _UPDATE
        queues = np.where(collection == _REFERENCE, queues, 0)
        columns = [collection, kind, queues, called]
        further = deletes[places]
        if not further.any():  # nothing has to be copied
            return self._made(batch, *columns)
        rows = np.flatnonzero(~(deletes & taken & ~there))
        more = places[further]
        places = np.append(rows, more)
        # Stable: the references that a deletion ends follow the message, by queue.
        order = np.argsort(places, kind="stable")
        of_more = (_REFERENCE, _DELETED, of_queue[further], None)
        columns = [
            np.append(one[rows], np.full(len(more), value, one.dtype))[order]
            for one, value in zip(columns, of_more, strict=True)
        ]
        return self._made(batch.take(pa.array(places[order])), *columns)

    def _there(self, ids: Longs, meant: Longs, called: Any, lasts: Any) -> Any:
        """Return which raw rows find their message there; these get its address, too."""
        live, mine = self._live, np.flatnonzero((meant == _MESSAGE) | (meant == _DELETE))
        before = [one for one in np.unique(ids[mine]).tolist() if one in live]
        adds = np.append(np.ones(len(before), np.bool_), lasts[mine] & (meant[mine] == _MESSAGE))
        ends = np.append(np.zeros(len(before), np.bool_), lasts[mine] & (meant[mine] == _DELETE))
        numbers = np.append(np.array(before, np.int64), ids[mine])
        # What was there before comes first, as if it was added again.
        order = np.argsort(numbers, kind="stable")
        named = np.append(np.array([live.pop(one) for one in before], object), called[mine])[order]
        found, last = _standing(adds[order], ends[order], numbers[order])
        for at in np.flatnonzero(found >= 0):  # in their order: one may have it from another
            named[at] = named[at] or named[found[at]]
        final = lasts_of(starts_of(numbers[order]), len(order))
        kept = final[last[final] >= 0]
        live.update(zip(numbers[order][kept].tolist(), named[last[kept]].tolist(), strict=True))
        there = np.zeros(len(ids), np.bool_)
        own = order >= len(before)
        places = mine[order[own] - len(before)]
        there[places], called[places] = found[own] >= 0, named[own]
        return there

    def _held(self, ids: Longs, meant: Longs, queues: Longs, lasts: Any) -> tuple[Longs, Longs]:
        """Return the raw rows that end that a queue holds a message, and the queues."""
        mine = np.flatnonzero((meant == _REFERENCE) | (meant == _ACKNOWLEDGED))
        deletes = np.flatnonzero(meant == _DELETE)
        held, numbers = self._queues, np.unique(ids[np.append(mine, deletes)]).tolist()
        before = [(one, queue) for one in numbers if one in held for queue in held.pop(one)]
        known = np.array(before, np.int64).reshape(-1, 2)
        number, queue = np.append(known[:, 0], ids[mine]), np.append(known[:, 1], queues[mine])
        order = np.lexsort((queue, number))
        order = order[firsts(number[order], queue[order])]
        # A deletion ends that of each queue that is known of its message.
        begins, ends = (np.searchsorted(number[order], ids[deletes], one) for one in _SIDES)
        counts = ends - begins
        all_before = np.repeat(np.cumsum(counts) - counts, counts)
        of_pair = order[np.repeat(begins, counts) + np.arange(len(all_before)) - all_before]
        places = np.concatenate([np.full(len(known), -1), mine, np.repeat(deletes, counts)])
        number, queue = np.append(number, number[of_pair]), np.append(queue, queue[of_pair])
        order = np.lexsort((places, queue, number))
        places, number, queue = places[order], number[order], queue[order]
        old = places < 0
        adds = old | (lasts[places] & (meant[places] == _REFERENCE))
        found, last = _standing(adds, ~old & lasts[places] & ~adds, number, queue)
        final = lasts_of(starts_of(number, queue), len(order))
        kept = final[last[final] >= 0]
        for one, of in zip(number[kept].tolist(), queue[kept].tolist(), strict=True):
            held[one] = (*held.get(one, ()), of)
        ended = np.flatnonzero((found >= 0) & ~old & (meant[places] != _REFERENCE))
        return places[ended], queue[ended]

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


def _standing(adds: Any, ends: Any, *group: Longs) -> tuple[Longs, Longs]:
    """Return by which row of its group each finds something there, and leaves it; -1 for none."""
    rows = np.arange(len(adds))
    changed = np.maximum.accumulate(np.where(adds | ends, rows, -1))
    first = np.maximum.accumulate(np.where(firsts(*group), rows, 0))

    def there(at: Longs) -> Longs:
        found: Longs = np.where((at >= first) & adds[at], at, -1)
        return found

    return there(np.append(-1, changed)[: len(rows)]), there(changed)


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
