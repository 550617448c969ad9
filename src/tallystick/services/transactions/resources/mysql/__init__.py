"""MariaDB and MySQL by XA statements, through PyMySQL.

In: connection settings. Out: branches as XA transactions. The two-phase calls of the connectors
cannot end a branch that another connection prepared, so XA statements are sent. Ids are written as
``X'gtrid',X'bqual',format``.
"""

from __future__ import annotations

from tallystick.errors import MissingExtraError

try:
    import pymysql  # noqa: F401 - before the modules that cannot do without
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("pymysql", "mysql") from error

from tallystick.services.transactions.resources.mysql.resource import MySqlResource, detaches_late
from tallystick.services.transactions.resources.mysql.statements import (
    alive,
    quoted,
    raise_meaning,
    receive,
    set_autocommit,
    text_literal,
)

__all__ = [
    "MySqlResource",
    "alive",
    "detaches_late",
    "quoted",
    "raise_meaning",
    "receive",
    "set_autocommit",
    "text_literal",
]
