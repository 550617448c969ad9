"""Analyse a journal in runs: the whole records of each file as columns, and what is odd one by one.

In: the files of a journal. Out: an `Analyser` that has found what `analyse` finds, and whether the
journal's own loader sees the same records. Transactions that begin and end in one file, as they
should, are counted in columns; the others are replayed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from tallystick.arrow.neighbours import among, lasts_of, marked, starts_of, sums
from tallystick.records import Outcome
from tallystick.systems.jboss.format import layout
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE
from tallystick.systems.jboss.read.analysis import HEURISTIC_ADD, Analyser
from tallystick.systems.jboss.read.classify import FileReading, nothing_follows, read_file
from tallystick.systems.jboss.read.file_facts import ClassifiedFile
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.replay import PlacedRecord, RecordFile, Replay
from tallystick.systems.jboss.read.scan import OFFSET
from tallystick.systems.jboss.runs.chunk import Chunk, chunk_of
from tallystick.systems.jboss.runs.listed import ListedRecords
from tallystick.systems.jboss.runs.pieces import (
    FILE_SIZE_MAX,
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


def analyse_in_runs(
    journal: JournalFiles, user_types: Collection[int] = ()
) -> AnalysisInRuns | None:
    """Read all files of a journal strictly; keep the records of some user types.

    Returns:
        None where the records have to be analysed one by one: those of a file without a renewed
        header count in another order, rows of a very large file do not fit into memory, and the
        ends of the oldest generations list files.
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
        rows = _known(analyser, journal, file, order)
        # Its records count at the place of their own id, while the files before were applied in the
        # order of the ids in headers: nothing of what was found so far can be kept.
        if analyser.analysis.readings[-1].unheaded_id is not None:
            return None
        if rows is not None:
            where = RecordFile(file, journal.shape(file), order, file.stamp)
            feed(found, where, chunk_of(where.shape, file.data(), rows))
            found.loaded_alike &= _seen_alike(journal, file, rows)
    analysis = analyser.finish()
    # The loader's list form hides an id that is deleted anywhere, even if it is added after that
    # (format, What records mean); `listed` follows the order of the records.
    found.loaded_alike &= not analysis.dropped and not _deleted_before(journal, analysis.again)
    return found


def goes_in_runs(journal: JournalFiles) -> bool:
    """Return False for ends that list files, and for files whose rows do not fit into memory."""
    large = any(file.size > FILE_SIZE_MAX for file in journal.ordered())
    return not large and not journal.generation.shape.pairs


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
    return _seen_alike(journal, file, valid_rows(rows))


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


def _seen_alike(journal: JournalFiles, file: JournalFile, valid: Any) -> bool:
    """Return whether the loader sees the same records in a file, with the types it knows."""
    shape, events = journal.shape(file), journal.generation.knows_events
    if events == shape.events:
        return True
    # HornetQ takes the type byte of an EVENT for none, and goes on at the next position: it may
    # find a whole record in the body.
    return np.array_equal(valid_rows(file_rows(file, shape, events)), valid)


def _deleted_before(journal: JournalFiles, again: set[int]) -> bool:
    """Return whether one of these ids is that of a delete: the loader does not list it then."""
    if not again:
        return False
    return any(among(ids, again).any() for ids in _deleted(journal))


def _deleted(journal: JournalFiles) -> Iterator[Any]:
    """Yield the ids in the deletes of each file, whether their transactions committed or not."""
    for file in journal.ordered():
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
        found.listed.add(where, _apply(analyser, where, changed))
        committed = closed.kinds == layout.COMMIT
        numbers = closed.transactions
        analyser.close(where.order, numbers[committed].tolist(), numbers[~committed].tolist())
        for fields in singles:
            for placed in analyser.feed(PlacedRecord(*fields, where)):
                found.listed.add_one(placed)


def _apply(analyser: Analyser, where: RecordFile, changed: Chunk) -> Chunk:
    """Apply records in columns; return them without those that leave nothing."""
    outcome = (changed.kinds == layout.ADD) & (changed.counts == HEURISTIC_TYPE)
    kinds = np.where(outcome, np.uint8(HEURISTIC_ADD), changed.kinds)
    # Before the spent records are taken away: their deletes, too, raise the highest deleted id.
    low = _low(analyser, changed)
    if len(kinds) >= SPENT_MIN:
        spent = _spent(changed.ids, kinds, analyser.highest)
        # All but the delete of each id hold the file, and the delete cancels them.
        deletes = int((spent & DELETES[kinds]).sum())
        analyser.spend(where.order, int(spent.sum()) - deletes)
        changed, kinds = changed.at(~spent), kinds[~spent]

    def placed(at: int) -> PlacedRecord:
        (fields,) = changed.at(slice(at, at + 1)).fields()
        return PlacedRecord(*fields, where)

    analyser.apply(repeat(where.order), kinds.tolist(), changed.ids.tolist(), placed)
    # Last, as it asks which of these ids are live now.
    analyser.note_again(low)
    return changed


def _low(analyser: Analyser, changed: Chunk) -> list[int]:
    """Return the ids of adds and updates below one that was deleted before."""
    deletes, ids = DELETES[changed.kinds], changed.ids
    # The entry in front is the highest deleted id before these records, so that entry i is that
    # before record i, and the last one is for the next chunk. `LONG_MIN` stands for no delete:
    # record ids may be 0 or negative.
    highest = np.maximum.accumulate(
        np.append(analyser.last_deleted, np.where(deletes, ids, layout.LONG_MIN))
    )
    analyser.last_deleted = int(highest[-1])
    found: list[int] = ids[~deletes & (ids <= highest[:-1])].tolist()
    return found


def _spent(ids: Any, kinds: Any, above: int) -> Any:
    """Return which records leave nothing: an add, its updates and its delete.

    ``above`` is the highest id so far: lower ones may have records before these, and stay.
    """
    # Stable: the records of an id stay in file order, so that the first and the last of a group are
    # what happened to it first and last.
    order = np.argsort(ids, kind="stable")
    ids, kinds = ids[order], kinds[order]
    starts = starts_of(ids)
    lasts = lasts_of(starts, len(ids))
    once = [sums(table[kinds], starts) == 1 for table in (ADDS, DELETES)]
    # An id above all that were live so far has no record before these.
    gone = (ids[starts] > above) & ADDS[kinds[starts]] & DELETES[kinds[lasts]] & once[0] & once[1]
    spent = np.empty(len(ids), np.bool_)
    spent[order] = np.repeat(gone, lasts - starts + 1)
    return spent


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
