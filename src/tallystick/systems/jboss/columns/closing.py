"""Give the transactions and changes of a journal split by split, and join what splits leave open.

In: the files of a journal and a split. Out: batches of what begins and ends in it, and a `Rest`:
the records of all other transactions. A commit counts the elements in its own file only, so a split
cannot know that a transaction did not begin in an earlier file. It closes those whose numbers are
above the first ones that it meets, as numbers are given in rising order; and the rest lists them,
so that joining the rests finds a transaction that another split knows, too. The first split of a
file also hands on what is known of all of it.

Only plain files are closed so; records outside of transactions are changes at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.byte_kernels import COMPILED
from tallystick.arrow.schemas import batches_by_table, rebatched
from tallystick.errors import CorruptLogError
from tallystick.records import Change, Clock, Transaction
from tallystick.systems.jboss.columns.changes import ChangeColumns
from tallystick.systems.jboss.columns.transactions import closed_in
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE
from tallystick.systems.jboss.format.layout import (
    ADD,
    SHAPES,
    decode,
)
from tallystick.systems.jboss.read.analysis import Analysis
from tallystick.systems.jboss.read.changes import changes_of_record, place_of
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.replay import PlacedRecord, RecordFile, Replay
from tallystick.systems.jboss.read.scan import OFFSET
from tallystick.systems.jboss.read.transactions import ended_transaction, unended
from tallystick.systems.jboss.runs.chunk import INSIDE, Chunk, chunk_of
from tallystick.systems.jboss.runs.known import KnownParts, Read, known_of
from tallystick.systems.jboss.runs.pieces import file_rows, is_plain, valid_rows
from tallystick.systems.jboss.runs.transactions import Lives, effects_by, lives_of
from tallystick.systems.protocol import NotClosedInPartsError, Split
from tallystick.systems.rests import items, longs, packed, unpacked

FIRST_NUMBERS = 64
"""So many transactions, from the start of a split on, tell which may have begun before it."""
REST_MAX = 1 << 20
"""Most bytes of records that a split hands on: all rests are in memory when they are joined."""
Named = tuple[str, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Rest:
    """What a split leaves open.

    Attributes:
        path: the file.
        shape: the name of the shape of its records.
        closed: the numbers of the transactions that the split has closed.
        records: offset and bytes of each record of the others.
        known: what `known_of` returned of the file; None but in its first split.
    """

    path: str
    shape: str
    closed: Sequence[int]
    records: Sequence[tuple[int, bytes]]
    known: bytes | None = None

    def packed(self) -> bytes:
        """Return it as bytes."""
        steps = np.diff(np.array(sorted(self.closed), np.int64), prepend=np.int64(0))
        return packed((self.path, self.shape, steps, self.records, self.known))

    @classmethod
    def built(cls, value: Any) -> Rest:
        """Return the rest whose value was packed, for `unpacked`."""
        path, shape, steps, found, known = items(value, str, str, bytes, list, bytes | None)
        if shape not in SHAPES:
            raise ValueError("a shape that no journal has")
        records = [(offset, data) for offset, data in (items(one, int, bytes) for one in found)]
        return cls(path, shape, longs(steps).cumsum().tolist(), records, known)


class ClosingSplit:
    """Closes what begins and ends in a split; ``rows`` is the most rows of a batch.

    ``user_types`` are those of which an analysis of the journal keeps records.
    """

    def __init__(
        self, journal: JournalFiles, log: str, split: Split, rows: int, user_types: Collection[int]
    ) -> None:
        self._journal, self._log, self._split, self._rows = journal, log, split, rows
        self._user_types = user_types
        self._rest: Rest | None = None

    def rest(self) -> bytes | None:
        """Return what is left, after the last batch; None if the whole journal must be read."""
        return None if self._rest is None else self._rest.packed()

    def batches(self) -> Iterator[Named]:
        """Yield transactions and changes; none where the split alone cannot be judged."""
        files = self._journal.ordered()
        for order, file in enumerate(files):
            if file.path == self._split.file and (rows := self._plain_rows(file)) is not None:
                yield from self._closed(files, order, rows)

    def _plain_rows(self, file: JournalFile) -> Any | None:
        """Return all rows of the file; None if the split cannot be judged alone."""
        shape, data = self._journal.shape(file), file.data()
        if not COMPILED or self._journal.generation.shape.pairs:
            return None
        rows = file_rows(file, shape)
        if not is_plain(rows, data, shape, file.stamp):
            return None
        try:
            # Before the first batch: what is yielded cannot be taken back.
            place_of(file, 0)
        except CorruptLogError:
            return None
        return rows

    def _closed(self, files: list[JournalFile], order: int, every: Any) -> Iterator[Named]:
        file = files[order]
        shape, data = self._journal.shape(file), file.data()
        where, whole = RecordFile(file, shape, order, file.stamp), valid_rows(every)
        begin, end = np.searchsorted(whole[:, OFFSET], (self._split.begin, self._split.end))
        rows = whole[begin:end]
        records = chunk_of(shape, data, rows)
        if ((records.kinds == ADD) & (records.counts == HEURISTIC_TYPE)).any():
            return
        first = self._split.begin <= shape.header_size
        lives, alone = _alone(records, first=first and not order)
        closed = None if lives is None else closed_in(shape, data, lives, alone)
        if closed is not None:
            for batch in rebatched([closed.batch(self._log, file.path)], self._rows):
                yield "transactions", batch
        effects, others = effects_by(records, lives, lambda _: alone)
        paths = [one.path for one in files]
        follower = ChangeColumns(self._log, self._journal.generation.shape, paths)
        for batch in rebatched(follower.given(where, place_of(file, 0), effects), self._rows):
            yield "changes", batch
        left = [(at, bytes(data[at : at + size])) for at, size, _, _ in rows[others].tolist()]
        if sum(len(one) for _, one in left) > REST_MAX:
            return
        known = None
        if first:
            if len(rows) < len(whole):
                records = chunk_of(shape, data, whole)
                lives, alone = _alone(records, first=not order)
                effects, others = effects_by(records, lives, lambda _: alone)
            read = Read(where, every, records, effects, records.at(others))
            known = known_of(self._journal, read, self._user_types)
        numbers = [] if closed is None else closed.numbers.tolist()
        self._rest = Rest(file.path, shape.name, numbers, left, known)


def _alone(records: Chunk, *, first: bool) -> tuple[Lives | None, Any]:
    """Return the lives in some records of a file, and which surely begin and end there.

    ``first``: nothing is before them in the journal, so nothing has begun before.
    """
    lives = lives_of(records)
    if lives is None:
        return None, None
    above = None if first else _highest_of_first(records.transactions[INSIDE[records.kinds]])
    return lives, _closes_alone(lives, above)


def _highest_of_first(numbers: Any) -> int | None:
    """Return the highest of the first `FIRST_NUMBERS` different numbers; None if there is none."""
    _, places = np.unique(numbers, return_index=True)
    first = numbers[np.sort(places)[:FIRST_NUMBERS]]
    return int(first.max()) if len(first) else None


def _closes_alone(lives: Lives, above: int | None) -> Any:
    """Return which lives of transactions begin and end in a split, as far as it tells.

    Nothing else in the split has their number, and it is above a given one.
    """
    # Lives stand by number: one is alone if it is the first of its number and the next begins
    # another.
    once = lives.regular & lives.first & np.append(lives.first[1:], True)
    return once if above is None else once & (lives.numbers > above)


def batches_of_rests(
    journal: JournalFiles, log: str, rests: Sequence[bytes], rows: int
) -> Iterator[Named]:
    """Yield the transactions and changes that no split closed alone; ``rests`` in log order.

    Raises:
        NotClosedInPartsError: a split closed a transaction that another one knows, too.
    """
    found = [unpacked(one, Rest.built) for one in rests]
    placed = list(_placed(journal, found))
    numbers = Counter(number for one in found for number in one.closed)
    if any(count > 1 for count in numbers.values()):
        raise NotClosedInPartsError("a transaction ends in several splits")
    if any(one.item.transaction in numbers for one in placed):
        raise NotClosedInPartsError("a transaction that a split closed goes on in another")
    transactions, changes = _replayed(journal, log, placed)
    yield from batches_by_table(transactions, changes, Clock.NONE.value, rows)


def known_parts(rests: Sequence[bytes]) -> KnownParts:
    """Return what the splits of a journal know of its files.

    Raises:
        NotClosedInPartsError: a rest is damaged.
    """
    found = (unpacked(one, Rest.built) for one in rests)
    return KnownParts({one.path: one.known for one in found if one.known is not None})


def _placed(journal: JournalFiles, rests: Iterable[Rest]) -> Iterator[PlacedRecord]:
    files = {file.path: (order, file) for order, file in enumerate(journal.ordered())}
    for rest in rests:
        if rest.path not in files:
            raise NotClosedInPartsError("a file is not there any more", file=rest.path)
        order, file = files[rest.path]
        where = RecordFile(file, SHAPES[rest.shape], order, file.stamp)
        for offset, data in rest.records:
            item = replace(decode(where.shape, data, 0, len(data)), offset=offset)
            yield PlacedRecord.of(item, where)


def _replayed(
    journal: JournalFiles, log: str, records: Iterable[PlacedRecord]
) -> tuple[list[Transaction], list[Change]]:
    files = journal.ordered()
    replay = Replay(journal.generation.shape, [file.stamp for file in files])
    analysis, seen = Analysis([], []), Counter[int]()
    transactions: list[Transaction] = []
    changes: list[Change] = []
    for one in records:
        effects, ended = replay.feed(one)
        if ended is not None:
            transactions.append(ended_transaction(log, analysis, ended, seen))
        place = place_of(one.where.file, one.end)
        changes += changes_of_record(log, place, effects, ended)
    analysis.open = list(replay.open.values())
    transactions += unended(log, analysis, seen)
    return transactions, changes
