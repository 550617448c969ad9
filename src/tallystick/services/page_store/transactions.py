"""Transactions of a page store: sessions, row locks, and the way of a commit to the pages.

In: reads and writes of rows, savepoints, prepare, commit, rollback. Out: a session sees its own
changes, others see them after its commit. Rows are durable in the log before any page changes, and
a transaction reaches the pages whole or not at all. A writer locks its rows until it ends; readers
take no locks.
"""

from __future__ import annotations

import sys
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import NamedTuple, NoReturn, Self

from tallystick.arguments import bytes_of, integer, text
from tallystick.errors import (
    CorruptLogError,
    LogWriteError,
    RecordTooLargeError,
    TransactionUsageError,
)
from tallystick.roles import InDoubt, Row, Rows
from tallystick.roles.branches import refuse_in_branch
from tallystick.services.page_store.checkpoint import Checkpoints, Latches
from tallystick.services.page_store.health import Health
from tallystick.services.page_store.pages.layout import KEY_MAX, KEY_MIN, ROW_MAX
from tallystick.services.page_store.recovery import OpenStore
from tallystick.services.page_store.row_locks import Owner, RowLocks
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import WaitRefusedError
from tallystick.storage.scheduling import threading
from tallystick.storage.signals import starts_unchecked, uninterrupted

FIRST_SESSION = 3
LAST_SESSION = (1 << 31) - 1
"""Session numbers start over after this one: logs keep them as signed 32-bit numbers."""
_SCAN_ROWS = 256
_SCAN_BYTES = 1 << 20
"""A scan reads so much at once, or one longer row."""


