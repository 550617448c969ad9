"""Which errors of drivers end with a repetition, and when it begins.

In: an exception of a driver, of a layer above it or of ours. Out: whether a database asks for the
transaction to be repeated, as it broke off a deadlock or a schedule that was not serialisable.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_SQLSTATES = frozenset({"40001", "40P01"})
"""serialization_failure, deadlock_detected (PostgreSQL, appendix A)."""
_MYSQL = frozenset({1213, 1614})
"""ER_LOCK_DEADLOCK, ER_XA_RBDEADLOCK."""
_LOCK_SQLSTATE, _LOCK_MYSQL, _BUSY_SQLITE = "55P03", 1205, 5
"""lock_not_available, ER_LOCK_WAIT_TIMEOUT, SQLITE_BUSY (the low byte of an extended code)."""
_MYSQL_DRIVERS = frozenset({"pymysql", "MySQLdb", "mysql", "mariadb"})


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a transaction is repeated.

    Before the n-th repetition passes a random time of at most ``first * 2 ** (n - 1)`` seconds.

    Args:
        times: repetitions at most.
        first: the longest pause before the first, in seconds.
        most: the longest pause of all, in seconds.
    """

    times: int = 3
    first: float = 0.02
    most: float = 2.0

    def pauses(self) -> Iterator[float]:
        """Yield the seconds to wait before each repetition."""
        for number in range(self.times):
            yield random.uniform(0, min(self.most, self.first * 2**number))


def is_conflict(error: BaseException) -> bool:
    """Return True if a database broke the transaction off so that it can be repeated."""
    return any(
        state in _SQLSTATES or mysql in _MYSQL or sqlite == _BUSY_SQLITE
        for state, mysql, sqlite in _codes(error)
    )


def is_lock_timeout(error: BaseException) -> bool:
    """Return True if a statement waited too long for a lock."""
    return any(
        state == _LOCK_SQLSTATE or mysql == _LOCK_MYSQL or sqlite == _BUSY_SQLITE
        for state, mysql, sqlite in _codes(error)
    )


def _codes(error: BaseException) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the codes (SQLSTATE, MySQL, SQLite) of an error and of those that caused it."""
    seen: set[int] = set()
    cause: Any = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        family = type(cause).__module__.partition(".")[0]
        sqlite = getattr(cause, "sqlite_errorcode", None)
        yield (
            getattr(cause, "sqlstate", None),
            cause.args[0] if family in _MYSQL_DRIVERS and cause.args else None,
            None if sqlite is None else sqlite & 0xFF,
        )
        cause = getattr(cause, "orig", None) or cause.__cause__
