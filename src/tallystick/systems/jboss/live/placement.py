"""Placing records: which file they go to, with what id and what counts, and their booking.

In: entries in the order of the log, from one thread at a time. Out: bytes in the ring's files,
and books. A record is never split; what a commit or prepare counts is known only here.
A device without room ends the journal (`LogPoisonedError`): a transaction whose element was refused
must not be committed without it, and reopening goes by what is on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.systems.jboss.format.layout import (
    CHECK_SIZE,
    FILE_ID_MASK,
    I4,
    Item,
    Name,
    check_of,
    encode,
)
from tallystick.systems.jboss.live.files import Ring
from tallystick.systems.jboss.live.reclaim import Account, Books, OpenTransaction

# Looking up a member of an enum costs as much as packing a record's stamp.
_COMMIT, _PREPARE = Name.COMMIT, Name.PREPARE


@dataclass(slots=True)
class Entry:
    """A record on its way: its bytes but for the file id, and but for what its end counts."""

    name: Name
    transaction: int | None
    record_id: int
    raw: bytearray
    extra: bytes = b""


class Placer:
    """Writes entries to the ring and keeps its books."""

    def __init__(self, ring: Ring, books: Books) -> None:
        self.ring = ring
        self.books = books
        self._shape = ring.settings.shape

    def write(self, entries: list[Entry]) -> Sequence[int]:
        """Write one group; returns a growing number for each record: file id and offset."""
        take = self.books.take
        batch: list[bytes | bytearray] = []
        numbers = []
        account, stamp, place, end = self._place()
        for entry in entries:
            record = self._placed(entry, stamp)
            if place + len(record) > end:
                batch = self._written(batch)
                self.ring.move(self.books)
                account, stamp, place, end = self._place()
                record = self._placed(entry, stamp)
            numbers.append(place)
            place += len(record)
            batch.append(record)
            take(account, entry.name, entry.transaction, entry.record_id, len(record))
        self._written(batch)
        return numbers

    def _place(self) -> tuple[Account, int, int, int]:
        """Account and stamp of the current file, the number of what is written next, and the first
        number that is too high."""
        current = self.ring.current
        room = self.ring.settings.whole_blocks(self.ring.room())
        place = (current.file_id << 31) + current.position
        return current.account, current.stamp, place, place + room

    def _written(self, batch: list[bytes | bytearray]) -> list[bytes | bytearray]:
        if batch:
            self.ring.write(b"".join(batch))
        return []

    def _placed(self, entry: Entry, stamp: int) -> bytes | bytearray:
        """The bytes of a record in the current file."""
        if entry.name is _COMMIT or entry.name is _PREPARE:
            return self._ending(entry)
        I4.pack_into(entry.raw, 1, stamp)
        if self._shape.hashed:
            entry.raw[-CHECK_SIZE:] = check_of(self._shape, bytes(entry.raw[:-CHECK_SIZE]))
        return entry.raw

    def _ending(self, entry: Entry) -> bytes:
        """A commit or prepare with its counts as of now."""
        current, number = self.ring.current, entry.transaction or 0
        one = self.books.open.get(number, OpenTransaction())
        pairs = tuple((key & FILE_ID_MASK, count) for key, count in sorted(one.elements.items()))
        item = Item(
            0,
            0,
            entry.name,
            current.stamp,
            0,
            number,
            count=one.count(current.file_id),
            pairs=pairs,
            extra=entry.extra,
        )
        return encode(self._shape, item)
