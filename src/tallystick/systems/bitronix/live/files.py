"""Both files of a live journal in the group writer's turn: appending, syncing, changing files.

In: records in order, never by two threads at once. Out: bytes in the file in use, and a change of
files when it is full, with everything that is open carried over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tallystick.systems.bitronix.format.layout import CLEAN_LOG_STATE, COMMITTING, UNCLEAN_LOG_STATE
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.live.carry_over import CarriedRecords
from tallystick.systems.bitronix.live.encoder import Entry
from tallystick.systems.bitronix.live.opening import UNSYNCED_MAX, Opened


class FilePair:
    """The file in use and the passive one; ``now`` is the journal's clock in ms.

    With ``forced`` false nothing that is appended is synced by `sync`.
    """

    def __init__(self, opened: Opened, now: Callable[[], int], *, forced: bool) -> None:
        self.active, self.passive = opened.active, opened.passive
        self._now = now
        self._forced = forced
        self._lsn = 0
        self._unsynced = 0
        self._written = CarriedRecords()
        for record in opened.carried.records():
            self._written.apply(record)

    def write(self, entries: list[Entry]) -> Sequence[int]:
        """Append a group; everything that goes to one file in one write."""
        pending: list[bytes] = []
        room = self.active.room
        written = self._written
        for record, data in entries:
            written.apply(record)
            room -= len(data)
            if room <= 0:
                self._append(b"".join(pending))
                self._swap(record)
                pending, room = [], self.active.room - len(data)
            pending.append(data)
        self._append(b"".join(pending))
        first, self._lsn = self._lsn + 1, self._lsn + len(entries)
        return range(first, self._lsn + 1)

    def _append(self, data: bytes) -> None:
        if not data:
            return
        if self._unsynced + len(data) > UNSYNCED_MAX:
            self.sync()
        self.active.append(data)
        self._unsynced += len(data)

    def sync(self) -> None:
        """Make durable what was written, where records are forced at all."""
        if self._forced:
            self.active.datasync()
        self._unsynced = 0

    def _swap(self, record: TransactionLogRecord) -> None:
        """Change files before ``record``, which is taken into account, is written.

        Each step is durable before the next one relies on it: the passive file is empty before
        it is wiped, the copies are there before its timestamp says that it is in use.
        """
        self.sync()
        passive = self.passive
        passive.empty(self.active.length)
        passive.wipe()
        replaced = record.gtrid if record.status == COMMITTING else None
        copies = self._written.copies(record.time, record.sequence_number, but=replaced)
        passive.append(b"".join(copies))
        passive.datasync()
        now = self._now()
        passive.set_timestamp(max(now, self.active.timestamp + 1, passive.length + 1))
        passive.set_state(UNCLEAN_LOG_STATE)
        passive.datasync()
        self.active, self.passive = passive, self.active

    def mark_clean(self) -> None:
        """Set both states to clean, durably."""
        for file in (self.active, self.passive):
            file.set_state(CLEAN_LOG_STATE)
            file.datasync()

    def close(self) -> None:
        """Release both files; nothing is written."""
        self.active.close()
        self.passive.close()
