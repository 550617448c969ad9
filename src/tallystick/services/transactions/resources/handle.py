"""The handle of a branch whose driver's connection would let the application end it.

In: a DB-API connection that belongs to a branch. Out: statements run in that branch; calls that
would end it without the coordinator are refused, and so are all calls once the branch is over.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Any

from tallystick.errors import TransactionUsageError
from tallystick.storage.fork import Uncopied

_OF_THE_CONNECTION = frozenset({"autocommit", "begin", "close", "kill", "ping", "select_db"})
"""Calls of drivers that end a session or a transaction, or change it."""


_ENDS = frozenset({"autocommit", "begin", "close", "reset"})
"""Those of drivers with two-phase calls, besides ``tpc_*``."""
_OWN_SLOTS = frozenset({"_connection", "_cursors", "_kind", "name"})


class Handle(Uncopied):
    """``execute`` and ``cursor`` of a connection to the resource ``name``."""

    __slots__ = ("_connection", "_cursors", "name")

    def __init__(self, connection: Any, name: str) -> None:
        self._connection = connection
        self._cursors: list[weakref.ref[Any]] = []
        self.name = name

    def __repr__(self) -> str:
        state = "over" if self._connection is None else "open"
        return f"<handle of {self.name!r}: {state}>"

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        """Return a DB-API cursor of the branch, which is closed when that ends."""
        cursor = self._open().cursor(*arguments, **options)
        self._cursors.append(weakref.ref(cursor, self._cursors.remove))
        return cursor

    def execute(self, statement: str, parameters: Any = ()) -> Any:
        """Run a statement and return its cursor."""
        cursor = self.cursor()
        cursor.execute(statement, parameters)
        return cursor

    def executemany(self, statement: str, rows: Any) -> Any:
        """Run a statement for each row and return its cursor."""
        cursor = self.cursor()
        cursor.executemany(statement, rows)
        return cursor

    def commit(self) -> None:
        """Raise `TransactionUsageError`: the transaction commits all of its branches."""
        raise TransactionUsageError(
            f"commit of {self.name!r} alone would break the transaction",
            advice="Leave the 'with' block, or call commit() of the transaction",
        )

    def rollback(self) -> None:
        """Raise `TransactionUsageError`: the transaction rolls back all of its branches."""
        raise TransactionUsageError(
            f"rollback of {self.name!r} alone would break the transaction",
            advice="Call rollback() of the transaction",
        )

    def __getattr__(self, attribute: str) -> Any:
        if attribute in _OF_THE_CONNECTION:
            raise TransactionUsageError(
                f"{attribute} of {self.name!r} is not for a branch",
                expected="execute, executemany or cursor",
                advice="The transaction manager begins and ends it; SAVEPOINT statements are fine",
            )
        raise AttributeError(f"{type(self).__name__!r} has no attribute {attribute!r}")

    def detach(self) -> None:
        """Refuse all further calls: the branch is over."""
        self._connection = None

    def close_cursors(self) -> None:
        """Close the cursors that are kept: others will use the connection."""
        for kept in list(self._cursors):
            if (cursor := kept()) is not None:
                with suppress(Exception):  # a driver may raise anything from a dead connection
                    cursor.close()

    def _open(self) -> Any:
        if self._connection is None:
            raise branch_is_over(self.name)
        return self._connection


class WholeHandle(Handle):
    """All of a driver's connection but what ends a branch, in the place of that connection.

    `isinstance` takes it for one. Code in C may insist on the connection itself: psycopg2's
    ``quote_ident``, say, which takes a cursor, too.
    """

    __slots__ = ("_kind",)

    def __init__(self, connection: Any, name: str) -> None:
        super().__init__(connection, name)
        self._kind = connection.__class__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._kind

    def execute(self, statement: Any, *arguments: Any, **options: Any) -> Any:
        """Run a statement and return its cursor."""
        cursor = self.cursor()
        cursor.execute(statement, *arguments, **options)
        return cursor

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("tpc_") or attribute in _ENDS:
            raise TransactionUsageError(
                f"{attribute} of {self.name!r} is not for a branch",
                advice="The transaction manager begins and ends it; SAVEPOINT statements are fine",
            )
        return getattr(self._open(), attribute)

    def __setattr__(self, attribute: str, value: Any) -> None:
        if attribute in _OWN_SLOTS:
            object.__setattr__(self, attribute, value)
        else:
            setattr(self._open(), attribute, value)


def branch_is_over(name: str) -> TransactionUsageError:
    """Return the error for a call of a handle of the resource ``name`` that came too late."""
    return TransactionUsageError(
        f"the branch on {name!r} is over", advice="Use the handle inside its transaction only"
    )
