"""Derby's live log: transactions, prepared branches and checkpoints over a log folder.

In: operations of any number of threads. Out: instants, durable when a transaction's end returns.
Not here: pages. Whoever owns them redoes with `replay`, and undoes with compensation records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tallystick.errors import (
    TransactionUsageError,
)
from tallystick.records import Xid
from tallystick.roles import Ticket
from tallystick.systems.derby.engine.recovery import OpenTransaction
from tallystick.systems.derby.format import operation_encoders as encoders
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import Group, split_instant
from tallystick.systems.derby.format.record_body import encode_body
from tallystick.systems.derby.live.appending import POSITION_MASK, AppendingLog

HEAD_MAX = 256
"""What surrounds an operation, and a begin or end operation with its global id."""
_BEGIN = int(Group.RAWSTORE | Group.FIRST)
_PAGE = int(Group.RAWSTORE | Group.XA_NEEDLOCK)
_CLR = _PAGE | int(Group.COMPENSATION)
# Group and status of the records that end a transaction.
_PREPARE = (int(Group.RAWSTORE | Group.PREPARE), operations.STATUS_PREPARED)
_COMMIT = (int(Group.RAWSTORE | Group.COMMIT | Group.LAST), operations.STATUS_COMMITTED)
_ABORT = (int(Group.RAWSTORE | Group.ABORT | Group.LAST), operations.STATUS_ABORTED)


class LogToFile(AppendingLog):
    """A log folder open for writing; a context manager. See `AppendingLog` for its options."""

    @property
    def open_transactions(self) -> dict[int, OpenTransaction]:
        """Transactions without an end record, prepared ones among them."""
        with self._state:
            return {number: replace(one) for number, one in self._table.items()}

    # -- transactions -----------------------------------------------------------------------

    def begin(self, xid: Xid | None = None, *, internal: bool = False) -> int:
        """Begin a transaction; returns its number. Goes on in a new log file where the current
        one is larger than the switch interval."""
        if self._end & POSITION_MASK > self._interval:
            self.switch_log_file(self._interval)
        self._make_room(HEAD_MAX)
        return self._begin(operations.STATUS_INTERNAL if internal else operations.STATUS_USER, xid)

    def _begin(self, status: int, xid: Xid | None = None) -> int:
        """The caller has made room."""
        operation = encoders.encode_begin(status, xid)
        with self._state:
            number, self._next = self._next, self._next + 1
            first = self._append(encode_body(_BEGIN, number, operation))
            internal = status == operations.STATUS_INTERNAL
            self._table[number] = OpenTransaction(number, first, first, internal, xid)
        return number

    def log(self, number: int, operation: bytes, optional: bytes = b"") -> int:
        """Log a page operation (format id and fields); returns its instant, not durable yet."""
        return self._log(number, _PAGE, operation, optional)

    def compensate(self, number: int, operation: bytes, undone: int) -> int:
        """Log the compensation record of an operation that was undone."""
        return self._log(number, _CLR, operation, b"", undone)

    def _log(
        self, number: int, group: int, operation: bytes, optional: bytes, undo: int | None = None
    ) -> int:
        body = encode_body(group, number, operation, optional, undo)
        self._make_room(len(body))
        with self._state:
            one = self._transaction(number)
            one.last = self._append(body)
            one.records += 1
            return one.last

    def prepare(self, number: int) -> None:
        """Durably prepared: in doubt until it is committed or aborted."""
        self.flush(self._end_transaction(number, *_PREPARE))

    def commit(self, number: int, *, sync: bool = True) -> None:
        """Committed, durably unless ``sync`` is false."""
        end = self._end_transaction(number, *_COMMIT)
        if sync:
            self.flush(end)

    def submit_commit(self, number: int) -> Ticket:
        """Committed once the ticket is done: for tasks, and for many commits at once."""
        return self.submit(self._end_transaction(number, *_COMMIT))

    def abort(self, number: int, *, sync: bool = True) -> None:
        """Aborted; its compensation records must have been logged before."""
        end = self._end_transaction(number, *_ABORT)
        if sync:
            self.flush(end)

    def _end_transaction(self, number: int, group: int, status: int) -> int:
        self._make_room(HEAD_MAX)
        with self._state:
            one = self._transaction(number)
            operation = encoders.encode_end(status, one.xid)
            one.last = self._append(encode_body(group, number, operation))
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

    # -- checkpoint ------------------------------------------------------------------------

    def checkpoint(self, clean: Callable[[], None] | None = None) -> int:
        """Write a checkpoint record and both control files; returns the record's instant.

        ``clean`` writes every changed page and makes it durable. Log files before the oldest
        open transaction are removed.
        """
        if split_instant(self._end)[1] > self._interval:
            self.switch_log_file(self._interval)
        self._make_room(HEAD_MAX)
        with self._state:
            redo = self._end
            undo = min((one.first for one in self._table.values()), default=redo)
            undo = min(undo, redo)
            number = self._begin(operations.STATUS_INTERNAL)
        self.flush(redo)
        if clean is not None:
            clean()
        with self._state:
            table = encoders.encode_transaction_table(
                _entry(one, number) for one in self._table.values()
            )
            operation = encoders.encode_checkpoint(redo, undo, table)
            instant = self._append(encode_body(int(Group.RAWSTORE), number, operation))
        self.flush(instant)
        self.commit(number, sync=False)
        self._write_control(instant, undo)
        return instant

    def _write_control(self, checkpoint: int, undo: int) -> None:
        self._control = replace(self._control, checkpoint=checkpoint)
        try:
            self._folder.write_control(self._control)
            if not self._archive:
                log = self._folder.read(self._cipher)
                self._folder.remove([number for number in log.files if number < undo >> 32])
        except OSError as error:
            self._poison(error)


def _entry(one: OpenTransaction, checkpoint: int) -> operations.Fields:
    return {
        "xid": one.number,
        "gid": one.xid,
        "first": one.first,
        "last": None if one.number == checkpoint else one.last,
        "status": operations.STATUS_PREPARED if one.prepared else operations.STATUS_USER,
    }
