"""Rows as they were at a moment, as far as a log and the database beside it tell.

In: a path and a `Moment`. Out: the rows of that moment, each with how much of it is known. Memory
holds these rows, and of rows that were added later and are still there their keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from tallystick.errors import TallystickError, TransactionUsageError, UnsupportedFormatError
from tallystick.investigate.rows import meant_name, require_table, rows_of
from tallystick.reading.filters import PLACED, TIME_OF_DAY, Filter, ns_of, time_text
from tallystick.reading.names import log_name
from tallystick.reading.survey import Paths, Survey, deliver, survey
from tallystick.records import Change, Fate, Finding, Kind, Record, jsonable
from tallystick.systems.protocol import Catalogued, KnowsRowsBefore, LogReading, ReadOptions
from tallystick.systems.registry import system


@dataclass(frozen=True, slots=True)
class Moment:
    """When: after all commits up to a time or to an LSN, or before that of a transaction.

    ``before`` is the number of a transaction, or the beginning of a global id. One of the three is
    given.
    """

    time: datetime | None = None
    lsn: int | None = None
    before: str | None = None


class Known(StrEnum):
    """How much is known of a row."""

    WHOLE = "whole"
    PART = "in_part"
    """Some columns were written last before the log began."""
    NOTHING = "not_known"
    """It was there: it is changed later. The log has no image of what it was."""


@dataclass(frozen=True, slots=True)
class RowThen:
    """A row at a moment.

    Attributes:
        known: how much is known of it.
        values: its columns, where the log's are known.
        image: its bytes as the log has them.
        commit: the commit that wrote it last; None if that was before the log began.
    """

    system: str
    log: str
    collection: str
    key: str
    known: Known
    values: Mapping[str, Any] | None = None
    image: bytes | None = None
    commit: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, with binary as lower-case hex."""
        return {name: jsonable(getattr(self, name)) for name in self.__slots__}


