"""The live block log: persisting and persisted entries, group commit, roll-over, replay.

In: transactions with their targets and operations, and marks that targets hold them. Out: files
as `layout.py` has them. A transaction is acknowledged once its block and all earlier ones are
durable; marks ride along. Entries queue up in batches, one batch is one block; `thread_count`
workers prepare full batches while one ordered writer writes another.
"""

from __future__ import annotations

import logging
import posixpath
import shutil
import threading
import time
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from struct import pack_into
from types import TracebackType
from typing import Self

from tallystick.errors import (
    BusyError,
    IncompleteLogError,
    LogClosedError,
    LogFormatError,
    LogFullError,
    LogWriteError,
    RecordTooLargeError,
    TallystickError,
)
from tallystick.services.disposal import Disposal
from tallystick.services.disposers import AnyDisposer, disposer_of
from tallystick.services.roles import Ticket
from tallystick.storage.files import FileSystem
from tallystick.storage.group import GroupWriter
from tallystick.storage.local import LOCAL
from tallystick.systems.cloudtran import mark
from tallystick.systems.cloudtran.batch import Batch, Effect, EffectKind
from tallystick.systems.cloudtran.config import LogSettings
from tallystick.systems.cloudtran.layout import (
    ENTRY_FLAGS_AT,
    ENTRY_NUMBER_AT,
    Entry,
    EntryKind,
    Operation,
    PersistedFlag,
    PersistingFlag,
    encode_entry,
    parse_entry,
)
from tallystick.systems.cloudtran.recovery import log_parts, recover
from tallystick.systems.cloudtran.series import Series
from tallystick.systems.cloudtran.state import OpenEntry
from tallystick.systems.cloudtran.tender import Tender

LOCK_SUFFIX = ".lock"
DIRTY_BATCHES_MAX = 8
"""Full batches that may wait to be written before a caller has to help."""
SPACE_CHECK_SECONDS = 1.0
NUMBERS_SHOWN_MAX = 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DoneTicket:
    """A ticket for what nobody has to wait for."""

    sequence: int = 0

    def wait(self, timeout: float | None = None) -> int:  # noqa: ARG002 - there is no wait
        return self.sequence

    def done(self) -> bool:
        return True

    def __await__(self) -> Generator[object, None, int]:
        yield from ()
        return self.sequence


