"""Analyse a journal strictly: everything that its bytes prove, in one pass.

In: the `JournalFiles`. Out: an `Analysis`: records of this life with those that the journal's own
loader drops, transactions and their holes, live records, damage. It keeps what is open and what is
odd; of transactions that ended as they should only the numbers.

Unlike the loader it reads format 2 records in format 1 files, reads records under a file id that
was never written to the header, and follows the order of events instead of a list of deletes.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat

from tallystick.records import Outcome, State
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE
from tallystick.systems.jboss.format.layout import (
    ADD,
    COMMIT,
    DELETE,
    DELETE_TX,
    ELEMENTS,
    EVENT,
    FILE_ID_MASK,
    IN_TRANSACTION,
    LONG_MIN,
    PREPARE,
    ROLLBACK,
    UPDATE,
    UPDATE_TX,
    RecordType,
    Shape,
)
from tallystick.systems.jboss.read.classify import APPENDED, Classified, FileReading, read_files
from tallystick.systems.jboss.read.file_facts import ClassifiedFile, KnownFile
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.jboss.read.reclaim_counts import FileCounts
from tallystick.systems.jboss.read.replay import (
    EndedTransaction,
    OpenTransaction,
    PlacedRecord,
    RecordFile,
    Replay,
)
from tallystick.systems.jboss.read.scan import number_at

HEURISTIC_ADD = 64 + ADD
"""The type of an add that may be a heuristic outcome."""
_DELETES = frozenset({DELETE, DELETE_TX})
_UPDATES = frozenset({UPDATE, UPDATE_TX})
GONE_MAX = 64
"""Missing file ids are listed up to this many."""


@dataclass(slots=True)
class Damage:
    """A damaged record, and the transaction, the type and the record's id in its bytes."""

    path: str
    order: int
    offset: int
    length: int
    reason: str
    transaction: int | None
    type: RecordType | None
    record_id: int | None


@dataclass(slots=True)
class Analysis:
    """The strict reading of a journal.

    Attributes:
        readings: the files, by the ids under which they were written.
        file_counts: what each file of ``readings`` holds and ends, for reclaiming; its key is its
            place there.
        outcomes: ranges per outcome.
        damage: damaged records that are not torn.
        torn: torn records.
        dropped: whole records that the loader ignores.
        dropped_because: their number, by the reason in the code of the finding.
        ended: transactions with a commit or rollback, in the order of these.
        closed: how many more ended as they should, by state; nothing else is kept of them.
        open: the other transactions, in order of their first record.
        live: id of a live record -> the order of the file of its last add.
        updates: the same of the updates since, where there are any.
        hidden: id of a live record -> how many adds and updates a further add has replaced.
        again: ids of live records below one that was deleted before: they may be added again.
        heuristics: record id -> adds that may be heuristic outcomes, of live records.
        orphan_updates: live updates of ids that were never added: the file with the add is gone.
        unknown_deleted: ids without an add that were deleted: the records were reclaimed or lost.
        added_twice: adds of ids that were live.
        of_nothing: deletes outside of transactions, and rollbacks, of which no earlier record is
            there: the type, and the id of the record or the transaction.
    """

    readings: list[KnownFile]
    file_counts: list[FileCounts]
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    damage: list[Damage] = field(default_factory=list)
    torn: list[Damage] = field(default_factory=list)
    dropped: list[PlacedRecord] = field(default_factory=list)
    dropped_because: Counter[str] = field(default_factory=Counter)
    ended: list[EndedTransaction] = field(default_factory=list)
    closed: Counter[State] = field(default_factory=Counter)
    open: list[OpenTransaction] = field(default_factory=list)
    live: dict[int, int] = field(default_factory=dict)
    updates: dict[int, Sequence[int]] = field(default_factory=dict)
    hidden: Counter[int] = field(default_factory=Counter)
    again: set[int] = field(default_factory=set)
    heuristics: dict[int, list[PlacedRecord]] = field(default_factory=dict)
    orphan_updates: dict[int, PlacedRecord] = field(default_factory=dict)
    unknown_deleted: array[int] = field(default_factory=lambda: array("q"))
    added_twice: list[PlacedRecord] = field(default_factory=list)
    of_nothing: list[tuple[RecordType, int]] = field(default_factory=list)

    @property
    def live_records(self) -> int:
        """How many adds and updates are live."""
        updates = sum(len(orders) for orders in self.updates.values())
        return len(self.live) + updates + self.hidden.total()

    def missing_ids(self) -> list[int]:
        """Return at most `GONE_MAX` + 1 ids between the lowest and the highest without a file."""
        ids = sorted({one.effective_id for one in self.readings})
        gone: list[int] = []
        for before, after in pairwise(ids):
            gone += range(before + 1, min(after, before + GONE_MAX + 2))
            if len(gone) > GONE_MAX:
                break
        return gone[: GONE_MAX + 1]


