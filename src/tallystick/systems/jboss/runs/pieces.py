"""Decide from the rows of its scan that a file holds valid records, earlier ones and fill only.

In: a data file. Out: a `PlainFile` with its facts, found in whole columns; None of any other file,
which is then classified row by row. The rows of one file are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.arrow.neighbours import firsts, marked
from tallystick.records import Outcome
from tallystick.storage.zeros import is_zero
from tallystick.systems.jboss.format.layout import (
    ADD,
    EVENT,
    ROLLBACK,
    STAMP_SIZE,
    Shape,
)
from tallystick.systems.jboss.read.classify import (
    EARLIER,
    Classified,
    is_damaged_id,
)
from tallystick.systems.jboss.read.file_facts import (
    ADDS,
    BLOCKS,
    COUNTED,
    DELETES,
    NEVER_COMPACTED,
    FileFacts,
    fits,
    later,
)
from tallystick.systems.jboss.read.files import JournalFile
from tallystick.systems.jboss.read.scan import (
    DAMAGED,
    FILE_ID,
    OFFSET,
    SECOND_SHAPE,
    SIZE,
    STALE,
    STATUS,
    VALID,
    Row,
    pieces,
)
from tallystick.systems.jboss.runs.chunk import Chunk, chunk_of, fields_of, rows_of

RUNS_MAX = 1 << 10
"""Most runs of records that are kept of a file, so that its rows need not be found again."""


def file_rows(file: JournalFile, shape: Shape, events: bool | None = None) -> Any:
    """Return all rows of a file as an array; ``events`` overrides whether EVENT is a type."""
    # Who overrides the types asks what a loader sees, and no loader reads format 2 records in a
    # file of format 1 (format, What records mean).
    second = None if events is not None else SECOND_SHAPE.get(shape.name)
    found = pieces(file.data(), shape, file.stamp, second=second, events=events)
    return np.concatenate([np.empty((0, 4), np.int64), *map(rows_of, found)])


def valid_rows(rows: Any) -> Any:
    """Return the rows of valid records."""
    valid = rows[:, STATUS] == VALID
    # Most files hold nothing else, and their rows are not copied.
    return rows if valid.all() else rows[valid]


def has_damage(found: Any, valid: Any, data: Any, place: int, stamp: int) -> bool:
    """Return whether the rows hold anything but valid and stale records.

    So do gaps between them that begin with a record's type and stamp: they hide a damaged one.

    Args:
        found: the rows.
        valid: those of valid records.
        data: the bytes of the file, up to where records may begin.
        place: offset of the first byte after the header, or after the last valid record before.
        stamp: the stamp of the file's header.
    """
    stale = () if len(valid) == len(found) else np.unique(found[found[:, STATUS] == STALE, FILE_ID])
    if (found[:, STATUS] == DAMAGED).any() or any(is_damaged_id(int(one), stamp) for one in stale):
        return True
    ends = np.concatenate(([place], valid[:, OFFSET] + valid[:, SIZE]))
    starts = np.concatenate((valid[:, OFFSET], [len(data)]))
    gaps = ends[(starts > ends) & (ends + STAMP_SIZE <= len(data))]
    # A gap that begins as a record of this life begins hides one that was damaged.
    kinds = data[gaps]
    # The scan has a row wherever a type byte and this stamp stand: what it has none for is a record
    # whose type byte was destroyed.
    known = (kinds >= EVENT) & (kinds <= ROLLBACK)
    same = ~known
    for index, byte in enumerate((stamp & 0xFFFFFFFF).to_bytes(4, "big")):
        # Byte by byte, because records begin at any offset: no view of the bytes as 32-bit numbers
        # has all of them.
        same &= data[gaps + 1 + index] == byte
    return bool(same.any())


def is_plain(rows: Any, data: memoryview, shape: Shape, stamp: int) -> bool:
    """Return whether `classify` would call every row valid or stale, and find nothing else.

    False, too, where the first record has a higher id than the header, which may not have been
    renewed when the file was used again.
    """
    if (rows[:, STATUS] > STALE).any() or (len(rows) and rows[0, FILE_ID] > stamp > 0):
        return False
    raw = np.frombuffer(data, np.uint8)
    return not has_damage(rows, valid_rows(rows), raw, shape.header_size, stamp)


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A `KnownFile` of valid records, stale ones and fill; its rows are found anew when needed.

    Attributes:
        file: the file.
        shape: the shape of its records.
        facts: what they prove of it.
        few_runs: rows of its runs; None where there are more than `RUNS_MAX`.
        whole: the file, where ``file`` holds nothing before the end of its last record.
    """

    file: JournalFile
    shape: Shape
    facts: FileFacts
    few_runs: Any | None = None
    whole: JournalFile | None = None

    @property
    def unheaded_id(self) -> int | None:
        """None: the header was renewed."""
        return None

    @property
    def effective_id(self) -> int:
        """The file id in the header."""
        return self.file.file_id

    @property
    def has_records(self) -> bool:
        """True if the file holds a whole record of its life."""
        return self.facts.records > 0

    def runs(self) -> Iterator[Classified]:
        """Yield neighbouring records of one outcome as one range."""
        if self.few_runs is None:
            return _classified(_runs(self._rows()))
        return _classified(self.few_runs)

    def earlier_adds(self) -> Iterable[int]:
        """Return the ids of records that were added in an untouched earlier life."""
        if self.has_records:
            return []
        rows = self._rows()
        # A new life writes from the header on: an earlier one is untouched only if its first record
        # is.
        if not len(rows) or rows[0, OFFSET] != self.shape.header_size:
            return []
        return self._ids(rows[_whole(rows) & (rows[:, FILE_ID] == rows[0, FILE_ID])], _ADDS)

    def deletes(self) -> Iterable[int]:
        """Return the ids of records that any whole record in the file deletes."""
        rows = self._rows()
        return self._ids(rows[_whole(rows)], _DELETES)

    def first_added(self) -> int | None:
        """Return the id in the first add of this life; None without one."""
        return next(iter(self.adds()), None)

    def adds(self) -> list[int]:
        """Return the ids in the adds of this life, in their order."""
        records = self._records()
        added: list[int] = records.ids[_ADDED[records.kinds]].tolist()
        return added

    def named_below(self, limits: Sequence[int]) -> list[int]:
        """Return for each limit the highest number below it of a record or transaction, or 0."""
        records = self._records()
        named = np.unique(np.concatenate(([0], records.ids, records.transactions)))
        # The place is that of the first number that is not below the limit, so the answer is one
        # before.
        return [int(named[max(at - 1, 0)]) for at in np.searchsorted(named, limits)]

    def transactions_between(self, low: int, high: int) -> list[int]:
        """Return the numbers between these two of the transactions in this life."""
        numbers = self._records().transactions
        found: list[int] = np.unique(numbers[(numbers > low) & (numbers < high)]).tolist()
        return found

    @property
    def _read(self) -> JournalFile:
        return self.whole or self.file

    def _rows(self) -> Any:
        return file_rows(self._read, self.shape)

    def _records(self) -> Chunk:
        rows = valid_rows(self._rows())
        return chunk_of(self.shape, self._read.data(), rows)

    def _ids(self, rows: Any, kinds: Any) -> list[int]:
        data = self._read.data()
        wanted = kinds[np.frombuffer(data, np.uint8)[rows[:, OFFSET]]]
        return [number for _, _, _, _, number, _ in fields_of(self.shape, data, rows[wanted])]


