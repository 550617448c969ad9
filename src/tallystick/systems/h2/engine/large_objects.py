"""Large objects of a page store: what they hold, and whether their blocks hold what was stored.

In: the tables before redo, and what redo does to them. Out: bytes of objects, blocks that are
damaged, and objects that are not there in full. Pages and log records have no checksum over values,
but the engine keeps a hash of each block of a large object in INFORMATION_SCHEMA.LOB_MAP, beside
the number of the row of LOB_DATA that has the block.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any

from tallystick.systems.h2.engine.sparse import Numbers
from tallystick.systems.h2.engine.tables import StoreError, Tables
from tallystick.systems.h2.format.catalogue import Row, TableName
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.lzf import LENGTH_MAX, ExpansionError, expand_into
from tallystick.systems.h2.format.values.java_text import whole_number
from tallystick.systems.h2.format.values.types import Value, decode_row
from tallystick.systems.h2.read.stream import LogStream

_MAP, _DATA = "INFORMATION_SCHEMA.LOB_MAP", "INFORMATION_SCHEMA.LOB_DATA"
_OWN = frozenset({"INFORMATION_SCHEMA.LOBS", _MAP, _DATA})
_BITS = 32
_FACTOR = 31
_NO_HASH = 1 << _BITS
"""In place of the hash of what holds no bytes: no block has it in the map."""
_DATA_COLUMN = 2
_MAP_COLUMNS = 4
Added = Callable[[int], Iterable[Entry]]
_Reader = Callable[[Row], tuple[int | None, int | None, int | None]]
"""Returns the number of a block, its hash, and the number of its object or 0."""


def hash_of(data: bytes) -> int:
    """Return the hash of a block: that of Java's ``Arrays.hashCode(byte[])``, signed, 32 bits."""
    found = _hash_by_columns(data)
    return found - (1 << _BITS) if found >> (_BITS - 1) else found


def _hash_by_columns(data: bytes) -> int:
    try:
        import numpy as np
    except ImportError:
        found = 1
        for byte in data:
            found = (_FACTOR * found + (byte ^ 0x80) - 0x80) & (1 << _BITS) - 1
        return found
    # Java's bytes are signed, and its int wraps: so do 32 unsigned bits.
    values = np.frombuffer(data, np.int8).astype(np.uint32)
    powers = _powers(len(data))
    return (int(powers[0]) + int((values * powers[1:]).sum(dtype=np.uint32))) & (1 << _BITS) - 1


@lru_cache(maxsize=4)  # all blocks of an object but the last have one size
def _powers(size: int) -> Any:
    import numpy as np

    # The hash begins with 1, which is multiplied once for each byte: the highest power is for that.
    powers = np.full(size + 1, _FACTOR, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)[::-1].copy()


