"""Derby's live log: records, group commit, transactions, checkpoints, file switch, failure.

In: record bodies and operations of any number of threads. Out: instants, durable when a
transaction's end or `LogToFile.flush` returns. The group writer runs one flush at a time, which
covers every record that was appended when it began. A failed write or sync poisons the log.

Pages are not here: their owner redoes with `LogToFile.replay` and undoes with compensation records.
Source: docs/formats/derby.md, docs/systems/derby.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from tallystick.arguments import bytes_of, integer
from tallystick.errors import (
    LogClosedError,
    LogFormatError,
    LogFullError,
    LogPoisonedError,
    LogWriteError,
    RecordTooLargeError,
    TransactionUsageError,
)
from tallystick.records import Kind, Xid
from tallystick.roles import Ticket
from tallystick.storage.files import File, FileSystem
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import Closing, closes, opens_log
from tallystick.storage.scheduling import threading
from tallystick.systems.derby.engine.forward_scan import ForwardScan
from tallystick.systems.derby.engine.result import OpenTransaction
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.field_types import Fields
from tallystick.systems.derby.format.layout import (
    END_MARKER,
    HEADER_SIZE,
    INSTANT_MAX,
    LENGTH,
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    POSITION_MASK,
    POSITION_MAX,
    TRANSACTION_MAX,
    Group,
    make_instant,
    split_instant,
)
from tallystick.systems.derby.format.operations import encode_begin, encode_end, encode_operation
from tallystick.systems.derby.format.record_body import Body, decode_alone, encode_body
from tallystick.systems.derby.live.access_file import BUFFER_SIZE, LogAccessFile, WriteSynced
from tallystick.systems.derby.live.files import LogFolder
from tallystick.systems.derby.live.opening import Opened, failures_as_corrupt, open_log

SWITCH_INTERVAL = 1 << 20
"""Bytes after which a log file is full enough for the next one."""
HEAD_MAX = 256
"""Largest size of what surrounds an operation, and of a begin or end with its global id."""
_RESERVE = 1 << 20
"""Bytes kept free for what other threads append between the check and the record."""
_PADDING_MAX = 16
_AMPLE = POSITION_MAX - 2 * _RESERVE
"""A record that ends below this position fits, with everything around it."""
_BEGIN = int(Group.RAWSTORE | Group.FIRST)
_PAGE = int(Group.RAWSTORE | Group.XA_NEEDLOCK)
_COMPENSATION = _PAGE | int(Group.COMPENSATION)
_OWN = (operations.BEGIN, operations.END, operations.CHECKPOINT)
# Group and status of the records that end a transaction.
_PREPARE = (int(Group.RAWSTORE | Group.PREPARE), operations.STATUS_PREPARED)
_COMMIT = (int(Group.RAWSTORE | Group.COMMIT | Group.LAST), operations.STATUS_COMMITTED)
_ABORT = (int(Group.RAWSTORE | Group.ABORT | Group.LAST), operations.STATUS_ABORTED)


class LogToFile(Closing):
    """A log folder open for writing; a context manager. Threads may share it.

    Args:
        folder: path of the ``log`` folder; it is created if it does not exist.
        fs: the file system.
        buffer_size: bytes of each of the three buffers.
        switch_interval: position in a file after which a new file is begun, in bytes.
        write_sync: the engine's default: preallocated files, and every write is durable at once.
            Without it files grow as they are written, and a flush ends with a sync (the engine's
            ``fileSyncTransactionLog``).
        archive: keep all log files; otherwise a checkpoint removes those before the oldest open
            transaction.
        cipher: encrypts record bodies.

    Raises:
        LogLockedError: another process has the log open.
        CorruptLogError: acknowledged records are damaged or cannot be reached.
        UnsupportedFormatError: a newer Derby, or a beta version, has written the log, or the folder
            holds the log of another system.
    """

    @opens_log
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
        self._checkpointing = threading.Lock()
        self._stop: BaseException | None = None
        self._folder = LogFolder(folder, fs)
        try:
            self._start(
                open_log(self._folder, cipher, interval=switch_interval, ordered=write_sync)
            )
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
            final=True,
        )

    # -- content ----------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The instant after the last record appended."""
        return self._end

    @property
    def counters(self) -> GroupCounters:
        """Number of flushes and of the callers that shared them."""
        return self._writer.counters

    @property
    def open_transactions(self) -> dict[int, OpenTransaction]:
        """Transactions without an end record by number, prepared ones among them."""
        with self._state:
            return {number: replace(one) for number, one in self._table.items()}

    def replay(self) -> Iterator[tuple[int, Body]]:
        """Yield instant and content of every durable record, from the first file on.

        Raises:
            CorruptLogError: a record cannot be decoded.
        """
        log = self._folder.read(self._cipher)
        with failures_as_corrupt(self._folder.path):
            for scanned in ForwardScan(log, make_instant(log.first, HEADER_SIZE)):
                yield scanned.place, scanned.body()

    # -- transactions -----------------------------------------------------------------------

    def begin(self, xid: Xid | None = None, *, internal: bool = False) -> int:
        """Begin a transaction.

        A new log file is begun before if the current one is larger than the switch interval.

        Args:
            xid: the global id of a branch.
            internal: mark it as the engine's own; a restart undoes internal ones first.

        Returns:
            Its number.
        """
        if self._end & POSITION_MASK > self._interval:
            self.switch_log_file(self._interval)
        self._ensure_space(HEAD_MAX)
        return self._begin(operations.STATUS_INTERNAL if internal else operations.STATUS_USER, xid)

    def _begin(self, status: int, xid: Xid | None = None) -> int:
        """Begin a transaction after space was ensured."""
        operation = encode_begin(status, xid)
        with self._state:
            number, self._next = self._next, self._next + 1
            first = self._append(encode_body(_BEGIN, number, operation))
            internal = status == operations.STATUS_INTERNAL
            self._table[number] = OpenTransaction(number, first, first, internal, xid, records=1)
        return number

    def log(self, number: int, operation: bytes, optional: bytes = b"") -> int:
        """Log a page operation of an open transaction; not durable before its end is.

        Args:
            number: the transaction.
            operation: format id and fields, as `operations.encode_operation` returns them.
            optional: row and field images.

        Returns:
            The instant of the record.

        Raises:
            TransactionUsageError: the transaction is not open.
            ValueError: no record of a page has this operation; the log would not open with it.
        """
        return self._log(number, _PAGE, operation, optional)

    def compensate(self, number: int, operation: bytes, undone: int) -> int:
        """Log the compensation record for the operation logged at instant ``undone``.

        Args:
            number: the transaction.
            operation: format id and fields of the undo operation.
            undone: the instant that `log` returned.

        Returns:
            The instant of the record.

        Raises:
            TransactionUsageError: the transaction is not open.
            ValueError: it undoes nothing; the log would not open with it.
        """
        return self._log(number, _COMPENSATION, operation, b"", undone)

    def _log(
        self, number: int, group: int, operation: bytes, optional: bytes, undo: int | None = None
    ) -> int:
        number = _transaction_number(number)
        operation, optional = _operation(operation, group), bytes_of(optional, "optional")
        if undo is not None:
            undo = integer(undo, "undone", 0, INSTANT_MAX)
        body = encode_body(group, number, operation, optional, undo)
        self._ensure_space(len(body))
        with self._state:
            one = self._transaction(number)
            one.last = self._append(body)
            one.records += 1
            return one.last

    def prepare(self, number: int) -> None:
        """Prepare the transaction durably: it is in doubt until it is committed or aborted."""
        self.flush(self._end_transaction(number, *_PREPARE))

    def commit(self, number: int, *, sync: bool = True) -> None:
        """Commit the transaction, durably unless ``sync`` is false."""
        end = self._end_transaction(number, *_COMMIT)
        if sync:
            self.flush(end)

    def submit_commit(self, number: int) -> Ticket:
        """Commit the transaction; it is durable once the ticket is done."""
        return self.submit(self._end_transaction(number, *_COMMIT))

    def abort(self, number: int, *, sync: bool = True) -> None:
        """Abort the transaction; its compensation records must have been logged before."""
        end = self._end_transaction(number, *_ABORT)
        if sync:
            self.flush(end)

    def _end_transaction(self, number: int, group: int, status: int) -> int:
        number = _transaction_number(number)
        self._ensure_space(HEAD_MAX)
        with self._state:
            one = self._transaction(number)
            operation = encode_end(status, one.xid)
            one.last = self._append(encode_body(group, number, operation))
            one.records += 1
            if status == operations.STATUS_PREPARED:
                one.prepared = True
            else:
                del self._table[number]
            return one.last

    def _transaction(self, number: int) -> OpenTransaction:
        one = self._table.get(number)
        if one is None:
            raise TransactionUsageError(f"transaction {number} is not open")
        return one

    # -- checkpoint -------------------------------------------------------------------------

    def checkpoint(self, clean: Callable[[], None] | None = None) -> int:
        """Write a checkpoint record and both control files.

        Log files before the oldest open transaction are removed unless the log is an archive. One
        checkpoint is made at a time.

        Args:
            clean: writes every changed page and makes it durable; it makes no checkpoint itself.

        Returns:
            The instant of the checkpoint record.
        """
        # The control file names the newest one: what an older one needs may be removed by then.
        with self._checkpointing:
            return self._checkpoint(clean)

    def _checkpoint(self, clean: Callable[[], None] | None) -> int:
        if split_instant(self._end)[1] > self._interval:
            self.switch_log_file(self._interval)
        self._ensure_space(HEAD_MAX)
        with self._state:
            redo = self._end
            undo = min((one.first for one in self._table.values()), default=redo)
            undo = min(undo, redo)
            number = self._begin(operations.STATUS_INTERNAL)
        try:
            self.flush(redo)
            if clean is not None:
                clean()
            with self._state:
                table = [_entry(one, number) for one in self._table.values()]
                marks = {"redoLWM": redo, "undoLWM": undo, "transactionTable": table}
                operation = encode_operation(operations.CHECKPOINT, marks)
                instant = self._append(encode_body(int(Group.RAWSTORE), number, operation))
            self.flush(instant)
        except BaseException:
            if self._stop is None:  # left open, it would keep every log file from now on
                self.abort(number, sync=False)
            raise
        self.commit(number, sync=False)
        self._write_control(instant, undo)
        return instant

    def _write_control(self, checkpoint: int, undo: int) -> None:
        self._control = replace(self._control, checkpoint=checkpoint)
        try:
            self._folder.write_control(self._control)
            if not self._archive:
                over = [number for number in self._folder.names() if number < undo >> 32]
                self._folder.remove(over)
        except OSError as error:
            self._poison(error)

    # -- appending --------------------------------------------------------------------------

    def append(self, body: bytes) -> int:
        """Append a record body, in clear; not durable before `flush`.

        Returns:
            The instant of the record.

        Raises:
            LogWriteError: the body is empty.
            RecordTooLargeError: it fits no log file.
        """
        body = bytes_of(body)
        if not body:
            raise LogWriteError("XSLB6: a record of length 0 is refused")
        self._ensure_space(len(body))
        with self._state:
            return self._append(body)

    def _append(self, body: bytes) -> int:
        """Append a body after space was ensured, under the lock."""
        if self._stop is not None:
            self._check()
        if self._cipher is not None:
            body = self._cipher.encrypt(body + bytes(-len(body) % self._cipher.block_size))
        length, access, position = len(body), self._access, self._end & POSITION_MASK
        if position + length > _AMPLE and position + self._needed(length) >= POSITION_MAX:
            raise LogFullError("other threads have filled the log file", file=self._folder.path)
        try:
            reserved = access.reserve_space_for_checksum(length, self._end >> 32, position)
            instant = self._end + reserved
            access.write_log_record(length, instant, body)
        except OSError as error:
            self._poison(error)
        self._end = instant + length + LOG_RECORD_FIXED_OVERHEAD_SIZE
        return instant

    def _needed(self, length: int) -> int:
        return LOG_RECORD_FIXED_OVERHEAD_SIZE + length + LENGTH.size + self._access.checksum_size

    def _ensure_space(self, length: int) -> None:
        """Begin a new file if this one may not hold the record; requires the lock to be free."""
        if (self._end & POSITION_MASK) + length < _AMPLE:
            return
        needed = self._needed(length + _PADDING_MAX)
        if HEADER_SIZE + needed >= POSITION_MAX:
            raise RecordTooLargeError(
                "XSLAL: the record fits no log file",
                file=self._folder.path,
                expected=f"less than {POSITION_MAX - HEADER_SIZE} bytes with what surrounds it",
                found=str(needed),
            )
        if (limit := POSITION_MAX - needed - _RESERVE) <= self._end & POSITION_MASK:
            self.switch_log_file(max(limit - 1, HEADER_SIZE))

    def flush(self, instant: int) -> None:
        """Return when the record at ``instant``, and all before it, are durable."""
        instant = integer(instant, "instant", 0, INSTANT_MAX)
        if instant < self._flushed:
            return
        self._check()
        try:
            self._writer.submit(instant).wait()
        except LogPoisonedError:
            self._check()
            raise
        if self._end & POSITION_MASK > self._interval:
            # Where the folder was moved, `begin` refuses: this record is durable.
            with suppress(LogWriteError):
                self.switch_log_file(self._interval)

    def submit(self, instant: int) -> Ticket:
        """Return a ticket that is done when the record at ``instant`` is durable."""
        return self._writer.submit(integer(instant, "instant", 0, INSTANT_MAX))

    def _write_out(self, instants: list[int]) -> list[int]:
        """Write whatever was appended, for one group of callers."""
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

    # -- file switch ------------------------------------------------------------------------

    def switch_log_file(self, beyond: int = HEADER_SIZE) -> None:
        """Begin a new log file, unless the log ends at position ``beyond`` or before.

        Raises:
            LogWriteError: The folder was moved; nothing has changed.
        """
        with self._writer.exclusive(), self._state:
            self._check()
            number, position = split_instant(self._end)
            if position <= beyond:
                return
            self._folder.fs.require_in_place()
            try:
                self._switch(number + 1)
            except (OSError, LogWriteError) as error:
                self._poison(error)

    def _switch(self, number: int) -> None:
        """Begin file ``number``.

        The old file is durable before the new one has a name, and the new one before the end marker
        of the old one: the marker proves that a next file existed.
        """
        self._access.flush_log_access_file()
        self._access.sync_log_access_file()
        file = self._folder.create(number, self._end, self._preallocated)
        self._access.write_end_marker(END_MARKER)
        self._access.sync_log_access_file()
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
        """Stop writing: every caller, now and later, gets an error."""
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

    @closes
    def close(self) -> None:
        """Flush and close; a poisoned log is only closed. A second call does nothing.

        Raises:
            LogPoisonedError: the rest could not be written; the log is closed all the same.
        """
        try:
            if self._stop is None:
                self.flush(self._end - 1)
                self._writer.close()
            with self._state:
                if self._stop is None:
                    self._access.close()
        finally:
            with self._state:
                if not isinstance(self._stop, LogClosedError):
                    self._stop = LogClosedError("the log is closed")
                    self._folder.close()


def _operation(value: object, group: int) -> bytes:
    """Return an operation that is whole, and that records of this group have.

    Raises:
        ValueError: another one.
    """
    operation = bytes_of(value, "operation")
    try:
        number = decode_alone(operation)
    except LogFormatError as error:
        raise ValueError(f"operation is none that a log can have: {error}") from error
    undoes = operations.OPERATIONS[number].kind is Kind.UNDO
    if number in _OWN or undoes != bool(group & Group.COMPENSATION):
        raise ValueError(
            "operation is of another kind: `log` takes changes of pages and containers, "
            "`compensate` what undoes them; the log writes its own of transactions and checkpoints"
        )
    return operation


def _transaction_number(value: object) -> int:
    """Return the number of a transaction. Raises `TypeError` or `ValueError`."""
    return integer(value, "transaction", 0, TRANSACTION_MAX)


def _entry(one: OpenTransaction, checkpoint: int) -> Fields:
    return {
        "xid": one.number,
        "gid": one.xid,
        "first": one.first,
        "last": None if one.number == checkpoint else one.last,
        "status": operations.STATUS_PREPARED if one.prepared else operations.STATUS_USER,
    }
