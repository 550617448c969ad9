"""The first pages of a new H2 database without tables of ours.

In: a page size. Out: headers, free list, page index, SYS, and the tables for large objects: 1.4.200
creates these when it opens a database without them, and cannot while a transaction is in doubt. The
user is SA, without a password. Source: files that 1.4.200 wrote.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

from tallystick.systems.h2.database import nodes, schema
from tallystick.systems.h2.database.nodes import FreeList, Leaf, Node, empty_index
from tallystick.systems.h2.database.schema import Row, index_row, object_row
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import META_COLUMNS, TABLE_CATALOG, TABLE_META

_BUILD = 200
_FIRST_ROOT = layout.META_ROOT + 1
_SCHEMA = '"INFORMATION_SCHEMA"'


@dataclass
class _Catalogue:
    """Rows of the catalogue so far, and root pages from `_FIRST_ROOT` on."""

    index: list[Row] = field(default_factory=list)
    objects: list[Row] = field(default_factory=list)
    roots: list[Node] = field(default_factory=list)

    def root(self, node: Node) -> int:
        self.roots.append(node)
        return _FIRST_ROOT + len(self.roots) - 1

    def object(self, kind: int, sql: str) -> None:
        self.objects.append(object_row(len(self.objects) + 1, kind, sql))

    def table(self, name: str, *columns: str) -> int:
        """Add a hidden table; return its number."""
        number = len(self.objects) + 1
        root = self.root(Leaf(number, len(columns)))
        listed = ",".join(map(str, range(len(columns))))
        self.index.append(index_row(number, schema.DATA, number, root, listed))
        body = ",\n    ".join(columns)
        create = f"CREATE CACHED TABLE IF NOT EXISTS {_SCHEMA}.{name}(\n    {body}\n)\nHIDDEN"
        self.object(schema.TABLE, create)
        return number

    def key(self, table: int, name: str, mark: int, at: str, columns: str, page_size: int) -> None:
        """Add its primary key on the columns ``at``: a single one is the row key, without pages."""
        primary = f'{_SCHEMA}."PRIMARY_KEY_{mark}"'
        self._index(table, at, page_size if "," in at else 0)
        create = f"CREATE PRIMARY KEY IF NOT EXISTS {primary} ON {_SCHEMA}.{name}({columns})"
        self.object(schema.INDEX, create)
        constraint = f'{_SCHEMA}."CONSTRAINT_{mark}" PRIMARY KEY({columns}) INDEX {primary}'
        add = f"ALTER TABLE {_SCHEMA}.{name} ADD CONSTRAINT IF NOT EXISTS {constraint}"
        self.object(schema.CONSTRAINT, add)

    def secondary(
        self, table: int, name: str, index: str, at: str, columns: str, size: int
    ) -> None:
        """Add a secondary index."""
        self._index(table, at, size)
        create = f"CREATE INDEX IF NOT EXISTS {_SCHEMA}.{index} ON {_SCHEMA}.{name}({columns})"
        self.object(schema.INDEX, create)

    def _index(self, table: int, at: str, page_size: int) -> None:
        number = len(self.objects) + 1
        root = self.root(empty_index(number, page_size)) if page_size else 0
        self.index.append(index_row(number, schema.BTREE, table, root, at))


def first_pages(page_size: int) -> bytes:
    """Return the content of the file, without a log."""
    catalogue, objects = _Catalogue(), Leaf(TABLE_CATALOG, schema.CATALOG_COLUMNS)
    catalogue.index.append(index_row(0, schema.DATA, 0, catalogue.root(objects), "0,1,2,3"))
    catalogue.object(schema.SETTING, f"SET CREATE_BUILD {_BUILD}")
    _large_objects(catalogue, page_size)
    catalogue.object(schema.USER, _user())
    number = secrets.randbits(63)
    catalogue.object(schema.CONSTANT, f'CREATE CONSTANT "PUBLIC"."STORE_ID" VALUE {number}')
    _fill(objects, catalogue.objects)
    index = Leaf(TABLE_META, META_COLUMNS)
    _fill(index, catalogue.index)
    used = (1 << 2 + len(catalogue.roots)) - 1  # the list itself, the page index, the roots
    bits = bytearray(used.to_bytes(page_size - layout.FREE_LIST_START, "little"))
    content = [FreeList(bits), index, *catalogue.roots]
    pages = [
        nodes.encode(page_size, layout.FREE_LIST_ROOT + n, node) for n, node in enumerate(content)
    ]
    return layout.encode_headers(page_size) + b"".join(pages)


def _fill(leaf: Leaf, rows: list[Row]) -> None:
    leaf.keys = [key for _, key, _ in rows]
    leaf.rows = [row for _, _, row in rows]


def _large_objects(catalogue: _Catalogue, page_size: int) -> None:
    name = '"LOBS"'
    table = catalogue.table(name, '"ID" BIGINT NOT NULL', '"BYTE_COUNT" BIGINT', '"TABLE" INT')
    catalogue.key(table, name, 2, "0", '"ID"', page_size)
    catalogue.secondary(table, name, '"INDEX_LOB_TABLE"', "2", '"TABLE"', page_size)
    name, columns = '"LOB_MAP"', ('"POS" BIGINT', '"HASH" INT', '"BLOCK" BIGINT')
    table = catalogue.table(name, '"LOB" BIGINT NOT NULL', '"SEQ" INT NOT NULL', *columns)
    catalogue.key(table, name, 3, "0,1", '"LOB", "SEQ"', page_size)
    catalogue.secondary(table, name, '"INDEX_LOB_MAP_DATA_LOB"', "4,0", '"BLOCK", "LOB"', page_size)
    name = '"LOB_DATA"'
    table = catalogue.table(name, '"BLOCK" BIGINT NOT NULL', '"COMPRESSED" INT', '"DATA" BINARY')
    catalogue.key(table, name, 9, "0", '"BLOCK"', page_size)


def _user() -> str:
    salt = secrets.token_bytes(8)
    secret = hashlib.sha256("SA@".encode("utf-16-be")).digest()  # user, @, password
    password = hashlib.sha256(secret + salt).hexdigest()
    return f"CREATE USER IF NOT EXISTS \"SA\" SALT '{salt.hex()}' HASH '{password}' ADMIN"
