"""Large objects of a page store: whether their blocks hold what was stored.

In: the tables before redo, and what redo does to them. Out: blocks that are damaged. Pages and log
records have no checksum over values, but the engine keeps a hash of each block of a large object in
INFORMATION_SCHEMA.LOB_MAP, beside the number of the row of LOB_DATA that has the block.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from tallystick.systems.h2.engine.sparse import Numbers
from tallystick.systems.h2.engine.tables import StoreError, Tables
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.values.java_text import whole_number
from tallystick.systems.h2.format.values.types import Value
from tallystick.systems.h2.read.catalogue import TableName

_MAP, _DATA = "INFORMATION_SCHEMA.LOB_MAP", "INFORMATION_SCHEMA.LOB_DATA"
_BITS = 32
_FACTOR = 31
_NO_HASH = 1 << _BITS
_DATA_COLUMN = 2
_Row = tuple[Value | None, ...]
_Reader = Callable[[_Row], tuple[int | None, int | None]]
"""Returns the number of a block, and its hash."""


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
    values = np.frombuffer(data, np.int8).astype(np.uint32)
    powers = _powers(len(data))
    return (int(powers[0]) + int((values * powers[1:]).sum(dtype=np.uint32))) & (1 << _BITS) - 1


@lru_cache(maxsize=4)  # all blocks of an object but the last have one size
def _powers(size: int) -> Any:
    import numpy as np

    powers = np.full(size + 1, _FACTOR, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)[::-1].copy()


class _Hashed:
    """The number of a block and its hash, by the keys of a table's rows."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._blocks, self._hashes = Numbers(), Numbers()

    def put(self, key: int, values: _Row) -> None:
        block, found = self._reader(values)
        self.discard(key)
        if block is not None and found is not None:
            self._blocks.set(key, block)
            self._hashes.set(key, found)

    def discard(self, key: int) -> None:
        self._blocks.discard(key)

    def redo(self, entry: Entry) -> None:
        if entry.code == Type.TRUNCATE:
            self._blocks.clear()
        elif entry.code == Type.REMOVE:
            self.discard(entry.key)
        else:
            self.put(entry.key, entry.values)

    def items(self) -> Iterator[tuple[int, int | None]]:
        return ((block, self._hashes.get(key)) for key, block in self._blocks.items())


def block_tables(names: Mapping[int, TableName]) -> frozenset[int]:
    """Return the ids of the tables of blocks and of their hashes."""
    return frozenset(index for index, one in names.items() if one.name in (_MAP, _DATA))


def damaged_blocks(
    tables: Tables,
    emptied: Container[int],
    names: Mapping[int, TableName],
    redone: Iterable[Entry],
) -> Iterator[int]:
    """Yield the number of each block that has another hash than its entry in the map.

    Args:
        tables: the tables; their pages are those before redo.
        emptied: tables of which redo keeps no row of these pages.
        names: the names of the tables, by their ids.
        redone: the records that redo applies.
    """
    ids = {one.name: index for index, one in names.items()}
    if _MAP not in ids or _DATA not in ids:
        return
    found = {ids[_MAP]: _Hashed(_map_entry), ids[_DATA]: _Hashed(_block)}
    for index, hashed in found.items():
        row = tables.meta.get(index)
        if row is not None and row.root and index not in emptied:
            with suppress(StoreError):  # a damaged page is a finding of its own
                for key, values in tables.rows(row.root):
                    hashed.put(key, values)
    for entry in redone:
        if entry.table in found:
            found[entry.table].redo(entry)
    expected = Numbers()
    for block, held in found[ids[_MAP]].items():
        if held is not None:
            expected.set(block, held)
    for block, held in found[ids[_DATA]].items():
        if expected.get(block) not in (None, held):
            yield block


def _map_entry(values: _Row) -> tuple[int | None, int | None]:
    if len(values) < 2:  # a damaged row: of too few values
        return None, None
    return _number(values[-1]), _number(values[-2])


def _block(values: _Row) -> tuple[int | None, int | None]:
    if len(values) <= _DATA_COLUMN:
        return _number(values[0]) if values else None, _NO_HASH
    data = values[_DATA_COLUMN]
    return _number(values[0]), _hash_of_text("" if data is None else data.text)


def _hash_of_text(text: object) -> int:
    try:
        return hash_of(bytes.fromhex(text)) if isinstance(text, str) else _NO_HASH
    except ValueError:  # a damaged row: its value is a text
        return _NO_HASH


def _number(value: Value | None) -> int | None:
    return None if value is None else whole_number(value.text)
