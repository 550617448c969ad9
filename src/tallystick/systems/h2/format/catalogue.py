"""Tables of a database by its own catalogue, as it changes along the log.

In: rows of the catalogue table (id, head, type, SQL), and the records of a log that change them.
Out: names and columns of tables, and from which record on a number means a table: the engine gives
the number of a table that was dropped to the next one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tallystick.systems.h2.format.entries import TABLE_CATALOG, TABLE_META, Entry, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.java_text import whole_number
from tallystick.systems.h2.format.values.types import Value
from tallystick.systems.protocol import Collection, Column, Reference

Row = tuple[Value | None, ...]

# A file may hold any text for SQL. So no part of a pattern here can be taken in two ways: where the
# rest does not fit, all of them would be tried.
_NAME = r'(?:"(?:[^"]|"")*"|\w+)'
_TEXT = r"'(?:[^']|'')*'"
_CREATE = re.compile(
    rf"CREATE\s[\w\s]*?TABLE\s(?:IF NOT EXISTS\s)?({_NAME}(?:\.{_NAME})?)"
    rf"(?:\sCOMMENT\s(?:\w+\()?{_TEXT}\)?)?\("
)
_KEY = re.compile(
    rf"ALTER TABLE ({_NAME}(?:\.{_NAME})?) ADD CONSTRAINT (?:IF NOT EXISTS )?{_NAME}(?:\.{_NAME})?"
    rf"(?: COMMENT (?:\w+\()?{_TEXT}\)?)? PRIMARY KEY\(({_NAME}(?:, {_NAME})*)\)"
)
_REFERENCE = re.compile(
    rf"ALTER TABLE ({_NAME}(?:\.{_NAME})?) ADD CONSTRAINT (?:IF NOT EXISTS )?{_NAME}(?:\.{_NAME})?"
    rf"(?: COMMENT (?:\w+\()?{_TEXT}\)?)? FOREIGN KEY\(({_NAME}(?:, {_NAME})*)\)"
    rf"(?: INDEX {_NAME}(?:\.{_NAME})?)? REFERENCES ({_NAME}(?:\.{_NAME})?)"
    rf"\(({_NAME}(?:, {_NAME})*)\)"
)
_UNIQUE = re.compile(
    rf"CREATE UNIQUE (?:HASH )?INDEX (?:IF NOT EXISTS )?{_NAME}(?:\.{_NAME})?"
    rf"(?: COMMENT (?:\w+\()?{_TEXT}\)?)? ON ({_NAME}(?:\.{_NAME})?)\("
)
_DOMAIN = re.compile(rf"CREATE DOMAIN ({_NAME})\sAS(?=\s)")
_COLUMN = re.compile(rf"\s*({_NAME})\s")
_TOKEN = re.compile(rf"{_TEXT}|{_NAME}|[^'\"(),\w]+|.", re.DOTALL)
_PARTS = re.compile(_NAME)
_BUILD = re.compile(r"SET CREATE_BUILD (\d{1,9})")
_SQL_COLUMN = 3


_KINDS = {
    "TINYINT": "tinyint", "SMALLINT": "smallint", "YEAR": "smallint", "INT2": "smallint",
    "INT": "int", "INTEGER": "int", "MEDIUMINT": "int", "INT4": "int", "SIGNED": "int",
    "SERIAL": "int", "BIGINT": "bigint", "INT8": "bigint", "LONG": "bigint",
    "IDENTITY": "bigint", "BIGSERIAL": "bigint",
    "BOOLEAN": "boolean", "BIT": "boolean", "BOOL": "boolean",
    "REAL": "float", "FLOAT4": "float", "DOUBLE": "double", "FLOAT": "double", "FLOAT8": "double",
    "DATE": "date", "TIMESTAMP": "timestamp_ntz", "DATETIME": "timestamp_ntz",
    "DATETIME2": "timestamp_ntz", "SMALLDATETIME": "timestamp_ntz",
    "BINARY": "binary", "VARBINARY": "binary", "LONGVARBINARY": "binary", "RAW": "binary",
    "BYTEA": "binary", "LONG RAW": "binary", "BLOB": "binary", "TINYBLOB": "binary",
    "MEDIUMBLOB": "binary", "LONGBLOB": "binary", "IMAGE": "binary", "OID": "binary",
}  # fmt: skip
"""Types of columns whose text Spark's types hold without loss; others stay text."""
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC|DEC|NUMBER)\((\d+), *(\d+)\)")
_DECIMAL_DIGITS = 38
_TYPE = re.compile(
    r"\s*(TIMESTAMP(?:\(\d+\))? WITH TIME ZONE|TIME(?:\(\d+\))? WITH TIME ZONE|"
    r"INTERVAL \w+(?:\([^)]*\))?(?: TO \w+(?:\(\d+\))?)?|"
    rf"ENUM\s*\((?:{_TEXT}(?:[,\s]+{_TEXT})*)?\s*\)|"
    rf"(?:DOUBLE PRECISION|LONG RAW|\w+)(?:\([^)]*\))?|{_NAME})"
)
_FLOAT = re.compile(r"FLOAT\((\d+)\)")
_REAL_BITS = 24
"""A FLOAT of up to so many bits is a REAL."""
_LARGE = re.compile(r"(?:TINY|MEDIUM|LONG|N)?(?:BLOB|CLOB|TEXT)\b|IMAGE\b|OID\b")
"""Types whose values are large objects."""


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table, and its columns.

    Attributes:
        name: without quotes.
        columns: their names; empty where they are not known.
        types: their types, as the SQL states them; in place of a domain the type that it stands
            for.
        key: the columns of the primary key, in its order.
        quoted: the name as it stands in statements.
        unique: the columns of its other indexes that are unique.
        references: as of `Collection`.
    """

    name: str
    columns: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    quoted: str = ""
    unique: tuple[tuple[str, ...], ...] = ()
    references: tuple[Reference, ...] = ()


_OWN = {
    TABLE_META: TableName("PAGE_INDEX", ("ID", "TYPE", "PARENT", "HEAD", "OPTIONS", "COLUMNS")),
    TABLE_CATALOG: TableName("SYS", ("ID", "HEAD", "TYPE", "SQL")),
}


def table_names(rows: Iterable[Row]) -> dict[int, TableName]:
    """Return the names of tables by id, the engine's two own tables included."""
    names, domains, keys = dict(_OWN), dict[str, str](), dict[str, tuple[str, ...]]()
    created: list[tuple[int, str, str]] = []
    unique: dict[str, list[tuple[str, ...]]] = {}
    references: dict[str, list[Reference]] = {}
    for values in rows:
        identity, sql = whole_number(_text(values, 0)), _text(values, _SQL_COLUMN)
        if (match := _DOMAIN.match(sql)) is not None:
            domains[_unquoted(match[1])] = _type(sql, match.end())
        elif (match := _CREATE.match(sql)) is not None and identity is not None:
            created.append((identity, match[1], sql[match.end() :]))
        elif (match := _KEY.match(sql)) is not None:
            keys[_unquoted(match[1])] = _unquoted_all(match[2])
        elif (match := _REFERENCE.match(sql)) is not None:
            one = _unquoted_all(match[2]), _unquoted(match[3]), _unquoted_all(match[4])
            references.setdefault(_unquoted(match[1]), []).append(one)
        elif (match := _UNIQUE.match(sql)) is not None:
            parts = map(_PARTS.match, map(str.strip, _definitions(sql[match.end() :])))
            index = tuple(_unquoted(part[0]) for part in parts if part is not None)
            unique.setdefault(_unquoted(match[1]), []).append(index)
    for identity, name, sql in created:
        columns, types = _columns(sql)
        types = tuple(_base(one, domains) for one in types)
        plain = _unquoted(name)
        others, leads = tuple(unique.get(plain, ())), tuple(references.get(plain, ()))
        key, quoted = keys.get(plain, ()), _quoted(name)
        names[identity] = TableName(plain, columns, types, key, quoted, others, leads)
    return names


