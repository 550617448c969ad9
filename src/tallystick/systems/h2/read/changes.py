"""Committed changes, with names of tables and columns from the database's own catalog.

In: the entries of a log, rows of the catalog table (id, head, type, SQL). Out: changes in commit
order. The log itself knows tables by number only; where the SQL says nothing the number stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tallystick.records import Change, State
from tallystick.systems.h2.format.entries import TABLE_CATALOG, TABLE_META, Entry, Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.values.java_text import whole_number
from tallystick.systems.h2.format.values.types import Value, json_of
from tallystick.systems.h2.read.records import KINDS
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.transactions import LoggedTransaction, transactions_of
from tallystick.systems.protocol import Collection, Column

_NAME = r'(?:"(?:[^"]|"")*"|\w+)'
_CREATE = re.compile(rf"CREATE\s[\w\s]*?TABLE\s(?:IF NOT EXISTS\s)?({_NAME}(?:\.{_NAME})?)\(")
_COLUMN = re.compile(rf"\s*({_NAME})\s")
_PARTS = re.compile(_NAME)
_SQL_COLUMN = 3


_KINDS = {
    "TINYINT": "tinyint", "SMALLINT": "smallint", "INT": "int", "INTEGER": "int",
    "BIGINT": "bigint", "IDENTITY": "bigint", "BOOLEAN": "boolean", "BIT": "boolean",
    "REAL": "float", "FLOAT4": "float", "DOUBLE": "double", "FLOAT": "double", "FLOAT8": "double",
    "DATE": "date", "TIMESTAMP": "timestamp_ntz", "BINARY": "binary", "VARBINARY": "binary",
}  # fmt: skip
"""Types of columns whose text Spark's types hold without loss; others stay text."""
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\((\d+), (\d+)\)")
_DECIMAL_DIGITS = 38
_TYPE = re.compile(
    r"\s*(TIMESTAMP(?:\(\d+\))? WITH TIME ZONE|TIME(?:\(\d+\))? WITH TIME ZONE|"
    r"(?:DOUBLE PRECISION|\w+)(?:\([^)]*\))?)"
)


@dataclass(frozen=True, slots=True)
class TableName:
    """Name of a table and of its columns; ``columns`` is empty where they are not known.

    ``types`` are those of the columns as the SQL states them.
    """

    name: str
    columns: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


_OWN = {
    TABLE_META: TableName("PAGE_INDEX", ("ID", "TYPE", "PARENT", "HEAD", "OPTIONS", "COLUMNS")),
    TABLE_CATALOG: TableName("SYS", ("ID", "HEAD", "TYPE", "SQL")),
}


def table_names(rows: Iterable[tuple[Value | None, ...]]) -> dict[int, TableName]:
    """Return the names of tables by id, the engine's two own tables included."""
    names = dict(_OWN)
    for values in rows:
        identity, sql = whole_number(_text(values, 0)), _text(values, _SQL_COLUMN)
        match = _CREATE.match(sql)
        if match is not None and identity is not None:
            columns = _columns(sql[match.end() :])
            names[identity] = TableName(_unquoted(match[1]), *columns)
    return names


def collections(names: dict[int, TableName]) -> list[Collection]:
    """Return the tables whose columns are known, without the engine's own two, by name."""
    own = {one.name for one in _OWN.values()}
    found = []
    for table in names.values():
        if table.name not in own and table.columns:
            pairs = zip(table.columns, table.types, strict=True)
            columns = tuple(Column(name, kind, _kind(kind)) for name, kind in pairs)
            found.append(Collection(table.name, columns))
    return sorted(found, key=lambda one: one.name)


def _kind(declared: str) -> str:
    if match := _DECIMAL.fullmatch(declared):
        digits, scale = int(match[1]), int(match[2])
        return f"decimal({digits},{scale})" if digits <= _DECIMAL_DIGITS else "string"
    if declared.endswith("WITH TIME ZONE"):
        return "string"
    return _KINDS.get(declared.partition("(")[0].partition(" ")[0], "string")


def _text(values: tuple[Value | None, ...], at: int) -> str:
    value = values[at] if at < len(values) else None
    return value.text if value is not None and isinstance(value.text, str) else ""


def _unquoted(name: str) -> str:
    return ".".join(
        part[1:-1].replace('""', '"') if part.startswith('"') else part
        for part in _PARTS.findall(name)
    )


def _columns(sql: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names and the types of columns. The engine writes one column a line."""
    names, types = [], []
    for line in sql.split("\n")[1:]:
        match = _COLUMN.match(line)
        if match is None:
            break
        declared = _TYPE.match(line, match.end())
        names.append(_unquoted(match[1]))
        types.append("" if declared is None else declared[1].rstrip(","))
    return tuple(names), tuple(types)


def changes_of(
    entries: Iterable[Entry], stream: LogStream, names: dict[int, TableName], log: str
) -> Iterator[Change]:
    """Yield the changes of committed transactions in commit order; commits count from 1."""
    commits = 0
    for one in transactions_of(entries):
        if one.state is not State.COMMITTED:
            continue
        commits += 1
        for ordinal, entry in enumerate(one.changes):
            table = names.get(entry.table, TableName(str(entry.table)))
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
