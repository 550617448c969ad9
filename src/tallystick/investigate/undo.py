"""Statements that take a committed transaction back, or bring a lost one in again.

In: a path and what a person calls a transaction. Out: a `Reversal` for each log that it is in:
statements of SQL for databases, operations on records for journals, decisions for coordinators.
Nothing is run, and nothing is written: a person looks at them first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tallystick.errors import TransactionUsageError
from tallystick.investigate.keys import Place
from tallystick.investigate.statements import (
    CannotTellError,
    Table,
    comparable,
    compared_columns,
    identity,
    image_of,
)
from tallystick.investigate.steps import (
    DATABASE,
    LOG,
    Course,
    Image,
    Step,
    course_of,
    grouped,
)
from tallystick.printable import printable
from tallystick.reading.filters import PLACED, Filter
from tallystick.reading.names import log_name
from tallystick.reading.settled import damage_of
from tallystick.reading.survey import Path, Survey, deliver, survey
from tallystick.reconcile.ids import PREFIX_MIN
from tallystick.records import Change, Fate, Finding, Kind, Row, jsonable
from tallystick.systems.protocol import Dialect, LogReading, ReadOptions
from tallystick.systems.registry import system

_CANDIDATES_MAX = 4
_SOURCES = (LOG, DATABASE, "cannot_tell")
_FATES = {
    "undo": (Fate.COMMITTED,),
    "redo": (Fate.LOST, Fate.COMMITTED, Fate.UNDONE),
}
"""Which transactions each takes; where an id has several, those of the first of these."""
_REFUSED = {
    Fate.UNDONE: ("it was rolled back, or has not ended: nothing of it is to be taken back", ""),
    Fate.IN_DOUBT: ("it is prepared and waits for its coordinator", "tallystick indoubt list"),
    Fate.LOST: ("a restart drops it: nothing of it is to be taken back", "tallystick redo"),
    Fate.UNKNOWN: ("its outcome is not known", "tallystick explain"),
}


@dataclass(frozen=True, slots=True)
class Act:
    """What is to be done for one change of a row.

    Attributes:
        collection: the table, queue or resource.
        key: the key of the row in the log; empty for what is done to the whole table.
        row: what names the row to the application: the primary key, or all known columns.
        text: a statement, or an operation; empty where it cannot be told.
        cannot_tell: why not; empty where it can be told.
        warnings: later changes of the same row, in words.
    """

    collection: str
    key: str
    row: Mapping[str, Any]
    text: str
    cannot_tell: str = ""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: jsonable(getattr(self, name)) for name in self.__slots__}


_LOOK = {
    "sql": "-- Nothing was run: look at it, and run it in one transaction.",
    "operations": "-- Nothing was run: operations on records, for a program, in one transaction.",
    "decisions": "-- Nothing was run: decisions, for a person to carry out at each resource.",
}
_LINE = {"sql": "{};", "operations": "{}", "decisions": "-- TO DO: {}"}
"""By language how its lines look; a decision is no statement of anything."""


@dataclass(frozen=True, slots=True)
class Reversal:
    """What takes a transaction back, or brings it in again, in one log.

    Attributes:
        action: ``undo`` or ``redo``.
        system: the system of the log.
        log: its name.
        transaction: the number of the transaction in its log; None where it has none.
        commit_sequence: of its commit; 0 where there is none.
        gtrid: its global transaction.
        fate: what became of it.
        language: ``sql``, ``operations`` on records or ``decisions``.
        acts: what is to be done, in this order.
        sources: how many old rows come from the ``log``, from the ``database`` beside it, and of
            how many it cannot be told (``cannot_tell``).
        zone: of which zone dates and times are; empty where they do not depend on one.
        damage: after which the log may have held later changes of the same rows.
    """

    action: str
    system: str
    log: str
    transaction: str | None
    commit_sequence: int
    gtrid: bytes | None
    fate: Fate
    language: str
    acts: tuple[Act, ...]
    sources: Mapping[str, int]
    zone: str = ""
    damage: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 where a row cannot be told, or damage may hide later changes."""
        return int(any(act.cannot_tell for act in self.acts) or bool(self.damage))

    @property
    def text(self) -> str:
        """The script: what is said of it is comments."""
        return "\n".join(self._lines()) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        lists = {
            name: [one.to_dict() for one in getattr(self, name)] for name in ("acts", "damage")
        }
        return {
            name: jsonable(getattr(self, name)) for name in self.__slots__ if name not in lists
        } | lists

    def _lines(self) -> Iterator[str]:
        does = "Takes back" if self.action == "undo" else "Brings in again"
        name = self.transaction or (self.gtrid or b"").hex()
        yield f"-- {does} transaction {printable(name)} ({self.fate.value.replace('_', ' ')})"
        yield f"-- {self.system}  {printable(self.log)}"
        yield _LOOK[self.language]
        if self.action == "redo" and self.fate is Fate.COMMITTED:
            yield "-- It is committed here: this is for a copy without it."
        log, database, unknown = (self.sources[one] for one in _SOURCES)
        found = f"{log:,} from the log, {database:,} from the database"
        yield f"-- Old rows: {found}, {unknown:,} that cannot be told"
        if self.language == "decisions":
            yield "-- A branch that has ended is taken back, or brought in, by its own log."
        if self.zone:
            yield f"-- Dates and times are of the zone {printable(self.zone)} (--timezone)."
        for one in self.damage:
            place = one.file or self.log
            place += "" if one.offset is None else f" offset {one.offset}"
            yield printable(f"-- WARNING: damage in {place} may hide later changes: {one.message}")
        if not self.acts:
            yield "-- Nothing of it remains: it left all rows as they were."
        warned = set[str]()
        for act in self.acts:
            place = f"{printable(act.collection)} {printable(act.key)}".strip()
            if place not in warned:  # a transaction may change a row several times
                yield from (f"-- WARNING: {place} was {one}" for one in act.warnings)
            warned.add(place)
            if act.cannot_tell:
                yield f"-- CANNOT TELL: {place}: {printable(act.cannot_tell)}"
            else:
                yield _LINE[self.language].format(act.text)


