"""Databases as resources: connection, TLS, rights, limits, durability, identity, clock.

Nothing is written: what a database does not have yet is said, and made by the manager at its first
use.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tallystick.errors import LogUnreadableError, TransactionUsageError
from tallystick.indoubt.doctor import branches
from tallystick.indoubt.doctor.checks import Check, Level, judged
from tallystick.printable import counted, shell_quoted
from tallystick.reading import explain
from tallystick.records import Answer
from tallystick.services.transactions.resource import ResourceUnreachable
from tallystick.services.transactions.resources import adapt
from tallystick.services.transactions.resources.connection_resource import IDENTITY, OUTCOMES
from tallystick.services.transactions.resources.sqlite import identity_in

_CLOCK_S = 2.0
"""Seconds by which clocks may differ: ages of branches and leases are compared with them."""
_HELD = re.compile(
    r"ACTIVE \(PREPARED\) (?P<seconds>\d+) sec.*?(?:MySQL|MariaDB) thread id (?P<session>\d+)",
    re.DOTALL,
)
_HERE = frozenset({"", "localhost", "127.0.0.1", "::1"})

_STORES = ("page-store", "journal")
"""Addresses of embedded stores, ``KIND:PATH``: opening one would write, so their logs are read."""

_Ask = Callable[[str], Any]
"""Runs a query and returns its first row, or None."""


def check_database(name: str, url: str, known: str | None) -> Iterator[Check]:
    """Yield what is found in the database of a URL.

    Args:
        name: the name of the resource.
        url: its address.
        known: the identity that the coordinator has noted under that name.
    """
    kind, _, path = url.partition(":")
    if url.startswith("sqlite") or kind in _STORES:
        yield from _sqlite(name, url, known) if kind not in _STORES else (_store(name, path),)
        return
    try:
        resource: Any = adapt(name, url)
    except TransactionUsageError as error:
        yield Check(name, "address", Level.PROBLEM, error.message, error.advice or "")
        return
    try:
        began = time.monotonic()
        with resource.lend() as connection, connection.cursor() as cursor:

            def ask(query: str) -> Any:
                cursor.execute(query)
                return cursor.fetchone()

            (version,) = ask("SELECT version()")
            ms = (time.monotonic() - began) * 1000
            yield Check(name, "connection", Level.OK, f"{version.split(' on ')[0]}, {ms:.0f} ms")
            if resource.dialect == "postgresql":
                yield from _postgres(name, connection.info.host, ask, known)
            else:
                yield from _mysql(name, connection.host, ask, known)
            connection.rollback()
    except ResourceUnreachable as answer:
        yield Check(
            name, "connection", Level.PROBLEM, f"cannot be asked: {answer}",
            "start the server, or correct user, password, host and port in --resource",
        )  # fmt: skip
    finally:
        resource.close()


def _postgres(name: str, host: str, ask: _Ask, known: str | None) -> Iterator[Check]:
    (encrypted,) = ask("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    yield _tls(name, host, "sslmode=verify-full&sslrootcert=FILE", encrypted=bool(encrypted))
    yield _postgres_role(name, ask)
    yield from _postgres_limits(name, ask)
    yield from branches.of_postgres(name, ask)
    off = [one for one in ("fsync", "full_page_writes") if _setting(ask, one) == "off"]
    yield judged(
        name, "durability", "fsync is on", f"{', '.join(off)} off" if off else None,
        f"ALTER SYSTEM SET {off[0] if off else 'fsync'} = on; SELECT pg_reload_conf();",
        Level.PROBLEM,
    )  # fmt: skip
    yield _postgres_rows(name, ask)
    yield from _postgres_owners(name, ask)
    yield _postgres_identity(name, ask, known)
    yield _clock(name, ask("SELECT extract(epoch FROM clock_timestamp())")[0])


def _postgres_role(name: str, ask: _Ask) -> Check:
    if ask("SELECT pg_is_in_recovery()")[0]:
        primary = ask("SELECT sender_host || ':' || sender_port FROM pg_stat_wal_receiver") or [
            None
        ]
        bad = "a standby, which prepares nothing"
        line = f"--resource '{name}=…@{primary[0] or 'PRIMARY'}/…'  # its primary"
    elif _setting(ask, "transaction_read_only") == "on":
        bad = "transactions are read-only by default: nothing is prepared"
        line = "ALTER ROLE CURRENT_USER RESET default_transaction_read_only;"
    else:
        bad, line = None, ""
    return judged(name, "role", "a primary", bad, line, Level.PROBLEM)


def _setting(ask: _Ask, name: str) -> str:
    return str(ask(f"SELECT current_setting('{name}')")[0])


def _postgres_limits(name: str, ask: _Ask) -> Iterator[Check]:
    limit, sessions = (
        int(_setting(ask, one)) for one in ("max_prepared_transactions", "max_connections")
    )
    used, age = ask(
        "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(prepared)), 0) "
        "FROM pg_prepared_xacts"
    )
    text = f"{used} of {limit} prepared transactions, the oldest {float(age):.0f} s old"
    line = f"ALTER SYSTEM SET max_prepared_transactions = {sessions};  -- then restart the server"
    if limit == 0:
        bad, level = "max_prepared_transactions is 0: PREPARE is refused", Level.PROBLEM
    elif used * 5 > limit * 4:
        soon = "now" if used >= limit else "soon"
        bad, level = f"{text}: {soon} PREPARE is refused. End what was forgotten", Level.PROBLEM
        line = "SELECT gid, owner, prepared FROM pg_prepared_xacts ORDER BY prepared;"
    elif limit < sessions:
        bad, level = f"{text}; max_connections is {sessions}: PREPARE may fail", Level.WARNING
    else:
        bad, level = None, Level.OK
    yield judged(name, "prepared", text, bad, line, level)


def _postgres_rows(name: str, ask: _Ask) -> Check:
    table = f"to_regclass(quote_ident(current_schema()) || '.{OUTCOMES}')"
    schema, there, user = ask(f"SELECT current_schema(), {table} IS NOT NULL, current_user")
    if there:
        (may,) = ask(
            f"SELECT bool_and(has_table_privilege({table}, one)) "
            "FROM unnest(ARRAY['SELECT', 'INSERT', 'DELETE']) AS one"
        )
        right = f"GRANT SELECT, INSERT, DELETE ON {schema}.{OUTCOMES} TO {user};"
    elif schema is None:
        may, right = False, f"ALTER ROLE {user} SET search_path = public;"
    else:
        (may,) = ask("SELECT has_schema_privilege(current_schema(), 'CREATE')")
        right = f"GRANT CREATE ON SCHEMA {schema} TO {user};"
    return _rows(name, there=bool(there), may=bool(may), right=right)


def _rows(name: str, *, there: bool, may: bool, right: str) -> Check:
    good = f"{OUTCOMES} {'is there' if there else 'is made at the first use'}"
    bad = None if may else f"no rights to {OUTCOMES}: a commit whose answer is lost is not proved"
    return judged(name, "rights", good, bad, right, Level.PROBLEM)


def _postgres_owners(name: str, ask: _Ask) -> Iterator[Check]:
    others, user = ask(
        "SELECT count(*), current_user FROM pg_prepared_xacts WHERE owner <> current_user "
        "AND database = current_database() AND NOT "
        "(SELECT rolsuper FROM pg_roles WHERE rolname = current_user)"
    )
    if others:
        yield Check(
            name, "rights", Level.WARNING,
            f"{counted(others, 'branch', 'branches')} prepared by other users: {user} cannot end "
            f"{'it' if others == 1 else 'them'}",
            "SELECT gid, owner FROM pg_prepared_xacts;  -- recover as their owner",
        )  # fmt: skip


def _postgres_identity(name: str, ask: _Ask, known: str | None) -> Check:
    if not ask("SELECT has_function_privilege('pg_control_system()', 'EXECUTE')")[0]:
        return Check(
            name, "identity", Level.WARNING, "cannot be read: a mix-up would not be noticed",
            "GRANT EXECUTE ON FUNCTION pg_control_system() TO CURRENT_USER;  -- as superuser",
        )  # fmt: skip
    cluster, oid = ask(
        "SELECT system_identifier, (SELECT oid FROM pg_database "
        "WHERE datname = current_database()) FROM pg_control_system()"
    )
    return _identity(name, f"PostgreSQL cluster {cluster}, database {oid}", known)


def _identity(name: str, found: str, known: str | None) -> Check:
    good = f"{found}; {'as noted' if known else 'not noted yet'}"
    bad = None if known in (None, found) else f"another database ({found}) than noted ({known})"
    line = f"correct the address of {name}; if it was moved, remove its line from identities.json"
    return judged(name, "identity", good, bad, line, Level.PROBLEM)


def _mysql(name: str, host: str, ask: _Ask, known: str | None) -> Iterator[Check]:
    from tallystick.services.transactions.resources.mysql import detaches_late

    (version,) = ask("SELECT VERSION()")
    yield judged(
        name, "version", version,
        f"{version} loses prepared branches with their connection"
        if detaches_late(version) else None,
        "use MariaDB 10.5 or later, or MySQL 8.0.29 or later", Level.PROBLEM,
    )  # fmt: skip
    row = ask("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    options = "ssl_ca=FILE&ssl_verify_cert=true"
    yield _tls(name, host, options, encrypted=bool(row and row[1]))
    flush = int(ask("SELECT @@innodb_flush_log_at_trx_commit")[0])
    yield judged(
        name, "durability", "each commit is synced",
        None if flush == 1 else f"innodb_flush_log_at_trx_commit is {flush}: a crash loses commits",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1;  -- and in my.cnf", Level.PROBLEM,
    )  # fmt: skip
    yield judged(
        name, "role", "writable", "read_only is on" if int(ask("SELECT @@read_only")[0]) else None,
        "SET GLOBAL read_only = OFF;  -- or give the address of the primary", Level.PROBLEM,
    )  # fmt: skip
    yield _mysql_branches(name, ask)
    yield from _mysql_held(name, ask)
    yield from _mysql_without_session(name, ask)
    (database,) = ask("SELECT DATABASE()")
    if database is None:
        yield Check(
            name, "rights", Level.PROBLEM, "the address names no database: nothing proves commits",
            f"--resource {name}=mariadb://user@host:port/DATABASE",
        )  # fmt: skip
    else:
        yield from _mysql_rows(name, ask, database, known)
    yield _clock(name, ask("SELECT UNIX_TIMESTAMP(NOW(6))")[0])


def _mysql_branches(name: str, ask: _Ask) -> Check:
    bad = None
    try:
        ask("XA RECOVER")
    except Exception as error:  # of the driver: the user lacks the right
        bad = f"the user may not list branches in doubt: {error.args[-1]}"
    line = "GRANT XA_RECOVER_ADMIN ON *.* TO CURRENT_USER;"
    return judged(name, "prepared", "branches in doubt can be listed", bad, line, Level.PROBLEM)


def _mysql_held(name: str, ask: _Ask) -> Iterator[Check]:
    """Yield the sessions that keep a branch prepared for long: no other session can end it."""
    try:
        *_, status = ask("SHOW ENGINE INNODB STATUS")
    except Exception:  # of the driver: it needs the right PROCESS, which managers do not
        return
    for transaction in str(status).split("---TRANSACTION ")[1:]:
        held = _HELD.search(transaction.partition("\n--------")[0])
        if held is not None and int(held["seconds"]) >= branches.OLD_S:
            yield Check(
                name, "prepared", Level.WARNING,
                f"session {held['session']} has held a branch for {held['seconds']} s, and no"
                " other can end it: its process or machine may be gone",
                f"KILL {held['session']};  -- then recovery ends the branch",
            )  # fmt: skip


def _mysql_without_session(name: str, ask: _Ask) -> Iterator[Check]:
    try:
        yield from branches.of_mysql(name, ask)
    except Exception:  # of the driver: it needs the right PROCESS, which managers do not
        return


def _mysql_rows(name: str, ask: _Ask, database: str, known: str | None) -> Iterator[Check]:
    from tallystick.services.transactions.resources.mysql import quoted

    table = f"{quoted(database)}.{OUTCOMES}"
    right = f"GRANT CREATE, SELECT, INSERT, DELETE ON {table} TO CURRENT_USER;"
    try:
        token = ask(f"SELECT MIN(resource) FROM {table} WHERE gtrid = '{IDENTITY.hex()}'")[0]
    except Exception as error:  # of the driver: no table yet, or no right to it
        there = error.args[0] != 1146  # ER_NO_SUCH_TABLE
        yield _rows(name, there=there, may=not there, right=right)
        return
    yield _rows(name, there=True, may=True, right=right)
    if known is not None or token is not None:
        same = known is None or (token is not None and known.endswith(str(token)))
        found = f"database {database} {token or 'without a token'}"
        yield _identity(name, found, found if same and known else known)


def _tls(name: str, host: str, options: str, *, encrypted: bool) -> Check:
    """Return whether what goes to ``host``, or to a socket in a folder, can be read on its way."""
    plain = not (encrypted or host in _HERE or host.startswith("/"))
    good = "encrypted" if encrypted else "not encrypted, on this machine"
    bad = "the connection is not encrypted: data and password can be read" if plain else None
    return judged(name, "TLS", good, bad, f"--resource '{name}=…?{options}'", Level.WARNING)


def _clock(name: str, theirs: Any) -> Check:
    ahead = float(theirs) - time.time()
    text = f"{abs(ahead):.1f} s {'ahead' if ahead > 0 else 'late'}"
    return judged(
        name, "clock", text, None if abs(ahead) <= _CLOCK_S else f"{text} of this machine's",
        "chronyc makestep  # on the machine whose clock is wrong", Level.WARNING,
    )  # fmt: skip


def _store(name: str, path: str) -> Check:
    """Return what is found in the log of an embedded store."""
    line = f"tallystick verify {shell_quoted(path)}"
    try:
        found = explain(path)
    except LogUnreadableError as error:
        return Check(name, "store", Level.PROBLEM, error.message, f"ls -l {shell_quoted(path)}")
    answers = [one.judgement for one in found.logs]
    unsafe = [f"{one.words}: {one.text}" for one in answers if one.answer is not Answer.SAFE]
    bad = [*unsafe, *(one.message for one in found.problems)]
    good = f"{answers[0].words.lower()}: the log in {path}" if answers else "there is no log"
    return judged(name, "store", good, bad[0] if bad else None, line, Level.PROBLEM)


def _sqlite(name: str, url: str, known: str | None) -> Iterator[Check]:
    path = Path(url.partition(":///")[2])
    if not path.exists():
        yield Check(
            name, "connection", Level.PROBLEM, f"there is no file {path}",
            "correct the path: sqlite:///relative or sqlite:////absolute",
        )  # fmt: skip
        return
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            found = _token(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        yield Check(
            name,
            "connection",
            Level.PROBLEM,
            f"{path}: {error}",
            f"sqlite3 {shell_quoted(str(path))} .schema",
        )
        return
    yield Check(name, "connection", Level.OK, f"SQLite {sqlite3.sqlite_version}, {path}")
    unsafe = mode.lower() in ("off", "memory")
    yield judged(
        name, "durability", f"journal_mode is {mode}",
        f"journal_mode is {mode}: a crash can destroy the file" if unsafe else None,
        f"sqlite3 {shell_quoted(str(path))} 'PRAGMA journal_mode=WAL'", Level.PROBLEM,
    )  # fmt: skip
    if known or found:
        yield _identity(name, found or "SQLite file without an identity", known)


def _token(connection: sqlite3.Connection) -> str | None:
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (OUTCOMES,))
    return identity_in(connection) if tables.fetchone() else None
