"""The live block log: persisting and persisted entries, group commit, roll-over, replay.

In: transactions with their targets and operations, and which targets hold them. Out: files
as `format.layout` describes them. A transaction is acknowledged once its block and all earlier ones
are durable; persisted entries are written with the next block. Entries queue up in batches, one
batch is one block; `thread_count` workers prepare full batches while one ordered writer writes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from struct import pack_into

from tallystick.arguments import integer, integers, text, texts
from tallystick.disposal.disposers import AnyDisposer, disposer_of
from tallystick.disposal.worker import Disposal, LogDisposer, require_elsewhere
from tallystick.errors import (
    LogClosedError,
    LogFormatError,
    LogWriteError,
    RecordTooLargeError,
    TallystickError,
)
from tallystick.printable import logger
from tallystick.roles import DoneTicket, Ticket
from tallystick.storage.files import FileSystem, absolute
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import Closing, closes, closing_log, lock_log, opens_log
from tallystick.storage.scheduling import time
from tallystick.storage.signals import uninterrupted
from tallystick.systems.cloudtran.format.entries import (
    ALL_TARGETS,
    ENTRY_FLAGS_AT,
    ENTRY_NUMBER_AT,
    NUMBER_MAX,
    TARGETS_MAX,
    Entry,
    EntryKind,
    Operation,
    PersistedFlag,
    PersistingFlag,
    encode_all_persisted,
    encode_entry,
    parse_entry,
)
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.live.debounced_thread import DebouncedThread
from tallystick.systems.cloudtran.live.disk_space import DiskSpace, free_on_disk
from tallystick.systems.cloudtran.live.files import FileSeries
from tallystick.systems.cloudtran.live.high_water_mark import StoredMark
from tallystick.systems.cloudtran.live.opening import open_log
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.cloudtran.live.state import OpenEntry
from tallystick.systems.cloudtran.live.writer import BlockWriter, Effect, EffectKind
from tallystick.systems.folders import require_own

LOCK_SUFFIX = ".lock"

_log = logger(__name__)

_PERSISTED = EffectKind.PERSISTED


class BlockLog(Closing):
    """A block log in a folder of its own, open for writing; a context manager.

    Args:
        folder: the folder, made if it does not exist; None is the ``directory`` of the settings.
        settings: defaults where None.
        fs: the file system.
        disposer: gets redundant files (see `tallystick.disposal.disposers.disposer_of`); with
            ``settings`` the one that the settings name; with None they stay until the caller
            reports them as `disposed`.
        free_bytes: returns the free bytes of the disk; asks the operating system where None.
        clock: seconds since 1970.

    Raises:
        ValueError: there is no folder, or what is to be the disposer cannot be imported or cannot
            dispose of a file, or puts it into this folder. Nothing is opened or written.
        LogLockedError: another process has the log open.
        CorruptLogError: acknowledged blocks are lost and ``on_damage`` is ``stop``.
        IncompleteLogError: transactions are pending and ``on_incomplete`` is ``fail``.
        UnsupportedFormatError: the folder holds another log.
    """

    @opens_log
    def __init__(
        self,
        folder: str | None = None,
        settings: LogSettings | None = None,
        *,
        fs: FileSystem = LOCAL,
        disposer: AnyDisposer | None = "settings",
        free_bytes: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings or LogSettings()
        folder = folder or self.settings.directory
        if not folder:
            raise ValueError("no folder is given, and the settings have no directory")
        self.folder = folder = absolute(folder)
        chosen = None if disposer is None else self._disposer(disposer, fs)
        require_elsewhere(chosen, folder)
        self._clock = clock
        self._order = OwnedLock(partial(nested_call_error, folder))
        self._closed = False
        require_own(folder, fs, SYSTEM_NAME, self.settings.usual_names)
        fs.mkdir(folder)
        self._lock = lock_log(
            fs, posixpath.join(folder, self.settings.file_base_name + LOCK_SUFFIX)
        )
        self._fs = self._lock.fs
        self.disk_space = DiskSpace(
            folder, self.settings, free_bytes or free_on_disk(folder, self._fs)
        )
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            self._open()
            self._flusher = DebouncedThread(
                self._flush_unforced, self.settings.persisted_flush_millis / 1000
            )
            undo.callback(self._flusher.close)
            self._disposal = None if chosen is None else Disposal(self, chosen, fs=self._fs)
            undo.pop_all()

    def _disposer(self, disposer: AnyDisposer, fs: FileSystem) -> LogDisposer:
        if disposer != "settings":
            return disposer_of(disposer, fs)
        try:
            return disposer_of(self.settings.disposer, fs)
        except ValueError as error:
            raise ValueError(f"ct.logger.disposer: {error}") from error

    def _open(self) -> None:
        found = open_log(self._fs, self.folder, self.settings)
        self.losses = found.losses
        self.judgement = found.judgement
        self._next_number = found.mark.number + 1
        self._mark = StoredMark(
            self._fs,
            self.folder,
            self.settings.file_base_name,
            found.mark,
            lambda: self.last_number,
        )
        series = FileSeries(
            self._fs,
            self.folder,
            self.settings,
            found.mark.serial + 1,
            found.mark.sequence + 1,
            self._on_file,
            self._mark.durable,
            self._clock,
        )
        self._writer = BlockWriter(self.settings, series, found.state)

    @property
    def last_number(self) -> int:
        """The greatest number that any transaction ever got, or may have got; 0 if none did."""
        return self._next_number - 1

    # -- for callers -------------------------------------------------------------------------

    def persisting(
        self, targets: Sequence[str], operations: Sequence[Operation], reference: str = ""
    ) -> tuple[int, Ticket]:
        """Record a transaction; return its number and a ticket for its durability.

        The ticket is done at once with ``log_after_commit``.

        Args:
            targets: the data stores that shall hold the transaction.
            operations: their ``target`` is an index into ``targets``.
            reference: text of the application.

        Raises:
            BusyError: the disk is nearly full.
            RecordTooLargeError: the entry exceeds ``max_transaction_size``.
            LogWriteError: the format cannot represent the transaction.
        """
        self.disk_space.require()
        moment = int(self._clock() * 1_000_000)
        try:
            names, reference = texts(targets, "targets", TARGETS_MAX), text(reference, "reference")
        except ValueError as error:
            raise _unfit(error) from error
        entry = Entry(EntryKind.PERSISTING, 1, moment, names, tuple(operations), reference)
        # Encoded before the lock is taken, with a number that only holds the place: all that is
        # left to do under the lock is to put the right one in.
        encoded = bytearray(_encoded(entry, self.settings, self.folder))
        with uninterrupted, self._order:
            self._check_open()
            number = self._next_number
            pack_into("<Q", encoded, ENTRY_NUMBER_AT, number)
            one = OpenEntry.of(entry, bytes(encoded))
            with uninterrupted, self._writer.lock:
                # Before the entry is appended: the writer's thread may write its batch at once, and
                # then looks the transaction up.
                self._writer.state.entries[number] = one
            try:
                ticket = self._writer.append(one.encoded, Effect(EffectKind.PERSISTING, number))
            except TallystickError:
                with uninterrupted, self._writer.lock:
                    self._writer.state.forget(number)
                raise
            self._next_number += 1
        if self.settings.log_before_commit:
            return number, ticket
        self._flusher.prompt()
        return number, DoneTicket()

    def persisted(self, number: int, targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold the transaction.

        A transaction that is complete or unknown is ignored.
        """
        self.persisted_all((number,), targets)

    def persisted_all(self, numbers: Sequence[int], targets: Collection[str]) -> None:
        """Record what `persisted` does for each of these transactions."""
        names = frozenset(texts(targets, "targets", TARGETS_MAX))
        numbers = integers(numbers, "a number", 1, NUMBER_MAX)
        entries = self._writer.state.entries
        with uninterrupted, self._writer.lock:
            effects = [
                Effect(_PERSISTED, number, None if entries[number].pending <= names else names)
                for number in numbers
                if number in entries
            ]
        with uninterrupted, self._order:
            self._check_open()
            for effect in effects:
                self._append_persisted(effect)
        self._flusher.prompt()

    def lowest_pending(self) -> int | None:
        """Return the smallest number that is pending in what is durable; None if none is."""
        with uninterrupted, self._writer.lock:
            return min(self._writer.state.entries, default=None)

    def discard(self, number: int) -> Ticket:
        """Record durably that an operator gave the transaction up.

        Raises:
            KeyError: the transaction is not pending.
        """
        number = integer(number, "number", 0, NUMBER_MAX)
        with uninterrupted, self._writer.lock:
            if number not in self._writer.state.entries:
                raise KeyError(number)
        with uninterrupted, self._order:
            self._check_open()
            return self._append_persisted(
                Effect(EffectKind.PERSISTED, number, flags=PersistedFlag.DISCARDED)
            )

    def pending(self) -> list[tuple[Entry, frozenset[str]]]:
        """Return transactions by ascending number with the targets that do not hold them yet."""
        with uninterrupted, self._writer.lock:
            # Only copied under the lock, for which the writer waits; the entries are parsed after
            # it.
            found = [
                (one.encoded, frozenset(one.pending)) for one in self._writer.state.entries.values()
            ]
        return [(parse_entry(memoryview(data), 0).entry, targets) for data, targets in found]

    def sync(self) -> Ticket:
        """Return a ticket that is done once everything recorded so far is durable."""
        with uninterrupted, self._order:
            self._append_refused()
            return self._writer.last

    def disposable(self) -> Sequence[str]:
        """Return removable files, oldest first.

        Side effect: carries the last open entries of the oldest file forward, so that it becomes
        removable.
        """
        self._carry_forward()
        with uninterrupted, self._writer.lock:
            paths, kept = self._writer.state.disposable()
        if paths:
            try:
                # Durable before any file goes: else the next start would take the blocks that are
                # gone for lost ones.
                self._mark.kept_from(kept)
            except OSError as error:
                _log.warning("%s: no file may go: %s", self.folder, error)
                return []
        return paths

    def disposed(self, path: str) -> None:
        """Forget a file that was taken out of the folder, durably."""
        self._fs.sync_dir(self.folder)
        with uninterrupted, self._writer.lock:
            self._writer.state.disposed(path)

    @property
    def files(self) -> int:
        """The number of files of the log."""
        return len(self._writer.state.files)

    def require_in_place(self) -> None:
        """Check that the path still leads to the log; see `Placed.require_in_place`."""
        self._fs.require_in_place()

    @closes
    def close(self) -> None:
        """Flush, end the file with a closing block, release the lock.

        Removable files are offered to the disposer for at most ``dispose_on_close_seconds``.
        """
        if self._closed:
            return
        self._flusher.close()
        try:
            with closing_log(self.folder):
                self._finish()
        finally:
            self._closed = True
            self._lock.release()

    def _finish(self) -> None:
        try:
            if not self._writer.poisoned:
                self.sync().wait()
            if self._disposal is not None:
                self._disposal.close(self.settings.dispose_on_close_seconds)
        finally:
            self._writer.close()

    # -- entries into batches; the order lock is held ------------------------------------------

    def _append_persisted(self, effect: Effect) -> Ticket:
        moment = int(self._clock() * 1_000_000)
        if effect.targets is None and not effect.flags:
            return self._writer.append(encode_all_persisted(effect.number, moment), effect)
        flags = effect.flags | (ALL_TARGETS if effect.targets is None else 0)
        names = tuple(sorted(effect.targets or ()))
        entry = Entry(EntryKind.PERSISTED, effect.number, moment, names, flags=flags)
        return self._writer.append(encode_entry(entry), effect)

    def _append_refused(self) -> None:
        for effect in self._writer.take_refused():
            self._append_persisted(effect)

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError("the log is closed", file=self.folder)

    def _on_file(self, serial: int, path: str, first: int) -> None:
        with uninterrupted, self._writer.lock:
            self._writer.state.add_file(serial, path, first)
            self._writer.state.current = serial
        self.disk_space.check_again()

    # -- housekeeping ------------------------------------------------------------------------

    def _flush_unforced(self) -> None:
        """Write the entries that no caller waits for."""
        with uninterrupted, self._order:
            self._append_refused()
        with suppress(LogWriteError):  # refused, as on a full disk: it is tried again
            self._writer.flush()
        if self._writer.has_refused:
            self._flusher.prompt()
        if self._disposal is not None:
            self._disposal.prompt()

    def _carry_forward(self) -> None:
        settings = self.settings
        with uninterrupted, self._writer.lock:
            stuck = list(
                self._writer.state.stuck(settings.carry_forward_files, settings.carry_forward_max)
            )
            done = [frozenset(one.entry.targets).difference(one.pending) for one in stuck]
            for one in stuck:
                # Marked under the lock in which they were found, so that a second call carries none
                # of them again.
                one.being_carried = True
        with uninterrupted, self._order:
            for one, names in zip(stuck, done, strict=True):
                encoded = bytearray(one.encoded)
                encoded[ENTRY_FLAGS_AT] |= PersistingFlag.CARRIED_FORWARD
                number = one.entry.number
                self._writer.append(bytes(encoded), Effect(EffectKind.CARRIED_FORWARD, number))
                if names:  # what says so now goes with the files before
                    self._append_persisted(Effect(_PERSISTED, number, names))
        if stuck:
            self._flusher.prompt()


def _unfit(error: Exception) -> LogWriteError:
    return LogWriteError(f"not a transaction that this log can hold: {error}")


def _encoded(entry: Entry, settings: LogSettings, folder: str) -> bytes:
    """Return the bytes of an entry.

    Raises:
        LogWriteError: the format cannot represent the transaction.
        RecordTooLargeError: the entry exceeds ``max_transaction_size``.
    """
    try:
        encoded = encode_entry(entry)
    except (LogFormatError, ValueError) as error:
        raise _unfit(error) from error
    if len(encoded) > settings.entry_size_max:
        raise RecordTooLargeError(
            "the transaction is larger than max_transaction_size allows",
            file=folder,
            expected=f"at most {settings.entry_size_max} bytes",
            found=f"{len(encoded)} bytes",
        )
    return encoded
