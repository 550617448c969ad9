"""PostgreSQL through psycopg 3.

In: a connection string or function. Out: branches as prepared transactions whose ids are
spelled by psycopg's own `Xid` (the spelling of pgjdbc), so that other coordinators see the
same branches. PREPARE TRANSACTION in a failed transaction answers a silent ROLLBACK, so the
state of the connection is looked at before and the answer is never taken on trust.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tallystick.errors import MissingExtraError, TransactionUsageError
from tallystick.records import Xid
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceUnreachable,
    Vote,
)
from tallystick.services.transactions.resources.pool import Pool

try:
    import psycopg
    from psycopg.pq import TransactionStatus
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("psycopg", "postgres") from error

Connection = psycopg.Connection[Any]
_LOST_CLASSES = ("08", "57")
"""SQLSTATE classes that say the connection or the server is going away."""

GID_MAX = 199
"""Bytes of a prepared transaction's identifier, a limit of the server."""


class PostgresResource:
    """A PostgreSQL database; ``connect`` makes a connection that is not in autocommit mode.

    ``detect_read_only`` asks before each prepare whether the branch wrote anything (one more
    round trip); branches that did not are committed at once and vote "read only".
    """

    def __init__(
        self, name: str, connect: Callable[[], Connection], *, detect_read_only: bool = False
    ) -> None:
        self.name = name
        self.detect_read_only = detect_read_only
        self.pool: Pool[Connection] = Pool(connect)

    @classmethod
    def from_url(cls, name: str, url: str) -> PostgresResource:
        """The database of a libpq connection string or URL."""
        plain = url.replace("postgresql+psycopg://", "postgresql://", 1)
        return cls(name, lambda: psycopg.connect(plain))

    def begin(self, xid: Xid) -> PostgresBranch:
        with reachable():
            connection = self.pool.take()
            if connection.closed or connection.broken:
                connection = self._replace(connection)
        if connection.autocommit:
            self.pool.give(connection, broken=True)
            raise TransactionUsageError(
                f"the connections of {self.name!r} are in autocommit mode",
                advice="Connect with autocommit=False",
            )
        branch = PostgresBranch(self, connection, xid)
        branch.start()
        return branch

    def _replace(self, connection: Connection) -> Connection:
        self.pool.give(connection, broken=True)
        self.pool.drop_idle()
        return self.pool.take()

    def in_doubt(self) -> Sequence[Xid]:
        """Prepared transactions of this database; texts that are no XA id are left out."""
        query = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        with self._borrow() as connection:
            rows = connection.execute(query).fetchall()
            connection.rollback()
        return [xid for (gid,) in rows if (xid := parse_gid(gid)) is not None]

    def commit(self, xid: Xid) -> None:
        self._finish("COMMIT PREPARED", xid)

    def rollback(self, xid: Xid) -> None:
        self._finish("ROLLBACK PREPARED", xid)

    def _finish(self, command: str, xid: Xid) -> None:
        # Not through tpc_commit: an id of another coordinator may not be text in psycopg's sense.
        with self._borrow() as connection:
            connection.autocommit = True
            try:
                connection.execute(f"{command} '{format_gid(xid)}'")
            except psycopg.errors.UndefinedObject as error:
                raise BranchUnknown(str(error)) from error
            finally:
                if not connection.closed:
                    connection.autocommit = False

    @contextmanager
    def _borrow(self) -> Iterator[Connection]:
        with reachable():
            connection = self.pool.take()
            if connection.closed or connection.broken:
                connection = self._replace(connection)
            try:
                yield connection
            finally:
                self.pool.give(connection, broken=connection.closed or connection.broken)

    def preflight(self) -> Sequence[Problem]:
        with self._borrow() as connection:
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

    def close(self) -> None:
        self.pool.close()


class PostgresBranch:
    """One branch: a connection with a two-phase transaction."""

    def __init__(self, resource: PostgresResource, connection: Connection, xid: Xid) -> None:
        self.xid = xid
        self._resource = resource
        self._connection = connection
        self._over = False

    def start(self) -> None:
        """Begin the transaction on the server."""
        with reachable():
            self._connection.tpc_begin(native(self.xid))

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
            raise TransactionUsageError(f"the connection of {self._resource.name!r} was closed")
        if connection.info.transaction_status == TransactionStatus.INERROR:
            raise BranchRolledBack("a statement failed, so the server would only roll back")
        with reachable(), refusals():
            if self._resource.detect_read_only and self._read_only():
                connection.tpc_commit()
                self._over = True
                return Vote.READ_ONLY
            connection.tpc_prepare()
        return Vote.PREPARED

    def _read_only(self) -> bool:
        row = self._connection.execute("SELECT pg_current_xact_id_if_assigned() IS NULL").fetchone()
        return row is not None and bool(row[0])

    def commit(self) -> None:
        with reachable():
            try:
                self._connection.tpc_commit()
            except psycopg.errors.UndefinedObject as error:
                raise BranchUnknown(str(error)) from error
            finally:
                self._over = True

    def commit_one_phase(self) -> None:
        if self._connection.info.transaction_status == TransactionStatus.INERROR:
            raise BranchRolledBack("a statement failed, so the server would only roll back")
        try:
            with reachable(), refusals():
                self._connection.tpc_commit()
        finally:
            self._over = True

    def rollback(self) -> None:
        if self._over or self._connection.closed:
            return
        self._over = True
        with reachable():
            try:
                self._connection.tpc_rollback()
            except psycopg.errors.UndefinedObject as error:
                raise BranchUnknown(str(error)) from error

    def close(self) -> None:
        broken = self._connection.closed or self._connection.broken
        idle = not broken and self._connection.info.transaction_status == TransactionStatus.IDLE
        self._resource.pool.give(self._connection, broken=broken or not idle or not self._over)


@contextmanager
def reachable() -> Iterator[None]:
    """Turn any error of the driver that says nothing of the branch into `ResourceUnreachable`."""
    try:
        yield
    except psycopg.Error as error:
        raise ResourceUnreachable(str(error).strip()) from error


@contextmanager
def refusals() -> Iterator[None]:
    """Turn a server's refusal, by which it has rolled back, into `BranchRolledBack`."""
    try:
        yield
    except psycopg.DatabaseError as error:
        if error.sqlstate is None or error.sqlstate[:2] in _LOST_CLASSES:
            raise
        raise BranchRolledBack(str(error).strip()) from error


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
