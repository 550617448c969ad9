"""A log folder that is appended to: records, group commit, file switch, failure.

In: record bodies of any number of threads. Out: instants, durable when `AppendingLog.flush`
returns. Waiting is the house's `GroupWriter`: one flush at a time, whose waiters are covered by
whatever was appended when it began. A failed write or sync poisons the log.
Source: docs/formats/derby.md, docs/systems/derby.md.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NoReturn, Self

from tallystick.errors import (
    LogClosedError,
    LogFullError,
    LogPoisonedError,
    LogWriteError,
    RecordTooLargeError,
)
from tallystick.roles import Ticket
from tallystick.storage.files import File, FileSystem
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.local import LOCAL
from tallystick.storage.source import unreadable
from tallystick.systems.derby.engine.forward_scan import ForwardScan
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import (
    HEADER_SIZE,
    LENGTH,
    OVERHEAD,
    POSITION_MAX,
    make_instant,
    split_instant,
)
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.live.access_file import BUFFER_SIZE, LogAccessFile, WriteSynced
from tallystick.systems.derby.live.files import LogFolder
from tallystick.systems.derby.live.opening import Opened, open_log

SWITCH_INTERVAL = 1 << 20
POSITION_MASK = 0x7FFFFFFF
_SLACK = 1 << 20
"""Room that is kept for what other threads append between the check and the record."""
_PADDING_MAX = 16
_ROOMY = POSITION_MAX - 2 * _SLACK
"""A record that ends below fits, with all that surrounds it."""


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
        self._state = threading.RLock()
        self._stop: BaseException | None = None
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
        self._flushed = self._target = self._end
        self._writer: GroupWriter[int] = GroupWriter(
            self._write_out, self._sync, name=self._folder.path
        )

    @property
    def _preallocated(self) -> int:
        return self._interval if self._write_sync else HEADER_SIZE

    def _access_file(self, file: File) -> LogAccessFile:
        return LogAccessFile(
            WriteSynced(file) if self._write_sync else file,
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

    @property
    def counters(self) -> GroupCounters:
        """Flushes and how many waiters shared them."""
        return self._writer.counters

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
        self._make_room(len(body))
        with self._state:
            return self._append(body)

    def _append(self, body: bytes) -> int:
        """The caller has made room and holds the lock."""
        if self._stop is not None:
            self._check()
        if self._cipher is not None:
            body = self._cipher.encrypt(body + bytes(-len(body) % self._cipher.block_size))
        length, access, position = len(body), self._access, self._end & POSITION_MASK
        if position + length > _ROOMY and position + self._needed(length) >= POSITION_MAX:
            raise LogFullError("other threads have filled the log file", file=self._folder.path)
        try:
            reserved = access.reserve_space_for_checksum(length, self._end >> 32, position)
            instant = self._end + reserved
            access.write_log_record(instant, body)
        except OSError as error:
            self._poison(error)
        self._end = instant + length + OVERHEAD
        return instant

    def _needed(self, length: int) -> int:
        return OVERHEAD + length + LENGTH.size + self._access.checksum_size

    def _make_room(self, length: int) -> None:
        """Go on in a new file where this one may not hold the record. Not under the lock."""
        if (self._end & POSITION_MASK) + length < _ROOMY:
            return
        needed = self._needed(length + _PADDING_MAX)
        if HEADER_SIZE + needed >= POSITION_MAX:
            raise RecordTooLargeError(
                "XSLAL: the record fits no log file",
                file=self._folder.path,
                expected=f"less than {POSITION_MAX - HEADER_SIZE} bytes with what surrounds it",
                found=str(needed),
            )
        if (limit := POSITION_MAX - needed - _SLACK) <= self._end & POSITION_MASK:
            self.switch_log_file(max(limit - 1, HEADER_SIZE))

    def flush(self, instant: int) -> None:
        """Return when the record at ``instant``, and all before it, are durable."""
        if instant < self._flushed:
            return
        self._check()
        try:
            self._writer.submit(instant).wait()
        except LogPoisonedError:
            self._check()
            raise
        if self._end & POSITION_MASK > self._interval:
            self.switch_log_file(self._interval)

    def submit(self, instant: int) -> Ticket:
        """A promise of what `flush` waits for, to be waited for or awaited."""
        return self._writer.submit(instant)

    def _write_out(self, instants: list[int]) -> list[int]:
        """One group of waiters: whatever was appended is written for them."""
        with self._state:
            self._check()
            access, self._target = self._access, self._end
            try:
                access.switch_log_buffer()
            except OSError as error:
                self._poison(error)
        try:
            access.flush_dirty_buffers()
        except OSError as error:
            self._poison(error)
        return instants

    def _sync(self) -> None:
        try:
            self._access.sync_log_access_file()
        except LogWriteError as error:
            self._poison(error)
        self._flushed = self._target

    # -- switch -----------------------------------------------------------------------------

    def switch_log_file(self, beyond: int = HEADER_SIZE) -> None:
        """Go on in a new file; nothing if the log ends at ``beyond`` or before in this one."""
        with self._writer.exclusive(), self._state:
            self._check()
            number, position = split_instant(self._end)
            if position <= beyond:
                return
            try:
                self._switch(number + 1)
            except (OSError, LogWriteError) as error:
                self._poison(error)

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
        with self._state:
            if self._stop is None:
                self._stop = error
                self._access.corrupt()
        self._refuse(error)

    def _refuse(self, cause: BaseException) -> NoReturn:
        raise LogPoisonedError(
            "XSLAA: a write failed, the log is marked corrupt",
            file=self._folder.path,
            found=str(cause),
            advice="Open it anew: recovery tells what was written",
        ) from cause

    def close(self) -> None:
        """Flush and close; a poisoned log is only closed. A second call does nothing."""
        if self._stop is None:
            self.flush(self._end - 1)
            self._writer.close()
        with self._state:
            if self._stop is None:
                self._access.close()
            if not isinstance(self._stop, LogClosedError):
                self._stop = LogClosedError("the log is closed")
                self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
