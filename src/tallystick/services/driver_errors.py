"""What the errors of drivers mean, in one table per driver.

In: an exception of a driver, of SQLAlchemy around it, or of ours that was caused by one. Out: its
kind. Write-behind, the resources of transactions, messaging and repetitions ask here, and nowhere
else. No driver is imported: an error is known by the module of its class and by its code.

    driver                         code
    psycopg, psycopg2, asyncpg     SQLSTATE, or the first two characters of it
    PyMySQL and its kin            number of the server or of the client library
    sqlite3                        result code, the low byte
    python-oracledb                ORA-number, DPY-number

An error that the driver raises itself, without a code, is known by its PEP 249 class: DataError is
about a value, and no lost connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any


class ErrorKind(Enum):
    """What an error says of the work that met it."""

    TRANSIENT = "transient"
    """Nothing is wrong with the work: a conflict, a lock, a lack of space or of connections."""
    DATA = "data"
    """A value that the database cannot take, now or later."""
    CONSTRAINT = "constraint"
    """A rule of the database, or of its triggers, forbids the change."""
    LOST = "lost"
    """The session is gone, or there was none: the server went away or lets nobody in."""
    UNKNOWN = "unknown"
    """None of these: a wrong statement, a missing right, a time limit, a cancelled statement."""


_T, _D, _C = ErrorKind.TRANSIENT, ErrorKind.DATA, ErrorKind.CONSTRAINT
_L, _U = ErrorKind.LOST, ErrorKind.UNKNOWN

_Code = str | int


def _table(rows: Mapping[ErrorKind, str]) -> dict[str, ErrorKind]:
    return {code: kind for kind, codes in rows.items() for code in codes.split()}


_POSTGRES = _table(
    {
        # rollback, resources, locks; a standby takes no changes until it is the primary
        _T: "40 53 55P03 25006",
        _D: "22 54",
        # also WITH CHECK OPTION, and RAISE in a trigger
        _C: "23 27 40002 44 P0001",
        # also a login that is refused, a shutdown, and limits of time that end the session
        _L: "08 28 3D000 25P03 25P04 57P01 57P02 57P03 57P04 57P05",
        # a statement that was cancelled, or took too long: its session goes on
        _U: "57014",
    }
)
"""SQLSTATEs and their classes: PostgreSQL, appendix A."""

_MYSQL = {
    int(code): kind
    for code, kind in _table(
        {
            # deadlock, lock wait, XA_RB*, record changed; full disk, table, memory; too many
            # connections; read only; a node of a cluster that is not ready
            _T: "1205 1213 1402 1613 1614 1020 1206 1021 1030 1037 1038 1041 1114 1040 1203 1226 "
            "1637 1290 1792 1836 1047",
            # out of range, truncated, wrong, too long, division, packet or row too large, JSON
            _D: "1264 1265 1292 1300 1365 1366 1367 1406 1411 1416 1441 1526 1690 1748 1118 1153 "
            "1301 3140 3141 3156 3157",
            # unique, not null, no default, references, check, view, SIGNAL
            _C: "1022 1048 1062 1169 1216 1217 1364 1369 1451 1452 1557 1586 1644 1761 1762 1859 "
            "3819 4025",
            # cannot connect, gone, shutdown, killed, refused; 0 is a closed connection
            _L: "0 2002 2003 2005 2006 2012 2013 2014 2055 1045 1049 1053 1079 1129 1130 1152 1156 "
            "1157 1158 1159 1160 1161 1184 1927 4031",
            # interrupted, or took too long: the session goes on
            _U: "1317 1969 3024",
        }
    ).items()
}
"""Numbers of MariaDB and MySQL from 1000, and of their client library from 2000."""

_SQLITE = {
    int(code): kind
    for code, kind in _table(
        {
            _T: "5 6 7 8 13 17",  # busy, locked, memory, read-only, full, schema
            _D: "18 20",  # too big, mismatch
            _C: "19",
            _L: "10 14",  # the file cannot be read, or opened
            _U: "9",  # interrupted
        }
    ).items()
}
"""Result codes of SQLite, the low byte."""

_ORACLE = _table(
    {
        _T: "ORA-00018 ORA-00020 ORA-00054 ORA-00060 ORA-01555 ORA-01652 ORA-01653 ORA-01654 "
        "ORA-01688 ORA-01691 ORA-04021 ORA-08177 ORA-16000 ORA-30006",
        _D: "ORA-01401 ORA-01426 ORA-01438 ORA-01476 ORA-01722 ORA-01830 ORA-01839 ORA-01843 "
        "ORA-01847 ORA-01858 ORA-01861 ORA-06502 ORA-12899",
        _C: "ORA-00001 ORA-01400 ORA-01402 ORA-01407 ORA-02290 ORA-02291 ORA-02292",
        _L: "ORA-00028 ORA-01012 ORA-01017 ORA-01033 ORA-01034 ORA-01089 ORA-01090 ORA-01092 "
        "ORA-02396 ORA-03113 ORA-03114 ORA-03135 ORA-12154 ORA-12170 ORA-12505 ORA-12514 ORA-12528 "
        "ORA-12537 ORA-12541 ORA-12547 ORA-12571 ORA-25408 DPY-1001 DPY-4005 DPY-4011 DPY-6000 "
        "DPY-6001 DPY-6003 DPY-6005",
        _U: "ORA-01013",
    }
)

_CLASSES = {
    "DataError": _D,
    "IntegrityError": _C,
    "OperationalError": _L,
    "PoolTimeout": _T,
    "TooManyRequests": _T,
}
"""PEP 249's classes, of errors without a code that a driver or its pool raises itself."""