def plain_file(file: JournalFile, shape: Shape, rows: Any) -> PlainFile | None:
    """Return the file of which these are the rows; None if it is not plain."""
    plain = is_plain(rows, file.data(), shape, file.stamp)
    return plain_of(file, shape, rows) if plain else None


def plain_of(file: JournalFile, shape: Shape, rows: Any) -> PlainFile:
    """Return the plain file of which these are the rows."""
    runs = _runs(rows)
    few = runs if len(runs) <= RUNS_MAX else None
    return PlainFile(file, shape, _facts(shape, file.data(), rows), few)


def _runs(rows: Any) -> Any:
    """Return neighbouring records of one status as one row each."""
    begins, codes = rows[:, OFFSET], rows[:, STATUS]
    # Stale records may reach into the next one: what is there now ends them.
    ends = np.minimum(begins + rows[:, SIZE], _limits(rows))
    first = firsts(codes)
    first[1:] |= begins[1:] != ends[:-1]
    # Cut to the number of rows, because without rows the entry for the last one is too much.
    last = np.append(first[1:], True)[: len(rows)]
    runs = rows[first].copy()
    runs[:, SIZE] = ends[last] - begins[first]
    return runs


def _classified(runs: Any) -> Iterator[Classified]:
    for begin, size, status, file_id in runs.tolist():
        row = Row(begin, size, status, file_id)
        valid = status == VALID
        yield Classified(row, Outcome.VALID) if valid else Classified(row, Outcome.STALE, EARLIER)


