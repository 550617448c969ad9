"""PostgreSQL through psycopg 3.

In: a connection string or function. Out: branches as prepared transactions whose ids are
spelled as psycopg's own `Xid` spells them (and pgjdbc), so that other coordinators see the
same branches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tallystick.errors import MissingExtraError, TransactionUsageError
from tallystick.records import Xid
from tallystick.services.transactions.resource import Problem
from tallystick.services.transactions.resources.connection_resource import ConnectedResource
from tallystick.services.transactions.resources.gid import format_gid, parse_gid
from tallystick.services.transactions.resources.pool import AsyncPool

try:
    import psycopg
    from psycopg.pq import ExecStatus
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("psycopg", "postgres") from error

from tallystick.services.transactions.resources.postgres_branch import (
    AsyncConnection,
    AsyncPostgresBranch,
    Connection,
    PostgresBranch,
    execute,
    reachable,
    tag_of,
)


class PostgresResource(ConnectedResource[Connection]):
    """A PostgreSQL database; ``connect`` makes a connection that is not in autocommit mode, and
    ``connect_async`` one for tasks, whose branches run in worker threads without it.

    ``detect_read_only`` asks before each prepare whether the branch wrote anything (one more
    round trip); branches that did not are committed at once and vote "read only".
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        *,
        connect_async: Callable[[], Awaitable[AsyncConnection]] | None = None,
        detect_read_only: bool = False,
    ) -> None:
        super().__init__(name, connect, reachable, _alive)
        self.detect_read_only = detect_read_only
        self.begin_async = None if connect_async is None else self._begin_async
        self._tasks = None if connect_async is None else AsyncPool(connect_async, _finish)

    @classmethod
    def from_url(cls, name: str, url: str) -> PostgresResource:
        """The database of a libpq connection string or URL."""
        plain = url.replace("postgresql+psycopg://", "postgresql://", 1)
        return cls(
            name,
            lambda: psycopg.connect(plain),
            connect_async=lambda: psycopg.AsyncConnection.connect(plain),
        )

    def start(self, connection: Connection, xid: Xid) -> PostgresBranch:
        """Begin the transaction on the server."""
        self._refuse_autocommit(connection)
        branch = PostgresBranch(
            self.name, connection, xid, self.pool.give, detect_read_only=self.detect_read_only
        )
        connection.tpc_begin(native(xid))
        return branch

    async def _begin_async(self, xid: Xid) -> AsyncPostgresBranch:
        """The same for a task."""
        assert self._tasks is not None
        give = self._tasks.give

        async def start(connection: AsyncConnection) -> AsyncPostgresBranch:
            self._refuse_autocommit(connection)
            branch = AsyncPostgresBranch(
                self.name, connection, xid, give, detect_read_only=self.detect_read_only
            )
            await connection.tpc_begin(native(xid))
            return branch

        with reachable:
            return await self._tasks.begin(start)

    def _refuse_autocommit(self, connection: Connection | AsyncConnection) -> None:
        if connection.autocommit:
            raise TransactionUsageError(
                f"the connections of {self.name!r} are in autocommit mode",
                advice="Connect with autocommit=False",
            )

    def close(self) -> None:
        super().close()
        if self._tasks is not None:
            self._tasks.close()

    def in_doubt(self) -> Sequence[Xid]:
        """Prepared transactions of this database; texts that are no XA id are left out."""
        query = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        with reachable, self.pool.borrow() as connection:
            rows = connection.execute(query).fetchall()
            connection.rollback()
        return [xid for (gid,) in rows if (xid := parse_gid(gid)) is not None]

    def commit(self, xid: Xid) -> None:
        self._settle("COMMIT PREPARED", xid)

    def rollback(self, xid: Xid) -> None:
        self._settle("ROLLBACK PREPARED", xid)

    def _settle(self, verb: str, xid: Xid) -> None:
        with reachable, self.pool.borrow() as connection:
            tag_of(execute(connection, f"{verb} '{format_gid(xid)}'"))

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


def _finish(connection: AsyncConnection) -> None:
    """Close without waiting: the server notices."""
    connection.pgconn.finish()


def _alive(connection: Connection) -> bool:
    if connection.closed:
        return False
    return connection.pgconn.exec_(b"").status == ExecStatus.EMPTY_QUERY


def native(xid: Xid) -> psycopg.Xid:
    """Psycopg's own object for an id of ours, which is ASCII throughout."""
    return psycopg.Xid.from_parts(xid.format_id, xid.gtrid.decode("ascii"), xid.bqual.decode())