class LargeObjects:
    """The large objects that a database had at any time of its log.

    The engine removes the blocks of an object that is not used any more, but the log has them where
    it was stored in it, and the pages before redo where it was stored before.

    Args:
        tables: the tables; their pages are those before redo.
        names: the names of the tables, by their ids.
        added: returns the records of the log that add rows to a table.
        stream: the log.
    """

    def __init__(
        self, tables: Tables, names: Mapping[int, TableName], added: Added, stream: LogStream
    ) -> None:
        self._tables, self._added, self._stream = tables, added, stream
        self._ids = {one.name: index for index, one in names.items()}

    def content(self, number: int, position: int) -> bytes | None:
        """Return the bytes of an object; None where one of its blocks is not there.

        The number of an object that was removed is given again: of those that had it, the last one
        before the record is meant.

        Args:
            number: the number of the object.
            position: the offset in the stream of the record that names it.
        """
        parts = self._parts.get(number, [])
        end = bisect_left(parts, position, key=itemgetter(0))
        begin = end
        # Back to the block with place 0: a number that was given again has several of these.
        while begin and parts[begin - 1][1] > 0:
            begin -= 1
        blocks = dict(one[1:] for one in parts[max(begin - 1, 0) : end])
        found = [self._block(blocks.get(at), position) for at in range(len(blocks))]
        whole = [one for one in found if one is not None]
        return b"".join(whole) if whole and len(whole) == len(found) else None

    @cached_property
    def _parts(self) -> dict[int, list[tuple[int, int, int]]]:
        """By object its blocks: where the log names each, its place in the object, its number."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for at, values in self._map_rows():
            if len(values) < _MAP_COLUMNS:
                continue
            number, place, block = (_number(values[column]) for column in (0, 1, -1))
            if number is not None and place is not None and block is not None:
                found.setdefault(number, []).append((at, place, block))
        for parts in found.values():
            parts.sort()
        return found

    def _map_rows(self) -> Iterator[tuple[int, Row]]:
        """Yield each row of the map of blocks, and where in the stream it was added.

        -1 for a row on the pages before redo.
        """
        if (index := self._ids.get(_MAP)) is None:
            return
        row = self._tables.meta.get(index)
        if row is not None and row.root:
            with suppress(StoreError):
                yield from ((-1, values) for _, values in self._tables.rows(row.root))
        for entry in self._added(index):
            yield entry.start, decode_row(entry.row, self._tables.zone)[0]

    @cached_property
    def _logged(self) -> dict[int, list[tuple[int, int]]]:
        """By block the offsets in the stream of its rows, and their sizes."""
        index, found = self._ids.get(_DATA), dict[int, list[tuple[int, int]]]()
        for entry in () if index is None else self._added(index):
            begin = entry.start + entry.length - len(entry.row)
            found.setdefault(entry.key, []).append((begin, len(entry.row)))
        return found

    def _block(self, number: int | None, position: int) -> bytes | None:
        """Return the bytes of a block as they are at an offset in the stream; None: not there."""
        if number is None:
            return None
        places = self._logged.get(number, ())
        if at := bisect_left(places, position, key=itemgetter(0)):
            row = self._stream.raw(*places[at - 1])
            values: Row | None = decode_row(row, self._tables.zone)[0]
        else:
            values = self._stored(number)
        if values is None or len(values) <= _DATA_COLUMN:
            return None
        data, compressed = values[_DATA_COLUMN], _number(values[1])
        if data is None or not isinstance(data.text, str):
            return None
        found = bytes.fromhex(data.text)
        return unpacked_block(found) if compressed else found

    def _stored(self, number: int) -> Row | None:
        """Return the row of a block on the pages before redo; None where there is none."""
        row = self._tables.meta.get(self._ids.get(_DATA, -1))
        with suppress(StoreError):
            return self._tables.row(row.root, number) if row is not None and row.root else None
        return None


def unpacked_block(data: bytes) -> bytes | None:
    """Return what a compressed block holds; None where it is damaged, or packed in another way."""
    if not data:
        return None
    size, at = _size_of(data)
    try:
        match data[0]:
            case 0:
                return data[at:]
            case 1:
                found = bytearray(size + LENGTH_MAX)
                expand_into(data[at:], found, size)
                return bytes(found[:size])
            case 2:
                return zlib.decompress(data[at:])
    except (ExpansionError, zlib.error, IndexError):
        return None
    return None


def _size_of(data: bytes) -> tuple[int, int]:
    """Return the size of a block before it was compressed, and where its packed bytes begin."""
    first = data[1]
    more = sum(first >= border for border in (0x80, 0xC0, 0xE0, 0xF0))
    size = first & 0x7F >> more
    for byte in data[2 : 2 + more]:
        size = size << 8 | byte
    return size, 2 + more


class _Hashed:
    """Block, hash and object for each row of a table, as redo leaves them."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._blocks, self._hashes, self._objects = Numbers(), Numbers(), Numbers()

    def put(self, key: int, values: Row) -> None:
        block, found, number = self._reader(values)
        self.discard(key)
        if block is not None and found is not None and number is not None:
            self._blocks.set(key, block)
            self._hashes.set(key, found)
            self._objects.set(key, number)

    def discard(self, key: int) -> None:
        self._blocks.discard(key)

    def redo(self, entry: Entry) -> None:
        if entry.code == Type.TRUNCATE:
            self._blocks.clear()
        elif entry.code == Type.REMOVE:
            self.discard(entry.key)
        else:
            self.put(entry.key, entry.values)

    def items(self) -> Iterator[tuple[int, int | None, int | None]]:
        return (
            (block, self._hashes.get(key), self._objects.get(key))
            for key, block in self._blocks.items()
        )