def asof(
    path: Paths,
    moment: Moment,
    table: str | None = None,
    *,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> Iterator[RowThen]:
    """Yield the rows of every log below ``path`` at a moment, of one table or of all.

    Commits that a restart drops are left out. Rows that no record of the log is about are there
    only where the database beside it tells them.

    Args:
        path: a log, a folder or a tree of logs, a URL, or several of these.
        moment: a time, a place in the log, or a transaction.
        table: the name of the table; by default all tables.
        options: what readers have to know, as a time zone or a key.
        problems: gets what cannot be read; without it, that is raised at the end.

    Raises:
        UnsupportedFormatError: a log begins after that moment, or none tells times; there is no
            such table.
        TransactionUsageError: no transaction here is the one that is named, or several are.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    if moment.before is not None and not _is_number(moment.before):
        gtrid = found.known_filter(Filter(gtrid=moment.before), "rows").gtrid
        moment = replace(moment, before=gtrid)
    names, ended = set[str](), False
    for source in found.logs:
        limit: tuple[str, int] | TallystickError | None = None
        with found.guard(source):
            limit = _limit(found, found.read(source), moment)
        if isinstance(limit, TallystickError):
            raise limit
        with found.guard(source):
            if limit is not None:
                ended, given, reading = True, False, found.read(source)
                for one in _Then(reading, table, names).at(*limit):
                    given = True
                    yield one
                found.require_read(source, given=given)
                found.note_damage(reading)
    if moment.before is not None and not ended and found.logs:
        if moment.before.isdecimal():
            found.require_named(Filter(transaction=moment.before), "rows")
        raise found.not_found(
            TransactionUsageError(f"transaction {moment.before} changes no row that is committed")
        )
    if moment.time is not None and not ended and found.logs:
        raise found.not_found(
            UnsupportedFormatError(
                "no log here holds times of day",
                file=found.path,
                advice="Name an LSN or a transaction",
            )
        )
    if table is not None and ended and (meant := meant_name(table, names)) != table:
        yield from asof(path, moment, meant, options=options, problems=problems)
        return
    if table is not None and ended:
        require_table(table, names, found)
    deliver(found, problems)


def _is_number(name: str) -> bool:
    return PLACED.sub(r"\1", name).isdecimal()


def _limit(
    found: Survey, reading: LogReading, moment: Moment
) -> tuple[str, int] | TallystickError | None:
    """Return the field of changes that tells, and its greatest value; None where nothing does.

    Returns the error where the moment is none of the log.
    """
    if moment.before is not None:
        commits = {
            one.commit_sequence
            for one in reading.changes()
            if moment.before
            in (
                one.transaction,
                f"{one.transaction}@{one.commit_sequence}",
                one.gtrid and one.gtrid.hex(),
            )
        }
        if len(commits) > 1:
            how = f"an LSN, or its commit as {moment.before}@{max(commits)}"
            return TransactionUsageError(
                f"{len(commits):,} transactions of {log_name(reading.source)} have the number "
                f"{moment.before}", advice=f"Name its global id, or {how}",
            )  # fmt: skip
        return ("commit_sequence", commits.pop() - 1) if commits else None
    first = next(iter(reading.records()), None)
    if moment.lsn is not None:
        name, limit, begin = "commit_sequence", moment.lsn, _first_number(reading, first)
    else:
        clock = found.clock_for(reading, Filter(since=moment.time))
        if clock not in TIME_OF_DAY:
            return None
        name, limit = "time", (ns_of(moment.time) or 0) // TIME_OF_DAY[clock]
        begin = first.time if first else None
    if begin is not None and limit < begin:
        shown = (name == "time" and time_text(begin, reading.clock)) or f"LSN {begin}"
        return UnsupportedFormatError(
            "the log begins after that moment", file=log_name(reading.source),
            expected=f"{shown} or later",
        )  # fmt: skip
    return name, limit


def _first_number(reading: LogReading, first: Record | None) -> int | None:
    """Return the least number that a commit of a log may have; None where that is not known."""
    if system(reading.source.system).commits_by_lsn:
        return None if first is None else first.sequence
    return next((one.commit_sequence for one in reading.changes()), None)


class _Then:
    """The rows of one log at a moment."""

    def __init__(self, reading: LogReading, table: str | None, names: set[str]) -> None:
        self._reading, self._table, self._names = reading, table, names
        self._log = reading.source.system, log_name(reading.source)
        self._rows: dict[tuple[str, ...], RowThen] = {}
        kept = reading.collections() if isinstance(reading, Catalogued) else ()
        self._columns = {one.name: {each.name for each in one.columns} for one in kept}

    def at(self, field: str, limit: int) -> Iterator[RowThen]:
        """Yield the rows after the changes whose field is up to the limit."""
        self._take_before()
        born = defaultdict[str, set[str]](set)
        wanted = Filter(frozenset({Fate.COMMITTED}), table=self._table)
        for row in rows_of(self._reading, self._names, wanted):
            change = row.change
            if getattr(change, field) <= limit:
                self._take(change)
            elif change.kind is Kind.ADD:
                born[change.collection].add(change.key)
            elif change.kind in (Kind.UPDATE, Kind.DELETE):
                self._take_later(change, born[change.collection])
        yield from self._rows.values()

    def _take_before(self) -> None:
        """Take the rows that the database beside the log had where the log begins."""
        if isinstance(self._reading, KnowsRowsBefore):
            for one in self._reading.collections():
                if self._table in (None, one.name, *one.stored):
                    with suppress(TallystickError):  # then they are not known
                        for key, values in self._reading.rows_before(one.name):
                            self._rows[one.name, key] = RowThen(
                                *self._log, one.name, key, Known.WHOLE, values
                            )

    def _take(self, change: Change) -> None:
        place = change.collection, change.key
        if change.kind is Kind.TRUNCATE:
            for one in [one for one in self._rows if one[0] == change.collection]:
                del self._rows[one]
        elif change.kind is Kind.DELETE:
            self._rows.pop(place, None)
        elif change.kind in (Kind.ADD, Kind.UPDATE):
            old = self._rows.get(place) if change.kind is Kind.UPDATE else None
            values = change.values
            if old is not None and old.values is not None and values is not None:
                values = {**old.values, **values}
            whole = change.kind is Kind.ADD or (values or {}).keys() >= self._columns.get(
                change.collection, set()
            )
            known = Known.WHOLE if whole else Known.PART
            # A plain record has no key: no other is the same row.
            own = () if change.key else (f"{change.commit_sequence}", f"{change.ordinal}")
            self._rows[*place, *own] = RowThen(
                *self._log, *place, known, values, change.after, change.commit_sequence
            )

    def _take_later(self, change: Change, born: set[str]) -> None:
        """Note that a row was there, as it is changed later; unless it was added in between."""
        place = change.collection, change.key
        if change.key in born:
            if change.kind is Kind.DELETE:
                born.remove(change.key)
        elif place not in self._rows:
            values = change.values if change.kind is Kind.DELETE else None
            told = values is not None or change.before is not None
            known = Known.WHOLE if told else Known.NOTHING
            self._rows[place] = RowThen(*self._log, *place, known, values, change.before)
