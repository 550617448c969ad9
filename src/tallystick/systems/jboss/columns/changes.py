"""Changes of a journal as Arrow batches, most of them from columns.

In: the files of a journal. Out: batches of the `CHANGES` schema with the rows of
`tallystick.systems.jboss.read.changes.changes`, or of `FATED` with those of `rows_of` there. It
takes the valid rows of each scan, which are the records that the loader sees. What regular
transactions of a piece of a scan change is found in columns, `Replay` follows the others; journals
whose commits list pairs are read record by record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import VIEWED_MAX, byte_ranges, in_order, repeated, table_batch
from tallystick.arrow.neighbours import ordinals
from tallystick.arrow.schemas import (
    BATCH_ROWS,
    CHANGES,
    batch_of_fated,
    batches_of_fated,
    fated,
    json_text,
    rebatched,
)
from tallystick.arrow.texts import whole_text
from tallystick.records import Clock, Fate, Row
from tallystick.systems.jboss.columns.kernels import xids_of
from tallystick.systems.jboss.format import layout
from tallystick.systems.jboss.read.changes import open_rows, place_of, rows_of_record
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.jboss.read.records import KINDS
from tallystick.systems.jboss.read.replay import PlacedRecord, RecordFile, Replay
from tallystick.systems.jboss.read.scan import OFFSET, SECOND_SHAPE, SIZE, pieces
from tallystick.systems.jboss.runs.chunk import INSIDE, Chunk, chunk_of, rows_of
from tallystick.systems.jboss.runs.pieces import valid_rows
from tallystick.systems.jboss.runs.transactions import Effects, effects_of

_USER_TYPE_MIN = -128
PIECE = 1 << 15
"""Rows of a piece of a scan: a transaction that is in two is followed record by record."""


def change_batches(journal: JournalFiles, log: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a journal whose commits carry counts; ``rows`` as in a reading.

    Raises:
        CorruptLogError: the id of a file does not fit a place.
    """
    files = journal.ordered()
    follower = ChangeColumns(log, journal.generation.shape, [file.path for file in files])
    return rebatched(_followed(journal, follower), rows)


