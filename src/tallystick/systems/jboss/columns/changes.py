"""Committed changes of a journal as Arrow batches, without an object per record.

In: the files of a journal. Out: batches of the `CHANGES` schema with the rows of
`tallystick.systems.jboss.read.changes.changes`. It takes the valid rows of each scan, which are the
records that the loader sees, and follows transactions by their counts; journals whose commits list
pairs are read record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tallystick.arrow.schemas import CHANGES, json_text
from tallystick.records import Clock
from tallystick.systems.jboss.columns.fields import Fields, fields_of, rows_of
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


def change_batches(journal: JournalFiles, log: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a journal whose commits carry counts; ``rows`` as in a reading.

    Raises:
        CorruptLogError: the id of a file does not fit a place.
    """
    files = journal.ordered()
    replay = Changes()
    table = ChangeTable(log, [file.path for file in files])
    for order, file in enumerate(files):
        _feed_file(replay, journal.shape(file), file, order)
        while len(replay.elements) >= rows:
            yield table.batch(replay, rows)
    if replay.elements:
        yield table.batch(replay, rows)


def _feed_file(replay: Changes, shape: Shape, file: JournalFile, order: int) -> None:
    data = file.data()
    second = SECOND_SHAPE.get(shape.name)
    for piece in pieces(data, shape, file.stamp, second=second):
        rows = rows_of(piece)
        valid = rows[rows[:, 2] == VALID]
        if len(valid):
            place = place_of(file, 0)
            replay.feed(shape, data, order, place, fields_of(shape, data, valid))


@dataclass(slots=True)
class _Open:
    """An open transaction: its adds and updates, its deletes, and its run as in `Replay`."""

    records: list[_Element] = field(default_factory=list)
    deletes: list[_Element] = field(default_factory=list)
    run: int = 0
    run_order: int = -1
    gtrid: bytes | None = None


class Changes:
    """Follows records and collects the changes that they make, one entry in each list.

    Attributes:
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
        self._open: dict[int, _Open] = {}

    def feed(
        self, shape: Shape, data: memoryview, order: int, place: int, fields: Iterable[Fields]
    ) -> None:
        """Apply records of one file; ``place`` is that of its first byte."""
        plain = shape.fields_at + I8.size + COUNT_SIZE + USER_TYPE_SIZE
        inside = plain + I8.size
        opened = self._open
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

    def drop(self, count: int) -> None:
        """Forget the first ``count`` changes."""
        columns: tuple[list[Any], ...] = (
            self.elements, self.sequences, self.ordinals, self.transactions, self.gtrids,
        )  # fmt: skip
        for column in columns:
            del column[:count]

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


class ChangeTable:
    """Makes batches of changes; ``paths`` are those of the files in their order."""

    def __init__(self, log: str, paths: Sequence[str]) -> None:
        self._log = log
        self._paths = pa.array(paths, pa.string())

    def batch(self, found: Changes, rows: int) -> pa.RecordBatch:
        """Take the first ``rows`` changes, or all, as a batch."""
        kinds, numbers, orders, offsets, bodies, types = zip(*found.elements[:rows], strict=True)
        count = len(kinds)
        columns = {
            "system": _same(SYSTEM_NAME, count),
            "log": _same(self._log, count),
            "commit_sequence": pa.array(found.sequences[:rows], pa.int64()),
            "ordinal": pa.array(found.ordinals[:rows], pa.int64()),
            "kind": _texts([kind - ADD for kind in kinds], _KIND_NAMES),
            "collection": _same("", count),
            "key": pa.array(numbers, pa.int64()).cast(pa.string()),
            "transaction": pa.array(found.transactions[:rows], pa.int64()).cast(pa.string()),
            "gtrid": pa.array(found.gtrids[:rows], pa.binary()),
            "clock": _same(Clock.NONE.value, count),
            "after": pa.array(bodies, pa.binary()),
            "values": _texts(types, _VALUES),
            "file": _texts(orders, self._paths),
            "offset": pa.array(offsets, pa.int64()),
        }
        found.drop(count)
        arrays = [columns.get(one.name, pa.nulls(count, one.type)) for one in CHANGES]
        return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)


_KIND_NAMES = pa.array([KINDS[one].value for one in RecordType if one >= ADD], pa.string())
"""By the type byte, from `ADD` on."""
_VALUES = pa.array(
    [json_text({"user_type": number + _USER_TYPE_MIN}) for number in range(256)], pa.string()
)


def _same(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _texts(codes: Sequence[int | None], texts: pa.Array) -> pa.Array:
    return texts.take(pa.array(codes, pa.int32()))
