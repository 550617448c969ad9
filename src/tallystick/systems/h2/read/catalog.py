"""Names of tables and columns, from the SQL in the database's own catalog.

In: rows of the catalog table (id, head, type, SQL). Out: a table's name and column names. The
log itself knows tables by number only; where the SQL says nothing the number stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tallystick.systems.h2.format.entries import TABLE_CATALOG, TABLE_META
from tallystick.systems.h2.format.values.java_text import whole_number
from tallystick.systems.h2.format.values.value import Value

_NAME = r'(?:"(?:[^"]|"")*"|\w+)'
_CREATE = re.compile(rf"CREATE\s[\w\s]*?TABLE\s(?:IF NOT EXISTS\s)?({_NAME}(?:\.{_NAME})?)\(")
_COLUMN = re.compile(rf"\s*({_NAME})\s")
_PARTS = re.compile(_NAME)
_SQL_COLUMN = 3


@dataclass(frozen=True, slots=True)
class TableName:
    """``columns`` is empty where they are not known."""

    name: str
    columns: tuple[str, ...] = ()


_OWN = {
    TABLE_META: TableName("PAGE_INDEX", ("ID", "TYPE", "PARENT", "HEAD", "OPTIONS", "COLUMNS")),
    TABLE_CATALOG: TableName("SYS", ("ID", "HEAD", "TYPE", "SQL")),
}


def table_names(rows: Iterable[tuple[Value | None, ...]]) -> dict[int, TableName]:
    """Table id to its name, the engine's two own tables included."""
    names = dict(_OWN)
    for values in rows:
        identity, sql = whole_number(_text(values, 0)), _text(values, _SQL_COLUMN)
        match = _CREATE.match(sql)
        if match is not None and identity is not None:
            columns = _columns(sql[match.end() :])
            names[identity] = TableName(_plain(match[1]), columns)
    return names


def _text(values: tuple[Value | None, ...], at: int) -> str:
    value = values[at] if at < len(values) else None
    return value.text if value is not None and isinstance(value.text, str) else ""


def _plain(name: str) -> str:
    return ".".join(
        part[1:-1].replace('""', '"') if part.startswith('"') else part
        for part in _PARTS.findall(name)
    )


def _columns(sql: str) -> tuple[str, ...]:
    # The engine writes one column a line.
    names = []
    for line in sql.split("\n")[1:]:
        match = _COLUMN.match(line)
        if match is None:
            break
        names.append(_plain(match[1]))
    return tuple(names)
