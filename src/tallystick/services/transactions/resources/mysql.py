"""MariaDB and MySQL by XA statements, through PyMySQL.

In: connection settings. Out: branches as XA transactions. The two-phase calls of the connectors
cannot end a branch that another connection prepared, so XA statements are sent. To MariaDB those of
a prepare are sent at once, and their answers are read together.
Ids are written as ``X'gtrid',X'bqual',format`` and read from XA RECOVER in its hex forms.
"""

from __future__ import annotations

import re
import secrets
import struct
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from tallystick.callables import checked
from tallystick.errors import MissingExtraError, TransactionUsageError
from tallystick.reconcile.ids import literal
from tallystick.records import Xid
from tallystick.services.driver_errors import ErrorKind, kind_of
from tallystick.services.transactions.resource import (
    BranchHeuristic,
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceAnswer,
    ResourceUnreachable,
    Vote,
)
from tallystick.services.transactions.resources.connection_resource import (
    IDENTITY,
    OUTCOMES,
    ConnectionResource,
    DriverErrors,
    NoTableError,
    check_scheme,
    closed_by_application,
    ended_by_application,
    message_of,
    no_rows,
    shut_down,
    url_options,
    yes_or_no,
)
from tallystick.services.transactions.resources.handle import Handle, branch_is_over
from tallystick.services.transactions.resources.pool import Pool
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading, time

try:
    import pymysql
    from pymysql.constants import COMMAND
    from pymysql.err import raise_mysql_exception  # not `pymysql.err`: see install_as_MySQLdb
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("pymysql", "mysql") from error

Connection = Any
"""A PyMySQL connection, whatever its type of cursor."""

XAER_NOTA = 1397
XAER_RMFAIL = 1399
_ROLLED_BACK = frozenset({1402, 1613, 1614, 1213, 1205})
"""XA_RBROLLBACK, XA_RBTIMEOUT, XA_RBDEADLOCK, deadlock, lock wait timeout."""
_HEURISTIC = frozenset({1401})
_NOBODY = 0
"""In place of a thread: none may use the connection any more."""
_READS_ONLY = "SHOW VARIABLES WHERE Variable_name IN ('tx_read_only', 'transaction_read_only')"
"""The server's versions have one of the names, or both."""
_OF_ACTIVE = ("INSERT", "XA END", "XA PREPARE")
"""Statements that XAER_RMFAIL answers if the application has ended the branch."""

# The plain form gives raw bytes in a text column, which drivers decode wrongly: both servers have
# a form in hex, under different names.
_RECOVER_MARIADB = "XA RECOVER FORMAT='SQL'"
_RECOVER_MYSQL = "XA RECOVER CONVERT XID"
_COLUMNS = (
    "(gtrid VARCHAR(128), resource VARCHAR(255), PRIMARY KEY (gtrid, resource)) "
    "ENGINE=InnoDB CHARACTER SET ascii COLLATE ascii_bin"
)
_NAME_MAX = 255
"""Characters of a resource's name: the width of its column."""
_NOT_ALLOWED = frozenset({1044, 1142, 1143, 1227})
"""Errors that say the user lacks a right."""
_LITERAL = re.compile(r"[xX]?'[^']*'")
_CHANGES_SESSION = re.compile(
    r"(?:\s|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|(?:--\s|#)[^\n]*\n)*"
    r"(?:SET|USE|CALL|EXECUTE|PREPARE|LOCK|FLUSH|HANDLER|BEGIN\s+NOT|"
    r"(?:CREATE(?:\s+OR\s+REPLACE)?|DROP)\s+TEMPORARY)\b"
    r"|/\*M?!|.*(?:\bGET_LOCK\s*\(|\bINTO\s+@|:=)",
    re.IGNORECASE | re.DOTALL,
)
"""Beginnings of statements after which a session is not what it was when it was new."""


