"""PostgreSQL through psycopg 3.

In: a connection string or function. Out: branches as prepared transactions, for threads and for
tasks, whose ids are spelled as psycopg's own `Xid` spells them (and pgjdbc), so that other
coordinators see the same branches.
"""

from __future__ import annotations

from tallystick.errors import MissingExtraError

try:
    import psycopg  # noqa: F401 - before the modules that cannot do without
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("psycopg", "postgres") from error

from tallystick.services.transactions.resources.postgres.branches import AsyncPostgresBranch
from tallystick.services.transactions.resources.postgres.requests import (
    alive,
    beginning,
    driver_errors,
    ending,
    was_ended,
)
from tallystick.services.transactions.resources.postgres.resource import PostgresResource

__all__ = [
    "AsyncPostgresBranch",
    "PostgresResource",
    "alive",
    "beginning",
    "driver_errors",
    "ending",
    "was_ended",
]
