"""Committed changes of a journal as Arrow batches, most of them from columns.

In: the files of a journal. Out: batches of the `CHANGES` schema with the rows of
`tallystick.systems.jboss.read.changes.changes`. It takes the valid rows of each scan, which are the
records that the loader sees. What regular transactions of a piece of a scan change is found in
columns, other transactions are followed record by record, by their counts; journals whose commits
list pairs are read record by record throughout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import VIEWED_MAX, byte_ranges, table_batch
from tallystick.arrow.schemas import CHANGES, json_text
from tallystick.records import Clock
from tallystick.systems.jboss.columns.fields import (
    INSIDE,
    Fields,
    RecordColumns,
    columns_of,
    rows_of,
    xids_of,
)
from tallystick.systems.jboss.columns.lives import Effects, effects_of
from tallystick.systems.jboss.format.bodies import xid
from tallystick.systems.jboss.format.layout import (
    ADD,
    ADD_TX,
    CHECK_SIZE,
    COMMIT,
    COUNT_SIZE,
    DELETE,
    DELETE_TX,
    I4,
    I8,
    PREPARE,
    ROLLBACK,
    SYSTEM_NAME,
    UPDATE,
    UPDATE_TX,
    USER_TYPE_SIZE,
    RecordType,
    Shape,
)
from tallystick.systems.jboss.read.changes import place_of
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.records import KINDS
from tallystick.systems.jboss.read.scan import SECOND_SHAPE, VALID, pieces

_Element = tuple[int, int, int, int, bytes | None, int | None]
"""Type byte, record id, order of its file, offset, body and index in `_VALUES` of a change."""
_USER_TYPE_MIN = -128
PIECE = 1 << 15
"""Rows of a piece of a scan: a transaction that is in two is followed record by record."""


def change_batches(journal: JournalFiles, log: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a journal whose commits carry counts; ``rows`` as in a reading.

    Raises:
        CorruptLogError: the id of a file does not fit a place.
    """
    files = journal.ordered()
    follower = ChangeColumns(log, [file.path for file in files])
    found = (
        batch
        for order, file in enumerate(files)
        for batch in _file_batches(follower, journal.shape(file), file, order)
    )
    return rebatched(found, rows)


def _file_batches(
    follower: ChangeColumns, shape: Shape, file: JournalFile, order: int
) -> Iterator[pa.RecordBatch]:
    data, second = file.data(), SECOND_SHAPE.get(shape.name)
    for piece in pieces(data, shape, file.stamp, second=second, rows=PIECE):
        rows = rows_of(piece)
        valid = rows[rows[:, 2] == VALID]
        if len(valid):
            records = columns_of(shape, data, valid)
            yield from follower.feed(shape, data, order, place_of(file, 0), records)