_OPTIONS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(
        (
            "bind_address", "charset", "collation", "init_command", "program_name",
            "read_default_file", "read_default_group", "server_public_key", "sql_mode", "ssl_ca",
            "ssl_cert", "ssl_key", "ssl_key_password", "unix_socket",
        ),
        str,
    ),
    **dict.fromkeys(
        ("client_flag", "connect_timeout", "max_allowed_packet", "read_timeout", "write_timeout"),
        int,
    ),
    **dict.fromkeys(
        ("local_infile", "ssl_disabled", "ssl_verify_cert", "ssl_verify_identity", "use_unicode"),
        yes_or_no,
    ),
}  # fmt: skip
"""PyMySQL's settings that a URL can have, and how their values are read."""

_CONTEXT_AGE_S = 60.0
_TLS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity")

_ERROR = 0xFF
"""First byte of an answer that is an error; 0 is success."""
_REQUEST = struct.Struct("<iB")
"""Head of a request: 3 bytes of length, 1 of sequence number (0), 1 of the command.

An answer begins in the same way, with its kind in place of the command.
"""
_SHORTEST_ANSWER = 11
"""Bytes of an answer without text: 4 of the head; kind, two counts, status and warnings."""

driver_errors = DriverErrors(pymysql.Error)


class MySqlResource(ConnectionResource[Connection]):
    """A MariaDB or MySQL server; ``connect`` makes a PyMySQL connection."""

    def __init__(self, name: str, connect: Callable[[], Connection]) -> None:
        if len(name) > _NAME_MAX:
            raise TransactionUsageError(
                f"a resource's name of {len(name)} characters",
                expected=f"at most {_NAME_MAX} for MariaDB and MySQL",
                advice="Outcome rows hold it: give the resource a shorter name",
            )
        connect = checked(connect, f"what connects to {name!r}")

        def connect_autocommit() -> Connection:
            connection = connect()
            set_autocommit(connection)
            return connection

        super().__init__(name, connect_autocommit, driver_errors, alive)

    dialect = "mysql"
    keeps_rows = True

    def make_table(self, connection: Connection) -> str:
        """Return the table of outcome rows, in the database of the connection."""
        with _cursor(connection) as cursor:
            cursor.execute("SELECT DATABASE()")
            (database,) = cursor.fetchone()
            if database is None:
                raise NoTableError("the address names no database")
            table = f"{quoted(database)}.{OUTCOMES}"
            try:
                cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")
            except pymysql.ProgrammingError:
                try:
                    cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} {_COLUMNS}")
                except pymysql.Error as error:
                    raise NoTableError(message_of(error)) from error
            except pymysql.OperationalError as error:
                if error.args[0] not in _NOT_ALLOWED:
                    raise
                raise NoTableError(message_of(error)) from error
        return table

    def outcomes(self) -> Sequence[bytes]:
        """List the global ids of all outcome rows."""
        return self.outcomes_of(self.name)

    def outcomes_of(self, name: str) -> Sequence[bytes]:
        """List the global ids of the outcome rows of a resource of this database."""
        self.prepare_for_rows(again=True)
        if self.outcome_table is None:
            return []
        with self.lend() as connection, _cursor(connection) as cursor:
            # Without parameters: PyMySQL would take a '%' in the name of a database for one.
            resource = text_literal(name)
            cursor.execute(f"SELECT gtrid FROM {self.outcome_table} WHERE resource = {resource}")
            return [bytes.fromhex(gtrid) for (gtrid,) in cursor.fetchall()]

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        """Delete outcome rows."""
        if self.outcome_table is None or not gtrids:
            return
        with self.lend() as connection, _cursor(connection) as cursor:
            # By the whole key: a range would wait for rows of branches in doubt.
            cursor.execute("BEGIN")
            for gtrid in gtrids:
                row = f"gtrid = '{gtrid.hex()}' AND resource = {text_literal(self.name)}"
                cursor.execute(f"DELETE FROM {self.outcome_table} WHERE {row}")
            cursor.execute("COMMIT")

    def identity(self) -> str | None:
        """Return the server's own id, where it has one, and the token of the database."""
        self.prepare_for_rows(again=True)
        if self.outcome_table is None:
            return None
        gtrid = f"'{IDENTITY.hex()}'"
        query = f"SELECT MIN(resource) FROM {self.outcome_table} WHERE gtrid = {gtrid}"
        with self.lend() as connection, _cursor(connection) as cursor:
            cursor.execute(query)
            (token,) = cursor.fetchone()
            if token is None:
                values = f"{gtrid}, '{secrets.token_hex(16)}'"
                cursor.execute(f"INSERT INTO {self.outcome_table} VALUES ({values})")
                cursor.execute(query)
                (token,) = cursor.fetchone()
            cursor.execute("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid')")
            server = "".join(f"server {value}, " for _, value in cursor.fetchall())
        return f"{server}database {self.outcome_table.rpartition('.')[0]} {token}"

    @classmethod
    def from_url(cls, name: str, url: str) -> MySqlResource:
        """Return the server of ``mariadb://user:password@host:port/database?option=value``.

        Raises:
            TransactionUsageError: the driver has no such option, or the value is none of its.
        """
        check_scheme(name, url, "pymysql")
        parts = urlsplit(url)
        if parts.fragment:
            advice = "Write '#' as %23 in names, passwords and options"
            raise TransactionUsageError(f"the URL of {name!r} has a fragment", advice=advice)
        settings: dict[str, Any] = {
            "host": parts.hostname or "localhost",
            "port": parts.port or 3306,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "database": unquote(parts.path.lstrip("/")) or None,
        } | url_options(name, url, _OPTIONS)
        contexts = _TlsContexts()
        encrypted = any(settings.get(option) for option in _TLS)

        def connect() -> Connection:
            connection = _UrlConnection(contexts, **settings, defer_connect=True)
            with resource.watch(connection):  # PyMySQL limits the time of TCP's handshake only
                connection.connect()
                if encrypted:
                    _refuse_plain_text(connection)
            return connection

        resource = cls(name, connect)
        return resource

    def end_session(self, connection: Connection) -> None:
        """End the session."""
        sock = connection._sock
        if sock is not None:
            shut_down(sock.fileno())

    def start(self, connection: Connection, xid: Xid) -> MySqlBranch:
        """Begin the branch on the server."""
        branch = MySqlBranch(self, connection, xid)
        branch.start()
        return branch

    def in_doubt(self) -> Sequence[Xid]:
        """List the branches of XA RECOVER.

        Ids that the server made itself are left out: format 1, gtrid ``MySQLXid...``.
        """
        with self.lend() as connection, _cursor(connection) as cursor:
            maria = "MariaDB" in connection.get_server_info()
            cursor.execute(_RECOVER_MARIADB if maria else _RECOVER_MYSQL)
            rows = cursor.fetchall()
        found = [_parse(*row) for row in rows]
        own = (1, b"MySQLXid")
        return [xid for xid in found if (xid.format_id, xid.gtrid[:8]) != own]

    def commit(self, xid: Xid) -> None:
        """Commit a branch found in doubt."""
        self._finish("XA COMMIT", xid)

    def rollback(self, xid: Xid) -> None:
        """Roll back a branch found in doubt."""
        self._finish("XA ROLLBACK", xid)

    def _finish(self, command: str, xid: Xid) -> None:
        with self.lend() as connection:
            ask(connection, f"{command} {literal(xid)}")

    def preflight(self) -> Sequence[Problem]:
        """Check the rights of the user and the version of the server."""
        with self.lend() as connection, _cursor(connection) as cursor:
            cursor.execute("SELECT VERSION()")
            (version,) = cursor.fetchone()
            problems = []
            cursor.execute(_READS_ONLY)
            if any(value == "ON" for _, value in cursor.fetchall()):
                problems.append(
                    Problem(
                        self.name,
                        "the transactions of the session are read-only",
                        "SET GLOBAL TRANSACTION READ WRITE, and no READ ONLY in init_command",
                    )
                )
            try:
                cursor.execute("XA RECOVER")
            except pymysql.OperationalError as error:
                problems.append(
                    Problem(
                        self.name,
                        f"the user may not list branches in doubt: {error.args[-1]}",
                        "GRANT XA_RECOVER_ADMIN ON *.* TO the user",
                    )
                )
        self.prepare_for_rows(again=True)
        if self.outcome_table is None:
            problems.append(no_rows(self.name, self.no_table))
        if detaches_late(version):
            problems.append(
                Problem(
                    self.name,
                    f"server {version} loses prepared branches with their connection",
                    "Use MariaDB 10.5 or later, or MySQL 8.0.29 or later",
                )
            )
        return problems


