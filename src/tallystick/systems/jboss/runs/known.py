"""The facts of a file that a task has read, packed, and an analysis that applies them unread.

In: a plain file, and which of its transactions surely begin and end in it. Out: as bytes its facts,
and what its records leave. `KnownParts` applies these bytes as `analysis` applies the records of a
file, if no record before is about the same records and transactions, and the file is still the
same; a file whose facts it cannot apply is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from tallystick.arrow.neighbours import Bits, Longs
from tallystick.records import Outcome
from tallystick.storage.crc import crc32
from tallystick.storage.source import ByteSource, read_part, with_zeros
from tallystick.systems.jboss.format.layout import (
    COMMIT,
    ELEMENTS,
    LONG_MAX,
    LONG_MIN,
    PREPARE,
    Shape,
)
from tallystick.systems.jboss.read.analysis import Analyser
from tallystick.systems.jboss.read.file_facts import FileFacts
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles, Sources
from tallystick.systems.jboss.read.replay import RecordFile
from tallystick.systems.jboss.read.scan import OFFSET, ROW, SIZE
from tallystick.systems.jboss.runs.analysis import (
    DELETES,
    SPENT_MIN,
    AnalysisInRuns,
    Unspent,
    apply,
    deleted_before,
    held_by,
    kinds_of,
    replay,
    seen_alike,
    spent_and_fresh,
)
from tallystick.systems.jboss.runs.chunk import Chunk, Fields
from tallystick.systems.jboss.runs.listed import ListedRecords
from tallystick.systems.jboss.runs.pieces import PlainFile, plain_of
from tallystick.systems.jboss.runs.transactions import Effects
from tallystick.systems.rests import items, longs, packed, unpacked

FIRST_RECORDS = 1 << 10
"""Records above whose ids those are that leave nothing, whatever stands before the file."""
PACKED_MAX = 1 << 20
"""Most bytes that a part hands on of a file: those of all files are in memory together."""
_STEP = ("records", "last_deleted", "spent", "singles")
_COLUMNS = ("offset", "size", "transaction", "id", "count", "deleted", "queue", "fresh")
_FIELDS = 6
"""Numbers of a record that is replayed: those of `Fields`."""


class _Rest(NamedTuple):
    """What is known of a file.

    Attributes:
        stamp, size: of the file.
        after: the CRC-32 of what follows its last record.
        alike: whether the journal's own loader sees the same records; 1 or 0.
        stale: how many records of earlier lives it holds.
        facts: its `FileFacts`, as a list.
        runs: rows of its runs, where they are few.
        least: the lowest id of the records that leave nothing, or are fresh.
        committed, rolled_back: the transactions that begin and end in it.
        deleted: the ids in its deletes.
        steps: a row for each step, as `_STEP` says.
        kinds: the types of the records that leave something.
        columns: their numbers, as `_COLUMNS` says, each as what it differs from the one before.
        singles: the `Fields` of the records that are replayed.
    """

    stamp: int
    size: int
    after: int
    alike: int
    stale: int
    facts: Any
    runs: Any
    least: int
    committed: Any
    rolled_back: Any
    deleted: Any
    steps: Any
    kinds: Any
    columns: Any
    singles: Any

    @classmethod
    def built(cls, value: Any) -> _Rest:
        """Return the one whose value was packed, for `unpacked`."""
        numbers, facts, runs, *others = items(value, list, list, bytes | None, int, *[bytes] * 7)
        least, committed, rolled_back, deleted, steps, kinds, columns, singles = others
        stamp, size, after, alike, stale = items(numbers, int, int, int, int, int)
        found = cls(
            stamp,
            size,
            after,
            alike,
            stale,
            _facts(facts),
            None if runs is None else longs(runs).reshape(-1, ROW),
            least,
            _summed(committed),
            _summed(rolled_back),
            _summed(deleted),
            longs(steps).reshape(-1, len(_STEP)),
            np.frombuffer(kinds, np.uint8),
            longs(columns).reshape(len(_COLUMNS), -1).cumsum(axis=1),
            longs(singles).reshape(-1, _FIELDS),
        )
        counted = found.steps[:, [_STEP.index(one) for one in ("records", "singles")]]
        there = len(found.kinds), len(found.singles)
        whole = found.columns.shape[1] == there[0] and tuple(counted.sum(axis=0)) == there
        if not whole or (counted < 0).any():
            raise ValueError("steps of other records")
        return found

    def packed(self) -> bytes:
        """Return it as bytes."""
        facts = [int(one) if isinstance(one, bool) else one for one in self.facts]
        return packed((
            self[:5], facts, self.runs, self.least, _steps(self.committed),
            _steps(self.rolled_back), _steps(self.deleted), self.steps, self.kinds,
            _steps(self.columns), self.singles,
        ))  # fmt: skip

    def replayed(self) -> Iterator[tuple[Unspent, Longs, Sequence[Fields]]]:
        """Yield the steps: what leaves something, the queues of messages, and single records."""
        begin = first = 0
        offsets, sizes, transactions, ids, counts, deleted, queues, fresh = self.columns
        rows = np.zeros((len(self.kinds), ROW), np.int64)
        rows[:, OFFSET], rows[:, SIZE] = offsets, sizes
        records = Chunk(rows, self.kinds, transactions, ids, counts)
        for count, last_deleted, spent, singles in self.steps.tolist():
            part = slice(begin, begin + count)
            new = fresh[part].astype(np.bool_)
            left = Unspent(records.at(part), deleted[part], new, last_deleted, spent)
            yield left, queues[part], self.singles[first : first + singles].tolist()
            begin, first = begin + count, first + singles


def _steps(numbers: Any) -> Longs:
    """Return by what numbers differ from those before them; most of that is zeros to pack."""
    return np.ascontiguousarray(np.diff(numbers, prepend=np.int64(0)))


def _summed(part: bytes) -> Longs:
    return longs(part).cumsum()


def _facts(value: Any) -> FileFacts:
    many = [int | None] * 3
    *first, blocks, gaps, zeros, later, earlier, stale = items(
        value, int, int, int, int, *many, list, int, int, list, list, list
    )
    records, first_size, largest, end, copied, first_count, last_count = first
    numbers = [tuple(items(one, *[int] * len(one))) for one in (blocks, later, earlier, stale)]
    return FileFacts(
        records, first_size, largest, end, None if copied is None else bool(copied), first_count,
        last_count, numbers[0], bool(gaps), bool(zeros), None, *numbers[1:],
    )  # fmt: skip


def _values(facts: FileFacts) -> list[Any]:
    """Return the facts of a plain file in order; nothing of it is torn."""
    return [getattr(facts, name) for name in FileFacts.__slots__ if name != "torn"]


class Read(NamedTuple):
    """A file of which all records were read.

    Attributes:
        where: the file.
        rows: all rows of its scan.
        records: its records.
        effects: what they change, by transactions that surely begin and end in it.
        others: the records of all other transactions.
    """

    where: RecordFile
    rows: Any
    records: Chunk
    effects: Effects
    others: Chunk


def known_of(journal: JournalFiles, read: Read, user_types: Collection[int]) -> bytes | None:
    """Return what is known of a plain file; None if that is too much to hand on.

    ``user_types`` are those of which an analysis keeps records.
    """
    where, _, records, effects, others = read
    plain = plain_of(where.file, where.shape, read.rows)
    left = _Left.of(effects, others, _highest(records.at(slice(FIRST_RECORDS))))
    ended, file, remain = effects.closed, where.file, effects.records.at(left.remain)
    committed = ended.kinds == COMMIT
    columns = (
        remain.rows[:, OFFSET], remain.rows[:, SIZE], remain.transactions, remain.ids,
        remain.counts, left.deleted[left.remain],
        ListedRecords(user_types, {}).queues_of(where, remain), left.fresh[left.remain],
    )  # fmt: skip
    found = _Rest(
        file.stamp,
        file.size,
        _after(plain),
        int(seen_alike(journal, file, records.rows)),
        len(read.rows) - plain.facts.records,
        _values(plain.facts),
        plain.few_runs,
        left.least,
        ended.transactions[committed],
        ended.transactions[~committed],
        np.sort(records.ids[DELETES[records.kinds]]),
        np.array(left.steps, np.int64),
        remain.kinds,
        np.stack(columns),
        np.array(left.singles, np.int64).reshape(-1, _FIELDS),
    ).packed()
    return found if len(found) <= PACKED_MAX else None


class _Left(NamedTuple):
    """What the records of a file leave; columns have an entry for each that counts.

    Attributes:
        deleted: the highest id that was deleted before each.
        remain: which leave something.
        fresh: which are fresh, as in `Unspent`.
        least: the lowest id of fresh ones, and of those that leave nothing.
        steps: as in `_Rest`.
        singles: as in `_Rest`.
    """

    deleted: Longs
    remain: Bits
    fresh: Bits
    least: int
    steps: list[tuple[int, int, int, int]]
    singles: list[Fields]

    @classmethod
    def of(cls, effects: Effects, others: Chunk, above: int) -> _Left:
        """Find it; ids up to ``above`` may have been live before the file, as a rule."""
        kinds, ids = kinds_of(effects.records), effects.records.ids
        deleted, last = deleted_before(kinds, ids)
        highest = np.append(deleted, last)
        spent, fresh = np.zeros((2, len(ids)), np.bool_)
        steps, singles, opened = list[tuple[int, int, int, int]](), list[Fields](), dict[int, int]()
        for part, _, some in effects.places(others):
            if part.stop - part.start >= SPENT_MIN:
                spent[part], fresh[part] = spent_and_fresh(ids[part], kinds[part], above)
            count = part.stop - part.start - int(spent[part].sum())
            held = held_by(spent[part], kinds[part])
            steps.append((count, int(highest[part.stop]), held, len(some)))
            singles += some
            above = max(above, _highest_of(ids[part], ~DELETES[kinds[part]] & ~spent[part]))
            above = max(above, _ended(some, opened))
        least = int(ids[spent | fresh].min(initial=LONG_MAX))
        return cls(deleted, ~spent, fresh, least, steps, singles)


def _ended(singles: Iterable[Fields], opened: dict[int, int]) -> int:
    """Return the highest id in what these records end; ``opened`` has that of what is open."""
    above = LONG_MIN
    for kind, _, _, transaction, number, _ in singles:
        if kind in ELEMENTS:
            opened[transaction] = max(number, opened.get(transaction, LONG_MIN))
        elif kind != PREPARE:
            above = max(above, opened.pop(transaction, LONG_MIN))
    return above


def _highest_of(ids: Longs, chosen: Bits) -> int:
    return int(ids[chosen].max(initial=LONG_MIN))


def _after(plain: PlainFile) -> int:
    return crc32(plain.file.data()[plain.facts.end :])


def _highest(records: Chunk) -> int:
    """Return the highest id of adds and updates."""
    return _highest_of(records.ids, ~DELETES[records.kinds])


class KnownParts:
    """`KnownFiles` by what `known_of` returned, by path of the file."""

    def __init__(self, rests: Mapping[str, bytes]) -> None:
        self._rests = rests
        self._applied = set[str]()
        self._ends: dict[str, tuple[bytes, int, int]] = {}
        """Path of a file -> its head, where its last record ends, and its size."""
        self._sources = Sources(self._opened)

    def apply(
        self, found: AnalysisInRuns, journal: JournalFiles, file: JournalFile, order: int
    ) -> bool:
        """Apply what is known of a file; False if it has to be read.

        Raises:
            NotClosedInPartsError: what is known of it is damaged.
        """
        if file.path not in self._rests:
            return False
        rest = unpacked(self._rests[file.path], _Rest.built)
        shape, analyser = journal.shape(file), found.analyser
        plain = self._plain(file, shape, rest)
        same = (file.stamp, file.size, _after(plain)) == rest[:3]
        if not same or not _follows(rest, analyser):
            return False
        analyser.analysis.readings.append(plain)
        analyser.analysis.outcomes[Outcome.VALID] += rest.facts.records
        analyser.analysis.outcomes[Outcome.STALE] += rest.stale
        found.loaded_alike &= bool(rest.alike)
        analyser.close(order, rest.committed.tolist(), rest.rolled_back.tolist())
        where = RecordFile(file, shape, order, file.stamp)
        for left, queues, singles in rest.replayed():
            apply(found, where, left, queues)
            replay(found, where, singles)
        found.count.one_by_one += len(rest.singles)
        found.count.in_runs += rest.facts.records - len(rest.singles)
        self._applied.add(file.path)
        return True

    def _plain(self, file: JournalFile, shape: Shape, rest: _Rest) -> PlainFile:
        """Return the file of which only the head and what follows its last record is read."""
        if rest.facts.gaps:  # they are looked at, too
            return PlainFile(file, shape, rest.facts, rest.runs)
        self._ends[file.path] = file.head, rest.facts.end, rest.size
        end = replace(file, sources=self._sources)
        return PlainFile(end, shape, rest.facts, rest.runs, file)

    def _opened(self, path: str) -> ByteSource:
        head, end, size = self._ends[path]
        part = read_part(path, end, max(0, size - end) + 1)
        return with_zeros(path, part, end, end + len(part), head[:end])

    def deleted(self, file: JournalFile) -> Longs | None:
        """Return the ids in the deletes of a file that was applied; None of others."""
        if file.path not in self._applied:
            return None
        ids: Longs = unpacked(self._rests[file.path], _Rest.built).deleted
        return ids


def _follows(rest: _Rest, analyser: Analyser) -> bool:
    """Return whether nothing before a file is about what it ends, or leaves nothing of."""
    opened = analyser.replay.open
    numbers = chain(rest.committed.tolist(), rest.rolled_back.tolist())
    if (opened or analyser.damaged) and any(
        one in opened or one in analyser.damaged for one in numbers
    ):
        return False
    # What is open may be committed in the file, before the records that leave nothing.
    added = (each.number for one in opened.values() for each in one.records)
    return max(analyser.highest, max(added, default=LONG_MIN)) < rest.least
