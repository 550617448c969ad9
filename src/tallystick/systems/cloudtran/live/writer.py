"""Entries into durable blocks: batches, the one writer, and what entries do to the state.

In: encoded entries with their effects, in order. Out: tickets; and, once their block is durable,
the effects on the `LogState`. `append` is called under the log's order lock; `_write` and
`_sync` run in any thread, never two at once, and never need that lock.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tallystick.errors import LogFullError
from tallystick.roles import Ticket
from tallystick.storage.group.writer import GroupWriter
from tallystick.systems.cloudtran.live.batch import Batch, Effect, EffectKind
from tallystick.systems.cloudtran.live.files import Series
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.cloudtran.live.state import LogState

DIRTY_BATCHES_MAX = 8
"""Full batches that may wait to be written before a caller has to help."""


@dataclass(frozen=True, slots=True)
class DoneTicket:
    """A ticket for what nobody has to wait for."""

    sequence: int = 0

    def wait(self, timeout: float | None = None) -> int:  # noqa: ARG002 - there is no wait
        return self.sequence

    def done(self) -> bool:
        return True

    def start_flush(self) -> None:
        pass

    def __await__(self) -> Generator[object, None, int]:
        yield from ()
        return self.sequence


class BlockWriter:
    """Writes batches as blocks of a `Series` and keeps a `LogState` true."""

    def __init__(self, settings: LogSettings, series: Series, state: LogState) -> None:
        self.lock = threading.Lock()
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
        """Put an entry into the current batch, or into a new one."""
        batch = self._batch
        if batch is None or not batch.add(encoded, effect):
            if batch is not None and self._settings.compress and self._settings.thread_count > 1:
                batch.prepare_ahead(self._workers, compress=True)
            batch = Batch(self._settings.entries_size_max)
            batch.add(encoded, effect)
            self.last = self._writer.submit(batch, 1, sync=False)
            self._batch = batch
        return self.last

    def take_refused_marks(self) -> list[Effect]:
        """Marks for which there was no room; the caller appends them again."""
        with self.lock:
            effects, self._again = self._again, []
        return effects

    @property
    def has_refused_marks(self) -> bool:
        """True while marks wait for room."""
        return bool(self._again)

    def flush(self) -> None:
        """Return when everything appended so far is durable."""
        self._writer.flush()

    @property
    def poisoned(self) -> bool:
        """A write or sync failed, and so did the attempt in another file."""
        return self._writer.poisoned

    def close(self) -> None:
        """Flush and end the file, if nothing failed before."""
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
        except LogFullError:
            self._refuse(batch)
            raise
        self._unsynced.append(batch)
        with self.lock:
            for effect in batch.effects:
                if effect.kind is EffectKind.BEGINS:
                    self.state.settle_in(effect.number, block.serial)
        return (sequence,)

    def _sync(self) -> None:
        self._series.sync()
        with self.lock:
            for batch in self._unsynced:
                self._take_effect(batch)
        self._unsynced.clear()

    def _take_effect(self, batch: Batch) -> None:
        """The batch is durable; where it stands may have changed since it was written."""
        serial = batch.ready(compress=False).serial
        for effect in batch.effects:
            if effect.kind is EffectKind.MARKS:
                self.state.persisted(effect.number, effect.targets)
            else:
                self.state.settle_in(effect.number, serial)

    def _refuse(self, batch: Batch) -> None:
        """There was no room: transactions never were, marks wait for room."""
        with self.lock:
            for effect in batch.effects:
                if effect.kind is EffectKind.BEGINS:
                    self.state.forget(effect.number)
                elif effect.kind is EffectKind.MOVES:
                    self.state.stay(effect.number)
                else:
                    self._again.append(effect)
