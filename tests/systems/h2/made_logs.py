"""Databases with logs of transactions of many kinds, made by chance: most are in order throughout.

In: a seed. Out: the bytes of a file: tables with rows, and a log of several sessions that add,
replace and remove rows of all types, commit, prepare, and take changes back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tallystick.systems.h2.database import nodes, schema
from tallystick.systems.h2.database.nodes import FreeList, Leaf
from tallystick.systems.h2.database.schema import Row, index_row, object_row
from tallystick.systems.h2.format import entries as records
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import META_COLUMNS, TABLE_CATALOG, TABLE_META
from tallystick.systems.h2.format.layout import StaticHeader, Trunk, VariableHeader
from tallystick.systems.h2.format.numbers import (
    encode_units,
    encode_var_int,
    encode_var_long,
)
from tallystick.systems.h2.format.values import types as values
from tallystick.systems.h2.format.values.java_text import INTERVALS

_Encoder = Callable[[random.Random, int], bytes]
SYS, COUNTED, KEYED, LOG, CREATED = 5, 6, 7, 8, 9
"""Pages: the catalogue, two tables, the log's trunk page, a table that the log creates."""
KEY = 7
"""The log's key."""
COUNTED_TABLE, KEYED_TABLE, CREATED_TABLE = 3, 4, 6
KEYED_INDEX = 5
SESSIONS = (1, 2, 3)
STORED_KEYS = range(1, 13)
"""Keys of rows that the tables have before the log."""
_COUNTED_SQL = (
    'CREATE CACHED TABLE "PUBLIC"."A ""b"" \u20ac"(\n    "ID\\" INT,\n    "T" VARCHAR,\n'
    '    "B" VARBINARY\n)'
)
_KEYED_SQL = "CREATE CACHED TABLE PUBLIC.KEYED(\n    K BIGINT NOT NULL,\n    V VARCHAR\n)"
_CREATED_SQL = "CREATE CACHED TABLE PUBLIC.NEW(\n    X INT,\n    X INT\n)"
_LETTERS = 'ab "\\/\n\t\x00\x1f\x7f\u00e9\u20ac\u07ff\u0800\ud83d\ude00\uffff'


# -- values ---------------------------------------------------------------------------------


def _text(rng: random.Random, most: int = 40) -> list[int]:
    letters = "abc " if rng.random() < 0.5 else _LETTERS
    return [ord(rng.choice(letters)) for _ in range(rng.randrange(most))]


def _counted(rng: random.Random, code: int) -> bytes:
    units = _text(rng)
    return bytes((code,)) + encode_var_int(len(units)) + encode_units(units)


def _short(rng: random.Random, _: int) -> bytes:
    units = _text(rng, 32)
    return bytes((values.STRING_0_31 + len(units),)) + encode_units(units)


def _bytes(rng: random.Random, code: int) -> bytes:
    data = rng.randbytes(rng.randrange(40))
    return bytes((code,)) + encode_var_int(len(data)) + data


def _short_bytes(rng: random.Random, _: int) -> bytes:
    data = rng.randbytes(rng.randrange(32))
    return bytes((values.BYTES_0_31 + len(data),)) + data


def _int(rng: random.Random, code: int) -> bytes:
    return bytes((code,)) + encode_var_int(_number(rng, 32))


def _long(rng: random.Random, code: int) -> bytes:
    return bytes((code,)) + encode_var_long(_number(rng, 64))


def _number(rng: random.Random, bits: int) -> int:
    number = rng.getrandbits(rng.randrange(1, bits + 1))
    return rng.choice((number, 0, 1, 1 << (bits - 1), (1 << bits) - 1, number))


def _small_decimal(rng: random.Random, code: int) -> bytes:
    scale = rng.choice((0, 1, 2, 5, 17, 30, -3))
    return bytes((code,)) + encode_var_int(scale) + encode_var_long(_number(rng, 64))


def _fields(rng: random.Random, code: int) -> bytes:
    """Encode a date or a time: numbers of 32 (``i``) and 64 (``l``) bits."""
    encoders = {"i": encode_var_int, "l": encode_var_long}
    numbers = (encoders[kind](_number(rng, 30)) for kind in _TIMES[code])
    return bytes((code,)) + b"".join(numbers)


_TIMES = {
    values.TIME: "l",
    values.DATE: "l",
    values.TIMESTAMP: "li",
    values.LOCAL_TIME: "ll",
    values.LOCAL_DATE: "l",
    values.LOCAL_TIMESTAMP: "lll",
    values.TIMESTAMP_TZ: "lli",
}


