"""A server of MariaDB or MySQL: its connections, outcome rows and branches in doubt.

In: connection settings. Out: branches, and what recovery asks for. Ids are read from XA RECOVER in
its hex forms.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

from tallystick.callables import checked
from tallystick.errors import TransactionUsageError
from tallystick.reconcile.ids import literal
from tallystick.records import Xid
from tallystick.services.transactions.resource import Problem, ResourceUnreachable
from tallystick.services.transactions.resources.connection_resource import (
    IDENTITY,
    OUTCOMES,
    ConnectionResource,
    NoTableError,
    check_scheme,
    message_of,
    no_primary,
    no_rows,
    shut_down,
    url_options,
    yes_or_no,
)
from tallystick.services.transactions.resources.mysql.branch import MySqlBranch
from tallystick.services.transactions.resources.mysql.statements import (
    Connection,
    alive,
    ask,
    driver_errors,
    quoted,
    set_autocommit,
    text_literal,
)
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading, time

_READS_ONLY = "SHOW VARIABLES WHERE Variable_name IN ('tx_read_only', 'transaction_read_only')"
"""The server's versions have one of the names, or both."""

# The plain form gives raw bytes in a text column, which drivers decode wrongly: both servers have
# a form in hex, under different names.
_RECOVER_MARIADB = "XA RECOVER FORMAT='SQL'"
_RECOVER_MYSQL = "XA RECOVER CONVERT XID"
_OFF = ("0", "OFF")
"""Values of ``read_only`` in a server that takes changes, by its version."""
_COLUMNS = (
    "(gtrid VARCHAR(128), resource VARCHAR(255), PRIMARY KEY (gtrid, resource)) "
    "ENGINE=InnoDB CHARACTER SET ascii COLLATE ascii_bin"
)
_NAME_MAX = 255
"""Characters of a resource's name: the width of its column."""
_NOT_ALLOWED = frozenset({1044, 1142, 1143, 1227})
"""Errors that say the user lacks a right."""
_LITERAL = re.compile(r"[xX]?'[^']*'")


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

        Ids that the server made itself are left out: format 1, gtrid ``MySQLXid...``. A replica may
        not have all that its primary has; a server that takes no changes may be one, and is taken
        for one that is away.
        """
        with self.lend() as connection, _cursor(connection) as cursor:
            cursor.execute("SELECT @@GLOBAL.read_only")
            (reads_only,) = cursor.fetchone()
            if str(reads_only) not in _OFF:
                raise ResourceUnreachable(no_primary("a server with read_only, perhaps a replica,"))
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


def detaches_late(version: str) -> bool:
    """Return True for a server that ties a prepared branch to its connection."""
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:3])
    return numbers < (10, 5) if "mariadb" in version.lower() else numbers < (8, 0, 29)
