"""The row that a person means by a key, also where it had, or gets, another one.

In: a key as typed, and the rows of a log in their order. Out: those that are changes of that row.
Where a log has an UPDATE as the delete of a row and the add of one, the row that came is the row
that went. Memory holds what is kept of the rows that are meant, a transaction, and of rewritten
logs what became of each key that is looked at: of one that no row left or took, of that alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystick.errors import TallystickError
from tallystick.records import Change, Fate, Kind, Row
from tallystick.systems.protocol import (
    Catalogued,
    FateBatches,
    KnowsFates,
    KnowsRowsBefore,
    LogReading,
)
from tallystick.systems.registry import system

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 10_000
"""Most rows that are looked at at once."""

Place = tuple[str, str]
"""Collection and key of a row."""
_NUMERIC = ("tinyint", "smallint", "int", "bigint", "decimal", "float", "double")
"""How the kinds of columns begin that hold numbers."""


def every_row(reading: LogReading) -> Iterable[Row]:
    """Return all rows of a log; of one that tells no fates all are committed."""
    if isinstance(reading, KnowsFates):
        return reading.fated_changes()
    return (Row(Fate.COMMITTED, change) for change in reading.changes())


def rewrites(reading: LogReading) -> bool:
    """Return whether a log has an UPDATE as the delete of a row and the add of one."""
    dialect = system(reading.source.system).dialect
    return dialect is not None and dialect.rewrites


class LookedAt(NamedTuple):
    """The rows of these keys, and all of transactions with these numbers.

    Of a transaction that moves rows all tell together which one went where.
    """

    keys: Set[str]
    commits: Set[int]

    def has(self, change: Change) -> bool:
        """Return whether a change is one of these, or empties its table."""
        chosen = change.key in self.keys or change.commit_sequence in self.commits
        return chosen or change.kind is Kind.TRUNCATE


class MeantKey:
    """The rows that a person means by a key: as the log has it, or ``COLUMN=VALUE``.

    A change may have neither that column nor the whole row, so what is known of rows before it
    counts, too. What empties their table, after a change of theirs, is one of theirs.
    """

    def __init__(self, key: str, reading: LogReading) -> None:
        self._key = key
        column, separator, self._value = key.partition("=")
        self._column = column.casefold() if separator else None
        self._number = _number(self._value) if separator else None
        self._numeric = set[str]() if self._number is None else self._numbers_of(reading)
        self._rewrites = rewrites(reading)
        self.looked_at: LookedAt | None = None
        """The rows that have to be looked at; None where any may be meant."""
        if not separator:
            moving = self._rewrites
            self.looked_at = _about_key(key, reading) if moving else LookedAt({key}, set())
        self._follows = self.looked_at is None or len(self.looked_at.keys) > 1
        self._meant = set[Hashable](self._before(reading) if separator else ())
        if self._follows:
            self._meant |= {
                one
                for one, row in self._known(_rows_of(reading, self.looked_at))
                if self._is_named(row.change)
            }

    def chosen(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield those of rows that are meant: of at least all `looked_at`, in the log's order."""
        touched = set[str]()
        for one, row in self._known(rows):
            change = row.change
            if change.kind is Kind.TRUNCATE:
                meant = change.collection in touched
            else:
                meant = one in self._meant if self._follows else change.key == self._key
            if meant:
                touched.add(change.collection)
                yield row

    def _known(self, rows: Iterable[Row]) -> Iterator[tuple[Hashable, Row]]:
        """Yield rows, each with what is the same for all changes of one row: its first place."""
        if not self._rewrites:
            yield from (((row.change.collection, row.change.key), row) for row in rows)
            return
        owners = dict[Place, Hashable]()
        for about, some in groupby(rows, _transaction):
            together = [*some]
            before = _came_from([_kind_and_place(row) for row in together])
            held = dict[Place, Hashable]()
            for at, row in enumerate(together):
                place = row.change.collection, row.change.key
                if row.change.kind is Kind.DELETE:
                    held[place] = owners.get(place, place)
                    owners[place] = about, place
                    yield held[place], row
                    continue
                if at in before:
                    owners[place] = held[before[at]]
                if owners.get(place) == place:  # as most: only what is another one is kept
                    del owners[place]
                yield owners.get(place, place), row

    def _is_named(self, change: Change) -> bool:
        return change.key == self._key or self._holds(change.collection, change.values or {})

    def _holds(self, collection: str, values: Mapping[str, Any]) -> bool:
        return any(
            name.casefold() == self._column
            and value is not None
            and (str(value) == self._value or self._equals(collection, value))
            for name, value in values.items()
        )

    def _equals(self, collection: str, value: object) -> bool:
        """Return whether a number is the one that is asked for, however many zeros it ends in."""
        return collection in self._numeric and _number(str(value)) == self._number

    def _numbers_of(self, reading: LogReading) -> set[str]:
        """Return the collections of which the column holds numbers."""
        return {
            name
            for one in (reading.collections() if isinstance(reading, Catalogued) else ())
            for column in one.columns
            if column.name.casefold() == self._column and column.kind.startswith(_NUMERIC)
            for name in (one.name, *one.stored)
        }

    def _before(self, reading: LogReading) -> Iterator[Place]:
        if not isinstance(reading, KnowsRowsBefore):
            return
        for one in reading.collections():
            if any(column.name.casefold() == self._column for column in one.columns):
                with suppress(TallystickError):  # then they are not known
                    for key, values in reading.rows_before(one.name):
                        if self._holds(one.name, values):
                            yield one.name, key


