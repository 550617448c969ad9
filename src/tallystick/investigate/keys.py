"""The row that a person means by a key, also where it had, or gets, another one.

In: a key as typed, and the rows of a log in their order. Out: those that are changes of that row.
Where a log has an UPDATE as the delete of a row and the add of one, the row that came is the row
that went. Memory holds what is kept of the rows that are meant, and of rewritten logs a
transaction, and what became of each key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from itertools import groupby
from typing import Any

from tallystick.errors import TallystickError
from tallystick.records import Change, Fate, Kind, Row
from tallystick.systems.protocol import Catalogued, KnowsFates, KnowsRowsBefore, LogReading
from tallystick.systems.registry import system

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
        self.follows = bool(separator) or self._rewrites
        """Whether changes are meant that have another key."""
        self._meant = set[Hashable](self._before(reading) if separator else ())
        if self.follows:
            self._meant |= {
                one for one, row in self._known(every_row(reading)) if self._is_named(row.change)
            }

    def chosen(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield those of the rows of the log, all of them in their order, that are meant."""
        touched = set[str]()
        for one, row in self._known(rows):
            change = row.change
            if change.kind is Kind.TRUNCATE:
                meant = change.collection in touched
            else:
                meant = one in self._meant if self.follows else change.key == self._key
            if meant:
                touched.add(change.collection)
                yield row

    def _known(self, rows: Iterable[Row]) -> Iterator[tuple[Hashable, Row]]:
        """Yield rows, each with what is the same for all changes of one row: its first place."""
        if not self._rewrites:
            yield from (((row.change.collection, row.change.key), row) for row in rows)
            return
        owners = dict[Place, Hashable]()
        for number, (_, some) in enumerate(groupby(rows, _transaction)):
            together = [*some]
            before, held = _came_from(together), dict[Place, Hashable]()
            for at, row in enumerate(together):
                place = row.change.collection, row.change.key
                if row.change.kind is Kind.DELETE:
                    held[place] = owners.get(place, place)
                    owners[place] = number, place
                    yield held[place], row
                    continue
                if at in before:
                    owners[place] = held[before[at]]
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


def _transaction(row: Row) -> tuple[object, ...]:
    return row.change.transaction, row.change.gtrid, row.change.commit_sequence


def _came_from(rows: Sequence[Row]) -> dict[int, Place]:
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

    for at, row in enumerate(rows):
        place = row.change.collection, row.change.key
        gone, come = runs[row.change.collection]
        if row.change.kind is Kind.DELETE:
            if come:
                close(gone, come)
            gone[place] = None
        elif row.change.kind is Kind.ADD and gone:
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
