"""What one transaction did to each row, with the whole row before and after, and what came later.

In: a log, and which of its transactions. Out: a `Course`. The row before comes from an earlier
change in the log, or from the database beside it. The log is read twice; memory grows with the rows
that the transaction changed, and with all rows of tables without a key that it changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tallystick.errors import TallystickError
from tallystick.investigate.keys import Place, every_row
from tallystick.records import Change, Fate, Kind, Row
from tallystick.systems.protocol import (
    Catalogued,
    Collection,
    KnowsRowsBefore,
    LogReading,
)

DATABASE, LOG = "database", "log"


@dataclass(frozen=True, slots=True)
class Image:
    """A row as it was.

    Attributes:
        values: all columns; None where they are not known.
        body: its bytes in the log.
        source: `LOG`, or `DATABASE` where some of it comes from there.
    """

    values: Mapping[str, Any] | None
    body: bytes | None = None
    source: str = LOG


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a row by the transaction.

    Attributes:
        change: the change.
        before: the row before; None where there was none, or where it is not known.
        after: the row after; None where it was deleted.
        known: whether ``before`` is what was there.
    """

    change: Change
    before: Image | None
    after: Image | None
    known: bool = True

    @property
    def place(self) -> Place:
        """The row."""
        return self.change.collection, self.change.key


@dataclass(slots=True)
class Course:
    """What a transaction did, in its order.

    Attributes:
        steps: its changes, but those of rows that it has changed back.
        later: by row the changes of later transactions.
        rest: the rows of tables without a key as they are at the log's end.
        collections: by name, as the catalogue has them at the log's end.
        unread: by collection why its rows from before the log are not known.
    """

    steps: list[Step] = field(default_factory=list)
    later: dict[Place, list[Row]] = field(default_factory=dict)
    rest: dict[Place, Image] = field(default_factory=dict)
    collections: dict[str, Collection] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def grouped(reading: LogReading) -> Iterator[tuple[int, Row]]:
    """Yield all rows of a log with the number of their transaction, which counts as they come."""
    number, before = -1, None
    for row in every_row(reading):
        change = row.change
        about = change.transaction, change.gtrid, change.commit_sequence
        number += about != before
        before = about
        yield number, row


def course_of(reading: LogReading, group: int, fate: Fate) -> Course:
    """Return what the changes with this fate of a transaction did.

    Args:
        reading: the log.
        group: the number of the transaction, by `grouped`.
        fate: of its changes only those are followed.
    """
    found = Course()
    if isinstance(reading, Catalogued):
        found.collections = {one.name: one for one in reading.collections()}
    mine = [row.change for number, row in grouped(reading) if number == group and row.fate is fate]
    follower = _Follower(found, mine)
    if isinstance(reading, KnowsRowsBefore):
        follower.load(reading)
    changes = [*_joined(mine)]
    for number, row in grouped(reading):
        if number < group and row.fate is Fate.COMMITTED:
            follower.take(row.change)
        elif number == group and changes:
            follower.follow(changes, stay=fate is Fate.COMMITTED)
            changes = []
        elif number > group and row.fate in (Fate.COMMITTED, Fate.IN_DOUBT):
            follower.note(row)
            if row.fate is Fate.COMMITTED:
                follower.take(row.change)
    found.rest = {
        place: image for place, image in follower.rows.items() if place[0] in follower.whole
    }
    return found


def _joined(changes: list[Change]) -> Iterator[Change]:
    """Yield changes; of a row that goes and comes again, as in H2, one update where it comes."""
    gone: dict[Place, int] = {}
    kept: dict[int, Change] = {}
    for at, change in enumerate(changes):
        place = change.collection, change.key
        if change.kind is Kind.ADD and place in gone:
            del kept[gone.pop(place)]
            change = replace(change, kind=Kind.UPDATE)
        elif change.kind is Kind.DELETE:
            gone[place] = at
        kept[at] = change
    yield from kept.values()


