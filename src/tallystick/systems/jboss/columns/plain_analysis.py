"""Analyse a plain journal without an object per record.

In: the files of a journal. Out: an `Evidence` with the same answers as that of `analyse` and `load`
together; `NotPlainError` where these may find what is counted here as nothing:

* files with anything but valid, stale and torn records, or in which the loader knows other types;
* transactions with another number of elements than their end says, and ends of unknown ones that
  say any;
* ids that are added twice, or that were deleted and then are live; live updates without an add;
* formats before HornetQ 2.1, and loads that end with an error.

One pass over the records keeps the ids of live records and the open transactions; transactions
that have ended are forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallystick.records import Outcome, State
from tallystick.systems.jboss.columns.fields import (
    Fields,
    RecordColumns,
    columns_of,
    fields_of,
)
from tallystick.systems.jboss.columns.kernels import HEURISTIC
from tallystick.systems.jboss.columns.lives import effects_of
from tallystick.systems.jboss.columns.plain_files import (
    FILE_SIZE_MAX,
    NotPlainError,
    file_rows,
    plain_file,
    undamaged,
    valid_rows,
)
from tallystick.systems.jboss.engine.loader import (
    EngineLoad,
    LoadError,
    admitted,
    configured_size,
)
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE
from tallystick.systems.jboss.format.layout import (
    ADD,
    ADD_TX,
    COMMIT,
    DELETE,
    DELETE_TX,
    I4,
    PREPARE,
    ROLLBACK,
    UPDATE,
    UPDATE_TX,
    RecordType,
    Shape,
    decode,
)
from tallystick.systems.jboss.read.analysis import Analysis, note_damage
from tallystick.systems.jboss.read.file_facts import ClassifiedFile, KnownFile
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.reclaim_counts import FileCounts
from tallystick.systems.jboss.read.replay import OpenTransaction, PlacedRecord, RecordFile
from tallystick.systems.jboss.read.scan import OTHER
from tallystick.systems.jboss.verdict.differences import Evidence

_Place = tuple[int, int, int]
"""Order of the file, offset, end."""
_Element = tuple[int, int, int, int, int]
"""Type, order of the file, offset, end, record id."""


class PlainEvidence(Evidence):
    """The evidence of a plain journal, of which the loader lists what is live.

    The analysis holds no transaction that has ended, and the load no record.
    """

    def lost_ids(self) -> list[int]:
        """Return nothing: no id that was deleted is live."""
        return []

    def revived_ids(self) -> list[int]:
        """Return nothing: an id that was deleted last is in no list of the loader."""
        return []


def plain_evidence(log: str, journal: JournalFiles, settings: Mapping[str, str]) -> Evidence | None:
    """Return the evidence about a plain journal of the log of that name; None of any other.

    Raises:
        UnsupportedFormatError: a setting is no number.
    """
    generation = journal.generation
    if generation.shape.header_size == I4.size:
        return None
    try:
        configured_size(admitted(journal.files, generation, settings), settings)
        return PlainEvidence(log, journal, _analysed(journal), EngineLoad(generation))
    except (LoadError, NotPlainError):
        return None


def _analysed(journal: JournalFiles) -> Analysis:
    files = journal.ordered()
    readings: list[KnownFile] = []
    counts = [FileCounts(order) for order, _ in enumerate(files)]
    analysis = Analysis(readings, counts)
    state = _State(counts)
    for order, file in enumerate(files):
        known, rows = _known_file(journal, file, analysis, order)
        readings.append(known)
        analysis.outcomes[Outcome.VALID] += len(valid_rows(rows))
        state.feed(order, columns_of(known.shape, file.data(), valid_rows(rows)))
    state.finish(files, analysis, journal)
    return analysis


def _known_file(
    journal: JournalFiles, file: JournalFile, analysis: Analysis, order: int
) -> tuple[KnownFile, Any]:
    """Return a file of valid, stale and torn records, and its rows. Raises `NotPlainError`."""
    shape = journal.shape(file)
    if file.size > FILE_SIZE_MAX:
        raise NotPlainError
    rows = file_rows(file, shape)
    _require_known_types(journal, file, shape, rows)
    if (plain := plain_file(file, shape, rows)) is not None:
        analysis.outcomes[Outcome.STALE] += len(rows) - plain.facts.records
        return plain, rows
    reading = undamaged(journal, file)
    for one in reading.ranges:
        if one.outcome is not Outcome.VALID:
            analysis.outcomes[one.outcome] += 1
        if one.outcome is Outcome.TORN:
            note_damage(analysis, reading, one, order)
    return ClassifiedFile(reading), rows


def _require_known_types(journal: JournalFiles, file: JournalFile, shape: Shape, rows: Any) -> None:
    """Check that the loader sees the same records, with the types it knows."""
    events = journal.generation.knows_events
    if (rows[:, 2] == OTHER).any():
        raise NotPlainError
    if events != shape.events:
        seen = valid_rows(file_rows(file, shape, events))
        if not np.array_equal(seen, valid_rows(rows)):
            raise NotPlainError


@dataclass(slots=True)
class _Open:
    """An open transaction: its elements, the files it touches, its run as in `Replay`."""

    files: list[int]
    elements: list[_Element] = field(default_factory=list)
    run: int = 0
    run_order: int = -1
    prepared: _Place | None = None


class _State:
    """What the records up to some place leave: live ids, open transactions, counts of files."""

    def __init__(self, counts: list[FileCounts]) -> None:
        self._counts = counts
        self._live: dict[int, int] = {}
        """Record id -> order of the file of its add."""
        self._updates: dict[int, list[int]] = {}
        """The same of its updates, where it has any."""
        self._open: dict[int, _Open] = {}
        self._heuristics: dict[int, _Place] = {}
        self._orphans: set[int] = set()
        """Live ids that were updated and not added."""
        self._last_deleted = -(1 << 63)
        self._again: set[int] = set()
        """Live ids that are not above all that were deleted before: they may be added again."""
        self._of_nothing: list[tuple[RecordType, int]] = []
        self._closed: Counter[State] = Counter()

    def feed(self, order: int, records: RecordColumns) -> None:
        """Apply the records of the file of that order. Raises `NotPlainError`."""
        effects, others = effects_of(records, self._open)
        closed = sum(effects.closed.values())
        self._counts[order].positives += closed
        self._counts[order].negatives[order] += closed
        self._closed += effects.closed
        found = effects.records
        found.kinds[(found.kinds == ADD) & (found.counts == HEURISTIC_TYPE)] = _OUTCOME
        heuristics = found.at(found.kinds == _OUTCOME).fields()
        places = ((order, at, end) for _, at, end, _, _, _ in heuristics)
        done = 0
        for one in records.at(others).fields():
            if one[0] in (COMMIT, ROLLBACK):
                before = int(np.searchsorted(effects.ends, one[1], "right"))
                self._apply(order, found.at(slice(done, before)), places)
                done = before
            self._transactional(order, one)
        self._apply(order, found.at(slice(done, None)), places)

    def _apply(self, order: int, effects: RecordColumns, heuristics: Iterator[_Place]) -> None:
        """Apply what adds, updates and deletes for good, in that order.

        ``heuristics`` are the places of heuristic outcomes, of kind `_OUTCOME`.
        """
        live, entered = self._live, 0
        for kind, number in zip(effects.kinds.tolist(), effects.ids.tolist(), strict=True):
            if kind in _ADDING:
                if number in live:
                    raise NotPlainError
                if number <= self._last_deleted:
                    self._again.add(number)
                live[number] = order
                entered += 1
                if kind == _OUTCOME:
                    self._heuristics[number] = next(heuristics)
            elif kind in _UPDATING:
                self._update(number, order)
            elif not self._delete(number, order) and kind == DELETE:
                self._of_nothing.append((RecordType.DELETE, number))
        self._counts[order].positives += entered

    def _transactional(self, order: int, fields: Fields) -> None:
        kind, at, end, transaction, number, extra = fields
        if kind == COMMIT:
            self._commit(transaction, order, extra)
            return
        if kind == ROLLBACK:
            self._closed[State.ROLLED_BACK] += 1
            self._end(self._open.pop(transaction, None), transaction, order)
            return
        one = self._open.get(transaction)
        if one is None or one.run_order != order:
            one = self._touch(transaction, order)
            one.run, one.run_order = 0, order
        if kind != PREPARE:
            one.run += 1
            one.elements.append((kind, order, at, end, number))
            return
        if one.run != extra:
            raise NotPlainError
        one.prepared = order, at, end

    def _touch(self, transaction: int, order: int) -> _Open:
        """Return the open transaction, counted once in that file."""
        one = self._open.get(transaction)
        if one is None:
            one = self._open[transaction] = _Open([])
        if not one.files or one.files[-1] != order:
            one.files.append(order)
            self._counts[order].positives += 1
        return one

    def _enter(self, number: int, order: int) -> None:
        if number in self._live:
            raise NotPlainError
        if number <= self._last_deleted:
            self._again.add(number)
        self._live[number] = order
        self._counts[order].positives += 1

    def _update(self, number: int, order: int) -> None:
        if number not in self._live:
            self._enter(number, order)
            self._orphans.add(number)
            return
        self._updates.setdefault(number, []).append(order)
        self._counts[order].positives += 1

    def _delete(self, number: int, order: int) -> bool:
        """Delete a record for good; return whether it was live."""
        self._last_deleted = max(self._last_deleted, number)
        first = self._live.pop(number, None)
        if first is None:
            return False
        negatives = self._counts[order].negatives
        negatives[first] += 1
        for each in self._updates.pop(number, ()):
            negatives[each] += 1
        self._orphans.discard(number)
        self._again.discard(number)
        self._heuristics.pop(number, None)
        return True

    def _commit(self, transaction: int, end: int, expected: int) -> None:
        one = self._open.pop(transaction, None)
        run = 0 if one is None or one.run_order != end else one.run
        if run != expected:
            raise NotPlainError
        self._closed[State.COMMITTED] += 1
        if one is None:
            return
        for kind, order, _, _, number in one.elements:
            if kind == ADD_TX:
                self._enter(number, order)
            elif kind == UPDATE_TX:
                self._update(number, order)
        for kind, order, _, _, number in one.elements:
            if kind == DELETE_TX:
                self._delete(number, order)
        self._end(one, transaction, end)

    def _end(self, one: _Open | None, transaction: int, end: int) -> None:
        if one is None:
            self._of_nothing.append((RecordType.ROLLBACK, transaction))
            return
        for order in one.files:
            self._counts[end].negatives[order] += 1

    def finish(self, files: list[JournalFile], analysis: Analysis, journal: JournalFiles) -> None:
        """Put what is left into the analysis. Raises `NotPlainError`."""
        if self._orphans or self._deleted_before(files, journal):
            raise NotPlainError
        placed = _Placed(files, journal)
        for number, where in self._heuristics.items():
            analysis.heuristics[number] = [placed(*where)]
        for transaction, one in self._open.items():
            analysis.open.append(_opened(transaction, one, placed))
            for order in one.files if one.prepared is None else ():
                self._counts[order].positives -= 1
        analysis.live = dict.fromkeys(self._live, 1)
        for number, updates in self._updates.items():
            analysis.live[number] += len(updates)
        analysis.of_nothing = self._of_nothing
        analysis.closed = self._closed

    def _deleted_before(self, files: list[JournalFile], journal: JournalFiles) -> bool:
        """Return whether a live id may have been deleted before it was added."""
        if not self._again:
            return False
        again = np.array(sorted(self._again), np.int64)
        return any(bool(np.isin(ids, again).any()) for ids in _deleted(files, journal))


_OUTCOME = ADD + HEURISTIC
_ADDING = frozenset({ADD, ADD_TX, _OUTCOME})
_UPDATING = frozenset({UPDATE, UPDATE_TX})


def _deleted(files: list[JournalFile], journal: JournalFiles) -> Iterator[Any]:
    """Yield the ids in the deletes of each file, whether their transactions committed or not."""
    for file in files:
        shape, data = journal.shape(file), file.data()
        rows = valid_rows(file_rows(file, shape))
        kinds = np.frombuffer(data, np.uint8)[rows[:, 0]]
        deletes = rows[(kinds == DELETE) | (kinds == DELETE_TX)]
        yield np.array([one[4] for one in fields_of(shape, data, deletes)], np.int64)


class _Placed:
    """Decodes single records of the files of a journal."""

    def __init__(self, files: list[JournalFile], journal: JournalFiles) -> None:
        self._files, self._journal = files, journal

    def __call__(self, order: int, at: int, end: int) -> PlacedRecord:
        """Return the record there."""
        file = self._files[order]
        where = RecordFile(file, self._journal.shape(file), order, file.stamp)
        return PlacedRecord.of(decode(where.shape, file.data(), at, end - at), where)


def _opened(transaction: int, one: _Open, placed: _Placed) -> OpenTransaction:
    """Return an open transaction with its records."""
    found = OpenTransaction(transaction, placed=True)
    for kind, order, at, end, _ in one.elements:
        record = placed(order, at, end)
        (found.deletes if kind == DELETE_TX else found.records).append(record)
    found.prepared = None if one.prepared is None else placed(*one.prepared)
    return found
