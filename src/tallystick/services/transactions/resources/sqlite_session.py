"""Sessions of SQLite, in which only the manager ends a branch.

In: statements of the application. Out: their results, a note if one has changed the session, and
`TransactionUsageError` for one that would have ended the branch.

SQLite itself reports each statement that attaches a database, makes a temporary table or sets a
PRAGMA, through the session's authorizer.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from tallystick.errors import TransactionUsageError
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading
from tallystick.storage.signals import starts_unchecked

COMMIT, ROLLBACK = ("COMMIT -- of the manager", "ROLLBACK -- of the manager")
"""Not as an application writes them: a text that was compiled before is not compiled again."""
_CHANGES_SESSION = frozenset(
    {
        sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_CREATE_TEMP_INDEX,
        sqlite3.SQLITE_CREATE_TEMP_TABLE, sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
    }
)  # fmt: skip
_ENDS = re.compile(
    r"(?:\s|;|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:COMMIT|END|ROLLBACK(?!(?:\s+TRANSACTION)?\s+TO\b))\b",
    re.IGNORECASE | re.DOTALL,
)
"""A statement that ends a transaction, and what may be before it."""


class Session(Uncopied, sqlite3.Connection):
    """A connection that notes what changes its session, and serves one thread at a time.

    The driver asks for values of a row while it holds the interpreter's lock, and SQLite has a lock
    of its own for each connection. While a statement of one thread is compiled, and the authorizer
    waits for the interpreter, a row that another thread reads would stop the whole process.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.turn = threading.RLock()
        self.ended = False
        self.held: dict[str, None] = {}
        """The name of the resource while it is in a branch, which only the manager ends."""
        self.file: tuple[int, int] | None = None
        """Device and number of the file that it has open."""

    def end(self) -> bool:
        """Roll back and take no statement any more, unless a statement is at work: then False.

        It would no longer be one of the transaction.
        """
        if not self.turn.acquire(blocking=False):
            return False
        try:
            self.held.clear()
            if self.in_transaction:
                sqlite3.Cursor(self).execute(ROLLBACK)
            self.ended = True
        finally:
            self.turn.release()
        return True

    def watch(self) -> None:
        """Begin to take notes."""
        self.changes: dict[str, None] = {}
        self.set_authorizer(partial(_note, self.changes, self.held))

    def cursor(self, factory: Callable[..., Any] | None = None) -> Any:
        """Return a cursor."""
        return super().cursor(_Cursor if factory is None else factory)

    def execute(self, *arguments: Any) -> Any:
        """Execute a statement with a cursor of its own."""
        return self.cursor().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        """Execute a statement once for each row of parameters."""
        return self.cursor().executemany(*arguments)

    def executescript(self, *arguments: Any) -> Any:
        """Execute the statements of a text."""
        return self.cursor().executescript(*arguments)

    def commit(self) -> None:
        """Commit. Raises `TransactionUsageError` in a branch."""
        try:
            super().commit()
        except sqlite3.DatabaseError as error:
            _explain(error, self)
            raise

    def rollback(self) -> None:
        """Roll back. Raises `TransactionUsageError` in a branch."""
        try:
            super().rollback()
        except sqlite3.DatabaseError as error:
            _explain(error, self)
            raise


def _explain(error: sqlite3.DatabaseError, connection: Session) -> None:
    """Raise `TransactionUsageError` for a statement that was forbidden within a branch."""
    if connection.held and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:
        raise _would_end(next(iter(connection.held))) from error


def _would_end(name: str) -> TransactionUsageError:
    return TransactionUsageError(
        f"a statement would have ended the transaction of {name!r}",
        found="COMMIT, END, ROLLBACK, or executescript(), which begins with COMMIT",
        advice="The transaction manager begins and ends it; SAVEPOINT statements are fine",
    )


def refuse_end(name: str, statement: str) -> None:
    """Raise `TransactionUsageError` for a statement that ends the transaction of a resource.

    For connections that are not ours, and may have an authorizer of their own.
    """
    if _ENDS.match(statement):
        raise _would_end(name)


def _in_turn(name: str) -> Callable[..., Any]:
    plain = getattr(sqlite3.Cursor, name)

    @wraps(plain)
    def call(cursor: _Cursor, *arguments: Any, **options: Any) -> Any:
        with cursor.connection.turn:
            if cursor.connection.ended:
                raise sqlite3.OperationalError("the transaction took too long and was rolled back")
            try:
                return plain(cursor, *arguments, **options)
            except sqlite3.DatabaseError as error:
                _explain(error, cursor.connection)
                raise

    return call


class _Cursor(sqlite3.Cursor):
    """A cursor of a `Session`."""

    connection: Session


for _name in (
    "execute", "executemany", "executescript", "fetchone", "fetchmany", "fetchall", "__next__",
):  # fmt: skip
    setattr(_Cursor, _name, _in_turn(_name))


@starts_unchecked
def _note(
    changes: dict[str, None],
    held: dict[str, None],
    action: int,
    name: str | None,
    value: str | None,
    *_: str | None,
) -> int:
    """Note a statement that changes its session, and forbid one that would end a branch.

    Called by SQLite when it compiles one.
    """
    # Nothing is called here: a signal handler that ran after it and raised an error would, to
    # SQLite, forbid the statement.
    if action == sqlite3.SQLITE_TRANSACTION and held and name != "BEGIN":
        return sqlite3.SQLITE_DENY
    if action in _CHANGES_SESSION:
        changes["session"] = None
    elif action == sqlite3.SQLITE_PRAGMA and value is not None:
        changes["busy_timeout" if name == "busy_timeout" else "session"] = None
    return sqlite3.SQLITE_OK