class _TlsContexts(Uncopied):
    """TLS contexts of one URL, made anew after a minute, as certificates are renewed.

    PyMySQL makes one for each connection, and reads all certificates of the system for it: that
    takes a hundredth of a second and more, in which no other thread runs.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[float, Any]] = {}
        self._making = threading.Lock()

    def get(self, settings: dict[str, Any], make: Callable[[dict[str, Any]], Any]) -> Any:
        """Return the context for the settings, made by ``make`` if it is not known."""
        now, key = time.monotonic(), repr(sorted(settings.items()))
        with self._making:
            if key not in self._made or self._made[key][0] < now - _CONTEXT_AGE_S:
                self._made[key] = now, make(settings)
            return self._made[key][1]


class _UrlConnection(pymysql.connections.Connection):
    """A connection that shares TLS contexts with others."""

    def __init__(self, contexts: _TlsContexts, **settings: Any) -> None:
        self._contexts = contexts
        super().__init__(**settings)

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> Any:
        return self._contexts.get(sslp, super()._create_ssl_ctx)  # type: ignore[misc]


class MySqlBranch:
    """One branch: a connection with an XA transaction."""

    __slots__ = (
        "_autocommit",
        "_awaited",
        "_connection",
        "_ended",
        "_handle",
        "_literal",
        "_over",
        "_prepare_sent",
        "_resource",
        "statements",
        "xid",
    )

    def __init__(self, resource: MySqlResource, connection: Connection, xid: Xid) -> None:
        self.xid = xid
        self._resource = resource
        self._connection = connection
        self._autocommit = connection.get_autocommit()
        self._literal = literal(xid)
        self._awaited: list[str] = []
        """Statements that were sent, and whose answers were not read yet."""
        self._ended = False
        self._prepare_sent = False
        self._over = False
        self._handle = Handle(connection, resource.name)
        self.statements = _Statements(connection, resource.name)

    def start(self) -> None:
        """Begin the branch on the server."""
        ask(self._connection, f"XA START {self._literal}")
        self.statements.watch()

    @property
    def raw(self) -> Connection:
        """The driver's connection."""
        return self._connection

    @property
    def handle(self) -> Handle:
        """Statements of the branch."""
        return self._handle

    def send_prepare(self) -> bool:
        """Send the statements of `prepare` at once, where the server takes that."""
        usable = self._connection.open and self.statements.end()
        if not (usable and takes_several(self._connection)):
            return False
        self._send(self._preparing())
        return True

    def send_commit(self) -> bool:
        """Send XA COMMIT, where the server takes that before other answers are read."""
        if not takes_several(self._connection):
            return False
        self._send([f"XA COMMIT {self._literal}"])
        return True

    def _send(self, statements: list[str]) -> None:
        self._awaited = statements
        with suppress(pymysql.Error):  # the call that waits meets it again
            send(self._connection, statements)

    def _preparing(self) -> list[str]:
        """Return what prepares: the outcome row, there if the branch commits; END and PREPARE."""
        statements = []
        table = self._resource.outcome_table
        if table is not None and not self._ended:
            name = text_literal(self._handle.name)
            statements.append(f"INSERT INTO {table} VALUES ('{self.xid.gtrid.hex()}', {name})")
        if not self._ended:
            statements.append(f"XA END {self._literal}")
        statements.append(f"XA PREPARE {self._literal}")
        self._ended = self._prepare_sent = True
        return statements

    def prepare(self) -> Vote:
        """Store the outcome row, run XA END and XA PREPARE."""
        with driver_errors:
            if not self._awaited:
                self._require_connection()
                self._run(self._preparing())
            try:
                self._receive()
            except BranchUnknown as answer:
                raise ended_by_application(self._handle.name) from answer
        return Vote.PREPARED

    def commit(self) -> None:
        """Run XA COMMIT."""
        self._over = True
        with driver_errors:
            if not self._awaited:
                ask(self._connection, f"XA COMMIT {self._literal}")
            self._receive()

    def commit_one_phase(self) -> None:
        """Run XA END and XA COMMIT ... ONE PHASE."""
        with driver_errors:
            try:
                self._end()
            except BranchUnknown as answer:
                raise ended_by_application(self._handle.name) from answer
            self._over = True
            try:
                ask(self._connection, f"XA COMMIT {self._literal} ONE PHASE")
            except pymysql.Error as error:
                self._ask_for_outcome(error)
                raise

    def _ask_for_outcome(self, error: pymysql.Error) -> None:
        """Raise `BranchRolledBack` if the branch of a commit that failed can be rolled back.

        The server answers a statement that was cancelled, say, with no word of the branch.
        """
        if kind_of(error) is not ErrorKind.LOST:
            with suppress(BranchUnknown):
                ask(self._connection, f"XA ROLLBACK {self._literal}")
                raise BranchRolledBack(message_of(error)) from error

    def rollback(self) -> None:
        """Run XA END and XA ROLLBACK, unless the branch has ended."""
        if self._over:
            return
        if not (usable := self.statements.end()):
            self.abort()
        if not (usable and self._connection.open):
            if self._prepare_sent:
                raise ResourceUnreachable("the connection was lost at prepare")
            return  # the server rolls back with the connection
        with driver_errors:
            with suppress(BranchRolledBack, BranchUnknown):  # a rollback is due all the same
                with suppress(pymysql.Error):  # what it answered to a prepare does not matter
                    self._receive()
                self._end()
            self._over = True
            ask(self._connection, f"XA ROLLBACK {self._literal}")

    def _run(self, statements: list[str]) -> None:
        """Run statements, at once where the server takes that; then `_receive` follows."""
        if takes_several(self._connection):
            self._send(statements)
            return
        for statement in statements:
            ask(self._connection, statement)

    def _receive(self) -> None:
        """Read the answers that are awaited. Raises the first error among them."""
        first: Exception | None = None
        while self._awaited:
            statement = self._awaited.pop(0)
            try:
                receive(self._connection, statement)
            except (pymysql.Error, ResourceAnswer) as error:
                first = first or error
                if not self._connection.open:
                    self._awaited = []
        if first is not None:
            raise first

    def _end(self) -> None:
        self._require_connection()
        if not self._ended:
            self._ended = True
            ask(self._connection, f"XA END {self._literal}")

    def _require_connection(self) -> None:
        if not self._connection.open:
            raise closed_by_application(self._handle.name)
        if not self.statements.end():
            raise self.statements.two_threads()

    def close(self) -> None:
        """Give the connection back, unless a statement has changed settings of its session."""
        self._handle.detach()
        connection, statements = self._connection, self.statements
        sound = connection.open and self._over and not self._awaited
        sound = sound and connection.get_autocommit() == self._autocommit
        sound = sound and statements.end()
        if isinstance(self._resource.pool, Pool):  # an engine resets its sessions itself
            sound = sound and not statements.change_session
        if sound:
            self._handle.close_cursors()
        statements.release()
        self._resource.pool.give(connection, broken=not sound)

    def abort(self) -> None:
        """End the session, so that a call that waits for it fails."""
        self._resource.end_session(self._connection)

    def discard(self, *, prepared: bool) -> None:  # noqa: ARG002 - the session ends either way
        """Close the connection; the server rolls back what is not prepared."""
        self._handle.detach()
        self.statements.release()
        self._resource.pool.give(self._connection, broken=True)


