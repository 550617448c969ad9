"""Tables of a database by its own catalogue, as it changes along the log.

In: committed operations on the catalogue's tables, and their rows where the log begins. Out: tables
with names, columns, and the containers that hold their rows: a table gets another container when it
is emptied, or loses a column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace

from tallystick.errors import LogFormatError
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.page_rows import Field, images_of, read_field
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.format.sql_values import SqlType, read_text, read_type
from tallystick.systems.derby.read.containers import (
    CONTROL_ROW,
    Key,
    Part,
    Parts,
    columns_of,
    has_rows_of_table,
    part_of,
)

CONGLOMERATES, TABLES, COLUMNS, SCHEMAS = 32, 96, 144, 192
"""Containers of the tables of the catalogue that name tables, in every database."""
CONSTRAINTS, KEYS, FOREIGN_KEYS = 240, 304, 512
"""Those of the tables that tell primary and foreign keys, and which index is whose."""

CATALOGUE = (CONGLOMERATES, TABLES, COLUMNS, SCHEMAS, CONSTRAINTS, KEYS, FOREIGN_KEYS)
NAMING = (CONGLOMERATES, TABLES, SCHEMAS)
"""Those of them that tell which table a container is."""

_DESCRIBING = 5
"""Columns of ``SYSCOLUMNS`` before those that change as identity columns count."""
_USER_TABLE, _PRIMARY_KEY = "T", "P"
_KEY_COLUMN = re.compile(rb"\0\x01\0[\x04-\x06]bcp(\d+)\x01/(.{4})", re.DOTALL)
"""In the description of an index: a text, and a whole number (format 303)."""
_UNIQUE = re.compile(rb"isUnique(?:WithDuplicateNulls)?\x01/\0\0\0\x01")
_COMPUTED = b"\0\0\0\0\0\x02"
"""What follows the text of a default that is computed of other columns: no value, and a flag."""
_APP = {"80000000-00d2-b38f-4cda-000a0a412c00": "APP"}
"""The schema that every database has, which is made before its log begins."""

_Columns = dict[int, bytes | None]


Layout = tuple[tuple[str, SqlType] | None, ...]
"""The columns of a table's rows in one container, by number; None for those that are unknown."""


@dataclass(slots=True)
class Table:
    """A table: its name and its containers, the newest last.

    Attributes:
        containers: number of a container, and the commit at which it became the table's; None for
            the one that the table had where the log begins.
        layouts: the columns by container.
        follows: another table had the name before, as far as the log tells.
        loaded: the first container took the place of another one, which the transaction made, too,
            or of which the log does not tell: rows that it got with that are not in the log.
        names: those that it had along the log, the newest last.
        key: the numbers of the columns of the primary key, in its order.
        unique: those of the columns of each unique index.
        quoted: the name in statements.
        references: the numbers of the columns of foreign keys, the ids of the tables that they lead
            to, and the numbers of their columns.
    """

    name: str
    containers: list[tuple[int, int | None]] = field(default_factory=list)
    layouts: dict[int, Layout] = field(default_factory=dict)
    follows: bool = False
    loaded: bool = False
    names: list[str] = field(default_factory=list)
    key: tuple[int, ...] = ()
    unique: tuple[tuple[int, ...], ...] = ()
    quoted: str = ""
    references: tuple[tuple[tuple[int, ...], str, tuple[int, ...]], ...] = ()

    @property
    def layout(self) -> Layout:
        """The columns of the newest container."""
        return self.layouts[self.containers[-1][0]]


