"""Records of several groups in columns, and which of them are whole committed transactions.

In: columns of a run. Out: its rows sorted by what they are. A transaction is taken if all of it is
in the run and it is plain: elements and then a commit record that counts them, in this segment
only. All other records of transactions, decisions and entries are left to be read one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tallystick.records import Record, State, Transaction
from tallystick.systems.tally.columns.kernels import (
    GROUP,
    LENGTH,
    LSN,
    OFFSET,
    TIME,
    TRANSACTION,
    marked,
)
from tallystick.systems.tally.format.bodies import (
    PAIR_COUNT_AT,
    ROW_HEAD_SIZE,
    Ending,
    encode_ending,
)
from tallystick.systems.tally.format.columns import Row, UnplacedRecord
from tallystick.systems.tally.format.kinds import ELEMENTS, Code
from tallystick.systems.tally.format.layout import SYSTEM_NAME
from tallystick.systems.tally.read.records import group_attributes, placed_record

Numbers = npt.NDArray[np.int64]

OF_ROWS = marked((Code.REDO_ADD, Code.REDO_REMOVE, Code.TRUNCATE))
"""Codes whose bodies begin with the number of a table."""
_ELEMENTS = marked(ELEMENTS)
_LOOSE = marked((Code.APPEND, Code.ADD, Code.UPDATE, Code.DELETE))
"""Codes of records that, outside of transactions, change something as soon as they are written."""
_QUIET = marked(
    (Code.MOVED_ADD, Code.MOVED_UPDATE, Code.BEGIN, Code.UNDO, Code.UNDO_EMPTY, Code.CHECKPOINT)
)
"""Codes of records that, outside of transactions, neither change nor end anything."""
_ENDING_SIZE = len(encode_ending(Ending(((0, 0),))))


@dataclass(frozen=True)
class ColumnarRun:
    """Records of several groups in columns.

    Attributes:
        data: the bytes of the segment.
        numbers: rows of signed 64-bit numbers, by `kernels.OFFSET` to `kernels.GROUP`.
        codes: the code of each record.
        valid: bitmaps of the records that have a transaction, and of those that have a key.
        views: Arrow's binary views of the bodies, into ``data``; None of a single large group.
    """

    data: Any
    numbers: Any
    codes: npt.NDArray[np.uint8]
    valid: Any
    views: Any = None

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.codes)

    @property
    def plain(self) -> bool:
        """True if all are plain records outside of transactions."""
        return bool((self.codes == Code.APPEND).all()) and not self.valid[0].any()

    @cached_property
    def present(self) -> Any:
        """Two rows of 0 and 1: which records have a transaction, and which a key."""
        return np.unpackbits(self.valid, axis=1, count=self.count, bitorder="little")

    def sorted(self, segment: int, begun: Collection[int]) -> SortedRun:
        """Return the rows by what they are; ``begun`` are transactions that are open before it."""
        return sorted_run(self, segment, begun)

    def groups(self) -> list[tuple[int, int, int]]:
        """Return offset, first LSN and time of each group."""
        first = np.flatnonzero(np.diff(self.numbers[GROUP], prepend=-1))
        rows = self.numbers[[GROUP, LSN, TIME]][:, first]
        return list(zip(*rows.tolist(), strict=True))

    def rows(self, segment: int, some: Any = None) -> Iterator[tuple[int, Row]]:
        """Yield the rows, or some of them, each with the offset of its group."""
        every = slice(None) if some is None else some
        data = memoryview(self.data)
        rows = zip(
            self.codes[every].tolist(),
            self.numbers[:, every].T.tolist(),
            self.present[:, every].T.tolist(),
            strict=True,
        )
        for code, (offset, length, lsn, time, transaction, key, group), (inside, keyed) in rows:
            body = bytes(data[offset : offset + length])
            record = UnplacedRecord(
                code, body, transaction if inside else None, key if keyed else None
            )
            yield group, Row(lsn, segment, time, record)

    def followed(
        self, file: str, segment: int, known: int, begun: Collection[int]
    ) -> Iterator[Record]:
        """Yield the records after the LSN ``known``, and those of the transactions ``begun``."""
        some = self.numbers[LSN] > known
        if begun:
            of = np.isin(self.numbers[TRANSACTION], np.fromiter(begun, np.int64, len(begun)))
            some |= of & self.present[0].astype(np.bool_)
        return self.records(file, segment, np.flatnonzero(some))

    def records(self, file: str, segment: int, some: Any) -> Iterator[Record]:
        """Yield some of the records."""
        places = self.numbers[OFFSET, some].tolist()
        for place, (group, row) in zip(places, self.rows(segment, some), strict=True):
            attributes = group_attributes(group, segment)
            yield placed_record(file, place, len(row.record.body), row, attributes)


@dataclass(frozen=True, slots=True)
class SortedRun:
    """The rows of a run by what they are.

    Attributes:
        run: the run.
        segment: the number of its segment.
        rows: those of whole plain transactions: one transaction after the other, in log order.
        begins: for each of these transactions the place in ``rows`` of its first record.
        ends: that of its commit record.
        loose: rows of changes outside of transactions.
        others: rows of all records that have to be looked at one by one.
    """

    run: ColumnarRun
    segment: int
    rows: Numbers
    begins: Numbers
    ends: Numbers
    loose: Numbers
    others: Numbers

    @property
    def numbers(self) -> Numbers:
        """The numbers of the whole transactions."""
        found: Numbers = self.run.numbers[TRANSACTION, self.rows[self.ends]]
        return found

    def other_rows(self) -> Iterator[tuple[int, Row]]:
        """Yield the rows of all other records, each with the offset of its group."""
        return self.run.rows(self.segment, self.others) if len(self.others) else iter(())

    def other_records(self, file: str) -> Iterator[Record]:
        """Yield all other records."""
        return self.run.records(file, self.segment, self.others) if len(self.others) else iter(())

    def transactions(self, log: str, file: str) -> Iterator[tuple[int, Transaction]]:
        """Yield the whole transactions, each with the LSN of its first record."""
        numbers, rows = self.run.numbers, self.rows
        first, last = rows[self.begins], rows[self.ends]
        sizes = np.concatenate(([0], np.cumsum(numbers[LENGTH, rows])))
        columns = (
            numbers[LSN, first], numbers[TRANSACTION, last], numbers[TIME, first],
            numbers[TIME, last], self.ends - self.begins + 1,
            sizes[self.ends + 1] - sizes[self.begins], numbers[OFFSET, last],
        )  # fmt: skip
        files, committed = (file,), State.COMMITTED
        for lsn, number, begun, ended, count, size, offset in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            yield lsn, Transaction(
                SYSTEM_NAME, log, str(number), committed, number, first_time=begun, last_time=ended,
                records=count, bytes=size, files=files, evidence=(file, offset),
                evidence_type="commit",
            )  # fmt: skip


def sorted_run(run: ColumnarRun, segment: int, excluded: Collection[int]) -> SortedRun:
    """Sort the rows of a run; ``excluded`` are transactions that have begun before it."""
    inside = run.present[0].astype(np.bool_)
    within = np.flatnonzero(inside)
    rows = within[np.argsort(run.numbers[TRANSACTION, within], kind="stable")]
    begins, ends = _bounds(run.numbers[TRANSACTION, rows])
    whole = _whole(run, segment, rows, begins, ends)
    if excluded and len(begins):
        numbers = run.numbers[TRANSACTION, rows[begins]]
        whole &= ~np.isin(numbers, np.fromiter(excluded, np.int64, len(excluded)))
    kept = np.repeat(whole, ends - begins + 1)
    loose = ~inside & _LOOSE[run.codes]
    others = ~loose & (inside | ~_QUIET[run.codes])
    others[rows[kept]] = False
    lengths = (ends - begins + 1)[whole]
    after = np.cumsum(lengths)
    return SortedRun(
        run, segment, rows[kept], after - lengths, after - 1,
        np.flatnonzero(loose), np.flatnonzero(others),
    )  # fmt: skip


def _bounds(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Return the first and the last place of each run of equal numbers."""
    edges = np.flatnonzero(np.diff(numbers)) + 1
    if not len(numbers):
        return edges, edges
    return np.concatenate(([0], edges)), np.concatenate((edges, [len(numbers)])) - 1