def _read_answer(connection: Connection) -> None:
    """Read the answer to a statement without rows, of which only the first byte matters.

    PyMySQL's own call makes objects of it that cost more than the rest of a round trip.

    Raises:
        pymysql.Error: the server refuses the statement, or the connection is lost.
    """
    limit = connection._read_timeout
    if getattr(connection, "_current_timeout", limit) != limit:  # older ones set it in each call
        connection._sock.settimeout(limit)
        connection._current_timeout = limit
    answer: bytes = connection._read_bytes(_SHORTEST_ANSWER)
    head, kind = _REQUEST.unpack_from(answer)
    size, number = head & 0xFFFFFF, head >> 24
    if number != 1:  # 0 when the server is shut down
        connection._force_close()
        raise pymysql.OperationalError(0, "the connection was lost: an answer out of turn")
    if size > _SHORTEST_ANSWER - 4:
        answer += connection._read_bytes(size - _SHORTEST_ANSWER + 4)
    if kind == _ERROR:
        raise_mysql_exception(answer[4:])
    if kind != 0:
        raise pymysql.InternalError(0, f"no answer to an XA statement: {answer[:16]!r}")


def ask(connection: Connection, statement: str) -> None:
    """Run a statement without rows; a refusal of the server is raised as an answer."""
    try:
        connection._execute_command(COMMAND.COM_QUERY, statement)
        _read_answer(connection)
    except pymysql.Error as error:
        raise_meaning(statement, error)


