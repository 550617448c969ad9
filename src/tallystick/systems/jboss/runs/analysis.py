"""Analyse a journal in runs: the whole records of each file as columns, and what is odd one by one.

In: the files of a journal. Out: an `Analyser` that has found what `analyse` finds, and whether the
journal's own loader sees the same records. Transactions that begin and end in one file, as they
should, are counted in columns; the others are replayed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np

from tallystick.arrow.neighbours import Bits, Longs, among, lasts_of, marked, starts_of, sums
from tallystick.records import Outcome
from tallystick.systems.jboss.format import layout
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE
from tallystick.systems.jboss.read.analysis import HEURISTIC_ADD, Analyser
from tallystick.systems.jboss.read.classify import FileReading, nothing_follows, read_file
from tallystick.systems.jboss.read.file_facts import ClassifiedFile
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.replay import PlacedRecord, RecordFile, Replay
from tallystick.systems.jboss.read.scan import OFFSET
from tallystick.systems.jboss.runs.chunk import Chunk, Fields, chunk_of
from tallystick.systems.jboss.runs.listed import ListedRecords
from tallystick.systems.jboss.runs.pieces import (
    file_rows,
    is_plain,
    plain_file,
    valid_rows,
)
from tallystick.systems.jboss.runs.transactions import effects_of
from tallystick.systems.runs import RunCount

SPENT_MIN = 32
"""Least number of records of which those that leave nothing are taken out in columns first."""
ADDS = marked((layout.ADD, layout.ADD_TX))
DELETES = marked((layout.DELETE, layout.DELETE_TX))
RAISING = marked(layout.RAISING_TYPES)


@dataclass(slots=True)
class AnalysisInRuns:
    """A journal that was analysed in runs.

    Attributes:
        analyser: what was found.
        loaded_alike: whether the journal's own loader sees the same records, and lists those that
            are live.
        count: how many records were read in runs.
        listed: the records of some user types that a load lists, where ``loaded_alike`` holds.
    """

    analyser: Analyser
    loaded_alike: bool
    count: RunCount
    listed: ListedRecords


class KnownFiles(Protocol):
    """What somebody has read of the files of a journal."""

    def apply(
        self, found: AnalysisInRuns, journal: JournalFiles, file: JournalFile, order: int
    ) -> bool:
        """Apply what is known of a file; False if it has to be read."""
        ...

    def deleted(self, file: JournalFile) -> Longs | None:
        """Return the ids in the deletes of a file that was applied; None of others."""
        ...


def analyse_in_runs(
    journal: JournalFiles, user_types: Collection[int] = (), known: KnownFiles | None = None
) -> AnalysisInRuns | None:
    """Read all files of a journal strictly; keep the records of some user types.

    What is ``known`` of files is taken from there, and they are not read.

    Returns:
        None where the records have to be analysed one by one: those of a file without a renewed
        header count in another order, and the ends of the oldest generations list files.
    """
    files, generation = journal.ordered(), journal.generation
    if not goes_in_runs(journal):
        return None
    analyser = Analyser(generation.shape, [file.file_id for file in files], every=False)
    # The loaders of 2008 and 2009 scan by rules of their own (`engine.original_scan`): what the
    # rows of our scan are to them is not known here.
    kept = ListedRecords(user_types, analyser.analysis.live)
    found = AnalysisInRuns(analyser, not generation.has_own_scan, RunCount(), kept)
    for order, file in enumerate(files):
        if known is not None and known.apply(found, journal, file, order):
            continue
        rows = _known(analyser, journal, file, order)
        # Its records count at the place of their own id, while the files before were applied in the
        # order of the ids in headers: nothing of what was found so far can be kept.
        if analyser.analysis.readings[-1].unheaded_id is not None:
            return None
        if rows is not None:
            where = RecordFile(file, journal.shape(file), order, file.stamp)
            feed(found, where, chunk_of(where.shape, file.data(), rows))
            found.loaded_alike &= seen_alike(journal, file, rows)
    analysis = analyser.finish()
    # The loader's list form hides an id that is deleted anywhere, even if it is added after that
    # (format, What records mean); `listed` follows the order of the records.
    found.loaded_alike &= not analysis.dropped
    found.loaded_alike &= not _deleted_before(journal, analysis.again, known)
    return found


def goes_in_runs(journal: JournalFiles) -> bool:
    """Return False for the oldest generations, whose ends list files."""
    return not journal.generation.shape.pairs


def sees_every_record(journal: JournalFiles) -> bool:
    """Return whether the journal's own loader sees all whole records, in the order of the files."""
    seen_by_rows = goes_in_runs(journal) and not journal.generation.has_own_scan
    return seen_by_rows and all(_is_seen(journal, one) for one in journal.ordered())