def _fixed(size: int) -> _Encoder:
    return lambda rng, code: bytes((code,)) + rng.randbytes(size)


def _constant(rng: random.Random, _: int) -> bytes:
    return bytes((rng.choice(_CONSTANTS),))


_CONSTANTS = [
    values.NULL,
    *range(values.INT_0_15, values.DECIMAL_SMALL_0),
    *range(values.DOUBLE_0, values.INT_NEGATIVE),
]


def _array(rng: random.Random, code: int) -> bytes:
    count = rng.randrange(4)
    return bytes((code,)) + encode_var_int(count) + b"".join(_short(rng, 0) for _ in range(count))


def _in_database(rng: random.Random, code: int) -> bytes:
    numbers = encode_var_int(values.LOB_IN_DATABASE) + encode_var_int(rng.randrange(99))
    return bytes((code,)) + numbers + encode_var_long(7) + encode_var_long(_number(rng, 40))


def _big_decimal(rng: random.Random, code: int) -> bytes:
    digits = rng.randbytes(rng.randrange(1, 30))
    return bytes((code,)) + encode_var_int(rng.randrange(20)) + encode_var_int(len(digits)) + digits


def _interval(rng: random.Random, code: int) -> bytes:
    kind = rng.randrange(len(INTERVALS))
    rest = encode_var_long(_number(rng, 30)) if kind >= INTERVALS.index("SECOND") else b""
    sign = rng.choice((kind, 0xFF - kind))
    return bytes((code, sign)) + encode_var_long(_number(rng, 20)) + rest


def _zoned(rng: random.Random, code: int) -> bytes:
    encode = encode_var_int if code == values.TIME_TZ else encode_var_long
    zone = rng.choice((b"\x04", b"\xfc", b"\x7f" + encode_var_int(3601), b"\x80\x05"))
    return bytes((code,)) + encode(_number(rng, 16)) + encode(_number(rng, 30)) + zone


_ENCODERS: dict[int, _Encoder] = {
    values.BYTE: _fixed(1),
    values.SHORT: _fixed(2),
    values.INT: _int,
    values.LONG: _long,
    values.INT_NEGATIVE: _int,
    values.LONG_NEGATIVE: _long,
    values.ENUM: _int,
    values.DECIMAL_SMALL_0: _long,
    values.DECIMAL_SMALL: _small_decimal,
    values.DOUBLE: _long,
    values.FLOAT: _int,
    **dict.fromkeys(_TIMES, _fields),
    values.BYTES: _bytes,
    values.JAVA_OBJECT: _bytes,
    values.GEOMETRY: _bytes,
    values.JSON: _bytes,
    values.BLOB: _bytes,
    values.CLOB: _bytes,
    values.STRING: _counted,
    values.STRING_IGNORECASE: _counted,
    values.STRING_FIXED: _counted,
    values.UUID: _fixed(16),
    values.STRING_0_31: _short,
    values.BYTES_0_31: _short_bytes,
    values.BOOLEAN_TRUE: _constant,
    values.NULL: _constant,
    values.ARRAY: _array,
    values.DECIMAL: _big_decimal,
    values.INTERVAL: _interval,
    values.TIMESTAMP_TZ_SECONDS: _zoned,
    values.TIME_TZ: _zoned,
}
_LARGE_OBJECTS = (values.BLOB, values.CLOB)


def value(rng: random.Random) -> bytes:
    """Encode a value of any type that the compiled walk reads."""
    code = rng.choice(list(_ENCODERS))
    if code in _LARGE_OBJECTS and rng.random() < 0.5:
        return _in_database(rng, code)
    return _ENCODERS[code](rng, code)


def row(rng: random.Random, columns: int, first: bytes = b"") -> bytes:
    """Encode a row, with a given first value or any."""
    items = [value(rng) for _ in range(columns)]
    return encode_var_int(columns) + b"".join([first, *items[1:]] if first else items)


# -- log ------------------------------------------------------------------------------------


