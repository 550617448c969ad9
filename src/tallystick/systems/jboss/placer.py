"""Placing records: which file they go to, with what id and what counts, and their booking.

In: entries in the order of the log, from one thread at a time. Out: bytes in the ring's files,
and books. A record is never split; what a commit or prepare counts is known only here.
A device without room ends the journal (`LogPoisonedError`): a transaction whose element was refused
must not be committed without it, and reopening goes by what is on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.systems.jboss.books import Books, OpenTransaction
from tallystick.systems.jboss.layout import (
    CHECK_SIZE,
    FILE_ID_MASK,
    I4,
    Item,
    Name,
    check_of,
    encode,
)
from tallystick.systems.jboss.ring import Ring


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

    def write(self, entries: list[Entry]) -> Sequence[int]:
        """Write one group; returns a growing number for each record: file id and offset."""
        batch = bytearray()
        numbers = []
        base, room = self._place()
        for entry in entries:
            record = self._placed(entry)
            if len(batch) + len(record) > room:
                batch = self._written(batch)
                self.ring.move(self.books)
                base, room = self._place()
                record = self._placed(entry)
            numbers.append(base + len(batch))
            batch += record
            self.books.take(
                self.ring.current.account,
                entry.name,
                entry.transaction,
                entry.record_id,
                len(record),
            )
        self._written(batch)
        return numbers

    def _place(self) -> tuple[int, int]:
        """The number of what is written next, and the bytes that fit behind it."""
        current = self.ring.current
        room = self.ring.settings.whole_blocks(self.ring.room())
        return (current.file_id << 31) + current.position, room

    def _written(self, batch: bytearray) -> bytearray:
        if batch:
            self.ring.write(batch)
        return bytearray()

    def _placed(self, entry: Entry) -> bytes | bytearray:
        """The bytes of a record in the current file."""
        current, shape = self.ring.current, self.ring.settings.shape
        if entry.name is Name.COMMIT or entry.name is Name.PREPARE:
            return self._ending(entry)
        I4.pack_into(entry.raw, 1, current.stamp)
        if shape.hashed:
            entry.raw[-CHECK_SIZE:] = check_of(shape, bytes(entry.raw[:-CHECK_SIZE]))
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
        return encode(self.ring.settings.shape, item)