def _is_seen(journal: JournalFiles, file: JournalFile) -> bool:
    shape = journal.shape(file)
    rows = file_rows(file, shape)
    plain = is_plain(rows, file.data(), shape, file.stamp)
    if not plain and _drops(read_file(journal, file, last=nothing_follows(journal, file))):
        return False
    return seen_alike(journal, file, valid_rows(rows))


def _known(analyser: Analyser, journal: JournalFiles, file: JournalFile, order: int) -> Any | None:
    """Note what is known of a file; return the rows of its records.

    None if the loader drops some of the records. All records of the file are applied one by one
    here then; but not those of a file whose header was not renewed: the caller gives up there.
    """
    shape = journal.shape(file)
    rows = file_rows(file, shape)
    readings, outcomes = analyser.analysis.readings, analyser.analysis.outcomes
    if (plain := plain_file(file, shape, rows)) is not None:
        readings.append(plain)
        valid = valid_rows(rows)
        outcomes[Outcome.VALID] += len(valid)
        outcomes[Outcome.STALE] += len(rows) - len(valid)
        return valid
    reading = read_file(journal, file, last=nothing_follows(journal, file))
    readings.append(ClassifiedFile(reading))
    analyser.note(reading, order)
    # Dropped records stand between the others, and the strict reading counts them: only record by
    # record all of them are applied in their order.
    if _drops(reading):
        if reading.unheaded_id is None:
            analyser.feed_file(reading, order)
        return None
    return valid_rows(rows)


def _drops(reading: FileReading) -> bool:
    """Return whether the loader drops records of a file, or takes them for those of another."""
    return reading.unheaded_id is not None or any(one.dropped for one in reading.ranges)


def seen_alike(journal: JournalFiles, file: JournalFile, valid: Any) -> bool:
    """Return whether the loader sees the same records in a file, with the types it knows."""
    shape, events = journal.shape(file), journal.generation.knows_events
    if events == shape.events:
        return True
    # HornetQ takes the type byte of an EVENT for none, and goes on at the next position: it may
    # find a whole record in the body.
    return np.array_equal(valid_rows(file_rows(file, shape, events)), valid)


def _deleted_before(journal: JournalFiles, again: set[int], known: KnownFiles | None) -> bool:
    """Return whether one of these ids is that of a delete: the loader does not list it then."""
    if not again:
        return False
    return any(among(ids, again).any() for ids in _deleted(journal, known))


def _deleted(journal: JournalFiles, known: KnownFiles | None) -> Iterator[Longs]:
    """Yield the ids in the deletes of each file, whether their transactions committed or not."""
    for file in journal.ordered():
        if known is not None and (ids := known.deleted(file)) is not None:
            yield ids
            continue
        shape, data = journal.shape(file), file.data()
        rows = valid_rows(file_rows(file, shape))
        # The byte at the offset of a record is its type, so nothing but the deletes is decoded.
        deletes = rows[DELETES[np.frombuffer(data, np.uint8)[rows[:, OFFSET]]]]
        yield chunk_of(shape, data, deletes).ids