_DEADLOCKS = frozenset({"40001", "40P01", 1213, 1614, 1020, "ORA-00060", "ORA-08177"})
_LOCK_TIMEOUTS = frozenset({"55P03", 1205, "sqlite 5", "ORA-00054", "ORA-30006"})

_FAMILIES = {
    "psycopg": "postgres",
    "psycopg2": "postgres",
    "psycopg_pool": "postgres",
    "asyncpg": "postgres",
    "pymysql": "mysql",
    "aiomysql": "mysql",
    "asyncmy": "mysql",
    "MySQLdb": "mysql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite3": "sqlite",
    "oracledb": "oracle",
    "cx_Oracle": "oracle",
    "sqlalchemy": "sqlalchemy",
}
"""Drivers, and what stands above them, by the package of an error's class."""

_ORACLE_CODE = re.compile(r"\b(?:ORA|DPY)-\d{4,5}\b")


def kind_of(error: BaseException) -> ErrorKind | None:
    """Return the kind of a driver's error, or of the one that caused ``error``; None without one.

    Of an error that is no driver's, only those count that drivers let through: of connections,
    and of values that cannot be encoded.
    """
    for one in _chain(error):
        kind = _kind(one)
        if kind is not None:
            return kind
    return None


def is_of_driver(error: BaseException) -> bool:
    """Return True for an error that a driver, its pool or SQLAlchemy has raised itself."""
    return _family(error) is not None


def is_conflict(error: BaseException) -> bool:
    """Return True if a database broke the transaction off so that it can be repeated.

    That is a deadlock, a schedule that is not serialisable, or a lock that was waited for in vain.
    """
    return any(_code(one) in _DEADLOCKS | _LOCK_TIMEOUTS for one in _chain(error))


def is_lock_timeout(error: BaseException) -> bool:
    """Return True if a statement waited too long for a lock."""
    return any(_code(one) in _LOCK_TIMEOUTS for one in _chain(error))


def is_down(error: BaseException) -> bool:
    """Return True if the database is away or overloaded, and no transaction is at fault."""
    return kind_of(error) in (_L, _T)


