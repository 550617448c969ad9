"""Committed changes, with names of tables and columns from the database's own catalog.

In: the entries of a log, rows of the catalog table (id, head, type, SQL). Out: changes in commit
order. The log itself knows tables by number only; where the SQL says nothing the number stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tallystick.records import Change, State
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.values.types import Value, json_of
from tallystick.systems.h2.read.catalogue import TableLives, TableName
from tallystick.systems.h2.read.records import KINDS
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.transactions import LoggedTransaction, transactions_of


def changes_of(
    entries: Iterable[Entry], stream: LogStream, lives: TableLives, log: str
) -> Iterator[Change]:
    """Yield the changes of committed transactions in commit order; commits count from 1."""
    commits = 0
    for one in transactions_of(entries):
        if one.state is not State.COMMITTED:
            continue
        commits += 1
        for ordinal, entry in enumerate(one.changes):
            number = lives.number(entry.table, entry.start)
            table = lives.get(number) or TableName(lives.name(number))
            yield _change(commits, ordinal, entry, one, stream, table, log)


def _change(
    commit: int,
    ordinal: int,
    entry: Entry,
    one: LoggedTransaction,
    stream: LogStream,
    table: TableName,
    log: str,
) -> Change:
    xid = one.xid
    added = entry.code == Type.ADD
    return Change(
        SYSTEM_NAME,
        log,
        commit,
        ordinal,
        KINDS[Type(entry.code)],
        table.name,
        "" if entry.code == Type.TRUNCATE else str(entry.key),
        stream.pages.file,
        stream.file_offset(entry.start),
        transaction=str(entry.session),
        gtrid=xid.gtrid if xid else None,
        after=entry.row if added else None,
        values=by_column(entry.values, table) if added else None,
    )


def column_names(table: TableName | None, count: int) -> Sequence[str]:
    """Return the names of the columns of a row; ``C1`` and so on where they are not known."""
    if table is not None and len(table.columns) == count:
        return table.columns
    return [f"C{at + 1}" for at in range(count)]


def by_column(values: tuple[Value | None, ...], table: TableName | None) -> dict[str, object]:
    """Return the values of a row, as JSON has them, by column."""
    names = column_names(table, len(values))
    return {name: plain_value(value) for name, value in zip(names, values, strict=True)}


def plain_value(value: Value | None) -> object:
    """Return a value as JSON has it: a text, None, or the form of an array."""
    if value is None or isinstance(value.text, str):
        return value.text if value is not None else None
    return json_of(value)
