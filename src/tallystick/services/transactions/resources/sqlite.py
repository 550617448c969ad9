"""SQLite as last resource.

In: the path of a database. Out: a branch that cannot prepare: its own commit, which also
stores an outcome row with the global id, is the decision of the whole transaction. Recovery
looks for that row. The connection is set to ``synchronous=FULL``, or the decision would not
be durable.

A branch takes the lock of writers when it begins (BEGIN IMMEDIATE): one that has read, and wants to
write while another one does, would have to begin again, so SQLite fails it without waiting.

A session that was changed (`sqlite_session`) is closed.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from tallystick.arguments import seconds
from tallystick.errors import TransactionUsageError
from tallystick.records import Xid
from tallystick.services.driver_errors import is_lock_timeout
from tallystick.services.transactions.resource import (
    Branch,
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceUnreachable,
    Vote,
    begins_by,
)
from tallystick.services.transactions.resources.connection_resource import (
    IDENTITY,
    OUTCOMES,
    ConnectionResource,
    DriverErrors,
    check_scheme,
    closed_by_application,
    ended_by_application,
    url_options,
    yes_or_no,
)
from tallystick.services.transactions.resources.handle import Handle
from tallystick.services.transactions.resources.sqlite_session import COMMIT, ROLLBACK, Session
from tallystick.storage.scheduling import time

_CREATE = f"CREATE TABLE IF NOT EXISTS {OUTCOMES} (gtrid BLOB PRIMARY KEY) WITHOUT ROWID"
_MARK = "tallystick_branch"
"""A savepoint that is gone if a statement of the application has ended the transaction."""

_MODES = ("immediate", "deferred", "exclusive")
_JOURNAL_MODES = ("delete", "truncate", "persist", "memory", "wal", "off")
_DURABLE = ("full", "extra", "2", "3")
_POLL_S = 0.01
LOCK_WAIT_MAX = 2_147_483.0
"""Seconds: databases keep how long a statement waits for a lock as milliseconds, in 32 bits."""

_lock_wait: ContextVar[float | None] = ContextVar("tallystick_sqlite_lock_wait", default=None)

driver_errors = DriverErrors(sqlite3.Error)


@contextmanager
def lock_wait(seconds: float) -> Iterator[None]:
    """Have branches that begin in the block wait that long for the lock of writers."""
    token = _lock_wait.set(seconds)
    try:
        yield
    finally:
        _lock_wait.reset(token)


def _one_of(words: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(text)
        return text.lower()

    return read


def _seconds_in(text: str) -> float:
    return seconds(float(text), "timeout")


@cache
def _pragmas() -> Mapping[str, Callable[[str], str]]:
    """Return the PRAGMAs of this SQLite, and how their values are read."""
    connection = sqlite3.connect(":memory:")
    rows = connection.execute("PRAGMA pragma_list").fetchall()
    connection.close()
    known: dict[str, Callable[[str], str]] = {name: str for (name,) in rows}
    return known | {
        "foreign_keys": lambda text: str(int(yes_or_no(text))),
        "journal_mode": _one_of(_JOURNAL_MODES),
        "synchronous": _one_of(("off", "normal", *_DURABLE, "0", "1")),
    }


def identity_in(connection: sqlite3.Connection) -> str | None:
    """Return the token of a file that has a table of outcomes; None if it has no token yet."""
    query = f"SELECT min(gtrid) FROM {OUTCOMES} WHERE substr(gtrid, 1, ?) = ?"
    (token,) = connection.execute(query, (len(IDENTITY), IDENTITY)).fetchone()
    return None if token is None else f"SQLite file {token.removeprefix(IDENTITY).hex()}"


class SqliteResource(ConnectionResource[sqlite3.Connection]):
    """A SQLite database file.

    Args:
        name: the unique name.
        path: the file; a relative one is of the working directory of this moment.
        timeout: seconds to wait for its lock; at most 24 days.
        begin: how branches begin: ``immediate``, ``deferred`` or ``exclusive``.
        pragmas: values by name, set in each new connection; ``query_only`` makes branches begin
            deferred.
    """

    dialect = "sqlite"

    def __init__(
        self,
        name: str,
        path: str | Path,
        *,
        timeout: float = 30.0,
        begin: str | None = None,
        pragmas: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, self._connect, driver_errors, self._has_file)
        if str(path) in ("", ":memory:"):
            raise TransactionUsageError(
                f"the database of {name!r} is in memory: it cannot keep an outcome",
                expected="sqlite:///path",
            )
        self._path = str(Path(path).absolute())  # connections are made later, too
        self.place = os.path.realpath(self._path)
        """Of two resources of one file the same."""
        self._timeout = min(seconds(timeout, "timeout"), LOCK_WAIT_MAX)
        self._pragmas = dict(pragmas or {})
        reads_only = self._pragmas.get("query_only", "0").lower() not in ("0", "off", "no", "false")
        self._begin = f"BEGIN {begin or ('deferred' if reads_only else 'immediate')}"
        self._was_there = False

    @classmethod
    def from_url(cls, name: str, url: str) -> SqliteResource:
        """Return the database of ``sqlite:///relative`` or ``sqlite:////absolute``.

        A relative path is made absolute here. Options are ``timeout`` in seconds, ``begin``, and
        the PRAGMAs of SQLite by their names.
        """
        check_scheme(name, url, "pysqlite")
        path = url.partition(":///")[2].partition("?")[0]
        known: dict[str, Callable[[str], Any]] = dict(_pragmas())
        known |= {"timeout": _seconds_in, "begin": _one_of(_MODES)}
        options = url_options(name, url, known)
        own = {one: options.pop(one) for one in ("timeout", "begin") if one in options}
        return cls(name, path, **own, pragmas=options)

    def _file(self) -> tuple[int, int] | None:
        """Return device and number of the file that has the path now; None if there is none."""
        try:
            found = Path(self._path).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _has_file(self, connection: sqlite3.Connection) -> bool:
        """Return whether a connection has the file open that has the path: none was moved there."""
        return not isinstance(connection, Session) or connection.file == self._file()

    def _connect(self) -> sqlite3.Connection:
        if self._was_there and self._file() is None:  # SQLite would make an empty one
            raise sqlite3.OperationalError(
                f"the file {self._path} was deleted or moved while it was in use; put it back"
            )
        seconds = min(self._timeout, max(begins_by.get() - time.monotonic(), 0))
        connection = sqlite3.connect(
            self._path, timeout=seconds, isolation_level=None, check_same_thread=False,
            factory=Session,
        )  # fmt: skip
        try:
            self._set_pragmas(connection, time.monotonic() + seconds)
            if seconds != self._timeout and "busy_timeout" not in self._pragmas:
                wait_for_locks(connection, self._timeout)
            connection.watch()
        except BaseException:
            connection.close()
            raise
        connection.file = self._file()
        self._was_there = True
        return connection

    def _set_pragmas(self, connection: sqlite3.Connection, until: float) -> None:
        """Set the PRAGMAs, those first that must precede the first table, and make our table."""
        last = {one: value for one, value in self._pragmas.items() if one == "query_only"}
        connection.execute("PRAGMA synchronous=FULL")
        for one, value in self._pragmas.items():
            if one not in last:
                self._set_pragma(connection, one, value, until)
        connection.execute(_CREATE)
        for one, value in last.items():
            self._set_pragma(connection, one, value, until)

    def _set_pragma(
        self, connection: sqlite3.Connection, name: str, value: str, until: float
    ) -> None:
        """Set a PRAGMA, and wait for the lock that a change of the journal's mode takes."""
        while True:
            try:
                row = connection.execute(f"PRAGMA {name} = {text_literal(value)}").fetchone()
                break
            except sqlite3.OperationalError as error:
                if not is_lock_timeout(error) or time.monotonic() > until:
                    raise
            time.sleep(_POLL_S)
        if name == "journal_mode" and str(row[0]).lower() != value:
            raise TransactionUsageError(
                f"the journal_mode of {self.name!r} stays {row[0]}",
                expected=value,
                advice="Leave the option out of the URL where the file system cannot have it",
            )

    def begin(self, xid: Xid) -> Branch:
        """Begin a branch. Raises `sqlite3.OperationalError` if its lock is not free in time."""
        try:
            return super().begin(xid)
        except ResourceUnreachable as answer:
            if answer.__cause__ is not None and is_lock_timeout(answer):
                raise answer.__cause__ from None
            raise

    def start(self, connection: sqlite3.Connection, xid: Xid) -> SqliteBranch:
        """Begin a transaction, unless a listener of an engine has begun it."""
        if not self._has_file(connection):  # then the pool makes another connection
            raise sqlite3.OperationalError(f"another file has the path {self._path} now")
        if getattr(connection, "autocommit", None) is False:  # from Python 3.12
            raise TransactionUsageError(
                f"the connections of {self.name!r} begin transactions themselves",
                advice="Connect without autocommit=False",
            )
        usual = None if connection.in_transaction else self._take_lock(connection)
        connection.execute(f"SAVEPOINT {_MARK}")
        branch = SqliteBranch(self, connection, xid)
        if isinstance(connection, Session):  # which notes itself what was changed
            connection.held[self.name] = None
        else:
            branch.busy_timeout = usual
        return branch

    def _take_lock(self, connection: sqlite3.Connection) -> float | None:
        """Begin, and wait for the lock no longer than the transaction, or a key, allows.

        Its statements wait no longer than the transaction allows now: to interrupt one that waits
        does not end it.

        Returns:
            The usual time in seconds for which statements wait; None if it was not changed.
        """
        usual, seconds = self._busy_timeout(connection), _lock_wait.get()
        left = max(begins_by.get() - time.monotonic(), 0)
        later = min(usual, left)
        first = later if seconds is None else min(seconds, left)
        if first == later == usual:
            connection.execute(self._begin)
            return None
        wait_for_locks(connection, first)
        try:
            connection.execute(self._begin)
        except BaseException:
            wait_for_locks(connection, usual)
            raise
        if first != later:
            wait_for_locks(connection, later)
        return usual

    def _busy_timeout(self, connection: sqlite3.Connection) -> float:
        """Return how many seconds statements of a connection wait for a lock."""
        if isinstance(connection, Session) and "busy_timeout" not in connection.changes:
            return self._timeout
        (milliseconds,) = connection.execute("PRAGMA busy_timeout").fetchone()
        return float(milliseconds) / 1000

    def is_unchanged(self, connection: sqlite3.Connection) -> bool:
        """Return True if a session is as when it was new; undo changes that are easily undone."""
        if not isinstance(connection, Session):  # of an engine, whose pool resets it
            return True
        if "busy_timeout" in connection.changes:
            wait_for_locks(connection, self._timeout)
            del connection.changes["busy_timeout"]
        factories: tuple[Any, ...] = (connection.row_factory, connection.text_factory)
        return not connection.changes and factories == (None, str)

    def in_doubt(self) -> Sequence[Xid]:
        """Return nothing: no branch is ever prepared here."""
        return []

    def commit(self, xid: Xid) -> None:
        """Raise `BranchUnknown`: nothing is ever prepared."""
        raise BranchUnknown(f"{self.name} prepares nothing; asked for {xid.gtrid.hex()}")

    rollback = commit

    def has_outcome(self, gtrid: bytes) -> bool:
        """Return True if there is an outcome row of the transaction."""
        query = f"SELECT 1 FROM {OUTCOMES} WHERE gtrid = ?"
        with self.lend() as connection:
            return connection.execute(query, (gtrid,)).fetchone() is not None

    def outcomes(self) -> Sequence[bytes]:
        """List the global ids of all outcome rows."""
        with self.lend() as connection:
            rows = connection.execute(f"SELECT gtrid FROM {OUTCOMES}").fetchall()
        return [gtrid for (gtrid,) in rows if not gtrid.startswith(IDENTITY)]

    def identity(self) -> str:
        """Return the token of the file, which is made at the first call."""
        with self.lend() as connection:
            found = identity_in(connection)
            if found is None:
                made = IDENTITY + secrets.token_bytes(16)
                connection.execute(f"INSERT INTO {OUTCOMES} VALUES (?)", (made,))
                found = identity_in(connection)  # perhaps that of another process
        assert found is not None
        return found

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        """Delete outcome rows."""
        if not gtrids:
            return
        with self.lend() as connection:
            connection.execute("BEGIN IMMEDIATE")
            rows = [(gtrid,) for gtrid in gtrids]
            connection.executemany(f"DELETE FROM {OUTCOMES} WHERE gtrid = ?", rows)
            connection.execute(COMMIT)

    def preflight(self) -> Sequence[Problem]:
        """Check that a crash during commit leaves the database whole, and the commit done."""
        with self.lend() as connection:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        problems = []
        if mode.lower() in ("off", "memory"):
            problems.append(
                Problem(
                    self.name,
                    f"journal_mode is {mode}: a crash during commit can destroy the database",
                    "PRAGMA journal_mode=WAL",
                )
            )
        if self._pragmas.get("synchronous", "full") not in _DURABLE:
            problems.append(
                Problem(
                    self.name,
                    "synchronous is below FULL: a power cut can lose what was decided here",
                    "Leave the option synchronous out of the URL",
                )
            )
        return problems