def undo(
    path: Path,
    transaction: str,
    *,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> list[Reversal]:
    """Return what takes a committed transaction back, the last change first.

    Args:
        path: a log, or a folder of logs.
        transaction: its number in its log, with ``@`` and the number of its commit where several
            have that number; or the beginning of the id of a global transaction, in any spelling.
        options: what readers have to know.
        problems: gets what cannot be read; without it, that is raised.

    Raises:
        TransactionUsageError: there is no such transaction, or more than one; it names candidates.
            Or the transaction is not committed.
    """
    return _reversals("undo", path, transaction, options, problems)


def redo(
    path: Path,
    transaction: str,
    *,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> list[Reversal]:
    """Return what brings a transaction in again that a restart drops, or that was rolled back.

    Of a committed one it is what brings it into a copy without it. Arguments and errors are those
    of `undo`.
    """
    return _reversals("redo", path, transaction, options, problems)


@dataclass(slots=True)
class _Found:
    """A transaction of a log that an id may mean."""

    reading: LogReading
    group: int
    first: Change
    fates: set[Fate]


def _reversals(
    action: str,
    path: Path,
    transaction: str,
    options: ReadOptions | None,
    problems: list[Finding] | None,
) -> list[Reversal]:
    """Return what `undo` or `redo`, by the name of the action, returns."""
    found = survey(path, options=options).refuse_unknown_settings()
    wanted, near = transaction.strip(), deque[str](maxlen=_CANDIDATES_MAX)
    placed = PLACED.fullmatch(wanted)
    number = placed[1] if placed else wanted

    def is_called(change: Change) -> bool:
        name = _name(change) if placed else str(change.transaction)
        if change.transaction and name[:1] == wanted[:1] and name not in near:
            near.append(name)
        return change.transaction == number and name == wanted

    # One number may be that of several transactions; a global id is of all its branches together.
    known, lone = [*_transactions(found, is_called)], True
    if not known and not placed and len(wanted) >= PREFIX_MIN and found.logs:
        gtrid = _gtrid(found, wanted)
        known, lone = [*_transactions(found, lambda change: change.gtrid == gtrid)], False
    if found.logs and not known:
        deliver(found, problems)
        raise found.not_found(
            TransactionUsageError(
                f"no transaction here is called {wanted!r}",
                advice=f"Did you mean {', '.join(near)}?" if near else "tallystick rows lists all",
            )
        )
    zone, reversals = (options or ReadOptions()).timezone, list[Reversal]()
    for one, fate in _chosen(action, wanted, known, lone=lone):
        with found.guard(one.reading.source):
            course = course_of(one.reading, one.group, fate)
            made = _reversal(action, one, fate, course, zone)
            damage = damage_of(one.reading, found.known, found.options)
            reversals.append(replace(made, damage=tuple(damage)))
    deliver(found, problems)
    return reversals


def _gtrid(found: Survey, wanted: str) -> bytes:
    """Return the global id that begins with this; a number is no transaction either."""
    try:
        return bytes.fromhex(found.known_filter(Filter(gtrid=wanted), "rows").gtrid or "")
    except TransactionUsageError as error:
        if not wanted.isdecimal():
            raise
        message = f"no transaction here is called {wanted!r}, and {error.message}"
        raise TransactionUsageError(message, advice=error.advice) from None


def _name(change: Change) -> str:
    return f"{change.transaction}@{change.commit_sequence}"


def _transactions(found: Survey, is_it: Callable[[Change], bool]) -> Iterator[_Found]:
    """Yield the transactions with a change for which ``is_it`` is true."""
    for reading in found.readings():
        last: _Found | None = None
        with found.guard(reading.source):
            for group, row in grouped(reading):
                if not is_it(row.change):
                    continue
                if last is None or last.group != group:
                    last = _Found(reading, group, row.change, set())
                    yield last
                last.fates.add(row.fate)


def _chosen(
    action: str, wanted: str, known: list[_Found], *, lone: bool
) -> list[tuple[_Found, Fate]]:
    """Return the transactions that are meant, and the fate of those of their changes that count."""
    for fate in _FATES[action]:
        fitting = [one for one in known if fate in one.fates]
        if len(fitting) > 1 and lone:
            raise TransactionUsageError(
                f"{len(fitting):,} transactions are called {wanted!r}", advice=_which(fitting)
            )
        if fitting:
            return [(one, fate) for one in fitting]
    if known:
        why, command = _REFUSED[min(known[0].fates)]
        raise TransactionUsageError(
            f"transaction {wanted!r}: {why}", advice=f"See {command}" if command else None
        )
    return []


def _which(fitting: list[_Found]) -> str:
    """Return the ids that tell some transactions of one number apart."""
    counts = Counter(_name(one.first) for one in fitting)
    logs = {log_name(one.reading.source) for one in fitting}
    names = list[str]()
    for one in fitting[-_CANDIDATES_MAX:]:
        name, gtrid = _name(one.first), one.first.gtrid
        if len(logs) > 1:
            name += f" of {log_name(one.reading.source)}"
        elif counts[name] > 1:  # no commit, which would tell them apart
            name = gtrid.hex() if gtrid else ""
        names += [name] if name else []
    if not names:
        return "No id tells them apart: tallystick rows has their rows"
    more = len(fitting) - len(names)
    others = f", or one of {more:,} more" if more else ""
    where = "? After @ stands the commit_sequence of tallystick rows --json"
    return f"Did you mean {', '.join(names)}{others}{where if '@' in ''.join(names) else '?'}"


def _reversal(action: str, one: _Found, fate: Fate, course: Course, zone: str) -> Reversal:
    source = one.reading.source
    dialect = system(source.system).dialect
    decides = any(step.change.kind is Kind.DECISION for step in course.steps)
    writer = _Writer(action, course, dialect)
    order = course.steps[::-1] if action == "undo" else course.steps
    acts = [act for step, why in writer.ordered(order) for act in writer.acts(step, why)]
    freed, bound = (writer.identities(acts, way) for way in ("BY DEFAULT", "ALWAYS"))
    first = one.first
    return Reversal(
        action, source.system, log_name(source), first.transaction, first.commit_sequence,
        first.gtrid, fate, "sql" if dialect else "decisions" if decides else "operations",
        (*freed, *acts, *bound), writer.sources(),
        zone if dialect is not None and dialect.zoned else "",
    )  # fmt: skip


class _Writer:
    """Writes what is to be done for each step."""

    def __init__(self, action: str, course: Course, dialect: Dialect | None) -> None:
        self._undoes, self._course, self._dialect = action == "undo", course, dialect
        truncated = (one.change for one in course.steps if one.change.kind is Kind.TRUNCATE)
        self._emptied = {one.collection for one in truncated}
        self._twins: dict[str, dict[tuple[str, ...], set[tuple[str, str]]]] = {}
        if dialect is not None:
            for (name, key), image in self._images():
                if image.values is not None and (known := course.collections.get(name)):
                    columns = compared_columns(known, dialect)
                    place = comparable(columns, dialect, image.values)
                    twins = self._twins.setdefault(name, {}).setdefault(place, set())
                    twins.add((key, image_of(columns, image.values)))

    def _images(self) -> Iterator[tuple[tuple[str, str], Image]]:
        yield from self._course.rest.items()
        for step in self._course.steps:
            yield from ((step.place, one) for one in (step.before, step.after) if one is not None)

    def sources(self) -> dict[str, int]:
        """Return how many old rows come from where."""
        first: dict[tuple[str, str], Step] = {}
        for step in self._course.steps:
            if step.change.kind in (Kind.UPDATE, Kind.DELETE):
                first.setdefault(step.place, step)
        found = Counter(
            "cannot_tell" if step.before is None else step.before.source for step in first.values()
        )
        return {one: found[one] for one in _SOURCES}

    def ordered(self, steps: list[Step]) -> Iterator[tuple[Step, str]]:
        """Yield steps in an order that a database takes; see `_apart`."""
        return _apart(
            [
                _Move(
                    one,
                    *(self._keys_of(one, side) for side in self._sides(one)),
                    *(self._led_to(one, side) for side in self._sides(one)),
                )
                for one in steps
            ]
        )

    def identities(self, acts: Iterable[Act], way: str) -> list[Act]:
        """Return what has the database take values for identities of new rows, or no more."""
        names = dict.fromkeys(act.collection for act in acts if act.text.startswith("INSERT "))
        tables = [self._course.collections[name] for name in names]
        return [
            Act(table.name, "", {}, identity(table, column, way), warnings=warnings)
            for table in tables
            for warnings in [(table.bound,) if table.bound else ()]
            for column in table.columns
            if column.counted
        ]

    def _sides(self, step: Step) -> tuple[Image | None, Image | None]:
        """Return the row as the statement finds it, and as it leaves it."""
        return (step.after, step.before) if self._undoes else (step.before, step.after)

    def _keys_of(self, step: Step, image: Image | None) -> frozenset[Key]:
        """Return what no other row of its table may have as this one has it, as far as known."""
        known = self._course.collections.get(step.change.collection)
        if self._dialect is None or known is None or image is None or image.values is None:
            return frozenset()
        found = set[Key]()
        for names in {known.key, *known.unique} - {()}:
            if all(image.values.get(one) is not None for one in names):
                columns = [one for one in known.columns if one.name in names]
                found.add((known.name, names, comparable(columns, self._dialect, image.values)))
        return frozenset(found)

    def _led_to(self, step: Step, image: Image | None) -> frozenset[Key]:
        """Return the keys of other rows that a row has in its foreign keys, as far as known."""
        known = self._course.collections.get(step.change.collection)
        if self._dialect is None or known is None or image is None or image.values is None:
            return frozenset()
        found = set[Key]()
        for own, name, others in known.references:
            values = {other: image.values.get(one) for one, other in zip(own, others, strict=True)}
            other = self._course.collections.get(name)
            if other is None or None in values.values():
                continue
            columns = [one for one in other.columns if one.name in values]
            for names in {other.key, *other.unique}:
                if {*names} == values.keys():
                    found.add((name, names, comparable(columns, self._dialect, values)))
        return frozenset(found - self._keys_of(step, image))

    def acts(self, step: Step, why: str = "") -> Iterator[Act]:
        """Yield what is to be done for a step; nothing where it left the row as it was.

        Args:
            step: the step.
            why: why it cannot be taken.
        """
        change = step.change
        old, new = self._sides(step)
        warnings = tuple(map(_later, self._course.later.get(step.place, ())))
        row = self._row(change, step.after or step.before)
        try:
            text = "" if why else self._text(step, old, new)
        except CannotTellError as error:
            text, why = "", error.message
        if text or why:
            yield Act(change.collection, change.key, row, text, why, warnings)

    def _text(self, step: Step, old: Image | None, new: Image | None) -> str:
        change = step.change
        if change.kind is Kind.DECISION:
            verb = "roll back" if self._undoes else "commit"
            return f"{verb} {printable(change.key)} at {printable(change.collection)}"
        if change.kind is Kind.TRUNCATE:
            raise CannotTellError("the table was emptied, or made anew, and not row by row")
        if change.collection in self._emptied:
            # As ALTER TABLE copies rows: without its twin of before, to delete the copy loses it.
            raise CannotTellError(
                "the same transaction emptied its table, or made it anew: it may be a row of before"
            )
        if not step.known:
            unread = self._course.unread.get(change.collection)
            raise CannotTellError(
                unread or "its old row is neither in the log nor in a database beside it"
            )
        if self._dialect is None:
            return _operation(change, old, new)
        known = self._course.collections.get(change.collection)
        if known is None or not known.quoted:
            raise CannotTellError("the catalogue has no such table (any more)")
        table = Table(known, self._dialect, self._twins.get(change.collection, {}))
        return table.statement(change.key, *(_known(image) for image in (old, new)))

    def _row(self, change: Change, image: Image | None) -> dict[str, Any]:
        values = image.values if image is not None else None
        known = self._course.collections.get(change.collection)
        names = known.key if known is not None and known.key else values or ()
        return {name: values.get(name) for name in names} if values is not None else {}


Key = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Table, names of columns, and what is compared of their values."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A step, with the keys that the row has where its statement finds it, and leaves it.

    ``led`` and ``leads`` are the keys of other rows to which its foreign keys lead then.
    """

    step: Step
    old: frozenset[Key]
    new: frozenset[Key]
    led: frozenset[Key] = frozenset()
    leads: frozenset[Key] = frozenset()


_RING = "it and other rows have swapped keys, which takes one UPDATE of them all"


def _apart(moves: list[_Move]) -> Iterator[tuple[Step, str]]:
    """Yield steps, each after those that it waits for, and why one cannot be done.

    One UPDATE may have moved keys from row to row; of statements for each row the database would
    refuse the first that meets another row. So it would a row before the one that its foreign key
    leads to, and the end of that one before its own; where rows lead to each other in a ring, the
    order of the log is left.
    """
    order = _Order(moves)
    for move in moves:
        yield from ((one.step, "") for one in order.add(move))
    left = [one for one in order.left() if one.led or one.leads]
    if left:
        bare = [replace(one, led=frozenset(), leads=frozenset()) for one in order.left()]
        yield from _apart(bare)
    else:
        yield from ((one.step, _RING) for one in order.left())


class _Order:
    """Moves that wait for each other.

    Args:
        moves: all that will be added, in their order.
    """

    def __init__(self, moves: list[_Move]) -> None:
        first = {one.step.place: one for one in reversed(moves)}.values()
        self._waiting = {one.step.place: deque[_Move]() for one in moves}
        self._held_up: dict[Key, list[Place]] = {}
        self._holders: dict[Key, Place] = {}
        self._leading: dict[Key, set[Place]] = {}
        self._to_come = frozenset[Key]().union(*(one.new for one in moves))
        for one in first:
            self._take(one.step.place, one.old, one.led)

    def add(self, move: _Move) -> Iterator[_Move]:
        """Yield the moves that can be made now that this one has come."""
        queue = self._waiting[move.step.place]
        queue.append(move)
        ready = [move.step.place] if len(queue) == 1 else []
        while ready:
            place = ready.pop()
            queue = self._waiting[place]
            while queue:
                one = queue[0]
                blocked = next(self._blocks(place, one), None)
                if blocked is not None:
                    self._held_up.setdefault(blocked, []).append(place)
                    break
                yield queue.popleft()
                for key in one.old:
                    if self._holders.get(key) == place:
                        del self._holders[key]
                for key in one.led:
                    self._leading.get(key, set()).discard(place)
                self._take(place, one.new, one.leads)
                for key in one.old | one.new | one.led:
                    ready += self._held_up.pop(key, [])

    def left(self) -> list[_Move]:
        """Return the moves that none of the others lets be made."""
        return [one for queue in self._waiting.values() for one in queue]

    def _take(self, place: Place, keys: Iterable[Key], leads: Iterable[Key]) -> None:
        self._holders |= dict.fromkeys(keys, place)
        for key in leads:
            self._leading.setdefault(key, set()).add(place)

    def _blocks(self, place: Place, one: _Move) -> Iterator[Key]:
        """Yield the keys for which a move has to wait."""
        yield from (key for key in one.new if self._holders.get(key, place) != place)
        yield from (key for key in one.leads if key in self._to_come and key not in self._holders)
        yield from (key for key in one.old - one.new if self._leading.get(key, set()) - {place})


def _known(image: Image | None) -> Mapping[str, Any] | None:
    if image is not None and image.values is None:
        raise CannotTellError("some columns of the row are not known")
    return None if image is None else image.values


def _operation(change: Change, old: Image | None, new: Image | None) -> str:
    """Return what is to be done with a record of a journal: its new body is in hexadecimal."""
    verb = "delete" if new is None else "add" if old is None else "update"
    if new is not None and new.body is None:
        raise CannotTellError("its bytes are not in the log")
    body = "" if new is None or new.body is None else f" {new.body.hex()}"
    kind = (new.values or {}).get("user_type") if new is not None else None
    of_kind = "" if kind is None else f" type {kind}"
    name = printable(change.collection or "record")
    return f"{verb} {name} {printable(change.key)}{of_kind}{body}"


def _later(row: Row) -> str:
    change = row.change
    number = "" if change.transaction is None else f" {change.transaction}"
    commit = f"@{change.commit_sequence}" if number and change.commit_sequence else ""
    doubt = ", which is in doubt" if row.fate is Fate.IN_DOUBT else ""
    return printable(f"changed later ({change.kind}) by transaction{number}{commit}{doubt}")