def feed(found: AnalysisInRuns, where: RecordFile, records: Chunk) -> None:
    """Apply the records of a file."""
    analyser = found.analyser
    effects, others = effects_of(records, analyser.replay.open, analyser.damaged)
    one_by_one = int(others.sum())
    found.count.one_by_one += one_by_one
    found.count.in_runs += len(others) - one_by_one
    # A step ends before each commit or rollback that is replayed, because what that one changes
    # counts at its own place among what the columns change.
    for changed, closed, singles in effects.steps(records.at(others)):
        apply(found, where, unspent(changed, analyser.highest))
        committed = closed.kinds == layout.COMMIT
        numbers = closed.transactions
        analyser.close(where.order, numbers[committed].tolist(), numbers[~committed].tolist())
        replay(found, where, singles)


def replay(found: AnalysisInRuns, where: RecordFile, singles: Iterable[Fields]) -> None:
    """Apply records of a file one by one."""
    for fields in singles:
        for placed in found.analyser.feed(PlacedRecord(*fields, where)):
            found.listed.add_one(placed)


class Unspent(NamedTuple):
    """Records that count, without spent ones: an add, updates and a delete that leave nothing.

    Attributes:
        records: the records that are not spent.
        deleted: for each, the highest id that any record before has deleted, spent ones included.
        fresh: for each, whether it adds an id that was never live and stays live, or updates it.
        last_deleted: the highest id that any record deletes.
        spent: how many spent records hold the file, and are cancelled in it.
    """

    records: Chunk
    deleted: Longs
    fresh: Bits
    last_deleted: int
    spent: int = 0


def unspent(changed: Chunk, above: int) -> Unspent:
    """Take out the records that leave nothing; ``above`` is the highest id that was live so far."""
    kinds = kinds_of(changed)
    before, last = deleted_before(kinds, changed.ids)
    if len(kinds) < SPENT_MIN:
        return Unspent(changed, before, np.zeros(len(kinds), np.bool_), last)
    spent, fresh = spent_and_fresh(changed.ids, kinds, above)
    left = ~spent
    count = held_by(spent, kinds)
    return Unspent(changed.at(left), before[left], fresh[left], last, count)


def deleted_before(kinds: Any, ids: Longs) -> tuple[Longs, int]:
    """Return the highest id that was deleted before each record, and that after all of them."""
    # The entry in front is for the time before these records, so that entry i is that before
    # record i. `LONG_MIN` stands for no delete: record ids may be 0 or negative.
    deleted = np.where(DELETES[kinds], ids, layout.LONG_MIN)
    highest = np.maximum.accumulate(np.append(layout.LONG_MIN, deleted))
    return highest[:-1], int(highest[-1])


def held_by(spent: Bits, kinds: Any) -> int:
    """Return how many records that leave nothing hold their file until their delete."""
    return int(spent.sum()) - int((spent & DELETES[kinds]).sum())


def apply(
    found: AnalysisInRuns, where: RecordFile, left: Unspent, queues: Longs | None = None
) -> None:
    """Apply records in columns; ``queues`` as for `ListedRecords.add`."""
    analyser, records = found.analyser, left.records
    kinds, ids = kinds_of(records), records.ids
    # Which ids are below one that was deleted before, of adds and updates.
    low = ~DELETES[kinds] & (ids <= np.maximum(left.deleted, analyser.last_deleted))
    analyser.last_deleted = max(analyser.last_deleted, left.last_deleted)
    analyser.spend(where.order, left.spent)

    others = ~left.fresh
    if left.fresh.any():
        others[: _first_new(analyser, kinds, ids, others)] = True
    adds, fresh = ADDS[kinds], ~others
    rest = records if others.all() else records.at(others)

    def placed(at: int) -> PlacedRecord:
        (fields,) = rest.at(slice(at, at + 1)).fields()
        return PlacedRecord(*fields, where)

    analyser.apply(repeat(where.order), kinds[others].tolist(), rest.ids.tolist(), placed)
    analyser.enter(where.order, ids[fresh & adds].tolist(), ids[fresh & ~adds].tolist())
    # Last, as it asks which of these ids are live now.
    analyser.note_again(ids[low].tolist())
    found.listed.add(where, records, queues)


