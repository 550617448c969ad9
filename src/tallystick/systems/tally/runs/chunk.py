"""Records of several groups in columns, and which of them are whole committed transactions.

In: columns of a chunk. Out: its rows, sorted by their kind. A transaction is taken if all of it
is in the chunk and it is plain: elements and then a commit record that counts them, in this segment
only. All other records of transactions, decisions and entries are left to be read one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tallystick.arrow.neighbours import among, lasts_of, marked, starts_of
from tallystick.records import Record, State, Transaction
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
from tallystick.systems.tally.runs import walk

Numbers = npt.NDArray[np.int64]
Taken: TypeAlias = tuple[int, int, bool]
"""LSN of the commit, id, and whether the record of this id is deleted."""

OF_ROWS = marked((Code.REDO_ADD, Code.REDO_REMOVE, Code.TRUNCATE))
"""Codes whose bodies begin with the number of a table."""
_ELEMENTS = marked(ELEMENTS)
_LOOSE = marked((Code.APPEND, Code.ADD, Code.UPDATE, Code.DELETE))
"""Codes of records that, outside of transactions, change something as soon as they are written."""
_QUIET = marked(
    (Code.MOVED_ADD, Code.MOVED_UPDATE, Code.BEGIN, Code.UNDO, Code.UNDO_EMPTY, Code.CHECKPOINT)
)
"""Codes of records that, outside of transactions, neither change nor end anything."""
_OF_IDS = marked(
    (Code.ADD, Code.UPDATE, Code.DELETE, Code.MOVED_ADD, Code.MOVED_UPDATE, Code.BEGIN)
)
"""Codes of records that make the record of their id live, or delete it."""
_ENDING_SIZE = len(encode_ending(Ending(((0, 0),))))


@dataclass(frozen=True)
class Chunk:
    """Records of several groups in columns.

    Attributes:
        data: the bytes of the segment; of packed groups what they were unpacked to.
        numbers: rows of signed 64-bit numbers, by `walk.OFFSET` to `walk.GROUP`.
        codes: the code of each record.
        valid: bitmaps of the records that have a transaction, and of those that have a key.
        views: Arrow's binary views of the bodies, into ``data``.
        group_lengths: for each record the length of its group, if that is packed; else None.
    """

    data: Any
    numbers: Any
    codes: npt.NDArray[np.uint8]
    valid: Any
    views: Any
    group_lengths: Any = None

    @property
    def places(self) -> tuple[Any, Any]:
        """Offsets and lengths of the records in the file; those of the group of a packed one."""
        if self.group_lengths is not None:
            return self.numbers[walk.GROUP], self.group_lengths
        return self.numbers[walk.OFFSET], self.numbers[walk.LENGTH]

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

    def sorted(self, segment: int, begun: Collection[int]) -> SortedChunk:
        """Return the rows by what they are; ``begun`` are transactions that are open before it."""
        return sorted_chunk(self, segment, begun)

    def groups(self) -> list[tuple[int, int, int]]:
        """Return offset, first LSN and time of each group."""
        rows = self.numbers[[walk.GROUP, walk.LSN, walk.TIME]][:, self._begins]
        return list(zip(*rows.tolist(), strict=True))

    def group_sizes(self) -> Any:
        """Return how many records each group has."""
        return np.diff(self._begins, append=self.count)

    @cached_property
    def _begins(self) -> Any:
        """The first row of each group."""
        # All records of a group have its offset: where that changes a group begins.
        return starts_of(self.numbers[walk.GROUP])

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
        some = self.numbers[walk.LSN] > known
        if begun:
            of = among(self.numbers[walk.TRANSACTION], begun)
            some |= of & self.present[0].astype(np.bool_)
        return self.records(file, segment, np.flatnonzero(some))

    def records(self, file: str, segment: int, some: Any) -> Iterator[Record]:
        """Yield some of the records."""
        places = (one[some].tolist() for one in self.places)
        for place, length, (group, row) in zip(*places, self.rows(segment, some), strict=True):
            yield placed_record(file, place, length, row, group_attributes(group, segment))


@dataclass(frozen=True, slots=True)
class SortedChunk:
    """The rows of a chunk by what they are.

    Attributes:
        chunk: the chunk.
        segment: the number of its segment.
        rows: those of whole plain transactions: one transaction after the other, in log order.
        begins: for each of these transactions the place in ``rows`` of its first record.
        ends: that of its commit record.
        loose: rows of changes outside of transactions.
        others: rows of all records that have to be looked at one by one.
    """

    chunk: Chunk
    segment: int
    rows: Numbers
    begins: Numbers
    ends: Numbers
    loose: Numbers
    others: Numbers

    @property
    def numbers(self) -> Numbers:
        """The numbers of the whole transactions."""
        found: Numbers = self.chunk.numbers[walk.TRANSACTION, self.rows[self.ends]]
        return found

    def last_of_ids(self, taken: Sequence[Taken], until: int | None) -> tuple[list[int], list[int]]:
        """Return the ids that the chunk leaves live, and those that it leaves deleted.

        Args:
            taken: what the other records have changed, in the order of their commits.
            until: the LSN before which commits count; None if all do.
        """
        chunk = self.chunk
        changing = _OF_IDS[chunk.codes] & chunk.present[1].astype(np.bool_)
        inside = changing[self.rows]
        commits = np.repeat(self.rows[self.ends], self.ends - self.begins + 1)
        alone = np.flatnonzero(changing & (chunk.present[0] == 0))
        rows = np.concatenate((self.rows[inside], alone))
        # The usual case: nothing is deleted, so no order has to be found.
        if not taken and until is None and not (chunk.codes[rows] == Code.DELETE).any():
            return chunk.numbers[walk.KEY, rows].tolist(), []
        # What a transaction changes counts at its commit; what stands outside of one, at itself.
        lsns = chunk.numbers[walk.LSN, np.concatenate((commits[inside], alone))]
        others = np.array(taken, np.int64).reshape(-1, 3)
        lsns = np.concatenate((lsns, others[:, 0]))
        ids = np.concatenate((chunk.numbers[walk.KEY, rows], others[:, 1]))
        deleted = np.concatenate((chunk.codes[rows] == Code.DELETE, others[:, 2] != 0))
        # Backwards, so that the first of each id is the last one; those of one commit are in order.
        order = np.argsort(lsns, kind="stable")[::-1]
        if until is not None:
            # What commits at or after a damaged record does not count.
            order = order[lsns[order] < until]
        found, last = np.unique(ids[order], return_index=True)
        gone = deleted[order][last]
        return found[~gone].tolist(), found[gone].tolist()

    def other_rows(self) -> Iterator[tuple[int, Row]]:
        """Yield the rows of all other records, each with the offset of its group."""
        return self.chunk.rows(self.segment, self.others) if len(self.others) else iter(())

    def other_records(self, file: str) -> Iterator[Record]:
        """Yield all other records."""
        return self.chunk.records(file, self.segment, self.others) if len(self.others) else iter(())

    def transactions(self, log: str, file: str) -> Iterator[tuple[int, Transaction]]:
        """Yield the whole transactions, each with the LSN of its first record."""
        numbers, rows = self.chunk.numbers, self.rows
        first, last = rows[self.begins], rows[self.ends]
        # Sums up to each row: those of a transaction are the difference of two of them.
        sizes = np.concatenate(([0], np.cumsum(numbers[walk.LENGTH, rows])))
        columns = (
            numbers[walk.LSN, first], numbers[walk.TRANSACTION, last], numbers[walk.TIME, first],
            numbers[walk.TIME, last], self.ends - self.begins + 1,
            sizes[self.ends + 1] - sizes[self.begins], self.chunk.places[0][last],
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


def sorted_chunk(chunk: Chunk, segment: int, excluded: Collection[int]) -> SortedChunk:
    """Sort the rows of a chunk; ``excluded`` are transactions that have begun before it."""
    inside = chunk.present[0].astype(np.bool_)
    within = np.flatnonzero(inside)
    # Stable: records of one transaction stay in log order, its commit record last.
    rows = within[np.argsort(chunk.numbers[walk.TRANSACTION, within], kind="stable")]
    begins = starts_of(chunk.numbers[walk.TRANSACTION, rows])
    ends = lasts_of(begins, len(rows))
    whole = _whole(chunk, segment, rows, begins, ends)
    if excluded and len(begins):
        # Part of these stands in an earlier chunk: the number of elements here proves nothing.
        numbers = chunk.numbers[walk.TRANSACTION, rows[begins]]
        whole &= ~among(numbers, excluded)
    kept = np.repeat(whole, ends - begins + 1)
    loose = ~inside & _LOOSE[chunk.codes]
    others = ~loose & (inside | ~_QUIET[chunk.codes])
    # Last, as ``inside`` has marked every record of a transaction.
    others[rows[kept]] = False
    lengths = (ends - begins + 1)[whole]
    after = np.cumsum(lengths)
    return SortedChunk(
        chunk, segment, rows[kept], after - lengths, after - 1,
        np.flatnonzero(loose), np.flatnonzero(others),
    )  # fmt: skip


def _whole(
    chunk: Chunk, segment: int, rows: Numbers, begins: Numbers, ends: Numbers
) -> npt.NDArray[np.bool_]:
    """Return which transactions are elements and then a commit record that counts them."""
    codes = chunk.codes[rows]
    fits = _ELEMENTS[codes] & (
        ~OF_ROWS[codes] | (chunk.numbers[walk.LENGTH, rows] >= ROW_HEAD_SIZE)
    )
    # Sums up to each row: the elements of a transaction are the difference of two of them. The
    # commit record, at ``ends``, is not counted.
    elements = np.concatenate(([0], np.cumsum(fits)))
    count = ends - begins
    whole: npt.NDArray[np.bool_] = (count > 0) & (elements[ends] - elements[begins] == count)
    whole &= codes[ends] == Code.COMMIT
    commits = rows[ends]
    whole &= chunk.numbers[walk.LENGTH, commits] >= _ENDING_SIZE
    # Only of those that passed so far: the bytes of their commit records are gathered.
    whole[whole] = _counted(chunk, segment, commits[whole], count[whole])
    return whole


def _counted(chunk: Chunk, segment: int, commits: Numbers, count: Numbers) -> npt.NDArray[np.bool_]:
    """Return which commit records say that their transaction has ``count`` elements, all here."""
    starts = chunk.numbers[walk.OFFSET, commits]
    # Whole bodies are compared, so that a commit over several segments is never taken here.
    # A row of bytes per commit record, wherever it stands.
    found = chunk.data[starts[:, None] + np.arange(_ENDING_SIZE)]
    expected = np.tile(
        np.frombuffer(encode_ending(Ending(((segment, 0),))), np.uint8), (len(commits), 1)
    )
    expected[:, PAIR_COUNT_AT : PAIR_COUNT_AT + 4] = (
        # The four bytes of each count, as a commit record has them.
        count.astype("<u4").view(np.uint8).reshape(-1, 4)
    )
    same: npt.NDArray[np.bool_] = (found == expected).all(axis=1)
    return same