class Catalogue:
    """The tables of users, kept true from commit to commit; ``tables`` is by the ids of tables.

    ``freed`` has, by number of a container, the commit at which it was last given up: after a
    restart Derby gives the number to another table or index. ``names`` has the table that each
    container is now, of users or of the catalogue; ``last`` the container that each name had last,
    ``indexes`` the containers of indexes, and ``loaded`` those of tables that are `Table.loaded`.

    Args:
        rows: where the log begins, by container of the catalogue.
    """

    def __init__(self, rows: dict[int, dict[Key, _Columns]]) -> None:
        self._rows = rows
        self.tables: dict[str, Table] = {}
        self.freed: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.last: dict[str, int] = {}
        self.indexes: set[int] = set()
        self.loaded: set[int] = set()
        self._numbers: set[int] = set()
        self._names: set[str] = set()
        self._containers: dict[str, int] = {}
        self._at_begin: dict[str, int] = {}
        self._seen: Set[str] = set()
        """The ids of tables of which there was any row. A row that was there where the log begins,
        and was replaced in it, may have been purged since: then its values are nowhere."""
        self._renew(None)
        self._at_begin = self._containers

    def copied(self) -> Catalogue:
        """Return one that goes on by itself from here, with the names of tables."""
        found = Catalogue({number: dict(rows) for number, rows in self._rows.items()})
        found.last = self.last | found.last
        return found

    def is_other(self, container: int) -> bool:
        """Return whether a container is one of the catalogue's own, or of an index.

        Numbers grow, and the catalogue is made first; their last four bits tell what they hold.
        """
        held = {number for table in self.tables.values() for number, _ in table.containers}
        own = container in self._numbers or container in CATALOGUE
        below = container < min(held, default=0) and container not in self.freed
        return not has_rows_of_table(container) or (container not in held and (own or below))

    def apply(self, bodies: Iterable[Body], commit: int) -> None:
        """Take in the operations of one transaction that commits at an instant."""
        parts = Parts()
        changed = False
        heaps: dict[str, list[int]] = {}
        for body in bodies:
            changed |= self._apply(body, parts)
            self._note_heap(body, heaps)
        self.loaded |= {
            numbers[-1]
            for identity, numbers in heaps.items()
            if identity not in self._containers
            and (numbers[-1] != numbers[0] or identity in self._seen)
        }
        if changed:
            self._renew(commit)

    def _note_heap(self, body: Body, heaps: dict[str, list[int]]) -> None:
        """Note by id of a table the containers that a transaction gives it."""
        page = body.fields["pageId"]
        row = self._rows[page.container].get((page.number, body.fields["recordId"]))
        # The column tells whether it is an index.
        if page.container == CONGLOMERATES and row is not None and row.get(4) == b"\0":
            heaps.setdefault(_text(row, 1), []).append(int.from_bytes(row.get(2) or b""))

    def _apply(self, body: Body, parts: Parts) -> bool:
        page = body.fields["pageId"]
        rows = self._rows.setdefault(page.container, {})
        key = page.number, body.fields["recordId"]
        if key == CONTROL_ROW:
            return False
        if body.operation == operations.DELETE:
            rows.pop(key, None)
            return True
        columns = columns_of(new_part(body), parts)
        if body.operation == operations.INSERT:
            rows[key] = columns
            return True
        rows[key] = {**rows.get(key, {}), **columns}
        return page.container != COLUMNS or any(column < _DESCRIBING for column in columns)

    def _renew(self, commit: int | None) -> None:
        """Make names, tables and indexes anew from the rows of the catalogue after a commit."""
        schemas = _APP | {_text(row, 0): _text(row, 1) for row in self._of(SCHEMAS)}
        containers = {
            _text(row, 1): int.from_bytes(row.get(2) or b"")
            for row in self._of(CONGLOMERATES)
            if row.get(4) == b"\0"  # no index, but the table itself
        }
        numbers = {int.from_bytes(row.get(2) or b"") for row in self._of(CONGLOMERATES)}
        self.indexes = numbers - {*containers.values()}
        self.freed |= dict.fromkeys(self._numbers - numbers, commit or 0)
        self._numbers = numbers
        columns = _columns(self._of(COLUMNS))
        there, unique = set[str](), self._unique()
        keys, references = self._keys()
        self.names = {}
        for row in self._of(TABLES):
            identity, schema = _text(row, 0), _text(row, 3)
            if identity not in containers:
                continue
            name = f"{schemas.get(schema, schema)}.{_text(row, 1)}"
            self.names[containers[identity]] = name
            if _text(row, 2) == _USER_TABLE and identity in columns:
                there.add(identity)
                container = containers[identity]
                since = None if self._at_begin.get(identity) == container else commit
                loaded = container in self.loaded or (since is not None and identity in self._seen)
                known = Table(name, follows=name in self._names, loaded=loaded)
                table = self.tables.setdefault(identity, known)
                _name(table, name)
                _renew(table, container, columns[identity], since)
                table.key = keys.get(identity, ())
                table.unique = tuple(unique.get(identity, ()))
                table.references = tuple(references.get(identity, ()))
                parts = schemas.get(schema, schema), _text(row, 1)
                table.quoted = ".".join('"' + one.replace('"', '""') + '"' for one in parts)
        for identity in self.tables.keys() - there:
            del self.tables[identity]
        self._containers = containers
        self._seen = (
            {_text(row, 0) for row in self._of(TABLES)} | containers.keys() | columns.keys()
        )
        self._names |= {table.name for table in self.tables.values()}
        self.last |= {name: container for container, name in self.names.items()}

    def _keys(
        self,
    ) -> tuple[
        dict[str, tuple[int, ...]], dict[str, list[tuple[tuple[int, ...], str, tuple[int, ...]]]]
    ]:
        """Return the columns of primary keys, and foreign keys, by the ids of tables."""
        indexes = {_text(row, 7): row.get(5) or b"" for row in self._of(CONGLOMERATES)}
        rows = [*self._of(KEYS), *self._of(FOREIGN_KEYS)]
        columns = {_text(row, 0): _key_columns(indexes.get(_text(row, 1), b"")) for row in rows}
        tables = {_text(row, 0): _text(row, 1) for row in self._of(CONSTRAINTS)}
        primary = {
            _text(row, 1): columns.get(_text(row, 0), ())
            for row in self._of(CONSTRAINTS)
            if _text(row, 3) == _PRIMARY_KEY
        }
        foreign: dict[str, list[tuple[tuple[int, ...], str, tuple[int, ...]]]] = {}
        for row in self._of(FOREIGN_KEYS):
            own, other = _text(row, 0), _text(row, 2)
            one = columns[own], tables.get(other, ""), columns.get(other, ())
            foreign.setdefault(tables.get(own, ""), []).append(one)
        return primary, foreign

    def _unique(self) -> dict[str, list[tuple[int, ...]]]:
        """Return the numbers of the columns of unique indexes, by the ids of tables."""
        found: dict[str, list[tuple[int, ...]]] = {}
        for row in self._of(CONGLOMERATES):
            if _UNIQUE.search(index := row.get(5) or b""):
                found.setdefault(_text(row, 1), []).append(_key_columns(index))
        return found

    def _of(self, container: int) -> Iterator[_Columns]:
        return iter(self._rows.get(container, {}).values())