class Session(Uncopied):
    """A transaction: a context manager that commits, or rolls back on an exception.

    Reads see committed rows, and this transaction's own changes. A row that it changed stays
    locked for other writers until its end. For one thread at a time.
    """

    __slots__ = (
        "__weakref__", "_history", "_live", "_open", "changes", "in_branch", "locked", "number",
        "owner", "prepared_as", "read_only", "transactions",
    )  # fmt: skip

    def __init__(self, transactions: Transactions, number: int, *, read_only: bool = False) -> None:
        self.number = number
        self.read_only = read_only
        self.prepared_as = ""
        self.in_branch = False
        """It is a branch of a global transaction, which alone ends it."""
        self.transactions = transactions
        self.changes = Rows()
        """New rows by table and key, None for removed ones."""
        self.locked: set[Row] = set()
        """Every row that it has locked, and those for which it has waited in vain."""
        self._history: list[tuple[Row, bool, bytes | None]] | None = None
        """What each change has replaced, from the first savepoint on."""
        self.owner: Owner = weakref.ref(self)
        self._live = True
        self._open = not read_only
        """False once no row can be changed: then `_require_open` raises."""

    def table(self, name: str) -> Table:
        """Return the rows of a table.

        Args:
            name: As given to `PageStore.create_table`.

        Raises:
            KeyError: There is no such table.
        """
        return Table(self, self.transactions.table_id(name))

    def savepoint(self) -> int:
        """Return a point that `rollback_to` goes back to."""
        self._require_open()
        if self._history is None:
            self._history = []
        return len(self._history)

    def rollback_to(self, savepoint: int) -> None:
        """Undo what this transaction changed since ``savepoint``; its locks stay."""
        self._require_open()
        savepoint = integer(savepoint, "savepoint", 0, sys.maxsize)
        history = self._history or []
        with uninterrupted:
            while len(history) > savepoint:
                row, existed, old = history.pop()
                if existed:
                    self.changes[row] = old
                else:
                    del self.changes[row]

    def prepare(self, name: str) -> None:
        """Make the transaction durable, to be committed or rolled back later.

        It survives a crash as in doubt. Only `commit` or `rollback` may follow.

        Args:
            name: What `PageStore.settle` decides it by.

        Raises:
            TransactionUsageError: The name is empty or in use, or the transaction has ended.
        """
        self._require_open()
        refuse_in_branch(self.in_branch)
        name = text(name, "name")
        if not name:
            raise TransactionUsageError("a transaction is prepared under a name")
        with uninterrupted:
            self.transactions.prepare(self, name)
            self._open = False
            self.prepared_as = name

    @property
    def prepared(self) -> bool:
        """True after `prepare`."""
        return bool(self.prepared_as)

    @property
    def over(self) -> bool:
        """True once it was committed or rolled back."""
        return not self._live

    def commit(self) -> None:
        """Return when every change is durable and visible.

        What a signal handler raises meanwhile comes out once that is so. If it comes while the
        commit waits for a checkpoint to begin, nothing was done: the transaction is not `over`.
        """
        refuse_in_branch(self.in_branch)
        with uninterrupted:
            self.transactions.commit(self)
        self.transactions.checkpoint_if_due(self)

    def rollback(self) -> None:
        """Forget every change."""
        refuse_in_branch(self.in_branch)
        with uninterrupted:
            self.transactions.rollback(self)
        if self.prepared_as:
            self.transactions.checkpoint_if_due(self)

    def get(self, table: int, key: int) -> bytes | None:
        """Return the row as this transaction sees it."""
        if not self._live:
            self._require_live()
        number = key if type(key) is int else integer(key, "key", KEY_MIN, KEY_MAX)
        row = (table, number)
        if row in self.changes:
            return self.changes[row]
        return self.transactions.read(table, number)

    def lock(self, table: int, key: int) -> Row:
        """Lock a row until the end. Raises `BusyError` if another session holds it too long.

        Raises:
            KeyError: There is no such table, or the key is not a signed 64-bit number.
        """
        if not self._open:
            self._require_open()
        number = key if type(key) is int else integer(key, "key", KEY_MIN, KEY_MAX)
        row = (table, number)
        if row not in self.locked:
            if type(table) is not int or table not in self.transactions.known:
                self.transactions.learn(table)
            if not KEY_MIN <= number <= KEY_MAX:
                raise KeyError("a key that is not a signed 64-bit number")
            self.locked.add(row)  # first: an interrupt between the two would leave it locked
        locks = self.transactions.locks
        # setdefault of a dict with such keys is one step: no mutex, and no call, for a free row.
        if locks.owners.setdefault(row, self.owner) is not self.owner or not locks.health.usable:
            locks.wait(self.owner, row)
        return row

    def put(self, table: int, key: int, value: bytes | None) -> None:
        """Lock a row, and change it or remove it with None. Raises `BusyError`."""
        if value is not None:
            if type(value) is not bytes:
                value = bytes_of(value, "row")
            if len(value) > self.transactions.row_max:
                raise RecordTooLargeError(
                    "the row is too long",
                    expected=f"at most {self.transactions.row_max} bytes",
                    found=f"{len(value)}",
                    advice="Split it over several keys in the same transaction, or keep a file "
                    "and its path in the row",
                )
        row = self.lock(table, key)
        if self._history is not None:
            self._history.append((row, row in self.changes, self.changes.get(row)))
        self.changes[row] = value

    def scan(self, table: int, start: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
        """Yield rows with ``start <= key < stop`` in order, own changes included."""
        first = integer(start, "start", KEY_MIN, KEY_MAX + 1)
        end = KEY_MAX + 1 if stop is None else integer(stop, "stop", KEY_MIN, KEY_MAX + 1)
        return self._scan(table, first, end)

    def _scan(self, table: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        self._require_live()
        own = self._own_keys(table, start, end)
        following: int | None = start
        while following is not None and following < end:
            rows, following = self.transactions.batch(table, following, _SCAN_ROWS, _SCAN_BYTES)
            here = end if following is None else following
            committed = dict(rows)
            first = bisect_left(own, here)
            for key in sorted(committed.keys() | own[:first]):
                if not self._live:  # what it had changed may be rolled back
                    self._require_live()
                if key >= end:
                    return
                # As it is now: it may have changed while the caller looked at rows before it.
                row = self.changes.get((table, key), committed.get(key))
                if row is not None:
                    yield key, row
            del own[:first]

    def _own_keys(self, table: int, start: int, end: int) -> list[int]:
        return sorted([key for other, key in self.changes if other == table and start <= key < end])

    def end(self) -> None:
        """Mark the transaction as over. Raises `TransactionUsageError` if it is already."""
        if not self.prepared_as:
            # Nothing between the two lets another thread run: one of two that end it is refused.
            if not self._live:
                self._require_live()
            self._live = self._open = False
            return
        with self.transactions.ending:  # which another thread settles, too
            self._require_live()
            self._live = self._open = False

    def stay_prepared(self) -> None:
        """Take `end` back: the log has refused the end of this prepared transaction."""
        self._live = True

    def _require_open(self) -> None:
        self._require_live()
        if self.read_only:
            raise TransactionUsageError(
                "the transaction is read-only", advice="Begin another without read_only"
            )
        if self.prepared:
            raise TransactionUsageError(
                "the transaction is prepared", advice="Only commit() or rollback() may follow"
            )

    def _require_live(self) -> None:
        if not self._live:
            raise TransactionUsageError(
                "the transaction is over", advice="Begin another with store.begin()"
            )

    def __enter__(self) -> Self:
        refuse_in_branch(self.in_branch)
        return self

    @starts_unchecked
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        with uninterrupted:
            if not self._live:
                return
            transactions = self.transactions
            if error is not None:
                transactions.rollback(self)
                return
            try:
                transactions.commit(self)
            except BaseException:
                if not self.over and not self.prepared_as:
                    transactions.rollback(self)
                raise
        transactions.checkpoint_if_due(self)


class Table(Uncopied, MutableMapping[int, bytes]):
    """A table in a transaction: a mapping of signed 64-bit keys to rows, ordered by key."""

    __slots__ = ("_session", "_table")

    def __init__(self, session: Session, table: int) -> None:
        self._session = session
        self._table = table

    def __getitem__(self, key: int) -> bytes:
        row = self._session.get(self._table, key)
        if row is None:
            raise KeyError(key)
        return row

    def __setitem__(self, key: int, row: bytes) -> None:
        stored = row if type(row) is bytes else bytes_of(row, "row")  # None, too, is no row
        self._session.put(self._table, key, stored)

    def __delitem__(self, key: int) -> None:
        if self._session.get(self._table, key) is None:
            raise KeyError(key)
        self._session.put(self._table, key, None)

    def for_update(self, key: int) -> bytes:
        """Lock a row, then return it: no other transaction changes it until this one ends.

        Raises:
            KeyError: There is no row. The lock stays even so.
            BusyError: Another transaction held the row for longer than ``lock_timeout``.
        """
        session = self._session
        place = session.lock(self._table, key)
        changes = session.changes
        row = changes[place] if place in changes else session.transactions.read(*place)
        if row is None:
            raise KeyError(key)
        return row

    def clear(self) -> None:
        """Remove every row, in one pass; the mapping's own would search for the first one each."""
        for key in self:
            self._session.put(self._table, key, None)

    def __iter__(self) -> Iterator[int]:
        return (key for key, _ in self.range())

    def __len__(self) -> int:
        return sum(1 for _ in self.range())

    def range(self, start: int = KEY_MIN, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield keys and rows with ``start <= key < stop``, in order.

        Rows are read in batches, each as committed at that moment. This transaction may change
        rows meanwhile; rows that it adds may be left out.

        Args:
            start: The first key.
            stop: The key to stop before; None for no limit.
        """
        return self._session.scan(self._table, start, stop)


class Limits(NamedTuple):
    """Bytes of pages in memory, bytes between two checkpoints, seconds to wait for a row."""

    cache_bytes: int
    checkpoint_bytes: int
    lock_seconds: float


class Transactions(Uncopied):
    """The transactions of one open store.

    ``prepared`` holds sessions by name, each with the oldest section of the log that its rows can
    be in; ``ending`` is held while a session finds out whether it has ended.
    """

    def __init__(self, opened: OpenStore, latches: Latches, health: Health, limits: Limits) -> None:
        self.cache = opened.cache
        self.tables = opened.tables
        self._tree = opened.tables.tree
        self.prepared: dict[str, tuple[Session, int]] = {}
        self.checkpoints = Checkpoints(
            opened.log, opened.cache, latches, opened.section, limits.checkpoint_bytes,
            self._needed, health.required,
        )  # fmt: skip
        self._log = opened.log
        self.row_max = min(ROW_MAX, opened.log.row_max)
        self._latches = latches
        self._health = health
        self.locks = RowLocks(health, limits.lock_seconds)
        self.ending = threading.Lock()
        self.replaced = False
        """The store was opened again meanwhile, and other pages are in force. Under the latch."""
        self._next = FIRST_SESSION
        self.known: set[int] = set()
        """Numbers of tables that are there, as far as sessions have asked."""

    def learn(self, table: object) -> None:
        """Note the number of a table, which stays. Raises `KeyError` if no table has it."""
        self._latches.refuse_nested()
        self._learn(table)

    def _learn(self, table: object) -> None:
        with self._latches.latch:
            self._require_readable()
            self.known.update(map(self.tables.id_of, self.tables.names()))
        if type(table) is not int or table not in self.known:
            raise KeyError("a number that no table has; PageStore.table_id returns one by name")

    def _needed(self) -> Iterable[int]:
        return [section for _, section in list(self.prepared.values())]

    def begin(self, *, read_only: bool = False) -> Session:
        """Begin a session."""
        health = self._health
        self._latches.refuse_nested()
        with self._latches.latch:
            if health.in_doubt or not health.usable:
                (health.require_open if read_only else health.require_writable)()
            number = self._next
            self._next = number + 1 if number < LAST_SESSION else FIRST_SESSION
        return Session(self, number, read_only=read_only)

    def _require_readable(self) -> None:
        """Raise an error unless the pages of this opening can be read. Called under the latch."""
        self._health.require_open()
        if self.replaced:
            raise TransactionUsageError(
                "the transactions in doubt were settled, and the store was opened again",
                advice="Begin another transaction: it sees what they have committed",
            )

    def prepared_now(self) -> list[InDoubt]:
        """Return the sessions of this opening that are prepared."""
        every = list(self.prepared.items())
        return [InDoubt(one.number, name) for name, (one, _) in every if one.prepared]

    # -- rows -------------------------------------------------------------------------------------

    def table_id(self, name: str) -> int:
        """Return the number of a table in the log. Raises `KeyError`."""
        if self.replaced or not self._health.usable:
            self._require_readable()
        try:
            return self.tables.id_of(name)
        except KeyError:
            raise KeyError(f"there is no table {name!r}: create_table makes one") from None

    def read(self, table: int, key: int) -> bytes | None:
        """Return a committed row."""
        cache = self.cache
        self._latches.refuse_nested()
        with self._latches.latch:
            if self.replaced or not self._health.usable:
                self._require_readable()
            try:
                row = self._tree(table).get(key)
            except CorruptLogError:
                self._learn(table)  # no table has this number: the mistake of a caller
                raise
            if len(cache.nodes) > cache.capacity:
                self.trim()
            return row

    def batch(
        self, table: int, start: int, count: int, size: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """Return committed rows from key ``start`` on, and the key to go on from.

        At most ``count`` rows, and no more once they have ``size`` bytes.
        """
        self._latches.refuse_nested()
        with self._latches.latch:
            self._require_readable()
            try:
                rows = self._tree(table).batch(start, count, size)
            except CorruptLogError:
                self._learn(table)
                raise
            self.trim()
            return rows

    def trim(self) -> None:
        """Evict pages above the limit. Called under the latch."""
        if self.cache.is_full:
            with uninterrupted, self._health.required():
                self.cache.trim()

    # -- ends -------------------------------------------------------------------------------------

    def prepare(self, session: Session, name: str) -> None:
        """Log the session's rows and its prepare record, durably."""
        self._latches.refuse_nested()
        with self._latches.gate:
            self._health.require_writable()
            if self.prepared.setdefault(name, (session, self.checkpoints.section))[0] != session:
                raise TransactionUsageError(f"there is a prepared transaction {name} already")
            try:
                self._prepare(session, name)
            except BaseException as error:
                del self.prepared[name]
                self._fail(session, error)

    def commit(self, session: Session) -> None:
        """End the session: make its changes durable, then visible.

        Called in an uninterrupted block. A signal may interrupt the wait for the gate, and then the
        session goes on.
        """
        self._end(session, self._commit if session.changes or session.prepared_as else None)

    def rollback(self, session: Session) -> None:
        """End the session: forget it, or log the rollback of a prepared one; as `commit`."""
        self._end(session, self._rollback if session.prepared_as else None)

    def _end(self, session: Session, write: Callable[[Session], None] | None) -> None:
        """End the session, once ``write`` has logged that, and free its rows."""
        if write is None:
            session.end()
            self.locks.release(session.owner, session.locked)
            return
        health = self._health
        self._latches.refuse_nested()
        with self._latches.gate:
            session.end()
            try:
                if health.in_doubt or not health.usable:
                    health.require_writable()
                write(session)
                if session.prepared_as:
                    self.prepared.pop(session.prepared_as, None)
            finally:
                if session.over:  # unless the log has refused the end of a prepared one
                    self.locks.release(session.owner, session.locked)

    def checkpoint_if_due(self, session: Session) -> None:
        """Make a checkpoint after the session's commit if one is due; a signal may interrupt it."""
        if not session.read_only and self.checkpoints.due:
            self.checkpoints.run_if_due()

    def _fail(self, session: Session, error: BaseException) -> NoReturn:
        """Raise the error for which the log has not taken the session's rows, or its end.

        A record that the log refuses does not harm the log, and the store goes on: a session that
        is not prepared is rolled back; one that is can be ended again.
        """
        with self._health.required():
            if not isinstance(error, LogWriteError):
                raise error
            if isinstance(error, WaitRefusedError):  # it is with the log, and not in the pages
                self._health.fail(error)
            elif session.prepared_as:
                session.stay_prepared()
            else:
                self._log.rollback(session.number)
        raise error

    def _prepare(self, session: Session, name: str) -> None:
        """Log the session's rows and its prepare record."""
        self._log.log_rows(session.number, self.tables.to_log(session.changes, self._latches.latch))
        self._log.prepare_commit(session.number, name).wait()

    def _commit(self, session: Session) -> None:
        """Log the session's rows, if they are not in the log, and its commit; make them visible."""
        try:
            if session.prepared_as:
                self._log.commit(session.number).wait()
            else:
                logged = self.tables.to_log(session.changes, self._latches.latch)
                self._log.commit_rows(session.number, logged)
        except BaseException as error:
            self._fail(session, error)
        self._apply(session.changes)

    def _rollback(self, session: Session) -> None:
        """Log the rollback of a prepared session."""
        try:
            self._log.rollback(session.number).wait()
        except BaseException as error:
            self._fail(session, error)
        changes = session.changes
        with self._latches.latch:  # its rows are in the log as well, until a checkpoint
            self.checkpoints.count(len(changes), sum(len(row or b"") for row in changes.values()))

    def _apply(self, changes: dict[Row, bytes | None]) -> None:
        apply, cache, size = self.tables.apply, self.cache, 0
        try:
            with self._latches.latch:
                for (table, key), row in changes.items():
                    apply(table, key, row)
                    if len(cache.nodes) > cache.capacity:
                        cache.trim()
                    size += len(row or b"")
                self.checkpoints.count(len(changes), size)
        except BaseException:
            with self._health.required():
                raise