def fated_batches(journal: JournalFiles, log: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Return the rows of all fates of a journal whose loader sees every whole record."""
    paths = [file.path for file in journal.ordered()]
    follower = ChangeColumns(log, journal.generation.shape, paths, every=True)
    return chain(rebatched(_followed(journal, follower), rows), follower.rest(rows))


def _followed(journal: JournalFiles, follower: ChangeColumns) -> Iterator[pa.RecordBatch]:
    for where, records in _chunks(journal):
        yield from follower.feed(where, place_of(where.file, 0), records)


def _chunks(journal: JournalFiles) -> Iterator[tuple[RecordFile, Chunk]]:
    """Yield the valid records of all files in pieces."""
    for order, file in enumerate(journal.ordered()):
        shape, data = journal.shape(file), file.data()
        second = SECOND_SHAPE.get(shape.name)
        for piece in pieces(data, shape, file.stamp, second=second, rows=PIECE):
            valid = valid_rows(rows_of(piece))
            if len(valid):
                yield RecordFile(file, shape, order, file.stamp), chunk_of(shape, data, valid)


class ChangeColumns:
    """Follows the records of a journal and makes batches of the changes that they make.

    Changes of records outside of transactions, and of regular ones, come from columns.

    Args:
        log: the name of the log, which begins.
        shape: that of its records.
        paths: those of its files in their order.
        every: whether what is not committed is wanted, too, in the `FATED` schema.
    """

    def __init__(
        self, log: str, shape: layout.Shape, paths: Sequence[str], *, every: bool = False
    ) -> None:
        self._log = log
        self._paths = pa.array([*map(whole_text, paths)], pa.string())
        self._replay = Replay(shape, ())
        self._every = every

    def feed(self, where: RecordFile, place: int, records: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the changes that records of one file make, in commit order.

        ``place`` is that of its first byte.
        """
        if len(where.file.data()) > VIEWED_MAX:
            yield from (batch for _, batch in self._one_by_one(where, place, records))
            return
        rolled_back = records.transactions[records.kinds == layout.ROLLBACK] if self._every else ()
        effects, others = effects_of(records, self._replay.open, rolled_back)
        found = list(self._one_by_one(where, place, records.at(others)))
        if len(effects.ends):
            found.append((effects.ends | place, self._of_effects(where, place, effects)))
        yield from in_order(found)

    def given(self, where: RecordFile, place: int, effects: Effects) -> Iterator[pa.RecordBatch]:
        """Yield the changes that some effects in one file make; ``place`` as for `feed`."""
        if len(effects.ends):
            yield from in_order([(effects.ends | place, self._of_effects(where, place, effects))])

    def rest(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes of transactions that did not end."""
        return batches_of_fated(open_rows(self._log, self._replay, self._replay), _CLOCK, rows)

    def _one_by_one(
        self, where: RecordFile, place: int, records: Chunk
    ) -> Iterator[tuple[Any, pa.RecordBatch]]:
        """Yield the changes, and the places of the records that make them count."""
        found = self._replayed(where, place, records)
        while some := list(islice(found, BATCH_ROWS)):
            batch = batch_of_fated([row for _, row in some], _CLOCK)
            yield [at for at, _ in some], batch if self._every else batch.select(CHANGES.names)

    def _replayed(self, where: RecordFile, place: int, records: Chunk) -> Iterator[tuple[int, Row]]:
        for fields in records.fields():
            effects, ended = self._replay.feed(PlacedRecord(*fields, where))
            for row in rows_of_record(self._log, place | fields[2], effects, ended):
                if self._every or row.fate is Fate.COMMITTED:
                    yield place | fields[2], row

    def _of_effects(self, where: RecordFile, place: int, effects: Effects) -> pa.RecordBatch:
        shape, data = where.shape, where.file.data()
        records, outside = effects.records, effects.transactions < 0
        bodiless = (records.kinds == layout.DELETE) | (records.kinds == layout.DELETE_TX)
        gtrids = xids_of(shape, data, effects.prepares)[1]
        columns = {
            # As `place_of` does: the lower 32 bits of ``place`` are 0.
            "commit_sequence": pa.array(effects.ends | place),
            "ordinal": pa.array(ordinals(effects.ends)),
            "kind": _KIND_NAMES.take(pa.array(records.kinds - layout.ADD)),
            "key": pa.array(records.ids).cast(pa.string()),
            "transaction": pa.array(records.transactions, mask=outside).cast(pa.string()),
            "gtrid": gtrids.take(pa.array(effects.transactions, mask=outside)),
            "after": _bodies(shape, data, records, bodiless),
            "values": _VALUES.take(pa.array(records.counts - _USER_TYPE_MIN, mask=bodiless)),
            "file": pa.repeat(self._paths[where.order], len(outside)),
            "offset": pa.array(records.rows[:, OFFSET].copy()),
        }
        return self._batch(columns, len(outside))

    def _batch(self, columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
        same = {"system": layout.SYSTEM_NAME, "log": self._log, "collection": "", "clock": _CLOCK}
        columns |= {name: repeated(text, count) for name, text in same.items()}
        batch = table_batch(CHANGES, columns, count)
        return fated(batch, Fate.COMMITTED) if self._every else batch


def _bodies(shape: layout.Shape, data: memoryview, records: Chunk, bodiless: Any) -> pa.Array:
    """Return the bodies of records; those without have none."""
    begins = (
        records.rows[:, OFFSET]
        + shape.fields_at
        + layout.I8.size
        + layout.COUNT_SIZE
        + layout.USER_TYPE_SIZE
    )
    # Records of transactions have the transaction's number before the record id.
    begins += layout.I8.size * INSIDE[records.kinds]
    lengths = records.rows[:, OFFSET] + records.rows[:, SIZE] - layout.CHECK_SIZE - begins
    # `byte_ranges` makes a null of it.
    lengths[bodiless] = -1
    return byte_ranges(np.frombuffer(data, np.uint8), begins, lengths).cast(pa.binary())


_CLOCK = Clock.NONE.value
_KIND_NAMES = pa.array(
    [KINDS[one].value for one in layout.RecordType if one >= layout.ADD], pa.string()
)
"""By the type byte, from `ADD` on."""
# All 256 user types once, so that no JSON is written per row.
_VALUES = pa.array(
    [json_text({"user_type": number + _USER_TYPE_MIN}) for number in range(256)], pa.string()
)