class BlockLog:
    """A block log in a folder of its own, open for writing; a context manager.

    ``disposer`` gets redundant files: see `tallystick.services.disposers.disposer_of`; with None
    they stay until somebody calls `disposed`. ``free_bytes`` tells the room on the disk.

    Raises `LogLockedError`, `CorruptLogError` where acknowledged blocks are lost and
    ``on_damage`` is ``stop``, and `IncompleteLogError` where transactions are pending and
    ``on_incomplete`` is ``fail``.
    """

    def __init__(
        self,
        folder: str,
        settings: LogSettings | None = None,
        *,
        fs: FileSystem = LOCAL,
        disposer: AnyDisposer | None = "delete",
        free_bytes: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.settings = settings or LogSettings()
        self._fs = fs
        self._clock = clock
        self._free_bytes = free_bytes or _free_on_disk(folder, fs)
        self._order = threading.Lock()
        self._state_lock = threading.Lock()
        self._batch: Batch | None = None
        self._ticket: Ticket = DoneTicket()
        self._unsynced: list[Batch] = []
        self._again: list[Effect] = []
        self._closed = False
        self._busy = False
        self._space_checked = 0.0
        fs.mkdir(folder)
        self._lock = fs.lock(posixpath.join(folder, self.settings.file_base_name + LOCK_SUFFIX))
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise
        self._tender = Tender(self._tend, self.settings.persisted_flush_millis / 1000)
        self._disposal = (
            None if disposer is None else Disposal(self, disposer_of(disposer, fs), fs=fs)
        )

    def _open(self) -> None:
        settings = self.settings
        if settings.zap_log_files:
            self._zap()
        found = recover(self._fs, self.folder, settings)
        if found.state.entries and settings.on_incomplete == "fail":
            raise incomplete(self.folder, list(found.state.entries))
        for remark in found.remarks:
            _log.warning("%s at offset %d: %s", remark.name, remark.offset, remark.code)
        used = mark.Mark(found.serial - 1, found.sequence - 1, found.number - 1)
        mark.write(self._fs, self.folder, settings.file_base_name, used)
        self.losses = found.losses
        self._state = found.state
        self._next_number = found.number
        self._series = Series(
            self._fs,
            self.folder,
            settings,
            found.serial,
            found.sequence,
            self._on_file,
            self._clock,
        )
        self._workers = ThreadPoolExecutor(settings.thread_count, "log preparation")
        self._writer: GroupWriter[Batch] = GroupWriter(
            self._write,
            self._sync,
            name=self.folder,
            group_bytes=1,
            pending_bytes=DIRTY_BATCHES_MAX,
            delay=settings.write_delay_micros / 1_000_000,
            siblings=1,
        )

    def _zap(self) -> None:
        for part in log_parts(self._fs, self.folder, self.settings):
            self._fs.remove(part.path)
        self._fs.sync_dir(self.folder)

    # -- for callers -------------------------------------------------------------------------

    def persisting(
        self, targets: Sequence[str], operations: Sequence[Operation], reference: str = ""
    ) -> tuple[int, Ticket]:
        """Record a transaction. Returns its number and a ticket that is done once it is durable
        (at once with ``log_after_commit``). Raises `BusyError` where the disk is nearly full,
        `RecordTooLargeError`, and `LogWriteError` for what the form cannot hold."""
        self._check_room()
        moment = int(self._clock() * 1_000_000)
        entry = Entry(EntryKind.PERSISTING, 1, moment, tuple(targets), tuple(operations), reference)
        encoded = bytearray(self._encoded(entry))
        with self._order:
            self._check_open()
            number = self._next_number
            pack_into("<Q", encoded, ENTRY_NUMBER_AT, number)
            one = OpenEntry.of(entry, bytes(encoded))
            with self._state_lock:
                self._state.entries[number] = one
            try:
                ticket = self._append(one.encoded, Effect(EffectKind.BEGINS, number))
            except TallystickError:
                with self._state_lock:
                    self._state.forget(number)
                raise
            self._next_number += 1
        if self.settings.log_before_commit:
            return number, ticket
        self._tender.prompt()
        return number, DoneTicket()

    def persisted(self, number: int, targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold the transaction; a transaction that
        is complete or unknown is let be."""
        with self._state_lock:
            one = self._state.entries.get(number)
            if one is None:
                return
            held = None if one.pending <= set(targets) else frozenset(targets)
        with self._order:
            self._check_open()
            self._mark(Effect(EffectKind.MARKS, number, held))
        self._tender.prompt()

    def discard(self, number: int) -> Ticket:
        """Record durably that an operator gave the transaction up. Raises `KeyError`."""
        with self._state_lock:
            if number not in self._state.entries:
                raise KeyError(number)
        with self._order:
            self._check_open()
            return self._mark(Effect(EffectKind.MARKS, number, flags=PersistedFlag.DISCARDED))

    def pending(self) -> list[tuple[Entry, frozenset[str]]]:
        """Transactions by ascending number with the targets that do not hold them yet."""
        with self._state_lock:
            found = [(one.encoded, frozenset(one.pending)) for one in self._state.entries.values()]
        return [(parse_entry(memoryview(data), 0).entry, targets) for data, targets in found]

    def sync(self) -> Ticket:
        """Done once everything recorded so far is durable."""
        with self._order:
            self._mark_again()
            return self._ticket

    def disposable(self) -> Sequence[str]:
        """Files that may go, oldest first; moves on what alone holds the oldest back."""
        self._carry_forward()
        with self._state_lock:
            return self._state.disposable()

    def disposed(self, path: str) -> None:
        """The file was taken out of the folder: forget it, durably."""
        self._fs.sync_dir(self.folder)
        with self._state_lock:
            self._state.disposed(path)

    @property
    def files(self) -> int:
        """How many files the log consists of."""
        return len(self._state.files)

    def close(self) -> None:
        """Flush, end the file with a closing block, give the lock back. Files that may go are
        offered to the disposer for at most ``dispose_on_close_seconds``."""
        if self._closed:
            return
        self._tender.close()
        try:
            self._finish()
        finally:
            self._closed = True
            self._workers.shutdown()
            self._lock.release()

    def _finish(self) -> None:
        try:
            if not self._writer.poisoned:
                self.sync().wait()
            if self._disposal is not None:
                self._disposal.close(self.settings.dispose_on_close_seconds)
            self._writer.close()
            if not self._writer.poisoned:
                self._series.close()
        finally:
            self._series.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- entries into batches; the order lock is held ------------------------------------------

    def _append(self, encoded: bytes, effect: Effect) -> Ticket:
        batch = self._batch
        if batch is None or not batch.add(encoded, effect):
            if batch is not None and self.settings.compress and self.settings.thread_count > 1:
                batch.prepare_ahead(self._workers, compress=True)
            batch = Batch(self.settings.entries_size_max)
            batch.add(encoded, effect)
            self._ticket = self._writer.submit(batch, 1, sync=False)
            self._batch = batch
        return self._ticket

    def _mark(self, effect: Effect) -> Ticket:
        flags = effect.flags | (PersistedFlag.ALL_TARGETS if effect.targets is None else 0)
        moment = int(self._clock() * 1_000_000)
        names = tuple(sorted(effect.targets or ()))
        entry = Entry(EntryKind.PERSISTED, effect.number, moment, names, flags=flags)
        return self._append(encode_entry(entry), effect)

    def _mark_again(self) -> None:
        with self._state_lock:
            effects, self._again = self._again, []
        for effect in effects:
            self._mark(effect)

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError("the log is closed", file=self.folder)

    def _encoded(self, entry: Entry) -> bytes:
        try:
            encoded = encode_entry(entry)
        except (LogFormatError, UnicodeEncodeError) as error:
            raise LogWriteError(f"not a transaction that this log can hold: {error}") from error
        if len(encoded) > self.settings.entry_size_max:
            raise RecordTooLargeError(
                "the transaction is larger than max_transaction_size allows",
                file=self.folder,
                expected=f"at most {self.settings.entry_size_max} bytes",
                found=f"{len(encoded)} bytes",
            )
        return encoded

    # -- the one writer: never two at once, and never with the order lock ------------------------

    def _write(self, batches: list[Batch]) -> Sequence[int]:
        (batch,) = batches
        block = batch.ready(compress=self.settings.compress)
        try:
            sequence = self._series.write(block)
        except LogFullError:
            self._refuse(batch)
            raise
        self._unsynced.append(batch)
        with self._state_lock:
            for effect in batch.effects:
                if effect.kind is EffectKind.BEGINS:
                    self._state.settle_in(effect.number, block.serial)
        return (sequence,)

    def _sync(self) -> None:
        self._series.sync()
        with self._state_lock:
            for batch in self._unsynced:
                self._take_effect(batch)
        self._unsynced.clear()

    def _take_effect(self, batch: Batch) -> None:
        """The batch is durable; where it stands may have changed since it was written."""
        serial = batch.ready(compress=False).serial
        for effect in batch.effects:
            if effect.kind is EffectKind.MARKS:
                self._state.persisted(effect.number, effect.targets)
            else:
                self._state.settle_in(effect.number, serial)

    def _refuse(self, batch: Batch) -> None:
        """There was no room: transactions never were, marks wait for room."""
        self._busy = True
        with self._state_lock:
            for effect in batch.effects:
                if effect.kind is EffectKind.BEGINS:
                    self._state.forget(effect.number)
                elif effect.kind is EffectKind.MOVES:
                    self._state.stay(effect.number)
                else:
                    self._again.append(effect)

    def _on_file(self, serial: int, path: str) -> None:
        with self._state_lock:
            self._state.add_file(serial, path)
            self._state.current = serial
        self._space_checked = 0.0

    # -- housekeeping ------------------------------------------------------------------------

    def _tend(self) -> None:
        """Write what nobody waits for."""
        with self._order:
            self._mark_again()
        with suppress(LogFullError):
            self._writer.flush()
        if self._disposal is not None:
            self._disposal.prompt()

    def _carry_forward(self) -> None:
        settings = self.settings
        with self._state_lock:
            stuck = list(
                self._state.stuck(settings.carry_forward_files, settings.carry_forward_max)
            )
            for one in stuck:
                one.moving = True
        with self._order:
            for one in stuck:
                encoded = bytearray(one.encoded)
                encoded[ENTRY_FLAGS_AT] |= PersistingFlag.CARRIED_FORWARD
                self._append(bytes(encoded), Effect(EffectKind.MOVES, one.entry.number))
        if stuck:
            self._tender.prompt()

    def _check_room(self) -> None:
        """Look at the free space now and then. Raises `BusyError` below the limit."""
        now = time.monotonic()
        if now - self._space_checked > SPACE_CHECK_SECONDS:
            self._space_checked = now
            files = self._free_bytes() // self.settings.file_size
            self._busy = files < self.settings.disk_space_low_busy_count
            if files < self.settings.disk_space_low_warning_count:
                _log.warning("%s: room for %d more log files", self.folder, files)
        if self._busy:
            raise BusyError(
                "the disk of the log is nearly full",
                file=self.folder,
                expected=f"room for {self.settings.disk_space_low_busy_count} more files",
                advice="Retry in a second; persisted entries are still written and free files",
            )


def _free_on_disk(folder: str, fs: FileSystem) -> Callable[[], int]:
    """Free bytes where the log lies; file systems that only tests know have room for ever."""
    if fs is not LOCAL:
        return lambda: 1 << 62
    return lambda: shutil.disk_usage(folder).free


def incomplete(folder: str, numbers: Sequence[int]) -> IncompleteLogError:
    """The error that names pending transactions."""
    shown = ", ".join(map(str, numbers[:NUMBERS_SHOWN_MAX]))
    more = len(numbers) - NUMBERS_SHOWN_MAX
    return IncompleteLogError(
        f"{len(numbers)} transactions have not reached all of their targets: {shown}"
        + (f" and {more} more" if more > 0 else ""),
        file=folder,
        advice="Replay the log first: on_incomplete='replay', or the command tallystick replay",
    )
