"""Entries into durable blocks: batches, the one writer, and the effects of entries on the state.

In: encoded entries with their effects, in order. Out: tickets; and, once their block is durable,
the effects on the `LogState`. `append` is called under the log's order lock; `_write` and
`_sync` run in any thread, never two at once, and never need that lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from enum import Enum
from typing import NamedTuple

from tallystick.errors import LogWriteError
from tallystick.roles import DoneTicket, Ticket
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.scheduling import threading
from tallystick.storage.signals import uninterrupted
from tallystick.systems.cloudtran.live.files import FileSeries, ReadyBlock
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.cloudtran.live.state import LogState

DIRTY_BATCHES_MAX = 8
"""Full batches that may wait to be written before a caller has to help."""


class EffectKind(Enum):
    """Kinds of effects on the state of the log."""

    PERSISTING = 1
    CARRIED_FORWARD = 2
    """The same transaction, now in this file."""
    PERSISTED = 3


class Effect(NamedTuple):
    """The effect of one entry once it is written; ``targets`` None means every one."""

    kind: EffectKind
    number: int
    targets: frozenset[str] | None = None
    flags: int = 0


class Batch(Uncopied):
    """Entries of one block: at most ``size_max`` bytes, or a single larger one.

    Threads may add entries until the batch is full or closed.
    """

    def __init__(self, size_max: int) -> None:
        self.effects: list[Effect] = []
        self._block: ReadyBlock | None = None
        self._entries: list[bytes] = []
        self._free = size_max
        self._open = True
        self._lock = threading.Lock()
        self._prepared: Future[ReadyBlock] | None = None

    def add(self, encoded: bytes, effect: Effect) -> bool:
        """Add an entry; return False if the batch is closed or has no space for it."""
        with self._lock:
            if not self._open or (self._entries and len(encoded) > self._free):
                return False
            self._free -= len(encoded)
            self._entries.append(encoded)
            self.effects.append(effect)
            return True

    def start_preparing(self, workers: Executor, *, compress: bool) -> None:
        """Close the batch and have a worker prepare its block."""
        self._close()
        self._prepared = workers.submit(self._prepare, compress)

    def ready(self, *, compress: bool) -> ReadyBlock:
        """Close the batch; return its block, prepared by a worker or now."""
        if self._block is None:
            self._close()
            prepared = self._prepared
            self._block = self._prepare(compress) if prepared is None else prepared.result()
        return self._block

    def _close(self) -> None:
        with self._lock:
            self._open = False

    def _prepare(self, compress: bool) -> ReadyBlock:
        return ReadyBlock.of(b"".join(self._entries), len(self._entries), compress=compress)


class BlockWriter(Uncopied):
    """Writes batches as blocks of a `FileSeries` and applies their effects to a `LogState`."""

    def __init__(self, settings: LogSettings, series: FileSeries, state: LogState) -> None:
        self.lock = OwnedLock(nested_call_error)
        """Guards ``state``."""
        self.state = state
        self.last: Ticket = DoneTicket()
        """Done once everything appended so far is durable."""
        self._settings = settings
        self._series = series
        self._batch: Batch | None = None
        self._unsynced: list[Batch] = []
        self._again: list[Effect] = []
        self._workers = ThreadPoolExecutor(settings.thread_count, "log preparation")
        self._writer: GroupWriter[Batch] = GroupWriter(
            self._write,
            self._sync,
            name=series.folder,
            group_bytes=1,  # a group is one batch: one block
            pending_bytes=DIRTY_BATCHES_MAX,
            delay=settings.write_delay_micros / 1_000_000,
            siblings=1,
        )

    def append(self, encoded: bytes, effect: Effect) -> Ticket:
        """Put an entry into the current batch, or into a new one; return the batch's ticket."""
        batch = self._batch
        if batch is None or not batch.add(encoded, effect):
            if batch is not None and self._settings.compress and self._settings.thread_count > 1:
                batch.start_preparing(self._workers, compress=True)
            batch = Batch(self._settings.entries_size_max)
            batch.add(encoded, effect)
            self.last = self._writer.submit(batch, 1, sync=False)
            self._batch = batch
        return self.last

    def take_refused(self) -> list[Effect]:
        """Return persisted entries that a full disk refused; the caller appends them again."""
        with uninterrupted, self.lock:
            effects, self._again = self._again, []
        return effects

    @property
    def has_refused(self) -> bool:
        """True while persisted entries wait for space on the disk."""
        return bool(self._again)

    def flush(self) -> None:
        """Wait until everything appended so far is durable."""
        self._writer.flush()

    @property
    def poisoned(self) -> bool:
        """True if a write or sync failed, and so did the attempt in another file."""
        return self._writer.poisoned

    def close(self) -> None:
        """Flush and end the file, unless a write failed before."""
        try:
            self._writer.close()
            if not self._writer.poisoned:
                self._series.close()
        finally:
            self._series.drop()
            self._workers.shutdown()

    # -- the one writer ----------------------------------------------------------------------

    def _write(self, batches: list[Batch]) -> Sequence[int]:
        (batch,) = batches
        block = batch.ready(compress=self._settings.compress)
        try:
            sequence = self._series.write(block)
        except LogWriteError:
            self._refuse(batch)
            raise
        self._unsynced.append(batch)
        with uninterrupted, self.lock:
            for effect in batch.effects:
                if effect.kind is EffectKind.PERSISTING:
                    self.state.set_file(effect.number, block.serial)
        return (sequence,)

    def _sync(self) -> None:
        self._series.sync()
        with uninterrupted, self.lock:
            for batch in self._unsynced:
                self._take_effect(batch)
        self._unsynced.clear()

    def _take_effect(self, batch: Batch) -> None:
        """Apply the effects of a durable batch; its file may differ from the one first written."""
        serial = batch.ready(compress=False).serial
        for effect in batch.effects:
            if effect.kind is EffectKind.PERSISTED:
                self.state.persisted(effect.number, effect.targets)
            else:
                self.state.set_file(effect.number, serial)

    def _refuse(self, batch: Batch) -> None:
        """Drop a batch that was refused, except for its persisted entries."""
        with uninterrupted, self.lock:
            for effect in batch.effects:
                if effect.kind is EffectKind.PERSISTING:
                    self.state.forget(effect.number)
                elif effect.kind is EffectKind.CARRIED_FORWARD:
                    self.state.cancel_carry(effect.number)
                else:
                    self._again.append(effect)
