"""PostgreSQL through psycopg 3.

In: a connection string or function. Out: branches as prepared transactions whose ids are
spelled as psycopg's own `Xid` spells them (and pgjdbc), so that other coordinators see the
same branches. PREPARE TRANSACTION in a failed transaction is answered by a silent ROLLBACK,
so the tag of the answer is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tallystick.errors import MissingExtraError, TransactionUsageError
from tallystick.records import Xid
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceAnswer,
    ResourceUnreachable,
    Vote,
)
from tallystick.services.transactions.resources.connected import (
    ConnectedResource,
    Reachable,
    closed_by_application,
    told,
)
from tallystick.services.transactions.resources.gid import format_gid, parse_gid

try:
    import psycopg
    from psycopg import generators
    from psycopg.pq import ExecStatus, TransactionStatus
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("psycopg", "postgres") from error

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

Connection = psycopg.Connection[Any]
_LOST_CLASSES = ("08", "57")
"""SQLSTATE classes that say the connection or the server is going away."""

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
            run(connection, f"{verb} '{format_gid(xid)}'")

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

    __slots__ = ("_connection", "_gid", "_over", "_prepared", "_resource", "_sent", "xid")

    def __init__(self, resource: PostgresResource, connection: Connection, xid: Xid) -> None:
        self.xid = xid
        self._resource = resource
        self._connection = connection
        self._gid = format_gid(xid)
        self._sent = False
        self._prepared: bool | None = False
        """None from the question to the answer."""
        self._over = False

    @property
    def raw(self) -> Connection:
        """The driver's connection, for a room that wraps it."""
        return self._connection

    @property
    def handle(self) -> Connection:
        return self._connection

    def send_prepare(self) -> bool:
        return not self._resource.detect_read_only and self._send(_PREPARED)

    def send_commit(self) -> bool:
        return self._send("COMMIT PREPARED")

    def _send(self, verb: str) -> bool:
        with suppress(psycopg.Error):  # the call that waits finds it out
            self._connection.pgconn.send_query(f"{verb} '{self._gid}'".encode("ascii"))
            self._sent = True
            self._prepared = self._prepared or None
        return self._sent

    def prepare(self) -> Vote:
        connection = self._connection
        if connection.closed:
            raise closed_by_application(self._resource.name)
        with reachable, refusals:
            if self._resource.detect_read_only and self._read_only():
                connection.tpc_commit()
                self._over = True
                return Vote.READ_ONLY
            self._prepared = None
            tag = self._run(_PREPARED)
        self._prepared = tag == _PREPARED
        if not self._prepared:
            raise BranchRolledBack(f"{_FAILED}: it answered PREPARE TRANSACTION with {tag}")
        return Vote.PREPARED

    def _read_only(self) -> bool:
        if self._connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            return False
        row = self._connection.execute("SELECT pg_current_xact_id_if_assigned() IS NULL").fetchone()
        return row is not None and bool(row[0])

    def commit(self) -> None:
        self._over = True
        with reachable:
            self._run("COMMIT PREPARED")

    def commit_one_phase(self) -> None:
        if self._connection.pgconn.transaction_status == TransactionStatus.INERROR:
            raise BranchRolledBack(_FAILED)
        self._over = True
        with reachable, refusals:
            self._connection.tpc_commit()

    def rollback(self) -> None:
        if self._over:
            return
        if self._connection.closed:
            if self._prepared is not False:
                raise ResourceUnreachable("the connection was lost at prepare")
            return  # the server rolls back with the connection
        with reachable:
            if self._sent:
                with suppress(BranchRolledBack):
                    self.prepare()
            self._over = True
            if self._prepared is not False and self._at_rest():
                with suppress(BranchUnknown):  # refused to prepare, or ended by recovery
                    self._run("ROLLBACK PREPARED")
            else:
                self._prepared = False
                self._connection.tpc_rollback()

    def _at_rest(self) -> bool:
        return self._connection.pgconn.transaction_status == TransactionStatus.IDLE

    def _run(self, verb: str) -> str:
        """The tag of a command about this branch, which may have been sent before."""
        if self._sent:
            self._sent = False
            return tag_of(_answer(self._connection))
        return run(self._connection, f"{verb} '{self._gid}'")

    def close(self) -> None:
        connection = self._connection
        sound = self._over and self._at_rest()
        if sound and self._prepared is not False:
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


def run(connection: Connection, command: str) -> str:
    """One command, by libpq's simple protocol; the tag of the answer.

    Not by ``tpc_prepare`` and ``tpc_commit``: psycopg does not look at the tag, and makes
    the command anew at a price above that of its round trip.
    """
    return tag_of(connection.pgconn.exec_(command.encode("ascii")))


def tag_of(result: PGresult) -> str:
    """The tag of an answer. Raises `BranchUnknown`, or the driver's error."""
    if result.status == ExecStatus.COMMAND_OK:
        return (result.command_status or b"").decode("ascii")
    error = psycopg.errors.error_from_result(result)
    if isinstance(error, psycopg.errors.UndefinedObject):
        raise BranchUnknown(told(error)) from error
    raise error


def _answer(connection: Connection) -> PGresult:
    """Wait for the answer to what was sent."""
    results: list[PGresult] = connection.wait(generators.execute(connection.pgconn))
    return results[0]


def _alive(connection: Connection) -> bool:
    if connection.closed:
        return False
    return connection.pgconn.exec_(b"").status == ExecStatus.EMPTY_QUERY


def native(xid: Xid) -> psycopg.Xid:
    """Psycopg's own object for an id of ours, which is ASCII throughout."""
    return psycopg.Xid.from_parts(xid.format_id, xid.gtrid.decode("ascii"), xid.bqual.decode())
