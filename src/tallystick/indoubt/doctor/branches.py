"""Branches that a database keeps prepared: whose, since when, and what they hold up.

In: a function that runs a query. Out: a check for each of the oldest, with the line to type. A
prepared branch outlives sessions and restarts of the server, and keeps its locks and, on
PostgreSQL, what later transactions have deleted, until it is ended. It need not be of Tallystick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tallystick.indoubt.doctor.checks import Check, Level
from tallystick.printable import counted, printable
from tallystick.reconcile.gid import parse_gid
from tallystick.records import Xid
from tallystick.services.transactions.xids import node_of, time_of

OLD_S = 20
"""Seconds for which a branch is prepared, at most, while all is well."""
_NAMED_MAX = 5
_OWN_LOCKS = """
    FROM pg_locks AS l WHERE l.virtualtransaction IN (
        SELECT virtualtransaction FROM pg_locks
        WHERE transactionid = p.transaction AND mode = 'ExclusiveLock' AND granted)
"""
_OLDEST = f"""
    SELECT gid, owner, extract(epoch FROM clock_timestamp() - prepared), age(transaction),
        (SELECT count(*) {_OWN_LOCKS}),
        (SELECT string_agg(DISTINCT relation::regclass::text, ', ') {_OWN_LOCKS}
            AND relation IS NOT NULL)
    FROM pg_prepared_xacts AS p WHERE database = current_database()
    ORDER BY prepared, gid OFFSET {{}} LIMIT 1
"""

_Ask = Callable[[str], Any]


def of_postgres(name: str, ask: _Ask) -> Iterator[Check]:
    """Yield the oldest branches of a database of PostgreSQL.

    Args:
        name: the name of the resource.
        ask: runs a query and returns its first row, or None.
    """
    for place in range(_NAMED_MAX):
        row = ask(_OLDEST.format(place))
        if row is None:
            return
        gid, owner, age, later, locks, tables = row
        held = counted(locks, "lock") + (f" (of {printable(tables)})" if tables else "")
        text = (
            f"{_whose(gid)} {printable(gid)!r} of {owner} is prepared for {float(age):,.0f} s and"
            f" holds {held}; VACUUM keeps what {counted(later, 'transaction')} since "
            "then left behind"
        )
        old = float(age) >= OLD_S
        level = Level.WARNING if old else Level.OK
        yield Check(name, "branch", level, text, _ending(gid) if old else "")


def of_mysql(name: str, ask: _Ask) -> Iterator[Check]:
    """Yield what is known of the branches of a MariaDB or MySQL server that no session has."""
    row = ask(
        "SELECT COUNT(*), MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())), SUM(trx_rows_locked), "
        "SUM(trx_tables_locked) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = 0"
    )
    if row is None or not row[0]:
        return
    count, age, rows, tables = (int(one or 0) for one in row)
    text = (
        f"{counted(count, 'branch', 'branches')} without a session, the oldest prepared for "
        f"{age:,} s, with locks of {counted(rows, 'row')} in "
        f"{counted(tables, 'table')}; what later "
        "transactions have left is not purged"
    )
    old = age >= OLD_S
    line = "XA RECOVER FORMAT='SQL';  -- then XA COMMIT or XA ROLLBACK, as their owner decides"
    level = Level.WARNING if old else Level.OK
    yield Check(name, "branch", level, text, line if old else "")


def _whose(gid: str) -> str:
    xid = parse_gid(gid)
    if xid is None:
        return "the prepared transaction (no XA id, so not of a coordinator)"
    return (
        f"the branch of node {node_of(xid.gtrid)!r}"
        if _is_ours(xid)
        else ("the branch of a coordinator of another make")
    )


def _is_ours(xid: Xid) -> bool:
    return time_of(xid.gtrid) is not None and bool(node_of(xid.gtrid))


def _ending(gid: str) -> str:
    xid = parse_gid(gid)
    if xid is not None and _is_ours(xid):
        return "tallystick indoubt list COORDINATOR --resource NAME=URL  # the one of that node"
    quoted = gid.replace("'", "''")
    return f"ROLLBACK PREPARED '{printable(quoted)}';  -- or COMMIT PREPARED, as its owner decides"
