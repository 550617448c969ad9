"""Analyse a journal strictly: everything that its bytes prove, in one pass.

In: the `JournalFiles`. Out: an `Analysis`: records of this life with those that the journal's own
loader drops, transactions and their holes, live records, damage.

Unlike the loader it reads format 2 records in format 1 files, reads records under a file id that
was never written to the header, and follows the order of events instead of a list of deletes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tallystick.records import Outcome, State
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE
from tallystick.systems.jboss.format.layout import (
    EVENT,
    FILE_ID_MASK,
    IN_TRANSACTION,
    ROLLBACK,
    RecordType,
)
from tallystick.systems.jboss.read.classify import APPENDED, Classified, FileReading, read_files
from tallystick.systems.jboss.read.file_facts import ClassifiedFile, KnownFile
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.jboss.read.reclaim_counts import FileCounts, ReclaimCounts
from tallystick.systems.jboss.read.replay import (
    Effect,
    EndedTransaction,
    OpenTransaction,
    PlacedRecord,
    RecordFile,
    Replay,
)
from tallystick.systems.jboss.read.scan import transaction_at

GONE_MAX = 64
"""Missing file ids are listed up to this many."""


@dataclass(slots=True)
class Damage:
    """A damaged record, and the transaction in its bytes."""

    path: str
    order: int
    offset: int
    length: int
    reason: str
    transaction: int | None


@dataclass(slots=True)
class Analysis:
    """The strict reading of a journal.

    Attributes:
        readings: the files, by the ids under which they were written.
        file_counts: what each file of ``readings`` holds and ends; its key is its place there.
        counts: live records and open transactions, for reclaiming.
        outcomes: ranges per outcome.
        damage: damaged records that are not torn.
        torn: torn records.
        dropped: whole records that the loader ignores.
        dropped_because: their number, by the reason in the code of the finding.
        ended: transactions with a commit or rollback, in the order of these.
        closed: how many more ended as they should, by state; nothing else is kept of them.
        open: the other transactions, in order of their first record.
        live: record id -> number of records that are live.
        heuristics: record id -> adds that may be heuristic outcomes, of live records.
        orphan_updates: live updates of ids that were never added: the file with the add is gone.
        unknown_deletes: deletes of ids without an add, of records that were reclaimed or lost.
        added_twice: adds of ids that were live.
        of_nothing: deletes outside of transactions, and rollbacks, of which no earlier record is
            there: the type, and the id of the record or the transaction.
    """

    readings: Sequence[KnownFile]
    file_counts: list[FileCounts]
    counts: ReclaimCounts = field(default_factory=ReclaimCounts)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    damage: list[Damage] = field(default_factory=list)
    torn: list[Damage] = field(default_factory=list)
    dropped: list[PlacedRecord] = field(default_factory=list)
    dropped_because: Counter[str] = field(default_factory=Counter)
    ended: list[EndedTransaction] = field(default_factory=list)
    closed: Counter[State] = field(default_factory=Counter)
    open: list[OpenTransaction] = field(default_factory=list)
    live: dict[int, int] = field(default_factory=dict)
    heuristics: dict[int, list[PlacedRecord]] = field(default_factory=dict)
    orphan_updates: dict[int, PlacedRecord] = field(default_factory=dict)
    unknown_deletes: int = 0
    added_twice: list[PlacedRecord] = field(default_factory=list)
    of_nothing: list[tuple[RecordType, int]] = field(default_factory=list)

    def missing_ids(self) -> list[int]:
        """Return at most `GONE_MAX` + 1 ids between the lowest and the highest without a file."""
        ids = sorted({one.effective_id for one in self.readings})
        gone: list[int] = []
        for before, after in pairwise(ids):
            gone += range(before + 1, min(after, before + GONE_MAX + 2))
            if len(gone) > GONE_MAX:
                break
        return gone[: GONE_MAX + 1]


def analyse(journal: JournalFiles) -> Analysis:
    """Read all files of a journal strictly."""
    readings = sorted(read_files(journal), key=lambda one: one.effective_id)
    files = [ClassifiedFile(one) for one in readings]
    analysis = Analysis(files, [FileCounts(order) for order, _ in enumerate(readings)])
    stamps = [one.effective_id & FILE_ID_MASK for one in readings]
    replay = Replay(journal.generation.shape, stamps)
    for order, reading in enumerate(readings):
        for one in reading.ranges:
            analysis.outcomes[one.outcome] += 1
            if reading.belongs(one):
                _feed(analysis, replay, _placed(reading, one, order), one)
            elif one.outcome in (Outcome.CORRUPT, Outcome.TORN):
                note_damage(analysis, reading, one, order)
    for left in replay.discarded():
        analysis.counts.discard(left.transaction)
    analysis.open = list(replay.open.values())
    return analysis


def _placed(reading: FileReading, one: Classified, order: int) -> PlacedRecord:
    where = RecordFile(reading.file, reading.shape, order, one.row.file_id)
    return PlacedRecord.of(reading.item(one), where, dropped=one.dropped)


def _feed(analysis: Analysis, replay: Replay, placed: PlacedRecord, one: Classified) -> None:
    if one.dropped:
        analysis.dropped.append(placed)
        analysis.dropped_because["appended" if one.reason == APPENDED else "unheaded"] += 1
    effects, ended = replay.feed(placed)
    if ended is not None:
        analysis.ended.append(ended)
        if not ended.known and placed.item.type is RecordType.ROLLBACK:
            analysis.of_nothing.append((RecordType.ROLLBACK, ended.open.transaction))
    _count(analysis, placed, ended)
    for effect in effects:
        _apply(analysis, effect)


def _count(analysis: Analysis, placed: PlacedRecord, ended: EndedTransaction | None) -> None:
    if ended is not None and not ended.complete:
        analysis.counts.discard(ended.open.transaction)
        return
    item, file = placed.item, analysis.file_counts[placed.where.order]
    analysis.counts.add(file, item.type, item.transaction, item.record_id or 0, item.length)


def _apply(analysis: Analysis, effect: Effect) -> None:
    item = effect.placed.item
    number = item.record_id or 0
    if item.type in (RecordType.DELETE, RecordType.DELETE_TX):
        known = analysis.live.pop(number, None)
        analysis.heuristics.pop(number, None)
        analysis.orphan_updates.pop(number, None)
        analysis.unknown_deletes += known is None
        if known is None and item.type is RecordType.DELETE:
            analysis.of_nothing.append((RecordType.DELETE, number))
        return
    if item.type in (RecordType.UPDATE, RecordType.UPDATE_TX) and number not in analysis.live:
        analysis.orphan_updates[number] = effect.placed
    elif item.type in (RecordType.ADD, RecordType.ADD_TX):
        analysis.orphan_updates.pop(number, None)
        if number in analysis.live:
            analysis.added_twice.append(effect.placed)
    analysis.live[number] = analysis.live.get(number, 0) + 1
    if item.type is RecordType.ADD and item.user_type == HEURISTIC_TYPE:
        analysis.heuristics.setdefault(number, []).append(effect.placed)


def note_damage(analysis: Analysis, reading: FileReading, one: Classified, order: int) -> None:
    """Note a torn or corrupt range of the file of that order."""
    where, data, shape = one.row, reading.file.data(), reading.shape
    byte = data[where.offset]
    known = EVENT <= byte <= ROLLBACK
    transactional = not known or shape.record_type(byte) in IN_TRANSACTION
    transaction = transaction_at(data, where.offset, shape) if transactional else None
    damage = Damage(reading.file.path, order, where.offset, where.size, one.reason, transaction)
    if one.outcome is Outcome.TORN:
        analysis.torn.append(damage)
    else:
        analysis.damage.append(damage)
        analysis.file_counts[order].positives += 1
