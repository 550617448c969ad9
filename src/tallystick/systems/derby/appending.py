"""A log folder that is appended to: records, group commit, file switch, failure.

In: record bodies of any number of threads. Out: instants, durable when `AppendingLog.flush`
returns. A thread whose record another's flush has covered returns with it: that is the group
commit, without timer. A failed write or sync poisons the log; nothing is retried.
Source: docs/formats/derby.md, docs/systems/derby.md.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NoReturn, Self

from tallystick.errors import (
    LogClosedError,
    LogPoisonedError,
    LogWriteError,
    RecordTooLargeError,
)
from tallystick.storage.files import Bytes, File, FileSystem
from tallystick.storage.local import LOCAL
from tallystick.storage.source import unreadable
from tallystick.systems.derby.access_file import BUFFER_SIZE, LogAccessFile
from tallystick.systems.derby.body import Body
from tallystick.systems.derby.crypto import LogCipher
from tallystick.systems.derby.layout import (
    HEADER_SIZE,
    LENGTH,
    OVERHEAD,
    POSITION_MAX,
    make_instant,
    split_instant,
)
from tallystick.systems.derby.log_folder import LogFolder
from tallystick.systems.derby.opening import Opened, open_log
from tallystick.systems.derby.scan import ForwardScan

SWITCH_INTERVAL = 1 << 20


class _WriteSynced:
    """A file whose every write is durable when it returns, as the engine's default mode has it."""

    def __init__(self, file: File) -> None:
        self._file = file

    def pwrite(self, data: Bytes, offset: int) -> None:
        self._file.pwrite(data, offset)
        self._file.datasync()

    def datasync(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        self._file.close()


class AppendingLog:
    """A log folder open for writing; a context manager.

    ``write_sync`` is the engine's default: preallocated files, every write durable at once.
    Without it files grow as they are written and a flush ends with a sync
    (``fileSyncTransactionLog``). ``archive`` keeps all log files. Raises `LogLockedError`,
    `CorruptLogError`.
    """

    def __init__(
        self,
        folder: str,
        *,
        fs: FileSystem = LOCAL,
        buffer_size: int = BUFFER_SIZE,
        switch_interval: int = SWITCH_INTERVAL,
        write_sync: bool = True,
        archive: bool = False,
        cipher: LogCipher | None = None,
    ) -> None:
        self._buffer_size = buffer_size
        self._interval = switch_interval
        self._write_sync = write_sync
        self._archive = archive
        self._cipher = cipher
        self._state = threading.Condition(threading.RLock())
        self._stop: BaseException | None = None
        self._being_flushed = False
        self._folder = LogFolder(folder, fs)
        try:
            opened = open_log(self._folder, cipher, ordered=write_sync)
            self._start(opened)
        except OSError as error:
            self._folder.close()
            raise unreadable(folder, error) from error
        except BaseException:
            self._folder.close()
            raise

    def _start(self, opened: Opened) -> None:
        self._control = opened.control
        self._table = opened.table
        self._next = opened.next_transaction
        self._end = opened.end or make_instant(1, HEADER_SIZE)
        if opened.end:
            file = self._folder.open(self._end >> 32)
        else:
            file = self._folder.create(1, 0, self._preallocated)
            self._folder.write_control(self._control)
        self._access = self._access_file(file)
        self._flushed = self._end

    @property
    def _preallocated(self) -> int:
        return self._interval if self._write_sync else HEADER_SIZE

    def _access_file(self, file: File) -> LogAccessFile:
        return LogAccessFile(
            _WriteSynced(file) if self._write_sync else file,
            split_instant(self._end)[1],
            buffer_size=self._buffer_size,
            cipher=self._cipher,
            write_attempts=1,  # after a failed sync nothing is known; see docs/systems/derby.md
            sync_attempts=1,
        )

    # -- what is there ----------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The instant behind the last record appended."""
        return self._end

    def replay(self) -> Iterator[tuple[int, Body]]:
        """Instant and content of every durable record, from the first file on."""
        log = self._folder.read(self._cipher)
        for scanned in ForwardScan(log, make_instant(log.first, HEADER_SIZE)):
            yield scanned.place, scanned.body()

    # -- appending --------------------------------------------------------------------------

    def append(self, body: bytes) -> int:
        """Append a record body; returns its instant. Not durable before `flush`."""
        if not body:
            raise LogWriteError("XSLB6: a record of length 0 is refused")
        if self._cipher is not None:
            body = self._cipher.encrypt(body + bytes(-len(body) % self._cipher.block_size))
        with self._state:
            self._check()
            try:
                self._make_room(len(body))
                number, position = split_instant(self._end)
                access = self._access
                reserved = access.reserve_space_for_checksum(len(body), number, position)
                instant = self._end + reserved
                access.write_log_record(instant, body)
            except OSError as error:
                self._poison(error)
            self._end = instant + len(body) + OVERHEAD
            return instant

    def _make_room(self, length: int) -> None:
        needed = OVERHEAD + length + LENGTH.size + self._access.checksum_size
        if HEADER_SIZE + needed >= POSITION_MAX:
            raise RecordTooLargeError(
                "XSLAL: the record fits no log file",
                file=self._folder.path,
                expected=f"less than {POSITION_MAX - HEADER_SIZE} bytes with what surrounds it",
                found=str(needed),
            )
        if split_instant(self._end)[1] + needed >= POSITION_MAX:
            self.switch_log_file()

    def flush(self, instant: int) -> None:
        """Return when the record at ``instant``, and all before it, are durable."""
        with self._state:
            while True:
                if instant < self._flushed:
                    return
                self._check()
                if not self._being_flushed:
                    break
                self._state.wait()
            self._being_flushed = True
            access, target = self._access, self._end
        try:
            self._write_out(access)
        except (OSError, LogWriteError) as error:
            self._poison(error)
        except BaseException as interruption:
            self._mark(interruption)  # what was written is not known
            raise
        with self._state:
            self._flushed = max(self._flushed, target)
            self._being_flushed = False
            self._state.notify_all()
            if split_instant(self._end)[1] > self._interval:
                self.switch_log_file()

    def _write_out(self, access: LogAccessFile) -> None:
        with self._state:
            access.switch_log_buffer()
        access.flush_dirty_buffers()
        if not self._write_sync:
            access.sync_log_access_file()

    # -- switch and checkpoint ----------------------------------------------------------------

    def switch_log_file(self) -> None:
        """Go on in a new file; nothing if this one holds no record."""
        with self._state:
            while self._being_flushed:
                self._state.wait()
            self._check()
            number, position = split_instant(self._end)
            if position == HEADER_SIZE:
                return
            try:
                self._switch(number + 1)
            except (OSError, LogWriteError) as error:
                self._poison(error)
            self._state.notify_all()

    def _switch(self, number: int) -> None:
        """The old file is whole on the disk before the new one has a name."""
        self._access.flush_log_access_file()
        self._access.write_end_marker()
        self._access.sync_log_access_file()
        file = self._folder.create(number, self._end, self._preallocated)
        self._access.close()
        self._end = make_instant(number, HEADER_SIZE)
        self._flushed = self._end
        self._access = self._access_file(file)

    # -- the end ----------------------------------------------------------------------------

    def _check(self) -> None:
        if isinstance(self._stop, LogClosedError):
            raise LogClosedError("the log is closed", file=self._folder.path)
        if self._stop is not None:
            self._refuse(self._stop)

    def _poison(self, error: BaseException) -> NoReturn:
        """Nothing is written any more; every caller, now and later, gets an error."""
        self._mark(error)
        self._refuse(error)

    def _mark(self, error: BaseException) -> None:
        with self._state:
            if self._stop is None:
                self._stop = error
                self._access.corrupt()
            self._being_flushed = False
            self._state.notify_all()

    def _refuse(self, cause: BaseException) -> NoReturn:
        raise LogPoisonedError(
            "XSLAA: a write failed, the log is marked corrupt",
            file=self._folder.path,
            found=str(cause),
            advice="Open it anew: recovery tells what was written",
        ) from cause

    def close(self) -> None:
        """Flush and close; a poisoned log is only closed. A second call does nothing."""
        with self._state:
            if self._stop is None:
                self.flush(self._end - 1)
                self._access.close()
            if not isinstance(self._stop, LogClosedError):
                self._stop = LogClosedError("the log is closed")
                self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
