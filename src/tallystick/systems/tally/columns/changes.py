"""The changes of a native log as Arrow batches, without an object per plain record.

In: steps of a scan. Out: batches of the `CHANGES` schema in commit order, or of `FATED`. Whole
transactions of a chunk, and its changes outside of transactions, become columns; other changes are
made one by one and merged with these columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.columns import (
    byte_ranges,
    coded,
    numbers_at,
    repeated,
    sliced,
    table_batch,
)
from tallystick.arrow.neighbours import marked
from tallystick.arrow.schemas import CHANGES, FATED, batch_of_fated, fated
from tallystick.records import Clock, Fate, Kind, Record, Row
from tallystick.systems.tally.format.bodies import ROW_HEAD_SIZE
from tallystick.systems.tally.format.kinds import NAMES, name_of
from tallystick.systems.tally.format.layout import SYSTEM_NAME
from tallystick.systems.tally.read.changes import CHANGE_KINDS, ChangeFeed, placed_rows
from tallystick.systems.tally.read.records import step_records
from tallystick.systems.tally.read.scan import Step
from tallystick.systems.tally.read.state import Incomplete, numbers_of
from tallystick.systems.tally.runs import walk
from tallystick.systems.tally.runs.chunk import OF_ROWS, Chunk, Numbers, SortedChunk
from tallystick.systems.tally.runs.pieces import chunk_of

_KIND_NAMES = [kind.value for kind in Kind]
_KIND_OF = np.array([list(Kind).index(name_of(code)[0]) for code in range(256)], np.int8)
_CHANGING = marked(code for code, (_, name) in NAMES.items() if name in CHANGE_KINDS)
_WITH_BODY = marked(
    code for code, (kind, _) in NAMES.items() if _CHANGING[code] and kind in (Kind.ADD, Kind.UPDATE)
)


Rows = Iterator[tuple[int, Row]]
"""Changes, each with the LSN of the record that makes it count."""


def change_batches(
    log: str, steps: Iterable[Step], key: bytes | None, incomplete: Incomplete, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of the steps in batches of at most ``rows`` rows."""
    found = _Feeding(log, key, incomplete, rows, every=False).batches(steps)
    return (one.select(CHANGES.names) for one in found)


