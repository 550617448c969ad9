"""Redo on row keys: what the committed records of a log do to the tables.

In: the tables before redo, and committed records in order. Out: which keys each table has gained
and lost, the catalogue, and what of the records the engine never writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tallystick.systems.h2.engine.sparse import KeyStates
from tallystick.systems.h2.engine.tables import (
    GENERAL_ERROR,
    TABLE_KIND,
    MetaRow,
    StoreError,
    Tables,
    corrupted,
    meta_row,
    meta_table,
)
from tallystick.systems.h2.format.catalogue import Catalogue
from tallystick.systems.h2.format.entries import TABLE_CATALOG, TABLE_META, Entry, Type
from tallystick.systems.h2.format.numbers import decode_var_int
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.java_text import whole_number
from tallystick.systems.h2.format.values.types import (
    EngineFailureError,
    FileCorruptedError,
    Value,
    decode_row,
    stored_object,
)
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.surroundings import LobFile, lob_file
from tallystick.systems.h2.runs.pieces import OWN_TABLES

_Named = TypeVar("_Named")
DUPLICATE_KEY = 23505
_NOT_THERE = "removals of rows that are not there"


@dataclass(slots=True)
class Redo:
    """Redo on row keys: which keys each table has gained and lost.

    It changes no pages: it tells whether the engine could. `database.redo.Redo` changes them.
    """

    tables: Tables
    stream: LogStream
    zone: Zone
    odd: dict[str, tuple[int, int]]
    """As `Opening.odd_changes`."""
    changed: defaultdict[int, KeyStates] = field(default_factory=lambda: defaultdict(KeyStates))
    """By table, the keys that redo has added, and those that it has removed."""
    emptied: set[int] = field(default_factory=set)
    """Tables that redo has made or emptied: their rows on the pages do not count any more. Not
    those of `Tables.emptied`."""
    catalogue: Catalogue = field(default_factory=lambda: Catalogue({}))
    """The rows of SYS so far."""

    def start(self, read_only: bool) -> StoreError | None:
        """Read the catalogue as it is before redo; return what kept it from being read."""
        row = self.tables.meta.get(TABLE_CATALOG)
        self.tables.read_only = read_only
        try:
            if row is not None:
                self.catalogue = Catalogue(dict(self.tables.rows(row.root)))
        except StoreError as error:
            return error
        return None

    def apply(self, entry: Entry) -> None:
        """Apply one committed record."""
        _APPLY[entry.code](self, entry)

    def root(self, table: int) -> MetaRow:
        """Return the row of the page index of a table.

        Raises:
            StoreError: there is no such table.
        """
        row = meta_table() if table == TABLE_META else self.tables.meta.get(table)
        if row is None:
            raise StoreError(GENERAL_ERROR, f"table not found: {table}")
        return row

    def _has(self, table: int, key: int) -> bool:
        """Return whether a table has a row with this key now."""
        known = self.changed[table].get(key)
        if known is not None:
            return known
        return table not in self.emptied and self.tables.contains(self.root(table).root, key)

    def has_each(self, table: int, keys: Any) -> Any:
        """Return which of the keys, an ascending array, a table has now.

        Raises:
            StoreError: the pages of the table cannot be read.
        """
        found = self.changed[table].each(keys)
        unknown = found < 0
        found[unknown] = 0
        if table not in self.emptied and unknown.any():
            found[unknown] = self.tables.contains_each(self.root(table).root, keys[unknown])
        return found != 0

    def lob_files(self) -> set[LobFile]:
        """Return the large objects in files that rows name which the log does not change."""
        return {lob for table, key, lob in self.tables.lob_files if self._stays(table, key)}

    def _stays(self, table: int, key: int) -> bool:
        """Return True for a row on the pages that redo leaves as it is."""
        there = table not in self.emptied and table in self.tables.meta
        return there and (table not in self.changed or self.changed[table].get(key) is None)

    def lob_files_of(self, redone: Iterable[Entry]) -> set[LobFile]:
        """Return the large objects in files that rows name which redo adds and leaves there."""
        return self._named_in(redone, lob_file)

    def stored_objects(self, redone: Iterable[Entry]) -> Iterator[int]:
        """Yield the number of each large object in the database that rows name after redo.

        Args:
            redone: the records that redo applies to tables which may have such rows.
        """
        yield from self._named_in(redone, stored_object)
        kept = self.tables.stored
        for table, key, number in zip(kept[0::3], kept[1::3], kept[2::3], strict=True):
            if self._stays(table, key):
                yield number

    def _named_in(
        self, redone: Iterable[Entry], named: Callable[[Value], _Named | None]
    ) -> set[_Named]:
        """Return what is ``named`` by values of rows that redo adds and leaves there."""
        found: dict[tuple[int, int], set[_Named]] = {}
        births = self.catalogue.births
        for entry in redone:
            if entry.start < births.get(entry.table, (0,))[-1]:  # of a table that was dropped
                continue
            if entry.code == Type.TRUNCATE:
                found = {place: lobs for place, lobs in found.items() if place[0] != entry.table}
            elif entry.code == Type.REMOVE:
                found.pop((entry.table, entry.key), None)
            elif lobs := {*_named_by(entry, self.zone, named)}:
                found[entry.table, entry.key] = lobs
        there = self.tables.meta
        return {lob for (table, _), lobs in found.items() if table in there for lob in lobs}

    def _add(self, entry: Entry) -> None:
        if entry.table == TABLE_META:
            self._create(meta_row(entry.values))
        key = self._key(entry, self.root(entry.table))
        if key is None:
            return
        if self._has(entry.table, key):
            if _NOT_THERE in self.odd:  # which rows H2 has after that is not known
                return
            raise StoreError(DUPLICATE_KEY, f"table {entry.table} has a row with key {key} already")
        self.changed[entry.table].set(key, present=True)
        if entry.table in OWN_TABLES:
            self.catalogue.apply(entry)

    def _key(self, entry: Entry, table: MetaRow) -> int | None:
        """Return the key that the engine gives an added row; None where that is not known."""
        column = self.tables.key_column(entry.table)
        count, value = _count_and_value(entry, column, self.zone)
        if entry.table == TABLE_META and entry.key != meta_row(entry.values).index + 1:
            self._odd(entry, "rows under another key than the engine gives them")
        if table.columns not in (0, count):
            self._odd(entry, "rows of another number of columns than their table has")
        if column is None:
            if entry.key:
                return entry.key
            self._odd(entry, "rows without a key")
            return None
        key = None if value is None else whole_number(value.text)
        if key != entry.key:
            self._odd(entry, "rows under another key than the engine gives them")
        return key

    def _odd(self, entry: Entry, what: str) -> None:
        """Note a change that the engine never writes."""
        count, first = self.odd.get(what) or (0, self.stream.file_offset(entry.start))
        self.odd[what] = count + 1, first

    def _create(self, row: MetaRow) -> None:
        if row.kind != TABLE_KIND and row.parent not in self.tables.meta:
            raise corrupted(f"table not found: {row.parent}")
        self.tables.put_meta(row.index, row)
        # Redo zeroes the root page of an index that it creates: no row of the page before counts.
        self.emptied.add(row.index)
        self.changed[row.index] = KeyStates()

    def _remove(self, entry: Entry) -> None:
        self.root(entry.table)
        if not self._has(entry.table, entry.key):
            # The engine goes on, or fails where the key is after the last one of a page.
            self._odd(entry, _NOT_THERE)
            return
        if entry.table == TABLE_META:
            self.tables.put_meta(entry.key - 1, None)
        self.changed[entry.table].set(entry.key, present=False)
        if entry.table in OWN_TABLES:
            self.catalogue.apply(entry)

    def _truncate(self, entry: Entry) -> None:
        self.root(entry.table)
        self.emptied.add(entry.table)
        self.changed[entry.table] = KeyStates()


def _count_and_value(entry: Entry, column: int | None, zone: Zone) -> tuple[int, Value | None]:
    """Return how many columns an added row has, and the value of one."""
    values = entry.values
    if not values and not entry.fault:
        count, _ = decode_var_int(entry.row, 0)
        if column is None:
            return count, None
        values, _ = decode_row(entry.row, zone)
    known = column is not None and 0 <= column < len(values)
    return len(values), values[column] if column is not None and known else None


_APPLY: dict[int, Callable[[Redo, Entry], None]] = {
    Type.ADD: Redo._add,
    Type.REMOVE: Redo._remove,
    Type.TRUNCATE: Redo._truncate,
}


def _named_by(
    entry: Entry, zone: Zone, named: Callable[[Value], _Named | None]
) -> Iterator[_Named]:
    try:
        values, _ = decode_row(entry.row, zone)
    except (IndexError, FileCorruptedError, EngineFailureError):
        return
    for value in values:
        if value is not None and (found := named(value)) is not None:
            yield found