def _transaction(row: Row) -> tuple[str | None, bytes | None, int]:
    return row.change.transaction, row.change.gtrid, row.change.commit_sequence


def _kind_and_place(row: Row) -> tuple[Kind, Place]:
    return row.change.kind, (row.change.collection, row.change.key)


def _rows_of(reading: LogReading, wanted: LookedAt | None) -> Iterator[Row]:
    """Yield the rows that are looked at, or all; they may lack values where not all are."""
    if wanted is not None and (batches := fated_batches(reading)) is not None:
        from tallystick.investigate.row_columns import RowColumns, looked_at

        for batch in batches:
            yield from RowColumns(looked_at(batch, *wanted), None, reading.clock, {}).rows()
        return
    yield from (row for row in every_row(reading) if wanted is None or wanted.has(row.change))


def fated_batches(reading: LogReading) -> Iterator[pa.RecordBatch] | None:
    """Return all rows of a log in columns; None where they come one by one."""
    if isinstance(reading, FateBatches) and find_spec("pyarrow") is not None:
        return reading.fated_batches(BATCH_ROWS)
    return None


def _about_key(key: str, reading: LogReading) -> LookedAt:
    """Return a key, those that its rows have had, or get, and what tells which these are."""
    keys = _connected(key, _moves(reading))
    touching = set[int]()
    if len(keys) > 1:
        touching |= {
            commit
            for commit, some in _transactions(reading)
            if any(place[1] in keys for _, place in some)
        }
    return LookedAt(keys, touching)


def _moves(reading: LogReading) -> Iterator[tuple[Place, Place]]:
    """Yield the places that an UPDATE took a row from, and brought it to, where these differ."""
    for _, some in _transactions(reading):
        before = _came_from(some)
        yield from ((old, some[at][1]) for at, old in before.items() if old != some[at][1])


def _transactions(reading: LogReading) -> Iterable[tuple[int, list[tuple[Kind, Place]]]]:
    """Yield number and rows of each transaction, of columns only of those that may move a row."""
    if (batches := fated_batches(reading)) is None:
        rows = groupby(every_row(reading), _transaction)
        return ((key[-1], [_kind_and_place(row) for row in some]) for key, some in rows)
    from tallystick.investigate.row_columns import rekeying

    return rekeying(batches)


def _connected(key: str, moves: Iterable[tuple[Place, Place]]) -> Set[str]:
    """Return a key, and those that its rows have had, or get, by these moves."""
    beside = defaultdict[Place, list[Place]](list)
    for old, new in moves:
        beside[old].append(new)
        beside[new].append(old)
    found = {one for one in beside if one[1] == key}
    left = [*found]
    while left:
        others = {*beside[left.pop()]} - found
        found |= others
        left += others
    return {key, *(own for _, own in found)}


def _came_from(rows: Sequence[tuple[Kind, Place]]) -> dict[int, Place]:
    """Return by their numbers in a transaction the rows that come, each with the one that went.

    An UPDATE of several rows deletes them all, and then adds them all in the same order.
    """
    found = dict[int, Place]()
    runs = defaultdict[str, tuple[dict[Place, None], dict[int, Place]]](lambda: ({}, {}))

    def close(gone: dict[Place, None], come: dict[int, Place]) -> None:
        # Where as many come as went, one may well have the key that another one had.
        few = len(gone) != len(come)
        same = {at: place for at, place in come.items() if few and place in gone}
        back = {*same.values()}
        left = [one for one in gone if one not in back]
        others = [at for at in come if at not in same]
        count = min(len(left), len(others))
        # Before an UPDATE there may be a DELETE, after it an INSERT.
        moved = zip(others[:count], left[len(left) - count :], strict=True)
        found.update(same | dict(moved))
        gone.clear()
        come.clear()

    for at, (kind, place) in enumerate(rows):
        gone, come = runs[place[0]]
        if kind is Kind.DELETE:
            if come:
                close(gone, come)
            gone[place] = None
        elif kind is Kind.ADD and gone:
            come[at] = place
    for gone, come in runs.values():
        close(gone, come)
    return found


def other_value(key: str, values: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the column of ``COLUMN=VALUE``, and its value, where a row has another one."""
    column, separator, value = key.partition("=")
    if not separator:
        return None
    number = _number(value)
    for name, given in values.items():
        if name.casefold() == column.casefold() and str(given) != value:
            return None if number is not None and number == _number(str(given)) else (name, given)
    return None


def _number(text: str) -> Decimal | None:
    """Return the number that a text states; None if it is no number, or not finite."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