def takes_several(connection: Connection) -> bool:
    """Return True if several statements can be sent before an answer is read.

    MariaDB reads them one after the other. Of MySQL's kin Aurora is known not to.
    """
    waiting = connection._result
    if waiting is not None and (waiting.unbuffered_active or waiting.has_next):
        return False  # the application has left rows unread
    return connection.open and "MariaDB" in connection.get_server_info()


def send(connection: Connection, statements: Sequence[str]) -> None:
    """Send statements, each as a request of its own; `receive` reads the answers in turn."""
    requests = []
    for statement in statements:
        text = statement.encode(connection.encoding)
        requests.append(_REQUEST.pack(len(text) + 1, COMMAND.COM_QUERY) + text)
    connection._write_bytes(b"".join(requests))


def receive(connection: Connection, statement: str) -> None:
    """Read the answer to a statement that was sent; raises as `ask` does."""
    try:
        if not connection.open:
            raise pymysql.InterfaceError(0, "the connection was lost")
        _read_answer(connection)
    except pymysql.Error as error:
        raise_meaning(statement, error)


def raise_meaning(statement: str, error: Exception) -> NoReturn:
    """Raise what an error says of a branch; the error itself if it says nothing."""
    code = error.args[0] if error.args else 0
    text = f"{statement.partition(' X')[0]}: {message_of(error)}"
    if code == XAER_NOTA or (code == XAER_RMFAIL and statement.startswith(_OF_ACTIVE)):
        raise BranchUnknown(text) from error
    if code in _ROLLED_BACK:
        raise BranchRolledBack(text) from error
    if code in _HEURISTIC:
        raise BranchHeuristic(text) from error
    raise error