_ADDS = marked([ADD])
_ADDED = marked(ADDS)
_DELETES = marked(DELETES)
_COUNTED = marked(COUNTED)
_TELLING = marked(COUNTED | NEVER_COMPACTED)


def _facts(shape: Shape, data: memoryview, rows: Any) -> FileFacts:
    raw = np.frombuffer(data, np.uint8)
    own, stale = valid_rows(rows), rows[rows[:, STATUS] == STALE]
    end = int(own[-1, OFFSET] + own[-1, SIZE]) if len(own) else shape.header_size
    gaps = _gaps(own, shape.header_size)
    counts = _counts(shape, raw, own)
    return FileFacts(
        records=len(own),
        first_size=int(own[0, SIZE]) if len(own) else 0,
        largest=int(own[:, SIZE].max()) if len(own) else 0,
        end=end,
        copied=_copied(shape, raw, own),
        first_count=int(counts[0]) if len(counts) else None,
        last_count=int(counts[-1]) if len(counts) else None,
        gap_blocks=tuple(block for block in BLOCKS if all(fits(block, *gap) for gap in gaps)),
        gaps=bool(gaps),
        gaps_zero=all(is_zero(data, *gap) for gap in gaps),
        torn=None,
        later=tuple(later(_from(rows, end), end)),
        earlier_ids=_distinct(stale[_not_copied(shape, raw, stale)]),
        stale_ids=_distinct(rows[_whole(rows) & (rows[:, STATUS] == STALE)]),
    )


def _from(rows: Any, end: int) -> Iterator[int]:
    begin = int(np.searchsorted(rows[:, OFFSET], end))
    return (int(offset) for offset in rows[begin:, OFFSET])


def _limits(rows: Any) -> Any:
    """Return for each row where the next valid record begins, after which it cannot go on."""
    begins = np.append(valid_rows(rows)[:, OFFSET], np.iinfo(np.int64).max)
    # "right", as a valid record does not limit itself but ends before the begin of the next one.
    return begins[np.searchsorted(begins, rows[:, OFFSET], side="right")]


def _whole(rows: Any) -> Any:
    """Return which records no later one has overwritten in part."""
    return rows[:, OFFSET] + rows[:, SIZE] <= _limits(rows)


def _gaps(own: Any, begin: int) -> list[tuple[int, int]]:
    # The end of the last record is left out: what follows it is no gap between records.
    ends = np.concatenate(([begin], own[:, OFFSET] + own[:, SIZE]))[: len(own)]
    gap = own[:, OFFSET] != ends
    return list(zip(ends[gap].tolist(), own[gap, OFFSET].tolist(), strict=True))


def _counts(shape: Shape, raw: Any, rows: Any) -> Any:
    """Return the compact counts of the records that a compaction may count."""
    if not shape.compact:
        return ()
    at = rows[:, OFFSET]
    return raw[at[_COUNTED[raw[at]]] + STAMP_SIZE]


def _copied(shape: Shape, raw: Any, own: Any) -> bool | None:
    telling = own if not shape.compact else own[_TELLING[raw[own[:, OFFSET]]]][:1]
    # One record decides for the file, because a compaction writes whole files of copies.
    return None if not len(telling) else not _not_copied(shape, raw, telling[:1])[0]


def _not_copied(shape: Shape, raw: Any, rows: Any) -> Any:
    """Return a mask of the records that certainly no compaction wrote."""
    at = rows[:, OFFSET]
    if not shape.compact:
        return np.ones(len(rows), np.bool_)
    never = _TELLING[raw[at]] & ~_COUNTED[raw[at]]
    return never | (_COUNTED[raw[at]] & (raw[at + STAMP_SIZE] == 0))


def _distinct(rows: Any) -> tuple[int, ...]:
    # `unique` sorts; the places of the first occurrences give the order in the file back.
    found, first = np.unique(rows[:, FILE_ID], return_index=True)
    return tuple(found[np.argsort(first)].tolist())