def _whole(
    run: ColumnarRun, segment: int, rows: Numbers, begins: Numbers, ends: Numbers
) -> npt.NDArray[np.bool_]:
    """Return which transactions are elements and then a commit record that counts them."""
    codes = run.codes[rows]
    fits = _ELEMENTS[codes] & (~OF_ROWS[codes] | (run.numbers[LENGTH, rows] >= ROW_HEAD_SIZE))
    elements = np.concatenate(([0], np.cumsum(fits)))
    count = ends - begins
    whole: npt.NDArray[np.bool_] = (count > 0) & (elements[ends] - elements[begins] == count)
    whole &= codes[ends] == Code.COMMIT
    commits = rows[ends]
    whole &= run.numbers[LENGTH, commits] >= _ENDING_SIZE
    whole[whole] = _counted(run, segment, commits[whole], count[whole])
    return whole


def _counted(
    run: ColumnarRun, segment: int, commits: Numbers, count: Numbers
) -> npt.NDArray[np.bool_]:
    """Return which commit records say that their transaction has ``count`` elements, all here."""
    starts = run.numbers[OFFSET, commits]
    found = run.data[starts[:, None] + np.arange(_ENDING_SIZE)]
    expected = np.tile(
        np.frombuffer(encode_ending(Ending(((segment, 0),))), np.uint8), (len(commits), 1)
    )
    expected[:, PAIR_COUNT_AT : PAIR_COUNT_AT + 4] = (
        count.astype("<u4").view(np.uint8).reshape(-1, 4)
    )
    same: npt.NDArray[np.bool_] = (found == expected).all(axis=1)
    return same
