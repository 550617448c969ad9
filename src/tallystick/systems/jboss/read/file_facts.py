"""What the records of one file prove of it, without the records.

In: a classified file. Out: `FileFacts`: few numbers, by which the ends, the ids and the earlier
lives of files are judged. A `KnownFile` gives them whichever way the file was read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Protocol

from tallystick.records import Outcome
from tallystick.storage.zeros import is_zero
from tallystick.systems.jboss.format.layout import STAMP_SIZE, Item, RecordType, Shape
from tallystick.systems.jboss.read.classify import Classified, FileReading
from tallystick.systems.jboss.read.files import JournalFile

BLOCKS = (512, 4096)
"""Block sizes of aligned writing, in bytes."""
NEVER_COMPACTED = frozenset({RecordType.EVENT, RecordType.DELETE, RecordType.ROLLBACK})
"""A compaction drops what they end, and them."""
COUNTED = frozenset({RecordType.ADD, RecordType.UPDATE, RecordType.ADD_TX, RecordType.UPDATE_TX})
"""A compaction raises their compact counts."""
ADDS = frozenset({RecordType.ADD, RecordType.ADD_TX})
DELETES = frozenset({RecordType.DELETE, RecordType.DELETE_TX})


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the records of a file prove of it. Sizes and offsets are in bytes.

    Attributes:
        records: the number of its whole records of this life.
        first_size: the size of the first one; 0 without records.
        largest: the size of the largest one; 0 without records.
        end: offset after the last one, or after the header.
        copied: whether a compaction wrote them, by the first that tells; None if none does.
        first_count: the first compact count of them; None if none has one.
        last_count: the last one.
        gap_blocks: the block sizes that explain all gaps between them.
        gaps: whether there are gaps between them.
        gaps_zero: whether these hold zeros only.
        torn: the first torn record.
        later: offsets of ranges from ``end`` on, up to the first at least a block size after it.
        earlier_ids: ids of earlier lives of which records are there that no compaction wrote.
        stale_ids: ids under which whole records of earlier lives are there.
    """

    records: int
    first_size: int
    largest: int
    end: int
    copied: bool | None
    first_count: int | None
    last_count: int | None
    gap_blocks: tuple[int, ...]
    gaps: bool
    gaps_zero: bool
    torn: Classified | None
    later: tuple[int, ...]
    earlier_ids: tuple[int, ...]
    stale_ids: tuple[int, ...]


class KnownFile(Protocol):
    """A data file of which the facts are known."""

    @property
    def file(self) -> JournalFile:
        """The file."""
        ...

    @property
    def shape(self) -> Shape:
        """The shape of its records."""
        ...

    @property
    def unheaded_id(self) -> int | None:
        """The id of its records if the file was reused and its header not renewed."""
        ...

    @property
    def effective_id(self) -> int:
        """The file id by which the file was written, whatever its header says."""
        ...

    @property
    def facts(self) -> FileFacts:
        """What its records prove of it."""
        ...

    @property
    def has_records(self) -> bool:
        """True if the file holds a whole record of its life."""
        ...

    def runs(self) -> Iterable[Classified]:
        """Return its ranges by offset; neighbours of one outcome and reason may be one range."""
        ...

    def earlier_adds(self) -> Iterable[int]:
        """Return the ids of records that were added in an untouched earlier life.

        Only those that were added outside of transactions; none if the file has a record of its
        life.
        """
        ...

    def deletes(self) -> Iterable[int]:
        """Return the ids of records that any whole record in the file deletes."""
        ...

    def first_added(self) -> int | None:
        """Return the id in the first add of this life; None without one."""
        ...

    def adds(self) -> Iterable[int]:
        """Return the ids in the adds of this life, in their order."""
        ...

    def named_below(self, limits: Sequence[int]) -> Sequence[int]:
        """Return for each limit the highest number below it of a record or transaction, or 0.

        Of those that the records of this life name.
        """
        ...

    def transactions_between(self, low: int, high: int) -> Iterable[int]:
        """Return the numbers between these two of the transactions in this life."""
        ...