class Analyser:
    """Applies the records of a journal, in order, to its `Analysis`.

    Attributes:
        analysis: what was found so far.
        replay: follows the transactions.
        damaged: the transactions in damaged records so far.
        highest: the highest id that was live so far.
        last_deleted: the highest id that was deleted.
    """

    def __init__(self, shape: Shape, ids: Sequence[int], *, every: bool) -> None:
        """Begin with files of these ids, under which they were written, in their order.

        With ``every`` transactions that ended as they should are kept, too.
        """
        self.analysis = Analysis([], [FileCounts(order) for order, _ in enumerate(ids)])
        # Records, and the pairs of commits, carry the low 31 bits of a file id.
        self.replay = Replay(shape, [one & FILE_ID_MASK for one in ids])
        self.damaged: set[int] = set()
        # Elements may be missing in files that are gone, which shows at the end of all records.
        self._every = every or shape.pairs
        self._touched: dict[int, list[int]] = {}
        """Open transaction -> the orders of the files that hold a record of it."""
        self._ended = array("q")
        """The transactions with an end so far."""
        self.highest = self.last_deleted = LONG_MIN

    # -- files ---------------------------------------------------------------------------------

    def note(self, reading: FileReading, order: int) -> None:
        """Note what a classified file holds besides whole records, before these are applied."""
        for one in reading.ranges:
            self.analysis.outcomes[one.outcome] += 1
            if one.outcome in (Outcome.CORRUPT, Outcome.TORN):
                self._damage(reading, one, order)

    def feed_file(self, reading: FileReading, order: int) -> None:
        """Apply the records of a classified file one by one."""
        for one in reading.ranges:
            if reading.belongs(one):
                where = RecordFile(reading.file, reading.shape, order, one.row.file_id)
                if one.dropped:
                    why = "appended" if one.reason == APPENDED else "unheaded"
                    self.analysis.dropped_because[why] += 1
                self.feed(PlacedRecord.of(reading.item(one), where, dropped=one.dropped))

    def _damage(self, reading: FileReading, one: Classified, order: int) -> None:
        where, data, shape = one.row, reading.file.data(), reading.shape
        byte = data[where.offset]
        kind = shape.record_type(byte) if EVENT <= byte <= ROLLBACK else None
        transactional = kind is None or kind in IN_TRANSACTION
        transaction = number_at(data, where.offset, shape) if transactional else None
        number = number_at(data, where.offset, shape, 1) if kind in ELEMENTS else None
        damage = Damage(
            reading.file.path,
            order,
            where.offset,
            where.size,
            one.reason,
            transaction,
            kind,
            number,
        )
        if one.outcome is Outcome.TORN:
            self.analysis.torn.append(damage)
            return
        self.analysis.damage.append(damage)
        # It counts as one that nothing has deleted, so that its file is not called redundant.
        self.analysis.file_counts[order].positives += 1
        if transaction is not None:
            self.damaged.add(transaction)

    # -- records -------------------------------------------------------------------------------

    def feed(self, placed: PlacedRecord) -> list[PlacedRecord]:
        """Apply one record; return what counts from it on."""
        if placed.dropped:
            self.analysis.dropped.append(placed)
        effects, ended = self.replay.feed(placed)
        if ended is not None:
            self._end(ended)
        elif placed.kind in ELEMENTS or placed.kind == PREPARE:
            files = self._touched.setdefault(placed.transaction, [])
            if not files or files[-1] != placed.where.order:
                files.append(placed.where.order)
        changed = [effect.placed for effect in effects]
        if changed:
            # What a commit applies is all known before anything of it changes what is live.
            low = list(self._low(changed))
            orders = [one.where.order for one in changed]
            kinds = [
                HEURISTIC_ADD if one.kind == ADD and one.value == HEURISTIC_TYPE else one.kind
                for one in changed
            ]
            self.apply(orders, kinds, [one.number for one in changed], changed.__getitem__)
            self.note_again(low)
        return changed

    def _low(self, changed: Iterable[PlacedRecord]) -> Iterator[int]:
        """Yield the ids of adds and updates below one that was deleted before."""
        for one in changed:
            if one.kind in _DELETES:
                self.last_deleted = max(self.last_deleted, one.number)
            elif one.number <= self.last_deleted:
                yield one.number

    def note_again(self, low: Iterable[int]) -> None:
        """Note which of these ids are live, after what was applied."""
        self.analysis.again.update(number for number in low if number in self.analysis.live)

    def close(self, order: int, committed: Sequence[int], rolled_back: Sequence[int]) -> None:
        """Count transactions that begin and end in one file, as they should."""
        self.analysis.closed[State.COMMITTED] += len(committed)
        self.analysis.closed[State.ROLLED_BACK] += len(rolled_back)
        self.spend(order, len(committed) + len(rolled_back))
        self._ended.extend(committed)
        self._ended.extend(rolled_back)

    def spend(self, order: int, count: int) -> None:
        """Count what one file holds and cancels: records, updates or transactions."""
        file = self.analysis.file_counts[order]
        file.positives += count
        file.negatives[order] += count

    def enter(self, order: int, added: Sequence[int], updated: Sequence[int]) -> None:
        """Apply adds of one file whose ids were never live so far, and the updates of these."""
        analysis = self.analysis
        analysis.file_counts[order].positives += len(added) + len(updated)
        analysis.live.update(zip(added, repeat(order), strict=False))
        updates, alone = analysis.updates, (order,)
        for number in updated:
            if number in updates:
                self._update(number, order)
            else:
                updates[number] = alone
        self.highest = max(self.highest, max(added, default=LONG_MIN))

    def _end(self, ended: EndedTransaction) -> None:
        analysis, end, number = self.analysis, ended.end, ended.open.transaction
        files = self._touched.pop(number, ())
        # An incomplete transaction holds no file, and what ends it holds none back.
        for order in files if ended.complete else ():
            analysis.file_counts[order].positives += 1
            analysis.file_counts[end.where.order].negatives[order] += 1
        if not ended.known:
            ended.again = bool(ended.open.holes) and number in self._ended
            if end.kind == ROLLBACK:
                analysis.of_nothing.append((RecordType.ROLLBACK, number))
        self._ended.append(number)
        holes = bool(ended.open.holes) and not ended.known
        if self._every or holes or not ended.complete or number in self.damaged:
            analysis.ended.append(ended)
        else:
            state = State.COMMITTED if end.kind == COMMIT else State.ROLLED_BACK
            analysis.closed[state] += 1

    def apply(
        self,
        orders: Iterable[int],
        kinds: Iterable[int],
        numbers: Iterable[int],
        placed: Callable[[int], PlacedRecord],
    ) -> None:
        """Apply adds, updates and deletes that count.

        Args:
            orders: the orders of their files.
            kinds: their types, or `HEURISTIC_ADD`.
            numbers: their record ids.
            placed: returns one of them, by its place among them.
        """
        analysis = self.analysis
        live, counts, highest = analysis.live, analysis.file_counts, self.highest
        orphans = analysis.orphan_updates
        for at, (order, kind, number) in enumerate(zip(orders, kinds, numbers, strict=False)):
            if kind in _DELETES:
                self._delete(kind, number, order)
                continue
            counts[order].positives += 1
            if kind in _UPDATES:
                if number in live:
                    self._update(number, order)
                    continue
                orphans[number] = placed(at)
            else:
                if orphans:
                    orphans.pop(number, None)
                if number in live:
                    analysis.added_twice.append(placed(at))
                    # The loader's list holds both adds; a delete takes all of them away.
                    analysis.hidden[number] += 1 + len(analysis.updates.pop(number, ()))
                if kind == HEURISTIC_ADD:
                    analysis.heuristics.setdefault(number, []).append(placed(at))
            if number > highest:
                highest = number
            live[number] = order
        self.highest = highest

    def _update(self, number: int, order: int) -> None:
        """Note an update of what is live."""
        updates = self.analysis.updates
        known = updates.get(number)
        if isinstance(known, list):
            known.append(order)
        else:
            # The garbage collector follows lists, and as a rule there is one update.
            updates[number] = (order,) if known is None else [*known, order]

    def _delete(self, kind: int, number: int, order: int) -> None:
        analysis = self.analysis
        first = analysis.live.pop(number, None)
        if first is None:
            analysis.unknown_deleted.append(number)
            if kind == DELETE:
                analysis.of_nothing.append((RecordType.DELETE, number))
            return
        # Its add is nowhere, so it is one of those whose file may be lost.
        if number in analysis.orphan_updates:
            analysis.unknown_deleted.append(number)
        negatives = analysis.file_counts[order].negatives
        negatives[first] += 1
        for each in analysis.updates.pop(number, ()):
            negatives[each] += 1
        analysis.hidden.pop(number, None)
        analysis.heuristics.pop(number, None)
        analysis.orphan_updates.pop(number, None)
        analysis.again.discard(number)

    def finish(self) -> Analysis:
        """Return the analysis, after the last record."""
        discarded = {one.transaction for one in self.replay.discarded()}
        for number, files in self._touched.items():
            for order in files if number not in discarded else ():
                self.analysis.file_counts[order].positives += 1
        self.analysis.open = list(self.replay.open.values())
        return self.analysis


def analyse(journal: JournalFiles, *, every: bool) -> Analyser:
    """Read all files of a journal strictly, record by record; ``every`` as in `Analyser`."""
    readings = sorted(read_files(journal), key=lambda one: one.effective_id)
    ids = [one.effective_id for one in readings]
    analyser = Analyser(journal.generation.shape, ids, every=every)
    analyser.analysis.readings += map(ClassifiedFile, readings)
    for order, reading in enumerate(readings):
        analyser.note(reading, order)
        analyser.feed_file(reading, order)
    analyser.finish()
    return analyser