def fated_batches(
    log: str, steps: Iterable[Step], key: bytes | None, incomplete: Incomplete, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all fates, those of transactions that did not end last, in batches."""
    found = _Feeding(log, key, incomplete, rows, every=True)
    yield from found.batches(steps)
    yield from _merged([], [(0, row) for row in found.feed.rest()], rows)


class _Feeding:
    """Makes batches of `FATED` from steps.

    Attributes:
        every: whether what is not committed is wanted, too.
        feed: what knows the open transactions.
    """

    def __init__(
        self, log: str, key: bytes | None, incomplete: Incomplete, rows: int, *, every: bool
    ) -> None:
        self.log, self.key, self.incomplete, self.rows = log, key, incomplete, rows
        self.every = every
        self.feed = ChangeFeed(log, incomplete)

    def take(self, records: Iterable[Record]) -> Rows:
        """Yield the changes of records that are read one by one."""
        if self.every:
            return placed_rows(self.feed, self.log, records)
        changes = self.feed.take(records)
        return ((one.commit_sequence, Row(Fate.COMMITTED, one)) for one in changes)

    def batches(self, steps: Iterable[Step]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the steps in batches of at most ``rows`` rows."""
        batches: list[pa.RecordBatch] = []
        others: list[tuple[int, Row]] = []
        damaged = False
        for step in steps:
            header, chunk, file = step.place.header, chunk_of(step.place), step.file.path
            if header is None or not step.place.case.whole:
                continue
            if step.after_damage and not damaged:
                damaged = True
                yield from _merged(batches, others, self.rows)
                batches, others = [], []
            if damaged:  # in the order of the log, which may not be that of the LSNs
                others += self.take(_salvaged(step, self.key))
            elif chunk is not None:
                work = chunk.sorted(header.segment, self.feed.numbers | numbers_of(self.incomplete))
                batches.append(chunk_changes(self.log, file, work))
                others += self.take(work.other_records(file))
            else:
                others += self.take(step_records(step, self.key))
            if sum(one.num_rows for one in batches) + len(others) >= self.rows:
                yield from _merged(batches, others, self.rows)
                batches, others = [], []
        yield from _merged(batches, others, self.rows)


def _salvaged(step: Step, key: bytes | None) -> Iterator[Record]:
    """Yield the records of a place after damage."""
    chunk, header = chunk_of(step.place), step.place.header
    if chunk is None or header is None:
        yield from step_records(step, key)
        return
    for one in chunk.records(step.file.path, header.segment, np.arange(chunk.count)):
        one.attributes = {**one.attributes, "salvaged": True}
        yield one


def _merged(
    batches: list[pa.RecordBatch], others: list[tuple[int, Row]], rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield all changes in commit order; batches are in order already."""
    found = [fated(batch, Fate.COMMITTED) for batch in batches if batch.num_rows]
    if others:
        places = pa.array([place for place, _ in others], pa.int64())
        batch = batch_of_fated([row for _, row in others], Clock.WALL_US.value)
        found = [one.append_column("place", one["commit_sequence"]) for one in found]
        found.append(batch.append_column("place", places))
    if len(found) > 1 and others:
        # Changes that were made one by one may belong between the rows of any batch.
        order = [("place", "ascending"), ("ordinal", "ascending")]
        found = [pa.Table.from_batches(found).sort_by(order).combine_chunks().to_batches()[0]]
    elif len(found) > 1:
        found = pa.Table.from_batches(found).combine_chunks().to_batches()
    for batch in found:
        yield from sliced(batch.select(FATED.names), rows)


# -- runs of groups -----------------------------------------------------------------------


def chunk_changes(log: str, file: str, work: SortedChunk) -> pa.RecordBatch:
    """Return what the whole transactions, and the loose changes, of a chunk change."""
    rows, commits, ordinals = _in_order(work)
    chunk, count = work.chunk, len(rows)
    codes, places = chunk.codes[rows], chunk.numbers[walk.OFFSET, rows]
    of_rows = OF_ROWS[codes]
    heads = np.where(of_rows, ROW_HEAD_SIZE, 0)
    lengths = np.where(_WITH_BODY[codes], chunk.numbers[walk.LENGTH, rows] - heads, -1)
    inside, keyed = chunk.present[:, rows].astype(np.bool_)
    columns = {
        "system": repeated(SYSTEM_NAME, count),
        "log": repeated(log, count),
        "commit_sequence": pa.array(chunk.numbers[walk.LSN, commits]),
        "ordinal": pa.array(ordinals),
        "kind": coded(_KIND_OF[codes], pa.array(_KIND_NAMES)).cast(pa.string()),
        "collection": _tables(chunk, places, of_rows),
        "key": pc.fill_null(_texts(chunk.numbers[walk.KEY, rows], keyed), ""),
        "transaction": _texts(chunk.numbers[walk.TRANSACTION, rows], inside),
        "time": pa.array(chunk.numbers[walk.TIME, commits]),
        "clock": repeated(Clock.WALL_US.value, count),
        "after": byte_ranges(chunk.data, places + heads, lengths).cast(pa.binary()),
        "file": repeated(file, count),
        "offset": pa.array(chunk.places[0][rows]),
    }
    return table_batch(CHANGES, columns, count)


def _in_order(work: SortedChunk) -> tuple[Numbers, Numbers, Numbers]:
    """Return the rows of changes in commit order, those of their commits, and their ordinals."""
    codes = work.chunk.codes[work.rows]
    changing = _CHANGING[codes]
    sizes = work.ends - work.begins + 1
    before: Numbers = np.cumsum(changing) - changing
    # One cumulative sum over all transactions; that at the begin of each is taken off.
    ordinals: Numbers = before - np.repeat(before[work.begins], sizes)
    commits = np.repeat(work.rows[work.ends], sizes)
    rows = np.concatenate((work.rows[changing], work.loose))
    commits = np.concatenate((commits[changing], work.loose))
    ordinals = np.concatenate((ordinals[changing], np.zeros(len(work.loose), np.int64)))
    # By commit, then by ordinal: the last key of `lexsort` counts first.
    order = np.lexsort((ordinals, commits))
    return rows[order], commits[order], ordinals[order]


def _tables(chunk: Chunk, places: Numbers, of_rows: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the table of each change of a row; else an empty text."""
    if not of_rows.any():
        return repeated("", len(places))
    numbers = np.zeros(len(places), np.int64)
    # The number of the table is the first field of the head.
    numbers[of_rows] = numbers_at(chunk.data, places[of_rows], "<i4")
    return pc.fill_null(_texts(numbers, of_rows), "")


def _texts(values: Numbers, known: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=~known).cast(pa.string())
