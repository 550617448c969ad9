"""Transactions on their way through one opening of a store: into the log, then into the pages.

In: sessions that read, lock, prepare and end. Out: what is committed; rows of a session durable
in the log before any page changes, and whole transactions in the pages or nothing of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from tallystick.errors import LogWriteError, TransactionUsageError
from tallystick.roles import InDoubt, Ticket
from tallystick.services.page_store.checkpoint import Checkpoints, Turns
from tallystick.services.page_store.health import Health
from tallystick.services.page_store.locks import Row, RowLocks
from tallystick.services.page_store.pages.opened import Opened
from tallystick.services.page_store.session import Session

FIRST_SESSION = 3
LAST_SESSION = (1 << 31) - 1
"""Session numbers go round: logs keep them as signed 32-bit numbers."""


class Limits(NamedTuple):
    """``cache_bytes`` of pages in memory, ``checkpoint_bytes`` from one checkpoint to the next,
    ``lock_seconds`` that a session waits for a row."""

    cache_bytes: int
    checkpoint_bytes: int
    lock_seconds: float


class Transactions:
    """What the sessions of one opening do. ``prepared`` holds living ones by name, each with the
    section of the log that its rows are in at the earliest; ``ending`` is held while a session
    finds out whether it is over."""

    def __init__(self, opened: Opened, turns: Turns, health: Health, limits: Limits) -> None:
        self.cache = opened.cache
        self.tables = opened.tables
        self.prepared: dict[str, tuple[Session, int]] = {}
        self.checkpoints = Checkpoints(
            opened.log, opened.cache, turns, opened.section, limits.checkpoint_bytes, self._needed
        )
        self._log = opened.log
        self._turns = turns
        self._health = health
        self._limits = limits
        self._locks = RowLocks()
        self.ending = threading.Lock()
        self._next = FIRST_SESSION

    def _needed(self) -> Iterable[int]:
        return [section for _, section in list(self.prepared.values())]

    def begin(self) -> Session:
        """A new session."""
        with self._turns.latch:
            self._health.require_writable()
            number = self._next
            self._next = number + 1 if number < LAST_SESSION else FIRST_SESSION
        return Session(self, number)

    def living(self) -> list[InDoubt]:
        """Sessions that are prepared now."""
        every = list(self.prepared.items())
        return [InDoubt(one.number, name) for name, (one, _) in every if one.prepared]

    # -- rows -------------------------------------------------------------------------------------

    def table_id(self, name: str) -> int:
        """The number of a table in the log. Raises `KeyError`."""
        with self._turns.latch:
            self._health.require_open()
            return self.tables.id_of(name)

    def read(self, table: int, key: int) -> bytes | None:
        """A committed row."""
        with self._turns.latch:
            self._health.require_open()
            row = self.tables.tree(table).get(key)
            self.trim()
            return row

    def batch(
        self, table: int, start: int, count: int, size: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """Committed rows from ``start`` on, about ``size`` bytes of them, and where to go on."""
        with self._turns.latch:
            self._health.require_open()
            rows = self.tables.tree(table).batch(start, count, size)
            self.trim()
            return rows

    def trim(self) -> None:
        """Let pages go that are too many. Called under the latch."""
        if self.cache.is_full:
            with self._health.trusted():
                self.cache.trim()

    def lock_row(self, session: int, row: Row) -> None:
        """Lock a row until the session ends."""
        self._health.require_open()
        self._locks.take(session, row, self._limits.lock_seconds)

    # -- ends -------------------------------------------------------------------------------------

    def prepare(self, session: Session, name: str) -> None:
        """Log the session's rows and its prepare record, durably."""
        with self._turns.gate:
            self._health.require_writable()
            if self.prepared.setdefault(name, (session, self.checkpoints.section))[0] != session:
                raise TransactionUsageError(f"there is a prepared transaction {name} already")
            try:
                self._make_durable(session, partial(self._log.prepare_commit, session.number, name))
            except BaseException:
                del self.prepared[name]
                raise

    def commit(self, session: Session) -> None:
        """Make the session's changes durable, then visible."""
        try:
            if session.changes or session.prepared:
                with self._turns.gate:
                    self._health.require_writable()
                    self._make_durable(session, partial(self._log.commit, session.number))
                    self._apply(session.changes)
                    self.prepared.pop(session.prepared_as, None)
        finally:
            self._locks.release(session.locked)
        if self.checkpoints.due:
            with self._health.trusted():
                self.checkpoints.run_if_due()

    def rollback(self, session: Session) -> None:
        """Forget the session; of a prepared one the log is told."""
        try:
            if session.prepared:
                with self._turns.gate:
                    self._health.require_writable()
                    with self._health.trusted():
                        self._log.rollback(session.number).wait()
                    self.prepared.pop(session.prepared_as, None)
        finally:
            self._locks.release(session.locked)

    def _make_durable(self, session: Session, end: Callable[[], Ticket]) -> None:
        """Log the session's rows, if they are not, and its end. A record that the log refuses does
        it no harm: a session that is not prepared is given up, and the store goes on."""
        try:
            if not session.prepared:
                logged = self.tables.to_log(session.changes, self._turns.latch)
                self._log.log_rows(session.number, logged)
            end().wait()
        except LogWriteError as error:
            if session.prepared:
                self._health.fail(error)
            else:
                with self._health.trusted():
                    self._log.rollback(session.number)
            raise
        except BaseException as error:
            self._health.fail(error)
            raise

    def _apply(self, changes: dict[Row, bytes | None]) -> None:
        apply, trim = self.tables.apply, self.cache.trim
        try:
            with self._turns.latch:
                for (table, key), row in changes.items():
                    apply(table, key, row)
                    trim()
                self.checkpoints.count(changes.values())
        except BaseException as error:
            self._health.fail(error)
            raise