class _Follower:
    """Rows that matter, along the log."""

    def __init__(self, course: Course, mine: list[Change]) -> None:
        self._course = course
        self._places = {(change.collection, change.key) for change in mine}
        names = {change.collection for change in mine}
        known = [course.collections[name] for name in names if name in course.collections]
        self.whole = {one.name for one in known if one.quoted and not one.key}
        self.rows: dict[Place, Image] = {}
        self._keys: dict[str, dict[tuple[str, ...], set[Place]]] = {}

    def load(self, reading: KnowsRowsBefore) -> None:
        """Take in the rows from before the log."""
        for name in {name for name, _ in self._places} & self._course.collections.keys():
            try:
                for key, values in reading.rows_before(name):
                    if self._matters((name, key)):
                        self.rows[name, key] = Image(values, source=DATABASE)
            except TallystickError as error:
                self._course.unread[name] = str(error)

    def take(self, change: Change) -> tuple[Image | None, Image | None]:
        """Take in a change; return the row before, as far as it is known, and after."""
        place = change.collection, change.key
        if change.kind is Kind.TRUNCATE:
            for one in [one for one in self.rows if one[0] == change.collection]:
                del self.rows[one]
        if not self._matters(place):
            return None, None
        before = self.rows.pop(place, None)
        if change.kind in (Kind.DELETE, Kind.TRUNCATE):
            return before, None
        after = self.rows[place] = self._after(change, before)
        return before, after

    def _after(self, change: Change, before: Image | None) -> Image:
        known = self._course.collections.get(change.collection)
        columns = {one.name for one in known.columns} if known is not None else set()
        if change.kind is not Kind.UPDATE or columns <= (change.values or {}).keys():
            return Image(change.values, change.after)
        if before is None or before.values is None or change.values is None:
            return Image(None, change.after)
        return Image({**before.values, **change.values}, change.after, before.source)

    def follow(self, changes: list[Change], *, stay: bool) -> None:
        """Note the steps of the transaction; they ``stay`` if it is committed."""
        saved, steps = dict(self.rows), list[Step]()
        for change in changes:
            before, after = self.take(change)
            known = before is not None or change.kind is Kind.ADD
            steps.append(Step(change, None if change.kind is Kind.ADD else before, after, known))
        if not stay:
            self.rows = saved
        same = {place for place in self._places if _is_same(place, saved, steps)}
        self._course.steps = [step for step in steps if step.place not in same]
        for step in self._course.steps:
            self._note_key(step)

    def _note_key(self, step: Step) -> None:
        name = step.change.collection
        known = self._course.collections.get(name)
        for image in (step.before, step.after):
            if known is not None and known.key and image is not None and image.values is not None:
                key = tuple(str(image.values.get(one)) for one in known.key)
                self._keys.setdefault(name, {}).setdefault(key, set()).add(step.place)

    def note(self, row: Row) -> None:
        """Note a later change, if it is of one of the rows: by its place, or by its primary key."""
        change = row.change
        place = change.collection, change.key
        touched = {place} & self._places
        if change.kind is Kind.TRUNCATE:
            touched = {one for one in self._places if one[0] == change.collection}
        touched |= self._by_key(change)
        for one in touched:
            rows = self._course.later.setdefault(one, [])
            if rows and change.kind is Kind.ADD and _goes(rows[-1].change, change):
                row = replace(rows.pop(), change=replace(change, kind=Kind.UPDATE))
            rows.append(row)

    def _by_key(self, change: Change) -> set[Place]:
        keys, values = self._keys.get(change.collection), change.values or {}
        if not keys:
            return set()
        columns = self._course.collections[change.collection].key
        given = [(at, str(values[name])) for at, name in enumerate(columns) if name in values]
        if len(given) == len(columns):
            return keys.get(tuple(text for _, text in given), set())
        fit = (key for key in keys if given and all(key[at] == text for at, text in given))
        return set[Place]().union(*(keys[key] for key in fit))

    def _matters(self, place: Place) -> bool:
        return place in self._places or place[0] in self.whole


def _goes(before: Change, change: Change) -> bool:
    """Return whether a row that comes is the one that went before: H2 has no updates."""
    return before.kind is Kind.DELETE and (
        (before.key, before.transaction, before.commit_sequence)
        == (change.key, change.transaction, change.commit_sequence)
    )


def _is_same(place: Place, before: Mapping[Place, Image], steps: list[Step]) -> bool:
    """Return whether a transaction leaves a row as it was, as one that H2 rolls back does."""
    mine = [step for step in steps if step.place == place]
    if not mine or not all(step.known for step in mine) or place[1] == "":
        return False
    old, new = before.get(place), mine[-1].after
    if old is None or new is None:
        return old is new
    return old.values == new.values and (old.body == new.body or old.source == DATABASE)