class ClassifiedFile:
    """A `KnownFile` whose ranges were classified one by one."""

    def __init__(self, reading: FileReading) -> None:
        self.reading = reading
        self.file = reading.file
        self.shape = reading.shape
        self.unheaded_id = reading.unheaded_id

    @property
    def effective_id(self) -> int:
        """The file id by which the file was written, whatever its header says."""
        return self.reading.effective_id

    @property
    def has_records(self) -> bool:
        """True if the file holds a whole record of its life."""
        return self.facts.records > 0

    @cached_property
    def facts(self) -> FileFacts:
        """What its records prove of it."""
        return _facts(self.reading)

    def runs(self) -> Iterable[Classified]:
        """Return its ranges by offset."""
        return self.reading.ranges

    def earlier_adds(self) -> Iterator[int]:
        """Yield the ids of records that were added in an untouched earlier life."""
        reading = self.reading
        if self.has_records or not reading.ranges:
            return
        first = reading.ranges[0].row
        if first.offset != reading.shape.header_size:
            return
        for one in reading.ranges:
            of_life = one.row.file_id == first.file_id and one.outcome is Outcome.STALE
            if of_life and reading.whole(one) and _kind(reading, one) is RecordType.ADD:
                yield reading.item(one).record_id or 0

    def deletes(self) -> Iterator[int]:
        """Yield the ids of records that any whole record in the file deletes."""
        reading = self.reading
        for one in reading.ranges:
            whole = one.outcome in (Outcome.VALID, Outcome.STALE) and reading.whole(one)
            if whole and _kind(reading, one) in DELETES:
                yield reading.item(one).record_id or 0

    def first_added(self) -> int | None:
        """Return the id in the first add of this life; None without one."""
        return next(self.adds(), None)

    def adds(self) -> Iterator[int]:
        """Yield the ids in the adds of this life, in their order."""
        return (item.record_id or 0 for item in self._items() if item.type in ADDS)

    def named_below(self, limits: Sequence[int]) -> list[int]:
        """Return for each limit the highest number below it of a record or transaction, or 0."""
        pairs = ((item.record_id or 0, item.transaction or 0) for item in self._items())
        named = sorted({0, *chain.from_iterable(pairs)})
        return [named[max(bisect_left(named, one) - 1, 0)] for one in limits]

    def transactions_between(self, low: int, high: int) -> set[int]:
        """Return the numbers between these two of the transactions in this life."""
        numbers = (item.transaction or 0 for item in self._items())
        return {one for one in numbers if low < one < high}

    def _items(self) -> Iterator[Item]:
        return map(self.reading.item, filter(self.reading.belongs, self.reading.ranges))


def _facts(reading: FileReading) -> FileFacts:
    own = [one for one in reading.ranges if reading.belongs(one)]
    stale = [one for one in reading.ranges if one.outcome is Outcome.STALE]
    end = own[-1].row.end if own else reading.shape.header_size
    gaps = list(_gaps(reading, own))
    counts = [count for one in own if (count := _compact_count(reading, one)) is not None]
    copies = (copy for one in own if (copy := _is_copy(reading, one)) is not None)
    return FileFacts(
        records=len(own),
        first_size=own[0].row.size if own else 0,
        largest=max((one.row.size for one in own), default=0),
        end=end,
        copied=next(copies, None),
        first_count=counts[0] if counts else None,
        last_count=counts[-1] if counts else None,
        gap_blocks=tuple(block for block in BLOCKS if all(fits(block, *gap) for gap in gaps)),
        gaps=bool(gaps),
        gaps_zero=all(is_zero(reading.file.data(), *gap) for gap in gaps),
        torn=next((one for one in reading.ranges if one.outcome is Outcome.TORN), None),
        later=tuple(later([one.row.offset for one in reading.ranges], end)),
        earlier_ids=_ids(one for one in stale if _is_copy(reading, one) is False),
        stale_ids=_ids(one for one in stale if reading.whole(one)),
    )


def fits(block: int, begin: int, end: int) -> bool:
    """Return whether a gap is what is left of a block of that size."""
    return not end % block and end - begin < block


def later(offsets: Iterable[int], end: int) -> Iterator[int]:
    """Yield the offsets from ``end`` on, up to the first at least a block size after it."""
    for offset in offsets:
        if offset >= end:
            yield offset
            if offset >= end + BLOCKS[-1]:
                return


def _ids(ranges: Iterable[Classified]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(one.row.file_id for one in ranges))


def _gaps(reading: FileReading, own: Iterable[Classified]) -> Iterator[tuple[int, int]]:
    place = reading.shape.header_size
    for one in own:
        if one.row.offset != place:
            yield place, one.row.offset
        place = one.row.end


def _is_copy(reading: FileReading, one: Classified) -> bool | None:
    """Return whether a compaction wrote the whole record; None if it cannot be told.

    Before the generation that counts compactions only the name of a file tells.
    """
    if not reading.shape.compact or _kind(reading, one) in NEVER_COMPACTED:
        return False
    count = _compact_count(reading, one)
    return None if count is None else count > 0


def _kind(reading: FileReading, one: Classified) -> RecordType:
    return reading.shape.record_type(reading.file.data()[one.row.offset])


def _compact_count(reading: FileReading, one: Classified) -> int | None:
    counted = reading.shape.compact and _kind(reading, one) in COUNTED
    return reading.file.data()[one.row.offset + STAMP_SIZE] if counted else None