def build_of(rows: Iterable[Row]) -> int:
    """Return the number of the engine's release that made the database; 0 if it is not known."""
    found = (_BUILD.fullmatch(_text(values, _SQL_COLUMN)) for values in rows)
    return next((int(one[1]) for one in found if one is not None), 0)


def collections(names: Mapping[int, TableName]) -> list[Collection]:
    """Return the tables whose columns are known, without the engine's own two, by name."""
    own = {one.name for one in _OWN.values()}
    found = []
    for table in names.values():
        if table.name not in own and table.columns:
            pairs = zip(table.columns, table.types, strict=True)
            places = {name: at for at, name in enumerate(table.key, 1)}
            columns = tuple(Column(one, kind, _kind(kind), places.get(one)) for one, kind in pairs)
            one = Collection(table.name, columns, quoted=table.quoted, unique=table.unique)
            found.append(replace(one, references=table.references))
    return sorted(found, key=lambda one: one.name)


def _kind(declared: str) -> str:
    if match := _DECIMAL.fullmatch(declared):
        digits, scale = int(match[1]), int(match[2])
        return f"decimal({digits},{scale})" if digits <= _DECIMAL_DIGITS else "string"
    if (match := _FLOAT.fullmatch(declared)) and int(match[1]) <= _REAL_BITS:
        return "float"
    if declared.endswith("WITH TIME ZONE"):
        return "string"
    name = declared.partition("(")[0]
    return _KINDS.get(name) or _KINDS.get(name.partition(" ")[0], "string")


