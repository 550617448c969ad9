"""PostgreSQL through psycopg 3.

In: a connection string or function. Out: branches as prepared transactions whose ids are
spelled as psycopg's own `Xid` spells them (and pgjdbc), so that other coordinators see the
same branches. PREPARE TRANSACTION in a failed transaction is answered by a silent ROLLBACK,
so the tag of the answer is read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any

from tallystick.errors import MissingExtraError, TransactionUsageError
from tallystick.records import Xid
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceAnswer,
    Vote,
)
from tallystick.services.transactions.resources.connected import (
    ConnectedResource,
    Reachable,
    closed_by_application,
    told,
)

try:
    import psycopg
    from psycopg.pq import ExecStatus, TransactionStatus
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("psycopg", "postgres") from error

Connection = psycopg.Connection[Any]
_LOST_CLASSES = ("08", "57")
"""SQLSTATE classes that say the connection or the server is going away."""

GID_MAX = 199
"""Bytes of a prepared transaction's identifier, a limit of the server."""

_PREPARED = "PREPARE TRANSACTION"
_FAILED = "a statement failed, so the server only rolls back"


reachable = Reachable(psycopg.Error)


class PostgresResource(ConnectedResource[Connection]):
    """A PostgreSQL database; ``connect`` makes a connection that is not in autocommit mode.

    ``detect_read_only`` asks before each prepare whether the branch wrote anything (one more
    round trip); branches that did not are committed at once and vote "read only".
    """

    def __init__(
        self, name: str, connect: Callable[[], Connection], *, detect_read_only: bool = False
    ) -> None:
        super().__init__(name, connect, reachable, _alive)
        self.detect_read_only = detect_read_only

    @classmethod
    def from_url(cls, name: str, url: str) -> PostgresResource:
        """The database of a libpq connection string or URL."""
        plain = url.replace("postgresql+psycopg://", "postgresql://", 1)
        return cls(name, lambda: psycopg.connect(plain))

    def start(self, connection: Connection, xid: Xid) -> PostgresBranch:
        """Begin the transaction on the server."""
        if connection.autocommit:
            raise TransactionUsageError(
                f"the connections of {self.name!r} are in autocommit mode",
                advice="Connect with autocommit=False",
            )
        branch = PostgresBranch(self, connection, xid)
        connection.tpc_begin(native(xid))
        return branch

    def in_doubt(self) -> Sequence[Xid]:
        """Prepared transactions of this database; texts that are no XA id are left out."""
        query = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        with reachable, self.pool.borrow() as connection:
            rows = connection.execute(query).fetchall()
            connection.rollback()
        return [xid for (gid,) in rows if (xid := parse_gid(gid)) is not None]

    def commit(self, xid: Xid) -> None:
        self._finish("COMMIT PREPARED", xid)

    def rollback(self, xid: Xid) -> None:
        self._finish("ROLLBACK PREPARED", xid)

    def _finish(self, verb: str, xid: Xid) -> None:
        with reachable, self.pool.borrow() as connection:
            finish(connection, verb, format_gid(xid))

    def preflight(self) -> Sequence[Problem]:
        with reachable, self.pool.borrow() as connection:
            row = connection.execute("SHOW max_prepared_transactions").fetchone()
            connection.rollback()
        if row is not None and int(row[0]) > 0:
            return []
        return [
            Problem(
                self.name,
                "max_prepared_transactions is 0: the server refuses PREPARE TRANSACTION",
                "Set it to at least max_connections in postgresql.conf and restart the server",
            )
        ]