def new_part(body: Body) -> Part:
    """Return what an operation writes to a row; raises `LogFormatError`."""
    if body.operation == operations.UPDATE_FIELD:
        found: Field = read_field(Cursor(body.optional or b""))
        return Part({body.fields["fieldId"]: found})
    row = images_of(body).row_after
    return Part({}) if row is None else part_of(row)


def _name(table: Table, name: str) -> None:
    table.name = name
    if name not in table.names:
        table.names.append(name)


def _renew(table: Table, container: int, layout: Layout, commit: int | None) -> None:
    known = table.layouts.get(container)
    if known is None:
        table.containers.append((container, commit))
    else:
        _rename(table, known, layout)
    table.layouts[container] = layout


def _rename(table: Table, before: Layout, after: Layout) -> None:
    """Rename columns in all containers of a table."""
    pairs = zip(before, after, strict=False)
    names = {old[0]: new[0] for old, new in pairs if old and new and old[0] != new[0]}
    # A table that lost a column has another container, with the old rows in the old one: a new name
    # holds for both.
    if names:
        for container, layout in table.layouts.items():
            columns = (one and (names.get(one[0], one[0]), one[1]) for one in layout)
            table.layouts[container] = tuple(columns)


def _columns(rows: Iterable[_Columns]) -> dict[str, Layout]:
    """Return the columns of tables, by the ids of tables."""
    found: dict[str, dict[int, tuple[str, SqlType]]] = {}
    for row in rows:
        number = int.from_bytes(row.get(2) or b"")
        try:
            kind = read_type(row.get(3) or b"")
        except LogFormatError:
            # A type that cannot be read: its values are given as they are stored.
            kind = SqlType("", "string", bytes.hex)
        default = row.get(4) or b""  # formats 326 and 1, and a text with its length before it
        is_computed = default[6 + int.from_bytes(default[4:6]) :].startswith(_COMPUTED)
        is_counted = not default and row.get(8) is not None
        kind = replace(kind, computed=is_computed, counted=is_counted)
        if number > 0:
            found.setdefault(_text(row, 0), {})[number - 1] = _text(row, 1), kind
    return {
        table: tuple(columns.get(at) for at in range(max(columns) + 1))
        for table, columns in found.items()
    }


def _key_columns(index: bytes) -> tuple[int, ...]:
    """Return the numbers of the columns of an index, from 0, by its description."""
    found = {int(at): int.from_bytes(number) - 1 for at, number in _KEY_COLUMN.findall(index)}
    return tuple(found[at] for at in sorted(found))


def _text(row: _Columns, column: int) -> str:
    data = row.get(column)
    try:
        return "" if data is None else read_text(data)
    except LogFormatError:
        return ""