def _text(values: Row, at: int) -> str:
    value = values[at] if at < len(values) else None
    return value.text if value is not None and isinstance(value.text, str) else ""


def _unquoted(name: str) -> str:
    return ".".join(
        part[1:-1].replace('""', '"') if part.startswith('"') else part
        for part in _PARTS.findall(name)
    )


def _unquoted_all(names: str) -> tuple[str, ...]:
    return tuple(map(_unquoted, _PARTS.findall(names)))


def _quoted(name: str) -> str:
    parts = _PARTS.findall(name)
    return ".".join(part if part.startswith('"') else f'"{part}"' for part in parts)


def _columns(sql: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names and the types of columns, from after the parenthesis before them."""
    names, types = [], []
    for one in _definitions(sql):
        match = _COLUMN.match(one)
        if match is None:
            break
        names.append(_unquoted(match[1]))
        types.append(_type(one, match.end()))
    return tuple(names), tuple(types)


def _definitions(sql: str) -> Iterator[str]:
    """Yield what is between commas, up to the parenthesis that ends all."""
    begin = depth = 0
    for token in _TOKEN.finditer(sql):
        match token[0]:
            case "(":
                depth += 1
            case ")" if depth:
                depth -= 1
            case "," | ")" if not depth:
                yield sql[begin : token.start()]
                begin = token.end()
                if token[0] == ")":
                    return


def _type(sql: str, at: int) -> str:
    declared = _TYPE.match(sql, at)
    return "" if declared is None else declared[1]


def _base(declared: str, domains: Mapping[str, str]) -> str:
    """Return the type that a domain stands for; any other type as it is."""
    for _ in domains:
        known = domains.get(_unquoted(declared))
        if known is None:
            break
        declared = known
    return declared


_NO_LOB_FILES_BUILD = 176
"""Releases from 1.3.176 on have all large objects in the database."""
_LAST_JULIAN_BUILD = 199
"""Releases up to 1.4.199 count days before 1582 in the Julian calendar, as Java does."""
_LIFE = 1 << 32
"""What tells tables that had the same number: the first one has this added to it, the next one two
times this, and so on; the last one has the number itself."""


@dataclass(frozen=True, slots=True)
class TableLives:
    """Which table a number means, at each place of a log.

    Attributes:
        names: the tables at the log's end.
        births: by number the offsets in the stream of the records that make a table under it anew,
            ascending.
        build: the number of the engine's release that made the database; 0 where it is not known.
    """

    names: Mapping[int, TableName]
    births: Mapping[int, Sequence[int]] = field(default_factory=dict)
    build: int = 0

    def number(self, table: int, position: int) -> int:
        """Return the number of the life to which a record at an offset belongs.

        The last life has the number of the table itself.
        """
        births = self.births.get(table, ())
        life = bisect_right(births, position)
        return table if life == len(births) else table + (life + 1) * _LIFE

    def numbers(self, tables: Any, positions: Any) -> Any:
        """Return for each record the `number` of its table.

        Args:
            tables: an array of the tables of records that follow each other.
            positions: an array of the offsets of these records in the stream.

        Returns:
            ``tables`` itself, or a copy where a table was dropped after some record.
        """
        import numpy as np

        found = tables
        for table, births in self.births.items():
            # Nothing is to be done after the last birth, which is where most records stand.
            if len(positions) and positions[0] < births[-1]:
                own = np.flatnonzero(tables == table)
                lives = np.searchsorted(np.array(births), positions[own], "right")
                earlier = lives < len(births)
                if earlier.any():
                    found = tables.copy() if found is tables else found
                    found[own[earlier]] += (lives[earlier] + 1) * _LIFE
        return found

    def get(self, number: int) -> TableName | None:
        """Return the table of a life; None where the catalogue does not name it (any more)."""
        return self.names.get(number)

    def name(self, number: int) -> str:
        """Return the name of a life's table: the number, where the catalogue has no name."""
        known = self.names.get(number)
        if known is not None:
            return known.name
        life, table = divmod(number, _LIFE)
        # Of the page index, whose number is negative, the quotient is -1.
        return f"{table}#{life - 1}" if life > 0 else str(number)

    @property
    def of_lob_files(self) -> frozenset[int]:
        """The tables whose large objects may be in files of their own."""
        return frozenset() if self.build >= _NO_LOB_FILES_BUILD else self.of_large_objects

    @property
    def of_large_objects(self) -> frozenset[int]:
        """The tables that have columns of large objects."""
        return frozenset(
            number for number, one in self.names.items() if any(map(_LARGE.match, one.types))
        )

    def zone(self, zone: Zone) -> Zone:
        """Return the zone of the writer with the calendar of its release."""
        return replace(zone, julian=True) if 0 < self.build <= _LAST_JULIAN_BUILD else zone


class Catalogue:
    """The rows of the catalogue along a log, and where numbers are given to tables anew.

    Args:
        rows: by key, where the log begins.
    """

    def __init__(self, rows: Mapping[int, Row]) -> None:
        self.rows = dict(rows)
        self._described = set(map(_identity, self.rows.values()))
        self._births: dict[int, list[int]] = {}

    def apply(self, entry: Entry) -> None:
        """Take in a change of the catalogue, or of the page index."""
        if entry.table == TABLE_META:
            # The key of a row of the page index is the id of the table plus 1.
            # The page index has a new row, too, when a root page is moved: SYS has its row then.
            if entry.code == Type.ADD and (table := entry.key - 1) not in self._described:
                self._births.setdefault(table, []).append(entry.start)
        elif entry.code == Type.ADD:
            self.rows[entry.key] = entry.values
            self._described.add(_identity(entry.values))
        elif entry.code == Type.REMOVE and entry.key in self.rows:
            self._described.discard(_identity(self.rows.pop(entry.key)))

    @property
    def births(self) -> dict[int, tuple[int, ...]]:
        """As `TableLives.births`."""
        return {table: tuple(births) for table, births in self._births.items()}


def _identity(values: Row) -> int | None:
    return whole_number(_text(values, 0))