@dataclass
class _Log:
    """The bytes of a log, and what its tables have."""

    rng: random.Random
    body_size: int
    data: bytearray = field(default_factory=bytearray)
    keys: dict[int, set[int]] = field(default_factory=dict)
    open: dict[int, list[tuple[int, int, bytes | None]]] = field(default_factory=dict)
    """Of each session, the changes to take back: table, key, the row to add again."""

    def fill(self) -> None:
        """Write no-ops to the end of the page."""
        self.data += bytes(-len(self.data) % self.body_size)

    def change(self, session: int, odd: bool) -> None:
        """Add, remove or replace a row; each session has keys of its own."""
        rng = self.rng
        table = rng.choice(list(self.keys))
        key = rng.randrange(1, 400) * len(SESSIONS) + session
        known = self.keys[table]
        if known and rng.random() < 0.4:
            own = [one for one in known if one % len(SESSIONS) == session % len(SESSIONS)]
            key = rng.choice(own or [key])
        had = key in known
        if had != (odd and rng.random() < 0.5):
            self.data += records.encode_remove(session, table, key)
            self.open.setdefault(session, []).append((table, key, self.row(table, key)))
            known.discard(key)
        if not had or rng.random() < 0.5:
            self.data += records.encode_add(session, table, key, self.row(table, key))
            self.open.setdefault(session, []).append((table, key, None))
            known.add(key)

    def row(self, table: int, key: int) -> bytes:
        """Encode a row of a table."""
        if table == KEYED_TABLE:
            code = values.LONG if key > 0 else values.LONG_NEGATIVE
            return row(self.rng, 2, bytes((code,)) + encode_var_long(abs(key)))
        return row(self.rng, 2 if table == CREATED_TABLE else 3)

    def take_back(self, session: int) -> None:
        """Write the inverse of each change of a session, as a rollback does."""
        for table, key, again in reversed(self.open.get(session, [])):
            if again is None:
                self.data += records.encode_remove(session, table, key)
                self.keys[table].discard(key)
            else:
                self.data += records.encode_add(session, table, key, again)
                self.keys[table].add(key)

    def prepare(self, session: int) -> None:
        """Write a prepare record with a page to itself."""
        name = self.rng.choice(("XID_1_0A_0B", "XID_77_FF_", "mine \u20ac"))
        self.fill()
        self.data += records.encode_prepare(session, name)
        self.fill()
        if self.rng.random() < 0.3:
            self.take_back(session)

    def end(self, session: int) -> None:
        """Write how a transaction ends."""
        rng = self.rng
        if rng.random() < 0.2:
            self.take_back(session)
        if rng.random() < 0.1:
            self.fill()
        encode = records.encode_rollback if rng.random() < 0.1 else records.encode_commit
        self.data += encode(session)
        self.open.pop(session, None)
        if rng.random() < 0.1:
            self.fill()

    def undo(self, pages: int, page_size: int) -> None:
        """Write the image of a page behind those of the database."""
        kind = self.rng.randrange(3)
        image = bytes((9,)) + bytes(page_size // 2) + self.rng.randbytes(page_size // 2 - 1)
        image = self.rng.randbytes(page_size) if kind == 1 else image
        page = pages + self.rng.randrange(9)
        self.data += records.encode_undo(page, None if kind == 2 else image)

    def create(self, session: int) -> None:
        """Write what CREATE TABLE writes."""
        for table, key, data in (
            index_row(CREATED_TABLE, schema.DATA, CREATED_TABLE, CREATED, "0,1"),
            object_row(CREATED_TABLE, schema.TABLE, _CREATED_SQL),
        ):
            count = META_COLUMNS if table == TABLE_META else schema.CATALOG_COLUMNS
            self.data += records.encode_add(session, table, key, encode_var_int(count) + data)
        self.data += records.encode_commit(session)
        self.keys[CREATED_TABLE] = set()

    def step(self, odd: bool) -> None:
        """Write a few records of one kind."""
        session, kind = self.rng.choice(SESSIONS), self.rng.random()
        if kind < 0.7:
            self.change(session, odd)
        elif kind < 0.9:
            self.end(session)
        elif kind < 0.93:
            self.prepare(session)
        elif kind < 0.95:
            self.undo(40, self.body_size + layout.DATA_START)
        elif kind < 0.97:
            self.data += records.encode_checkpoint()
            self.fill()
        elif kind < 0.98:
            self.data += records.encode_free_log([self.rng.randrange(300)])
        elif kind < 0.985 and odd:
            self.data += records.encode_truncate(session, COUNTED_TABLE)
        elif CREATED_TABLE not in self.keys:
            self.create(session)


def random_log(seed: int) -> bytes:
    """Make a file whose log is in order; for some seeds with changes that contradict each other."""
    rng = random.Random(seed)
    page_size = rng.choice((512, 2048))
    stored = set(STORED_KEYS)
    keys = {COUNTED_TABLE: set(stored), KEYED_TABLE: set(stored)}
    log = _Log(rng, page_size - layout.DATA_START, keys=keys)
    odd = rng.random() < 0.3
    for _ in range(rng.choice((0, 5, 60, 300))):
        log.step(odd)
    if rng.random() < 0.5:
        log.fill()
    return file_of(bytes(log.data), page_size)


def damaged(seed: int) -> bytes:
    """Make a log with bytes exchanged under renewed checksums, or cut."""
    rng = random.Random(seed)
    data = bytearray(random_log(seed))
    size = layout.decode_static_header(bytes(data), "").page_size
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(layout.FREE_LIST_ROOT * size, len(data))
        data[at] = rng.choice((0, data[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
        page = slice(at // size * size, (at // size + 1) * size)
        data[page] = layout.seal(data[page], at // size)
    return bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))])


def long_log(rows: int) -> bytes:
    """Make the log of a transaction that does not end, and of as many others as it has rows."""
    rng, data = random.Random(1), bytearray()
    for number in range(rows):
        for session in (1, 2):
            key = 100 + 2 * number + session
            added = row(rng, 2, bytes((values.LONG,)) + encode_var_long(key))
            data += records.encode_add(session, KEYED_TABLE, key, added)
        data += records.encode_commit(2)
    return bytes(data)


# -- file -----------------------------------------------------------------------------------


def file_of(body: bytes, page_size: int) -> bytes:
    """Return a database of two tables (and the catalogue) whose log holds these bytes."""
    room = page_size - layout.DATA_START
    count = -(-len(body) // room)
    first = CREATED + 1
    listed = tuple(range(first, first + count))
    per_trunk = layout.trunk_capacity(page_size)
    parts = [listed[at : at + per_trunk] for at in range(0, count, per_trunk)] or [()]
    numbers = [LOG, *range(first + count, first + count + len(parts) - 1)]
    before, after = [0, *numbers], [*numbers[1:], 0]
    trunks = [
        layout.encode_trunk(Trunk(number, before[at], KEY + at, after[at], part), page_size)
        for at, (number, part) in enumerate(zip(numbers, parts, strict=True))
    ]
    header = layout.encode_variable_header(VariableHeader(1, KEY, LOG, first), page_size)
    pages = [layout.encode_static_header(StaticHeader(page_size)), header, header]
    pages += [*_tables(page_size, first + count + len(parts)), trunks[0], bytes(page_size)]
    for number in range(count):
        at = number // per_trunk
        piece = body[number * room : (number + 1) * room]
        pages.append(layout.encode_data(first + number, numbers[at], KEY + at, piece, page_size))
    return b"".join([*pages, *trunks[1:]])


def _tables(page_size: int, count: int) -> list[bytes]:
    """Return the pages from the free list on, up to the log's first one."""
    index = _leaf(
        TABLE_META,
        META_COLUMNS,
        [
            index_row(0, schema.DATA, 0, SYS, "0,1,2,3"),
            index_row(COUNTED_TABLE, schema.DATA, COUNTED_TABLE, COUNTED, "0,1,2"),
            index_row(KEYED_TABLE, schema.DATA, KEYED_TABLE, KEYED, "0,1"),
            index_row(KEYED_INDEX, schema.BTREE, KEYED_TABLE, 0, "0"),
        ],
    )
    objects = _leaf(
        TABLE_CATALOG,
        schema.CATALOG_COLUMNS,
        [
            object_row(COUNTED_TABLE, schema.TABLE, _COUNTED_SQL),
            object_row(KEYED_TABLE, schema.TABLE, _KEYED_SQL),
            object_row(KEYED_INDEX, schema.INDEX, 'CREATE PRIMARY KEY "P" ON PUBLIC.KEYED(K)'),
        ],
    )
    null = bytes((values.NULL,))
    keyed = [(KEYED_TABLE, key, _key(key) + null) for key in STORED_KEYS]
    counted = [(COUNTED_TABLE, key, null * 3) for key in STORED_KEYS]
    bits = bytearray(page_size - layout.FREE_LIST_START)
    for page in range(layout.FREE_LIST_ROOT, count):
        at = page - layout.FREE_LIST_ROOT
        bits[at >> 3] |= 1 << (at & 7)
    made: list[nodes.Node] = [
        FreeList(bits),
        index,
        objects,
        _leaf(COUNTED_TABLE, 3, counted),
        _leaf(KEYED_TABLE, 2, keyed),
    ]
    first = layout.FREE_LIST_ROOT
    return [nodes.encode(page_size, first + at, node) for at, node in enumerate(made)]


def _key(number: int) -> bytes:
    return bytes((values.LONG,)) + encode_var_long(number)


def _leaf(table: int, columns: int, rows: list[Row]) -> Leaf:
    return Leaf(table, columns, keys=[key for _, key, _ in rows], rows=[one for *_, one in rows])
