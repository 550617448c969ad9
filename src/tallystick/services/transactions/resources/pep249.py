"""Any driver with the two-phase calls of PEP 249, python-oracledb among them.

In: a function that connects. Out: branches by ``tpc_begin``, ``tpc_prepare``, ``tpc_commit``,
``tpc_rollback`` and ``tpc_recover``. A driver whose prepare answers False has voted "read
only". Ids are given to ``connection.xid`` as text, or as bytes where it takes bytes.

Oracle: written against python-oracledb's interface and tested with a stand-in that has its
signatures, ids and errors. It was never run against a server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tallystick.callables import checked
from tallystick.errors import TransactionUsageError
from tallystick.records import Xid
from tallystick.services.driver_errors import ErrorKind, kind_of
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceAnswer,
    ResourceUnreachable,
    Vote,
)
from tallystick.services.transactions.resources.connection_resource import (
    ConnectionResource,
    DriverErrors,
    message_of,
    no_primary,
)
from tallystick.services.transactions.resources.handle import WholeHandle

_CALLS = ("xid", "tpc_begin", "tpc_prepare", "tpc_commit", "tpc_rollback", "tpc_recover")
_REFUSED = (ErrorKind.CONSTRAINT, ErrorKind.DATA, ErrorKind.TRANSIENT)
"""Kinds of errors with which a database has answered a commit: it was not done."""


class TpcErrors(DriverErrors):
    """Errors of a PEP 249 driver; ``unknown`` recognises those of a branch that is not known."""

    __slots__ = ("_unknown",)

    def __init__(self, driver: Any, unknown: Callable[[Exception], bool]) -> None:
        super().__init__(driver.Error)
        self._unknown = unknown

    def answer(self, error: BaseException) -> ResourceAnswer:
        """Return the answer: unknown if the error says so, else unreachable."""
        unknown = isinstance(error, Exception) and self._unknown(error)
        return BranchUnknown(message_of(error)) if unknown else super().answer(error)


class TpcResource(ConnectionResource[Any]):
    """A database whose driver has the two-phase calls of PEP 249.

    Args:
        name: the unique name.
        connect: makes a connection.
        driver: the module of the driver, for its errors.
        unknown: whether an error says that the database does not know the branch.
        binary: whether ``connection.xid`` takes bytes instead of text.
        rights: the rights that a user needs to list branches, for `preflight`.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Any],
        driver: Any,
        *,
        unknown: Callable[[Exception], bool] = lambda _: False,
        binary: bool = False,
        rights: str = "what tpc_recover of its driver needs",
    ) -> None:
        unknown = checked(unknown, "unknown of a resource")
        super().__init__(name, connect, TpcErrors(driver, unknown))
        self.driver = driver
        self._binary = binary
        self._rights = rights

    def start(self, connection: Any, xid: Xid) -> TpcBranch:
        """Begin the transaction on the database."""
        connection.tpc_begin(self._theirs(connection, xid))
        return TpcBranch(self, connection, xid)

    def end_session(self, connection: Any) -> None:
        """Have the driver interrupt the call that waits: ``cancel``, as python-oracledb has it."""
        cancel = getattr(connection, "cancel", None)
        if cancel is not None:
            cancel()

    def in_doubt(self) -> Sequence[Xid]:
        """List every prepared branch; a standby of PostgreSQL lists none, and is away."""
        with self.lend() as connection:
            if _is_standby(connection):
                raise ResourceUnreachable(no_primary("a standby"))
            listed = connection.tpc_recover()
            return [_ours(found) for found in listed if not _is_elsewhere(connection, found)]

    def commit(self, xid: Xid) -> None:
        """Commit a branch found in doubt."""
        with self.lend() as connection:
            connection.tpc_commit(self._theirs(connection, xid))

    def rollback(self, xid: Xid) -> None:
        """Roll back a branch found in doubt."""
        with self.lend() as connection:
            connection.tpc_rollback(self._theirs(connection, xid))

    def preflight(self) -> Sequence[Problem]:
        """Check the calls of the driver and the rights of the user."""
        with self.lend() as connection:
            if missing := [call for call in _CALLS if not hasattr(connection, call)]:
                mend = "Use a driver with the two-phase calls of PEP 249, or write a Resource"
                return [Problem(self.name, f"the driver lacks {', '.join(missing)}", mend)]
            try:
                connection.tpc_recover()
            except self.driver.Error as error:
                what = f"the user may not list branches in doubt: {message_of(error)}"
                return [Problem(self.name, what, f"Grant the user {self._rights}")]
        return []

    def _theirs(self, connection: Any, xid: Xid) -> Any:
        if self._binary:
            return connection.xid(xid.format_id, xid.gtrid, xid.bqual)
        try:
            gtrid, bqual = xid.gtrid.decode("ascii"), xid.bqual.decode("ascii")
        except UnicodeDecodeError as error:
            raise TransactionUsageError("this driver takes only ids that are text") from error
        return connection.xid(xid.format_id, gtrid, bqual)