def quoted(name: str) -> str:
    """Return the name of a database or table as statements take it, whatever ``sql_mode`` is."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """Return an ASCII text as statements take it, whatever ``sql_mode`` is."""
    return f"_ascii X'{text.encode('ascii').hex()}'"


def _parse(format_id: int, gtrid_length: int, bqual_length: int, data: str) -> Xid:
    """Return the id in a row of XA RECOVER: ``data`` is hex, cut by the lengths, or a literal."""
    if data.startswith("0x"):
        raw = bytes.fromhex(data[2:])
    else:
        raw = b"".join(_unquoted(part) for part in _LITERAL.findall(data))
    return Xid(format_id, raw[:gtrid_length], raw[gtrid_length:][:bqual_length])


def _unquoted(literal_part: str) -> bytes:
    """Return the bytes of ``X'hex'`` or ``'text'``."""
    text = literal_part[literal_part.index("'") + 1 : -1]
    return bytes.fromhex(text) if literal_part[0] in "xX" else text.encode("ascii")


class _Statements(Uncopied):
    """The statements of the application on the connection of a branch.

    Those of a second thread are refused: PyMySQL would give one the answer to the other's, or to
    the end of the branch.

    Attributes:
        change_session: whether one may have changed settings of the session.
    """

    __slots__ = ("_connection", "_name", "_user", "change_session")

    def __init__(self, connection: Connection, name: str) -> None:
        self.change_session = False
        self._connection = weakref.ref(connection)
        self._name = name
        self._user: dict[None, int] = {}
        """The thread whose statement is at work, or `_NOBODY`; `setdefault` is one step."""

    def watch(self) -> None:
        """Have the connection run the statements of its cursors here."""
        connection: Any = self._connection()
        connection.query = self._query

    def end(self) -> bool:
        """Refuse all further ones; return False if one of another thread is at work."""
        if self._user.setdefault(None, _NOBODY) not in (_NOBODY, threading.get_ident()):
            return False
        self._user[None] = _NOBODY
        return True

    def release(self) -> None:
        """Leave the connection to others."""
        vars(self._connection()).pop("query", None)

    def two_threads(self) -> TransactionUsageError:
        """Return the error for a second thread."""
        return TransactionUsageError(
            f"two threads use the connection of {self._name!r} at the same time",
            advice="Use a transaction in one thread at a time, or begin one in each thread",
        )

    def _query(self, statement: str | bytes, unbuffered: bool = False) -> Any:
        this_thread = threading.get_ident()
        user = self._user.setdefault(None, this_thread)
        if user != this_thread:
            raise branch_is_over(self._name) if user == _NOBODY else self.two_threads()
        try:
            text = statement if isinstance(statement, str) else statement.decode("latin-1")
            self.change_session = self.change_session or _CHANGES_SESSION.match(text) is not None
            connection: Any = self._connection()
            kind: Any = type(connection)
            return kind.query(connection, statement, unbuffered)
        finally:
            del self._user[None]


def _cursor(connection: Connection) -> Any:
    """Return a cursor whose rows are tuples, whatever those of the application are."""
    return connection.cursor(pymysql.cursors.Cursor)


def _refuse_plain_text(connection: Connection) -> None:
    """Close a connection without TLS: old drivers do without if the server has none."""
    with _cursor(connection) as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        if cursor.fetchone()[1]:
            return
    connection.close()
    raise pymysql.OperationalError(0, "the server offers no TLS, which its URL asks for")


def set_autocommit(connection: Connection) -> None:
    """Set the mode in which alone MariaDB ends branches that another session prepared."""
    connection.autocommit(True)


def alive(connection: Connection) -> bool:
    """Return True if the server answers on the connection."""
    try:
        connection.ping(reconnect=False)
    except pymysql.Error:
        return False
    return True


def detaches_late(version: str) -> bool:
    """Return True for a server that ties a prepared branch to its connection."""
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:3])
    return numbers < (10, 5) if "mariadb" in version.lower() else numbers < (8, 0, 29)
