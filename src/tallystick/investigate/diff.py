"""Two copies of a log or of a tree of logs: what they share, where they part, what each has alone.

In: two paths. Out: a `Difference` for each log of either. Both are read side by side, as streams:
memory holds what is open in them, and a few rows that are shown.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from tallystick.investigate.rows import rows_of
from tallystick.reading.names import places_apart
from tallystick.reading.survey import Path, Survey, deliver, survey
from tallystick.records import Change, Finding, Kind, Record, Row
from tallystick.systems.protocol import LogSource, ReadOptions

T = TypeVar("T")
SHOWN_MAX = 10
"""Rows that are kept of those that one copy has alone."""
_Place = tuple[str, str, str]
_ENDS = (Kind.COMMIT, Kind.ROLLBACK, Kind.PREPARE, Kind.DECISION)


@dataclass(slots=True)
class Side:
    """What one copy of a log has alone.

    Attributes:
        log: its name below the path; None where that path has no such log.
        earlier: records from before the other copy begins: they were given up there.
        records: records after the place where the copies part.
        ends: what transactions did there, by kind: commit, rollback, prepare, decision.
        rows: rows by fate.
        shown: the first rows.
    """

    log: str | None
    earlier: int = 0
    records: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    shown: list[Row] = field(default_factory=list)

    def take_record(self, record: Record) -> None:
        """Count a record."""
        self.records += 1
        if record.kind in _ENDS:
            self.ends[record.kind] += 1

    def take_row(self, row: Row) -> None:
        """Count a row, and keep it while there are few."""
        self.rows[row.fate] += 1
        if len(self.shown) < SHOWN_MAX:
            self.shown.append(row)

    @property
    def alone(self) -> bool:
        """Whether this copy has anything that the other one has not."""
        return bool(self.records or self.rows or self.earlier)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "log": self.log, "earlier": self.earlier, "records": self.records,
            "transactions": dict(self.ends), "rows": dict(self.rows),
            "first_rows": [one.to_dict() for one in self.shown],
        }  # fmt: skip


@dataclass(slots=True)
class Difference:
    """How two copies of one log differ.

    Attributes:
        system: its system.
        records: records that both have before they part.
        rows: rows that both have.
        last: the last record that both have.
        sides: what each has alone.
    """

    system: str
    sides: tuple[Side, Side]
    records: int = 0
    rows: int = 0
    last: Record | None = None

    @property
    def same(self) -> bool:
        """Whether both hold the same."""
        return not any(one.alone or one.log is None for one in self.sides)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        last = None if self.last is None else self.last.to_dict()
        return {
            "system": self.system, "same": self.same, "records": self.records, "rows": self.rows,
            "last": last, "a": self.sides[0].to_dict(), "b": self.sides[1].to_dict(),
        }  # fmt: skip


def diff(
    a: Path, b: Path, *, options: ReadOptions | None = None, problems: list[Finding] | None = None
) -> Iterator[Difference]:
    """Yield how the logs below two paths differ, those of the same place below them together.

    Where one log of a system is left of each path, these two are compared, wherever they lie.
    Compared are records with their bodies and times, in log order, and rows with what becomes of
    them. Of logs that number their records those are left out that one copy has given up.

    Args:
        a: a log, or a folder or tree of logs.
        b: another copy.
        options: what readers have to know, as a time zone or a key.
        problems: gets what cannot be read; without it, that is raised at the end.

    Raises:
        LogUnreadableError: a path cannot be read, or, without ``problems``, a log.
    """
    found = tuple(survey(one, options=options).refuse_unknown_settings() for one in (a, b))
    in_a, in_b = (places_apart(one.logs) for one in found)
    for system, a_log, b_log in _pairs(found):
        sources = a_log, b_log
        sides = (
            Side(None if a_log is None else in_a[a_log]),
            Side(None if b_log is None else in_b[b_log]),
        )
        difference = Difference(system, sides)
        with found[0].guard(sources[0] or _NONE), found[1].guard(sources[1] or _NONE):
            _compare(difference, found, sources)
            yield difference
    for one in found:
        deliver(one, problems)


_NONE = LogSource("", "", ())


def _pairs(
    found: Iterable[Survey],
) -> Iterator[tuple[str, LogSource | None, LogSource | None]]:
    """Yield each system with its two copies of a log; None where a path has none."""
    a, b = ({_place(one, log): log for log in one.logs} for one in found)
    lone, other = _lone(a.keys() - b.keys()), _lone(b.keys() - a.keys())
    moved = {place: other[system] for system, place in lone.items() if system in other}
    for place in dict.fromkeys([*a, *b]):
        if place not in moved.values():
            yield place[0], a.get(place), b.get(moved.get(place, place))


def _lone(places: Set[_Place]) -> dict[str, _Place]:
    """Return the places that are the only one of their system, by system."""
    count = Counter(system for system, *_ in places)
    return {one[0]: one for one in places if count[one[0]] == 1}


def _place(found: Survey, log: LogSource) -> _Place:
    """Return what two copies of a log have in common: its system, and its place below the path."""
    return log.system, posixpath.relpath(log.path, found.path), log.name


def _compare(
    difference: Difference, found: tuple[Survey, ...], sources: tuple[LogSource | None, ...]
) -> None:
    readings = [
        None if one is None else of.read(one) for of, one in zip(found, sources, strict=True)
    ]
    records = [iter(()) if one is None else one.records() for one in readings]
    firsts = [next(one, None) for one in records]
    numbers = [one.sequence for one in firsts if one is not None and one.sequence is not None]
    begin = max(numbers) if len(numbers) == len(records) else None
    streams = [
        _from(begin, chain([] if first is None else [first], rest), side)
        for first, rest, side in zip(firsts, records, difference.sides, strict=True)
    ]
    for one in _common(streams, _content, [side.take_record for side in difference.sides]):
        difference.records += 1
        difference.last = one
    rows = [
        iter(()) if one is None else (row for row in rows_of(one, set()) if _since(row, begin))
        for one in readings
    ]
    difference.rows = sum(
        1 for _ in _common(rows, _row_content, [side.take_row for side in difference.sides])
    )


def _from(begin: int | None, records: Iterable[Record], side: Side) -> Iterator[Record]:
    """Yield records from a number on, and count those before."""
    for record in records:
        if begin is not None and (record.sequence or begin) < begin:
            side.earlier += 1
        else:
            begin = None
            yield record


def _since(row: Row, begin: int | None) -> bool:
    return begin is None or not row.change.commit_sequence or row.change.commit_sequence >= begin


def _common(
    streams: list[Iterator[T]], content: Callable[[T], object], take: list[Callable[[T], None]]
) -> Iterator[T]:
    """Yield what two streams begin with alike; then hand over the rest of each."""
    left, right = streams
    one = other = None
    for one in left:
        other = next(right, None)
        if other is None or content(one) != content(other):
            take[0](one)
            break
        yield one
        other = None
    for rest in left:
        take[0](rest)
    for rest in chain([] if other is None else [other], right):
        take[1](rest)


def _content(one: Record) -> object:
    return (
        one.kind, one.type, one.outcome, one.sequence, one.time, one.transaction, one.format_id,
        one.gtrid, one.bqual, one.resources, one.record_id, one.body,
    )  # fmt: skip


_OF_ROWS = [name for name in Change.__slots__ if name not in ("log", "file", "offset")]


def _row_content(one: Row) -> object:
    return one.fate, [getattr(one.change, name) for name in _OF_ROWS]