class TpcBranch:
    """One branch: a connection between ``tpc_begin`` and its end."""

    def __init__(self, resource: TpcResource, connection: Any, xid: Xid) -> None:
        self.xid = xid
        self._resource = resource
        self._connection = connection
        self._handle = WholeHandle(connection, resource.name)
        self._over = False

    @property
    def handle(self) -> Any:
        """The connection, without what would end the branch."""
        return self._handle

    def prepare(self) -> Vote:
        """Prepare by ``tpc_prepare``."""
        try:
            answer = self._connection.tpc_prepare()
        except self._resource.driver.Error as error:
            raise BranchRolledBack(str(error)) from error
        if answer is False:
            self._over = True
            return Vote.READ_ONLY
        return Vote.PREPARED

    def commit(self) -> None:
        """Commit by ``tpc_commit``."""
        with self._resource.errors:
            self._connection.tpc_commit()
        self._over = True

    def commit_one_phase(self) -> None:
        """Commit by ``tpc_commit`` without prepare."""
        try:
            self.commit()
        except ResourceUnreachable as answer:
            if kind_of(answer) not in _REFUSED:
                raise
            raise BranchRolledBack(answer.message) from answer

    def rollback(self) -> None:
        """Roll back by ``tpc_rollback``, unless the branch has ended."""
        if not self._over:
            with self._resource.errors:
                self._connection.tpc_rollback()
            self._over = True

    def abort(self) -> None:
        """Have the driver interrupt the call that waits, if it has a call for that."""
        self._resource.end_session(self._connection)

    def close(self) -> None:
        """Give the connection back."""
        self._handle.detach()
        if self._over:
            self._handle.close_cursors()
        self._resource.pool.give(self._connection, broken=not self._over)


def oracle_resource(name: str, connect: Callable[[], Any]) -> TpcResource:
    """Return an Oracle database through python-oracledb (thin mode from 2.3) as a resource.

    ORA-24756 and ORA-02042 say that the branch is not known.
    """
    import oracledb

    def unknown(error: Exception) -> bool:
        return any(code in str(error) for code in ("ORA-24756", "ORA-02042"))

    rights = "SELECT on SYS.DBA_PENDING_TRANSACTIONS, and FORCE ANY TRANSACTION"
    return TpcResource(name, connect, oracledb, unknown=unknown, binary=True, rights=rights)


def _is_elsewhere(connection: Any, found: Any) -> bool:
    """Return True for a branch of another database of the server.

    psycopg2 and psycopg 3 list them, too, with its name; only a connection to it can end them.
    """
    database = getattr(found, "database", None)
    connected = getattr(getattr(connection, "info", None), "dbname", None)
    return None not in (database, connected) and database != connected


def _is_standby(connection: Any) -> bool:
    """Return True for a standby of PostgreSQL from 14 on, by psycopg2 or psycopg 3."""
    ask = getattr(getattr(connection, "info", None), "parameter_status", None)
    return ask is not None and ask("in_hot_standby") == "on"


def _ours(found: Any) -> Xid:
    format_id, gtrid, bqual = found[0], found[1], found[2]
    return Xid(-1 if format_id is None else format_id, _bytes(gtrid), _bytes(bqual))


def _bytes(part: str | bytes | None) -> bytes:
    if part is None:
        return b""
    return part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape")
