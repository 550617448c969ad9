"""SQLite as last resource.

In: the path of a database. Out: a branch that cannot prepare: its own commit, which also
stores an outcome row with the global id, is the decision of the whole transaction. Recovery
looks for that row. The connection is set to ``synchronous=FULL``, or the decision would not
be durable.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from tallystick.errors import TransactionUsageError
from tallystick.records import Xid
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceUnreachable,
    Vote,
)
from tallystick.services.transactions.resources.connection_resource import (
    IDENTITY,
    OUTCOMES,
    ConnectionResource,
    DriverErrors,
    check_scheme,
    ended_by_application,
    url_options,
)
from tallystick.services.transactions.resources.handle import Handle

_CREATE = f"CREATE TABLE IF NOT EXISTS {OUTCOMES} (gtrid BLOB PRIMARY KEY) WITHOUT ROWID"
_MARK = "tallystick_branch"
"""A savepoint that is gone if a statement of the application has ended the transaction."""

driver_errors = DriverErrors(sqlite3.Error)


class SqliteResource(ConnectionResource[sqlite3.Connection]):
    """A SQLite database file.

    Args:
        name: the unique name.
        path: the file; a relative one is of the working directory of this moment.
        timeout: seconds to wait for its lock.
    """

    dialect = "sqlite"

    def __init__(self, name: str, path: str | Path, *, timeout: float = 30.0) -> None:
        super().__init__(name, self._connect, driver_errors)
        if str(path) in ("", ":memory:"):
            raise TransactionUsageError(
                f"the database of {name!r} is in memory: it cannot keep an outcome",
                expected="sqlite:///path",
            )
        self._path = str(Path(path).absolute())  # connections are made later, too
        self._timeout = timeout

    @classmethod
    def from_url(cls, name: str, url: str) -> SqliteResource:
        """Return the database of ``sqlite:///relative`` or ``sqlite:////absolute``.

        A relative path is made absolute here. The one option is ``timeout``, in seconds.
        """
        check_scheme(name, url, "pysqlite")
        path = url.partition(":///")[2].partition("?")[0]
        return cls(name, path, **url_options(name, url, {"timeout": float}))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False
        )
        set_up(connection)
        return connection

    def start(self, connection: sqlite3.Connection, xid: Xid) -> SqliteBranch:
        """Begin a transaction, unless a listener of an engine has begun it."""
        if getattr(connection, "autocommit", None) is False:  # from Python 3.12
            raise TransactionUsageError(
                f"the connections of {self.name!r} begin transactions themselves",
                advice="Connect without autocommit=False",
            )
        if not connection.in_transaction:
            connection.execute("BEGIN")
        connection.execute(f"SAVEPOINT {_MARK}")
        return SqliteBranch(self, connection, xid)

    def in_doubt(self) -> Sequence[Xid]:
        """Return nothing: no branch is ever prepared here."""
        return []

    def commit(self, xid: Xid) -> None:
        """Raise `BranchUnknown`: nothing is ever prepared."""
        raise BranchUnknown(f"{self.name} prepares nothing; asked for {xid.gtrid.hex()}")

    def rollback(self, xid: Xid) -> None:
        """Raise `BranchUnknown`: nothing is ever prepared."""
        raise BranchUnknown(f"{self.name} prepares nothing; asked for {xid.gtrid.hex()}")

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
        query = f"SELECT min(gtrid) FROM {OUTCOMES} WHERE substr(gtrid, 1, ?) = ?"
        with self.lend() as connection:
            known = (len(IDENTITY), IDENTITY)
            (token,) = connection.execute(query, known).fetchone()
            if token is None:
                made = IDENTITY + secrets.token_bytes(16)
                connection.execute(f"INSERT INTO {OUTCOMES} VALUES (?)", (made,))
                (token,) = connection.execute(query, known).fetchone()
        return f"SQLite file {token.removeprefix(IDENTITY).hex()}"

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        """Delete outcome rows."""
        if not gtrids:
            return
        with self.lend() as connection:
            connection.execute("BEGIN IMMEDIATE")
            rows = [(gtrid,) for gtrid in gtrids]
            connection.executemany(f"DELETE FROM {OUTCOMES} WHERE gtrid = ?", rows)
            connection.execute("COMMIT")

    def preflight(self) -> Sequence[Problem]:
        """Check that a crash during commit leaves the database whole."""
        with self.lend() as connection:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode.lower() not in ("off", "memory"):
            return []
        return [
            Problem(
                self.name,
                f"journal_mode is {mode}: a crash during commit can destroy the database",
                "PRAGMA journal_mode=WAL",
            )
        ]


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
        self._refuse_ended()
        try:
            if outcome is not None:
                self._connection.execute(*outcome)
            self._connection.execute("COMMIT")
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
        """Roll back unless the branch has ended."""
        with driver_errors:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def abort(self) -> None:
        """Interrupt the statement that is at work."""
        self._connection.interrupt()

    def close(self) -> None:
        """Give the connection back."""
        self._handle.detach()
        broken = self._connection.in_transaction
        if self.synchronous is not None and not broken:
            self._connection.execute(f"PRAGMA synchronous={self.synchronous}")
        self._resource.pool.give(self._connection, broken=broken)