def _first_new(analyser: Analyser, kinds: Any, ids: Longs, others: Bits) -> int:
    """Return the place from which on only fresh records make an id live.

    What is live stands in the order of its adds, so those before it are applied one by one. Of the
    ``others`` deletes make no id live, nor do updates of what is live and stays so.
    """
    deletes = DELETES[kinds]
    places = np.flatnonzero(others & ~deletes)
    known = among(ids[places], analyser.analysis.live) & ~np.isin(ids[places], ids[deletes])
    odd = places[~known | ADDS[kinds[places]] | (kinds[places] == HEURISTIC_ADD)]
    return int(odd[-1]) + 1 if len(odd) else 0


def kinds_of(records: Chunk) -> Any:
    """Return the types of records, with `HEURISTIC_ADD` for what may be an outcome."""
    outcome = (records.kinds == layout.ADD) & (records.counts == HEURISTIC_TYPE)
    return np.where(outcome, np.uint8(HEURISTIC_ADD), records.kinds)


def spent_and_fresh(ids: Longs, kinds: Any, above: int) -> tuple[Bits, Bits]:
    """Return which records leave nothing: an add, its updates and its delete; and which are fresh.

    ``above`` is the highest id so far: lower ones may have records before these, and are neither.
    """
    # Stable: the records of an id stay in file order, so that the first and the last of a group are
    # what happened to it first and last.
    order = np.argsort(ids, kind="stable")
    ids, kinds = ids[order], kinds[order]
    starts = starts_of(ids)
    lasts = lasts_of(starts, len(ids))
    adds, deletes, outcomes = (
        sums(one, starts) for one in (ADDS[kinds], DELETES[kinds], kinds == HEURISTIC_ADD)
    )
    # An id above all that were live so far has no record before these.
    begun = (ids[starts] > above) & ADDS[kinds[starts]] & (adds == 1) & (outcomes == 0)
    found = []
    for groups in (begun & (deletes == 1) & DELETES[kinds[lasts]], begun & (deletes == 0)):
        chosen = np.empty(len(ids), np.bool_)
        chosen[order] = np.repeat(groups, lasts - starts + 1)
        found.append(chosen)
    return found[0], found[1]


def listed(journal: JournalFiles, live: Mapping[int, object]) -> tuple[list[layout.Item], int]:
    """Return the records that a load lists, in its order, where `loaded_alike` holds.

    Args:
        journal: the files.
        live: the ids of the records that are live; none of them was deleted before.

    Returns:
        The records, and the highest id that raises the loader's maximum, -1 for none.
    """
    replay, found, highest = Replay(journal.generation.shape, ()), list[layout.Item](), -1
    for order, file in enumerate(journal.ordered()):
        where = RecordFile(file, journal.shape(file), order, file.stamp)
        rows, data = valid_rows(file_rows(file, where.shape)), file.data()
        records = chunk_of(where.shape, data, rows)
        highest = max(highest, int(records.ids[RAISING[records.kinds]].max(initial=-1)))
        effects, others = effects_of(records, replay.open)
        for changed, _, singles in effects.steps(records.at(others)):
            remaining = changed.at(~DELETES[changed.kinds])
            places = remaining.rows[among(remaining.ids, live), :2].tolist()
            found += [layout.decode(where.shape, data, at, size) for at, size in places]
            done = (replay.feed(PlacedRecord(*fields, where))[0] for fields in singles)
            found += [
                effect.placed.item
                for effects_ in done
                for effect in effects_
                if effect.placed.number in live and not DELETES[effect.placed.kind]
            ]
    return found, highest