def rebatched(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches as batches of ``rows`` rows; the last one may have less."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if (count := sum(one.num_rows for one in waiting)) >= rows:
            table = pa.Table.from_batches(waiting).combine_chunks()
            whole = count - count % rows
            yield from table.slice(0, whole).to_batches(rows)
            waiting = table.slice(whole).to_batches()
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


@dataclass(slots=True)
class _Open:
    """An open transaction: its adds and updates, its deletes, and its run as in `Replay`."""

    records: list[_Element] = field(default_factory=list)
    deletes: list[_Element] = field(default_factory=list)
    run: int = 0
    run_order: int = -1
    gtrid: bytes | None = None


class _Changes:
    """Follows records one by one and collects the changes that they make: an entry in each list.

    Attributes:
        open: the open transactions.
        elements: the records that change something.
        sequences: the places of the records that make them count.
        ordinals: their places among the changes of these.
        transactions: the numbers of their transactions.
        gtrids: the global ids of these.
    """

    def __init__(self) -> None:
        self.elements: list[_Element] = []
        self.sequences: list[int] = []
        self.ordinals: list[int] = []
        self.transactions: list[int | None] = []
        self.gtrids: list[bytes | None] = []
        self.open: dict[int, _Open] = {}

    def feed(
        self, shape: Shape, data: memoryview, order: int, place: int, fields: Iterable[Fields]
    ) -> None:
        """Apply records of one file; ``place`` is that of its first byte."""
        plain = shape.fields_at + I8.size + COUNT_SIZE + USER_TYPE_SIZE
        inside = plain + I8.size
        opened = self.open
        for kind, at, end, transaction, number, extra in fields:
            if kind in (ADD, UPDATE):
                body = bytes(data[at + plain : end - CHECK_SIZE])
                self._now((kind, number, order, at, body, extra - _USER_TYPE_MIN), place | end)
            elif kind == DELETE:
                self._now((kind, number, order, at, None, None), place | end)
            elif kind in (ADD_TX, UPDATE_TX, DELETE_TX):
                one = opened.get(transaction) or opened.setdefault(transaction, _Open())
                one.run = one.run + 1 if one.run_order == order else 1
                one.run_order = order
                if kind == DELETE_TX:
                    one.deletes.append((kind, number, order, at, None, None))
                else:
                    body = bytes(data[at + inside : end - CHECK_SIZE])
                    one.records.append((kind, number, order, at, body, extra - _USER_TYPE_MIN))
            elif kind == COMMIT:
                self._commit(opened.pop(transaction, None), transaction, order, extra, place | end)
            elif kind == ROLLBACK:
                opened.pop(transaction, None)
            elif kind == PREPARE:
                one = opened.setdefault(transaction, _Open())
                found = xid(bytes(data[at + shape.fields_at + _EXTRA_AT : end - CHECK_SIZE]))
                one.gtrid = found.gtrid if found else None
                if one.run_order != order:
                    one.run, one.run_order = 0, order

    def clear(self) -> None:
        """Forget the changes."""
        columns: tuple[list[Any], ...] = (
            self.elements, self.sequences, self.ordinals, self.transactions, self.gtrids,
        )  # fmt: skip
        for column in columns:
            column.clear()

    def _now(self, element: _Element, place: int) -> None:
        self.elements.append(element)
        self.sequences.append(place)
        self.ordinals.append(0)
        self.transactions.append(None)
        self.gtrids.append(None)

    def _commit(
        self, one: _Open | None, transaction: int, order: int, expected: int, place: int
    ) -> None:
        if one is None or (one.run if one.run_order == order else 0) != expected:
            return
        count = len(one.records) + len(one.deletes)
        self.elements += one.records
        self.elements += one.deletes
        self.sequences += [place] * count
        self.ordinals += range(count)
        self.transactions += [transaction] * count
        self.gtrids += [one.gtrid] * count


_EXTRA_AT = I8.size + 2 * I4.size
"""Offset, after file id and compact count, of the extra data of a prepare."""


class ChangeColumns:
    """Follows the records of a journal and makes batches of the changes that they make.

    Changes of records outside of transactions, and of regular ones, come from columns.
    """

    def __init__(self, log: str, paths: Sequence[str]) -> None:
        """``log`` is the name of the log, ``paths`` are those of the files in their order."""
        self._log = log
        self._paths = pa.array(paths, pa.string())
        self._changes = _Changes()

    def feed(
        self, shape: Shape, data: memoryview, order: int, place: int, records: RecordColumns
    ) -> Iterator[pa.RecordBatch]:
        """Yield the changes that records of one file make, in commit order.

        ``place`` is that of its first byte.
        """
        if len(data) > VIEWED_MAX:
            self._changes.feed(shape, data, order, place, records.fields())
            yield from self._listed()
            return
        effects, others = effects_of(records, self._changes.open)
        self._changes.feed(shape, data, order, place, records.at(others).fields())
        listed = list(self._listed())
        if len(effects.ends):
            listed.append(self._of_effects(shape, data, order, place, effects))
        if len(listed) == 2:
            table = pa.Table.from_batches(listed)
            order_of = np.argsort(table.column("commit_sequence").to_numpy(), kind="stable")
            listed = table.take(pa.array(order_of)).combine_chunks().to_batches()
        yield from listed

    def _of_effects(
        self, shape: Shape, data: memoryview, order: int, place: int, effects: Effects
    ) -> pa.RecordBatch:
        records, outside = effects.records, effects.transactions < 0
        bodiless = (records.kinds == DELETE) | (records.kinds == DELETE_TX)
        gtrids = xids_of(shape, data, effects.prepares)[1]
        columns = {
            "commit_sequence": pa.array(effects.ends | place),
            "ordinal": pa.array(_ordinals(effects.ends)),
            "kind": _KIND_NAMES.take(pa.array(records.kinds - ADD)),
            "key": pa.array(records.ids).cast(pa.string()),
            "transaction": pa.array(records.transactions, mask=outside).cast(pa.string()),
            "gtrid": gtrids.take(pa.array(effects.transactions, mask=outside)),
            "after": _bodies(shape, data, records, bodiless),
            "values": _VALUES.take(pa.array(records.counts - _USER_TYPE_MIN, mask=bodiless)),
            "file": pa.repeat(self._paths[order], len(outside)),
            "offset": pa.array(records.rows[:, 0].copy()),
        }
        return self._batch(columns, len(outside))

    def _listed(self) -> Iterator[pa.RecordBatch]:
        """Take the changes that were collected record by record."""
        found = self._changes
        if not found.elements:
            return
        kinds, numbers, orders, offsets, bodies, types = zip(*found.elements, strict=True)
        columns = {
            "commit_sequence": pa.array(found.sequences, pa.int64()),
            "ordinal": pa.array(found.ordinals, pa.int64()),
            "kind": _texts([kind - ADD for kind in kinds], _KIND_NAMES),
            "key": pa.array(numbers, pa.int64()).cast(pa.string()),
            "transaction": pa.array(found.transactions, pa.int64()).cast(pa.string()),
            "gtrid": pa.array(found.gtrids, pa.binary()),
            "after": pa.array(bodies, pa.binary()),
            "values": _texts(types, _VALUES),
            "file": _texts(orders, self._paths),
            "offset": pa.array(offsets, pa.int64()),
        }
        yield self._batch(columns, len(kinds))
        found.clear()

    def _batch(self, columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
        same = {"system": SYSTEM_NAME, "log": self._log, "collection": "", "clock": _CLOCK}
        columns |= {name: _same(text, count) for name, text in same.items()}
        return table_batch(CHANGES, columns, count)


def _ordinals(ends: Any) -> Any:
    """Return the place of each change among those that count at the same end."""
    first = np.ones(len(ends), np.bool_)
    first[1:] = ends[1:] != ends[:-1]
    places = np.arange(len(ends))
    return places - np.maximum.accumulate(np.where(first, places, 0))


def _bodies(shape: Shape, data: memoryview, records: RecordColumns, bodiless: Any) -> pa.Array:
    """Return the bodies of records; those without have none."""
    begins = records.rows[:, 0] + shape.fields_at + I8.size + COUNT_SIZE + USER_TYPE_SIZE
    begins += I8.size * INSIDE[records.kinds]
    lengths = records.rows[:, 0] + records.rows[:, 1] - CHECK_SIZE - begins
    lengths[bodiless] = -1
    return byte_ranges(np.frombuffer(data, np.uint8), begins, lengths).cast(pa.binary())


_CLOCK = Clock.NONE.value
_KIND_NAMES = pa.array([KINDS[one].value for one in RecordType if one >= ADD], pa.string())
"""By the type byte, from `ADD` on."""
_VALUES = pa.array(
    [json_text({"user_type": number + _USER_TYPE_MIN}) for number in range(256)], pa.string()
)


def _same(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _texts(codes: Sequence[int | None], texts: pa.Array) -> pa.Array:
    return texts.take(pa.array(codes, pa.int32()))