def block_tables(names: Mapping[int, TableName]) -> frozenset[int]:
    """Return the ids of the tables of blocks and of their hashes."""
    return frozenset(index for index, one in names.items() if one.name in (_MAP, _DATA))


def object_tables(names: Mapping[int, TableName]) -> frozenset[int]:
    """Return the ids of the tables that keep large objects, to which only the engine writes."""
    return frozenset(index for index, one in names.items() if one.name in _OWN)


class Blocks:
    """The blocks of large objects as redo leaves them, and what the map says of them.

    Args:
        tables: the tables; their pages are those before redo.
        emptied: tables of which redo keeps no row of these pages.
        names: the names of the tables, by their ids.
        redone: the records that redo applies.
    """

    def __init__(
        self,
        tables: Tables,
        emptied: Container[int],
        names: Mapping[int, TableName],
        redone: Iterable[Entry],
    ) -> None:
        ids = {one.name: index for index, one in names.items()}
        self._map, self._data = _Hashed(_map_entry), _Hashed(_block)
        own = {_MAP: self._map, _DATA: self._data}
        found = {ids[name]: one for name, one in own.items() if name in ids}
        for index, hashed in found.items():
            row = tables.meta.get(index)
            if row is not None and row.root and index not in emptied:
                with suppress(StoreError):  # a damaged page is a finding of its own
                    for key, values in tables.rows(row.root):
                        hashed.put(key, values)
        for entry in redone:
            if entry.table in found:
                found[entry.table].redo(entry)

    def damaged(self) -> Iterator[int]:
        """Yield the number of each block that has another hash than its entry in the map."""
        expected = Numbers()
        for block, held, _ in self._map.items():
            if held is not None:
                expected.set(block, held)
        for block, held, _ in self._data.items():
            if expected.get(block) not in (None, held):
                yield block

    def missing(self, named: Iterable[int]) -> list[int]:
        """Return those of the ``named`` objects that have no block, or of which one is missing."""
        there, whole = Numbers(), Numbers()
        for block, _, _ in self._data.items():
            there.set(block, 1)
        for block, _, number in self._map.items():
            if number is not None:
                lacks = whole.get(number) == 0 or there.get(block) is None
                whole.set(number, int(not lacks))
        return sorted({number for number in named if whole.get(number) != 1})


def _map_entry(values: Row) -> tuple[int | None, int | None, int | None]:
    """Return block, hash and object as a row of the map of blocks states them."""
    if len(values) < 2:  # a damaged row: of too few values
        return None, None, None
    return _number(values[-1]), _number(values[-2]), _number(values[0])


def _block(values: Row) -> tuple[int | None, int | None, int | None]:
    """Return the number of a block, and the hash of its bytes, of a row that holds it."""
    if len(values) <= _DATA_COLUMN:
        return _number(values[0]) if values else None, _NO_HASH, 0
    data = values[_DATA_COLUMN]
    return _number(values[0]), _hash_of_text("" if data is None else data.text), 0


def _hash_of_text(text: object) -> int:
    try:
        return hash_of(bytes.fromhex(text)) if isinstance(text, str) else _NO_HASH
    except ValueError:  # a damaged row: its value is a text
        return _NO_HASH


def _number(value: Value | None) -> int | None:
    return None if value is None else whole_number(value.text)