class PostgresBranch:
    """One branch: a connection with a two-phase transaction.

    To psycopg it stays one until the end, so that ``commit`` and the like are refused.
    """

    __slots__ = ("_connection", "_gid", "_over", "_prepared", "_resource", "xid")

    def __init__(self, resource: PostgresResource, connection: Connection, xid: Xid) -> None:
        self.xid = xid
        self._resource = resource
        self._connection = connection
        self._gid = format_gid(xid)
        self._prepared = False
        self._over = False

    @property
    def raw(self) -> Connection:
        """The driver's connection, for a room that wraps it."""
        return self._connection

    @property
    def handle(self) -> Connection:
        return self._connection

    def prepare(self) -> Vote:
        connection = self._connection
        if connection.closed:
            raise closed_by_application(self._resource.name)
        with reachable, refusals:
            if self._resource.detect_read_only and self._read_only():
                connection.tpc_commit()
                self._over = True
                return Vote.READ_ONLY
            tag = run(connection, f"PREPARE TRANSACTION '{self._gid}'")
        if tag != _PREPARED:
            raise BranchRolledBack(f"{_FAILED}: it answered PREPARE TRANSACTION with {tag}")
        self._prepared = True
        return Vote.PREPARED

    def _read_only(self) -> bool:
        if self._connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            return False
        row = self._connection.execute("SELECT pg_current_xact_id_if_assigned() IS NULL").fetchone()
        return row is not None and bool(row[0])

    def commit(self) -> None:
        self._over = True
        with reachable:
            finish(self._connection, "COMMIT PREPARED", self._gid)

    def commit_one_phase(self) -> None:
        if self._connection.pgconn.transaction_status == TransactionStatus.INERROR:
            raise BranchRolledBack(_FAILED)
        self._over = True
        with reachable, refusals:
            self._connection.tpc_commit()

    def rollback(self) -> None:
        if self._over or self._connection.closed:
            return
        self._over = True
        with reachable:
            if self._prepared:
                finish(self._connection, "ROLLBACK PREPARED", self._gid)
            else:
                self._connection.tpc_rollback()

    def close(self) -> None:
        connection = self._connection
        sound = self._over and connection.pgconn.transaction_status == TransactionStatus.IDLE
        if sound and self._prepared:
            connection.tpc_commit()  # sends nothing: psycopg, too, lets go of the transaction
        self._resource.pool.give(connection, broken=not sound)


class Refusals(Reachable):
    """A block in which a server's refusal means that it has rolled back: `BranchRolledBack`."""

    __slots__ = ()

    def answer(self, error: BaseException) -> ResourceAnswer:
        state = getattr(error, "sqlstate", None)
        if state is None or state[:2] in _LOST_CLASSES:
            return super().answer(error)
        return BranchRolledBack(told(error))


refusals = Refusals(psycopg.DatabaseError)


def finish(connection: Connection, verb: str, gid: str) -> None:
    """End a prepared transaction. Raises `BranchUnknown`, or the driver's error."""
    try:
        run(connection, f"{verb} '{gid}'")
    except psycopg.errors.UndefinedObject as error:
        raise BranchUnknown(told(error)) from error


def run(connection: Connection, command: str) -> str:
    """One command, by libpq's simple protocol; the tag of the answer.

    Not by ``tpc_prepare`` and ``tpc_commit``: psycopg does not look at the tag, and makes
    the command anew at a price above that of its round trip.
    """
    result = connection.pgconn.exec_(command.encode("ascii"))
    if result.status != ExecStatus.COMMAND_OK:
        raise psycopg.errors.error_from_result(result)
    return (result.command_status or b"").decode("ascii")


def _alive(connection: Connection) -> bool:
    if connection.closed:
        return False
    return connection.pgconn.exec_(b"").status == ExecStatus.EMPTY_QUERY


def native(xid: Xid) -> psycopg.Xid:
    """Psycopg's own object for an id of ours, which is ASCII throughout."""
    return psycopg.Xid.from_parts(xid.format_id, xid.gtrid.decode("ascii"), xid.bqual.decode())


def format_gid(xid: Xid) -> str:
    """The text of an id on the server: format, gtrid and bqual in Base64, joined by ``_``.
    Raises `TransactionUsageError` if the server would not take it."""
    parts = (base64.b64encode(part).decode() for part in (xid.gtrid, xid.bqual))
    gid = f"{xid.format_id}_{'_'.join(parts)}"
    if len(gid) > GID_MAX:
        raise TransactionUsageError(
            f"the id {gid} is too long for PostgreSQL", expected=f"at most {GID_MAX} bytes"
        )
    return gid


def parse_gid(gid: str) -> Xid | None:
    """The id that a text of the server spells; None if it is no XA id."""
    head, _, rest = gid.partition("_")
    middle, separator, tail = rest.partition("_")
    if not (separator and head.lstrip("-").isdigit()):
        return None
    try:
        gtrid, bqual = (base64.b64decode(part, validate=True) for part in (middle, tail))
    except (binascii.Error, ValueError):
        return None
    return Xid(int(head), gtrid, bqual)