def _is_closed(connection: sqlite3.Connection) -> bool:
    """Return True if the application has closed a connection."""
    try:
        _ = connection.in_transaction
    except sqlite3.ProgrammingError:
        return True
    return False


def wait_for_locks(connection: sqlite3.Connection, seconds: float) -> None:
    """Have the statements of a connection wait that long for a lock."""
    connection.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}")


def text_literal(text: str) -> str:
    """Return a text as statements take it."""
    return "'" + text.replace("'", "''") + "'"


def set_up(connection: sqlite3.Connection) -> None:
    """Make commits of a connection durable, and a place for outcome rows."""
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(_CREATE)


def set_up_for_recovery(connection: sqlite3.Connection) -> None:
    """Set a connection up on which no statement may begin a transaction by itself."""
    connection.isolation_level = None
    set_up(connection)


class SqliteBranch:
    """One branch: a connection with an ordinary transaction."""

    def __init__(self, resource: SqliteResource, connection: sqlite3.Connection, xid: Xid) -> None:
        self.xid = xid
        self._resource = resource
        self._connection = connection
        self._handle = Handle(connection, resource.name)
        self.synchronous: int | None = None
        """The level to set again at the end; None for none."""
        self.busy_timeout: float | None = None
        """The time in seconds to set again at the end; None for none."""

    @property
    def raw(self) -> sqlite3.Connection:
        """The driver's connection."""
        return self._connection

    @property
    def handle(self) -> Handle:
        """Statements of the branch."""
        return self._handle

    def prepare(self) -> Vote:
        """Raise `BranchRolledBack`: a last resource cannot prepare."""
        raise BranchRolledBack(f"{self._resource.name} cannot prepare")

    def commit(self) -> None:
        """Commit with the outcome row: the decision of the whole transaction."""
        self._commit((f"INSERT INTO {OUTCOMES} VALUES (?)", (self.xid.gtrid,)))

    def commit_one_phase(self) -> None:
        """Commit without an outcome row: no other branch needs it."""
        self._commit(None)

    def _commit(self, outcome: tuple[str, tuple[bytes]] | None) -> None:
        session = self._connection
        with session.turn if isinstance(session, Session) else nullcontext():  # as it may be ended
            self._commit_now(outcome)

    def _commit_now(self, outcome: tuple[str, tuple[bytes]] | None) -> None:
        if _is_closed(self._connection):
            raise closed_by_application(self._resource.name)
        self._refuse_ended()
        self._let_end()
        try:
            if outcome is not None:
                self._connection.execute(*outcome)
            self._connection.execute(COMMIT)
        except sqlite3.Error as error:
            if self._connection.in_transaction:  # not committed
                self.rollback()
                raise BranchRolledBack(str(error)) from error
            raise ResourceUnreachable(str(error)) from error

    def _refuse_ended(self) -> None:
        """Raise `TransactionUsageError` if this is not the transaction that the branch began."""
        try:
            self._connection.execute(f"RELEASE {_MARK}")
        except sqlite3.Error as error:
            self.rollback()
            if "no such savepoint" in str(error):
                raise ended_by_application(self._resource.name) from error
            raise BranchRolledBack(str(error)) from error

    def rollback(self) -> None:
        """Roll back unless the branch has ended, as it has with a connection that was closed."""
        self._let_end()
        with driver_errors:
            if not _is_closed(self._connection) and self._connection.in_transaction:
                self._connection.execute(ROLLBACK)

    def _let_end(self) -> None:
        """Allow the statements that end a branch: they are the manager's."""
        if isinstance(self._connection, Session):
            self._connection.held.clear()

    def abort(self) -> None:
        """Roll back, or interrupt the statement that is at work; others are refused from then on.

        A connection of an engine belongs to its thread: of that only a statement is interrupted.
        """
        session = self._connection
        if not (isinstance(session, Session) and session.end()):
            session.interrupt()

    def close(self) -> None:
        """Give the connection back."""
        self._handle.detach()
        self._handle.close_cursors()
        sound = not _is_closed(self._connection) and self._is_as_before()
        self._resource.pool.give(self._connection, broken=not sound)

    def _is_as_before(self) -> bool:
        """Return True if the session is as the branch found it; set again what that has set."""
        session = self._connection
        if session.in_transaction or (isinstance(session, Session) and session.ended):
            return False
        if self.synchronous is not None:
            session.execute(f"PRAGMA synchronous={self.synchronous}")
        if self.busy_timeout is not None:
            wait_for_locks(session, self.busy_timeout)
        return self._resource.is_unchanged(session)