def is_retryable(error: BaseException) -> bool | None:
    """Return whether repeating rolled-back work may end otherwise; None if that is not known."""
    kind = kind_of(error)
    return None if kind in (None, _U) else kind in (_T, _L)


def refused_by(error: BaseException) -> Exception | None:
    """Return the driver's own error that says of the work that it can never be committed.

    Args:
        error: what two-phase commit raises.

    Returns:
        An error of the kinds data and constraint; None if another one, or none, is the cause.
    """
    found = driver_error_in(error)
    return found if found is not None and kind_of(found) in (_D, _C) else None


def driver_error_in(error: BaseException) -> Exception | None:
    """Return the first error of a driver among an error and its causes, if there is one."""
    found = (one for one in _chain(error) if is_of_driver(one) and isinstance(one, Exception))
    return next(found, None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that caused it, each once."""
    seen: set[int] = set()
    cause: Any = error
    while isinstance(cause, BaseException) and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = getattr(cause, "orig", None) or cause.__cause__


def _family(error: BaseException) -> str | None:
    return next(
        (
            _FAMILIES[package]
            for one in type(error).__mro__
            if (package := one.__module__.partition(".")[0]) in _FAMILIES
        ),
        None,
    )


def _code(error: BaseException) -> _Code | None:
    """Return the code of an error as the tables have it."""
    family, found = _family(error), None
    if family in ("postgres", "sqlalchemy", None):  # another driver may have SQLSTATEs, too
        found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    elif family == "mysql":
        found = getattr(error, "errno", None) or next(iter(error.args), None)
        # Connector/Python has -1 in what it raises itself.
        found = found if isinstance(found, int) and found >= 0 else None
    elif family == "sqlite":
        number = getattr(error, "sqlite_errorcode", None)
        found = None if number is None else f"sqlite {number & 0xFF}"
    elif family == "oracle":
        codes = _ORACLE_CODE.findall(str(error))
        found = next((code for code in codes if code in _ORACLE), next(iter(codes), None))
    return found


def _kind(error: BaseException) -> ErrorKind | None:
    """Return the kind of this very error; None if it says nothing itself."""
    family, code = _family(error), _code(error)
    if family is None:
        return _of_state(code) or _kind_of_builtin(error)
    if family == "sqlalchemy" and code is None:
        if getattr(error, "connection_invalidated", False):
            return _L
        if type(error).__name__ == "TimeoutError":  # no connection of the pool is free
            return _T
        inner = getattr(error, "orig", None) or error.__cause__
        return None if inner is not None else _U
    if isinstance(code, int):
        return _MYSQL.get(code) or _of_state(getattr(error, "sqlstate", None)) or _of_class(error)
    if code is None:
        return _of_class(error)
    if code.startswith("sqlite "):
        return _SQLITE.get(int(code[7:]), _U)
    return _ORACLE.get(code, _U) if family == "oracle" else _of_state(code) or _U


def _of_state(state: Any) -> ErrorKind | None:
    if not isinstance(state, str):
        return None
    return _POSTGRES.get(state) or _POSTGRES.get(state[:2])


def _of_class(error: BaseException) -> ErrorKind:
    """Return the kind of an error by the names of its classes, the nearest first."""
    if _code(error) is not None:  # a number of the server that the table does not have
        names = {"DataError": _D, "IntegrityError": _C}
    else:
        names = _CLASSES
        if type(error).__name__ == "InterfaceError" and "clos" in str(error):
            return _L  # "connection is closed", "connection already closed"
        if _family(error) == "sqlite":  # it has a code for what its file has to do with
            names = names | {"OperationalError": _U}
    return next((names[one.__name__] for one in type(error).__mro__ if one.__name__ in names), _U)


def _kind_of_builtin(error: BaseException) -> ErrorKind | None:
    if isinstance(error, ConnectionError | TimeoutError):
        return _L
    return _D if isinstance(error, UnicodeError | OverflowError) else None
