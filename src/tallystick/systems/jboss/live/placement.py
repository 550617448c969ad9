"""Place records: choose their file, complete their bytes, count them for reclaiming.

In: records in the order of the log, from one thread at a time. Out: bytes in the ring's files.
A record is never split. What a commit or prepare counts depends on the files of its elements, so
it is encoded here. A full disk ends the journal (`LogPoisonedError`). Where records are refused
because the folder was moved, the journal goes on, but for their transactions: none is committed
without an element that was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.errors import LogWriteError
from tallystick.storage.group.answers import lsns_of
from tallystick.systems.jboss.format.layout import (
    CHECK_SIZE,
    FILE_ID_MASK,
    I4,
    Item,
    RecordType,
    check_of,
    encode,
)
from tallystick.systems.jboss.live.files import Ring
from tallystick.systems.jboss.read.reclaim_counts import (
    FileCounts,
    ReclaimCounts,
    TransactionCounts,
)

# Looking up a member of an enum costs as much as packing a record's stamp.
_ENDING_MAX, _PAIR = 64, 2 * I4.size
"""Bytes of a commit or prepare at most, without its extra data and pairs, and of a pair."""
_COMMIT, _PREPARE = RecordType.COMMIT, RecordType.PREPARE


@dataclass(slots=True)
class UnplacedRecord:
    """A record whose file is not known yet: ``raw`` are its bytes without the file id.

    The bytes of a commit or prepare are made anew when it is placed.
    """

    type: RecordType
    transaction: int | None
    record_id: int
    raw: bytearray
    extra: bytes = b""


class Placer:
    """Writes records to the ring and counts them for reclaiming."""

    def __init__(self, ring: Ring, counts: ReclaimCounts) -> None:
        self.ring = ring
        self.counts = counts
        self._shape = ring.settings.shape
        self._cut: set[int | None] = set()
        """Transactions of which a record was refused, until they are rolled back."""

    def write(self, entries: list[UnplacedRecord]) -> Sequence[int]:
        """Write one group; return for each record a growing number: file id << 31, plus offset.

        Raises:
            LogWriteError: another file is needed, and the folder was moved, or all are ends of
                transactions of which a record was refused; nothing was written.
        """
        # The folder is looked at only where a file may have to be made: it costs a system call.
        if self._size_max(entries) > self.ring.remaining():
            try:
                self.ring.fs.require_in_place()
            except LogWriteError:
                self._cut.update({one.transaction for one in entries} - {None})
                raise
        add = self.counts.add
        batch: list[bytes | bytearray] = []
        numbers: list[int] = []
        refused: dict[int, LogWriteError] = {}
        file, stamp, place, end = self._place()
        for entry in entries:
            if self._cut and (refusal := self._refusal(entry)) is not None:
                refused[len(numbers)] = refusal
                numbers.append(place)
                continue
            record = self._placed(entry, stamp)
            if place + len(record) > end:
                batch = self._written(batch)
                self.ring.advance()
                file, stamp, place, end = self._place()
                record = self._placed(entry, stamp)
            numbers.append(place)
            place += len(record)
            batch.append(record)
            add(file, entry.type, entry.transaction, entry.record_id, len(record))
        self._written(batch)
        if refused:
            return lsns_of([refused.get(at, number) for at, number in enumerate(numbers)])
        return numbers

    def _refusal(self, entry: UnplacedRecord) -> LogWriteError | None:
        """Return why a transaction cannot end so; what rolls it back makes it whole again."""
        if entry.type is RecordType.ROLLBACK:
            self._cut.discard(entry.transaction)
        if entry.transaction not in self._cut or entry.type not in (_COMMIT, _PREPARE):
            return None
        return LogWriteError(
            f"a record of transaction {entry.transaction} was refused",
            file=self.ring.folder,
            advice="Open the journal anew, which rolls it back, and repeat all of it",
        )

    def _size_max(self, entries: list[UnplacedRecord]) -> int:
        """Return the most bytes that the records of a group can take."""
        ending = _ENDING_MAX + _PAIR * (len(self.ring.data) + 1)
        return sum([len(one.raw) + len(one.extra) + ending for one in entries])

    def _place(self) -> tuple[FileCounts, int, int, int]:
        """Return counts and stamp of the current file, the next number, and their upper bound."""
        current = self.ring.current
        free = self.ring.settings.whole_blocks(self.ring.remaining())
        place = (current.file_id << 31) + current.position
        return current.counts, current.stamp, place, place + free

    def _written(self, batch: list[bytes | bytearray]) -> list[bytes | bytearray]:
        if batch:
            self.ring.write(b"".join(batch))
        return []

    def _placed(self, entry: UnplacedRecord, stamp: int) -> bytes | bytearray:
        """Return the bytes of a record in the current file."""
        if entry.type is _COMMIT or entry.type is _PREPARE:
            return self._ending(entry)
        I4.pack_into(entry.raw, 1, stamp)
        if self._shape.hashed:
            entry.raw[-CHECK_SIZE:] = check_of(self._shape, bytes(entry.raw[:-CHECK_SIZE]))
        return entry.raw

    def _ending(self, entry: UnplacedRecord) -> bytes:
        """Return the bytes of a commit or prepare with its counts as of now."""
        current, number = self.ring.current, entry.transaction or 0
        one = self.counts.open.get(number, TransactionCounts())
        pairs = tuple((key & FILE_ID_MASK, count) for key, count in sorted(one.elements.items()))
        item = Item(
            0,
            0,
            entry.type,
            current.stamp,
            0,
            number,
            count=one.run.within(current.file_id),
            pairs=pairs,
            extra=entry.extra,
        )
        return encode(self._shape, item)
