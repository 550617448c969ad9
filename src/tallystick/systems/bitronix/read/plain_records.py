"""Plain records: what code that decodes many records at once gives instead of `RecordSpan`s.

In: the records of the counted range of a file in chunks, where all of them are plain: whole, exact,
names ASCII and in order, and no longer than the 3.0 line reads. Out: what they come to together.
Both cursors of the original accept such records one after the other, up to the position in the
header.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

from tallystick.systems.bitronix.format.layout import (
    COMMITTING,
    COUNT,
    END_MARKER,
    END_RECORD,
    GTRID_OFFSET,
    HEADER_LENGTH,
    NAME_LENGTH,
    FileHeader,
    split_gtrid,
)
from tallystick.systems.bitronix.format.record import (
    TransactionLogRecord,
    decode_record,
    encode_names,
)

Row = tuple[int, int, int, int]
"""A record of a chunk: where it begins, its gtrid ends, its names end (in `Chunk.data`); status."""
GtridRow = tuple[int, int, int, int, int, int, int, int, int]
"""The records of a gtrid in a chunk: where the first begins and its gtrid ends, its time; status
and time of the last, where it begins, where the last COMMITTING begins (-1: there is none); number
and bytes of the records."""
NamesRow = tuple[int, int, int]
"""Names of a gtrid: its place among the gtrids of the chunk, where they begin, where they end."""


class Chunk(Protocol):
    """Plain records that follow each other, as columns."""

    @property
    def base(self) -> int:
        """The offset of the first one in the file."""
        ...

    @property
    def end(self) -> int:
        """The offset after the last one."""
        ...

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    @property
    def data(self) -> bytes:
        """Their bytes."""
        ...

    def gtrids(self) -> tuple[Iterator[GtridRow], Iterator[NamesRow]]:
        """Return the records by gtrid, and the names that they have one after the other."""
        ...

    def decisions(self, known: Collection[bytes]) -> tuple[Iterator[Row], Iterable[bytes]]:
        """Return records that open or close decisions, and those of ``known`` that are closed.

        Records that do not change what is open after the chunk may be missing.
        """
        ...

    def first_of_servers(self) -> Iterator[Row]:
        """Yield the first one, and each whose server id is not that of the one before it."""
        ...


ReadChunks = Callable[[memoryview, int, int], Iterator[Chunk]]
"""Yields the plain records of a file from one offset on, up to another or the first that is not."""


class Run(NamedTuple):
    """Plain records that follow each other, as a search finds them.

    Attributes:
        end: the offset after the last one.
        records: how many there are; perhaps none.
        newest: the offset of the one with the greatest time and sequence number.
        tried: the offset up to which no other run begins.
    """

    end: int
    records: int
    newest: int
    tried: int


ReadRun = Callable[[memoryview, int], Run | None]
"""Reads the plain records of a file from an offset on; None where few bytes are left."""


@dataclass(frozen=True, slots=True)
class PlainRecords:
    """The records of a counted range that are all plain.

    Attributes:
        end: where they end, the position in the header.
        count: how many they are.
        server_ids: of their gtrids; None for those too short to have one.
        kept: the decisions that are open after them, by ascending gtrid.
    """

    end: int
    count: int
    server_ids: frozenset[str | None]
    kept: tuple[TransactionLogRecord, ...]
    _data: memoryview
    _read: ReadChunks

    @classmethod
    def of(cls, data: memoryview, header: FileHeader, read: ReadChunks) -> PlainRecords | None:
        """Return the records up to the position in the header; None if one is not plain."""
        if not HEADER_LENGTH <= header.position <= len(data):
            return None
        place, count, found = HEADER_LENGTH, 0, _OpenDecisions(())
        servers: set[str | None] = set()
        for chunk in read(data, place, header.position):
            found.apply(chunk)
            servers.update(_server_ids(chunk))
            place, count = chunk.end, count + chunk.count
        if place != header.position:
            return None
        return cls(place, count, frozenset(servers), found.records(data), data, read)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records again."""
        return self._read(self._data, HEADER_LENGTH, self.end)

    def kept_after(self, earlier: Sequence[TransactionLogRecord]) -> Sequence[TransactionLogRecord]:
        """Return the decisions that are open after these records, if ``earlier`` are before."""
        if not earlier:
            return self.kept
        found = _OpenDecisions(earlier)
        for chunk in self.chunks():
            found.apply(chunk)
        return found.records(self._data)


def _server_ids(chunk: Chunk) -> Iterator[str | None]:
    for begin, gtrid_end, _, _ in chunk.first_of_servers():
        yield split_gtrid(chunk.data[begin + GTRID_OFFSET : gtrid_end]).server_id


class _OpenDecisions:
    """Does what `DanglingSet` does, with names as they are stored and records decoded at the end.

    Plain records have equal names if, and only if, the bytes of their names are equal.
    """

    def __init__(self, records: Iterable[TransactionLogRecord]) -> None:
        self._open: dict[bytes, tuple[TransactionLogRecord | int, bytes]] = {
            one.gtrid: (one, _stored_names(one.unique_names)) for one in records
        }

    def apply(self, chunk: Chunk) -> None:
        """Apply the records of a chunk."""
        data, base = chunk.data, chunk.base
        rows, closed = chunk.decisions(self._open.keys())
        for gtrid in closed:
            del self._open[gtrid]
        for begin, gtrid_end, names_end, status in rows:
            gtrid = data[begin + GTRID_OFFSET : gtrid_end]
            if status == COMMITTING:
                self._open[gtrid] = base + begin, data[gtrid_end:names_end]
            elif gtrid in self._open:
                self._close(gtrid, data[gtrid_end:names_end])

    def _close(self, gtrid: bytes, closed: bytes) -> None:
        kept, names = self._open.pop(gtrid)
        if names != closed:
            left = [name for name in stored_names(names) if name not in stored_names(closed)]
            if left:
                self._open[gtrid] = kept, _stored_names(left)

    def records(self, data: memoryview) -> tuple[TransactionLogRecord, ...]:
        """Return the records that are kept, of which some stand in ``data``, by ascending gtrid."""
        found = []
        for gtrid in sorted(self._open):
            kept, names = self._open[gtrid]
            record = decode_record(data, kept, len(data)) if isinstance(kept, int) else kept
            assert record is not None  # it was whole when it was applied
            found.append(replace(record, unique_names=stored_names(names)))
        return tuple(found)


def _stored_names(names: Sequence[str]) -> bytes:
    return encode_names(names, END_RECORD)[: -len(END_MARKER)]


@lru_cache(maxsize=1024)
def stored_names(stored: bytes) -> tuple[str, ...]:
    """Return the names of a plain record from their count on; cached, as a program has few sets."""
    names = []
    place = COUNT.size
    while place < len(stored):
        begin = place + NAME_LENGTH.size
        place = begin + NAME_LENGTH.unpack_from(stored, place)[0]
        names.append(stored[begin:place].decode("ascii"))
    return tuple(names)
