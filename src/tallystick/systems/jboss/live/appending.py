"""A circular journal open for appending: its ring, its group writer, what callers have open.

In: encoded records, in the order of the log. Out: tickets. The calls of the original stand in
`tallystick.systems.jboss.live.log.CircularJournal`.

The timed buffer of the original is a `GroupWriter`: whoever waits writes for all, and nobody
waits for a clock unless ``delay`` says so. Commit, prepare and rollback records get their file and
their counts when they are placed, by the one thread that writes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from tallystick.errors import RecordTooLargeError
from tallystick.storage.files import FileSystem
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.local import LOCAL
from tallystick.systems.jboss.format.layout import Item, Name, encode, encode_body
from tallystick.systems.jboss.live.files import Ring
from tallystick.systems.jboss.live.opening import Recovered, recover
from tallystick.systems.jboss.live.placement import Entry, Placer
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.jboss.read.replay import Open

LOCK_FILE = "journal.lock"
GROUP_BYTES = 501_760
"""490 KiB, the buffer of the original."""


@dataclass(slots=True)
class Front:
    """An open transaction as its callers see it, before its records are placed."""

    added: list[int]
    deleted: list[int]
    prepared: bool = False


class AppendingJournal:
    """The folder, locked and recovered. See `CircularJournal` for the arguments."""

    def __init__(
        self,
        folder: str,
        settings: JournalSettings | None = None,
        *,
        fs: FileSystem = LOCAL,
        tolerate_damage: bool = False,
    ) -> None:
        self.folder = folder
        self.settings = settings or JournalSettings()
        made = self.settings.ring()
        fs.mkdir(folder)
        self._owned = fs.lock(f"{folder}/{LOCK_FILE}")
        self._ring = Ring(fs, folder, made)
        try:
            self.loaded = recover(self._ring, tolerate_damage=tolerate_damage)
            self._begin(self.loaded)
        except BaseException:
            self._ring.close()
            self._owned.release()
            raise

    def _begin(self, loaded: Recovered) -> None:
        self._shape = self._ring.settings.shape
        self._placer = Placer(self._ring, loaded.books)
        self._ids = set(loaded.live)
        self._closed = False
        self._record_max = self._ring.settings.whole_blocks(
            self._ring.settings.file_size - self._ring.settings.data_at
        )
        self._open = {one.transaction: front_of(one) for one in loaded.prepared}
        self._lock = threading.Lock()
        self._stale: set[int] = set()
        self._writer: GroupWriter[Entry] = GroupWriter(
            self._placer.write,
            self._ring.sync,
            name=self.folder,
            group_bytes=GROUP_BYTES,
            delay=self.settings.delay,
        )
        self._discard(loaded.discarded)

    def flush(self) -> None:
        """Return when everything appended so far is durable."""
        self._writer.flush()

    @property
    def counters(self) -> GroupCounters:
        """The group writer's counts: groups, records, bytes, fsyncs."""
        return self._writer.counters

    def close(self) -> None:
        """Make everything durable and let the folder go; open transactions stay open in it.
        A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._writer.close()
        finally:
            self._ring.close()
            self._owned.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- for the calls of the journal ---------------------------------------------------------

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Flushed, and no flush runs in the block."""
        self._writer.flush()
        with self._writer.exclusive():
            yield

    def _discard(self, numbers: Sequence[int]) -> None:
        """End what a crash left open: with rollback records, in g1a only where it is needed."""
        if self._shape.pairs:
            self._stale = set(numbers)
            for number in numbers:
                self._placer.books.forget(number)
            return
        for number in numbers:
            self._submit(self._bare(Item(0, 0, Name.ROLLBACK, 0, 0, number)))
        self._writer.flush()

    def _submit(self, entry: Entry, *, sync: bool = True) -> GroupTicket[Entry]:
        return self._writer.submit(entry, len(entry.raw), sync=sync)

    def _entry(
        self, name: Name, transaction: int | None, record_id: int, user_type: int, body: bytes
    ) -> Entry:
        """A record with a body. Raises `RecordTooLargeError`."""
        raw = encode_body(self._shape, name, transaction, record_id, user_type, body)
        if len(raw) > self._record_max:
            raise self._too_large(len(raw))
        return Entry(name, transaction, record_id, raw)

    def _bare(self, item: Item) -> Entry:
        """Any other record. Raises `RecordTooLargeError`."""
        raw = bytearray(encode(self._shape, item))
        if len(raw) > self._record_max:
            raise self._too_large(len(raw))
        return Entry(item.name, item.transaction, item.record_id or 0, raw, item.extra or b"")

    def _too_large(self, size: int) -> RecordTooLargeError:
        return RecordTooLargeError(
            "the record is larger than a journal file can hold",
            file=self.folder,
            expected=f"at most {self._record_max} bytes",
            found=f"{size} bytes",
            advice="Split the body, or make the journal with a larger file_size",
        )


def front_of(one: Open) -> Front:
    added = [placed.item.record_id or 0 for placed in one.records]
    deleted = [placed.item.record_id or 0 for placed in one.deletes]
    return Front(added, deleted, prepared=True)
