"""The state of a log: live records, open transactions, decisions and entries.

In: rows in log order. Out: a `LogState`, the same for recovery, for the reader's engine verdict
and for the running log, which applies each record as it is written. Bodies are kept only of what is
open (prepared, decided, pending), so memory grows with open work, not with the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from tallystick.systems.tally.format.bodies import (
    Ending,
    decision_names,
    decode_ending,
    name_set,
)
from tallystick.systems.tally.format.columns import Row, UnplacedRecord
from tallystick.systems.tally.format.entries import entry_targets, mark_targets, target_set
from tallystick.systems.tally.format.headers import Control
from tallystick.systems.tally.format.kinds import Code


@dataclass(frozen=True, slots=True)
class Element:
    """One add, update or delete: where it is, without its body; ``size`` is that of the body."""

    code: int
    key: int | None
    lsn: int
    segment: int
    size: int
    """Bytes of its body."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that has neither committed nor rolled back.

    Attributes:
        first_segment: the segment of its first record.
        elements: its adds, updates and deletes.
        counts: number of elements by segment.
        ending: the body of its prepare record.
    """

    first_segment: int
    elements: list[Element] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    """Elements by segment."""
    ending: Ending | None = None
    """The body of its prepare record."""


@dataclass(slots=True)
class OpenDecision:
    """A decision to commit, with the resources that have not confirmed yet."""

    segment: int
    time_us: int
    resources: frozenset[str]


@dataclass(slots=True)
class OpenEntry:
    """A persisting entry, with the targets that do not hold it yet."""

    segment: int
    time_us: int
    body: bytes
    targets: tuple[str, ...]
    remaining: frozenset[str]


Incomplete: TypeAlias = dict[int, tuple[int, str]]
"""Ends of transactions with records missing, see `LogState`."""


def numbers_of(incomplete: Incomplete) -> set[int]:
    """Return the numbers of transactions that ended with records missing."""
    return {number for number, _ in incomplete.values()}


_PREPARE, _DECISION = Code.PREPARE.value, Code.DECISION.value
_NUMBERED = Code.PERSISTING.value
"""Codes from here on have numbers of their own for keys."""
_UNASSIGNED = 128


class LogState:
    """The state after the rows that were applied.

    Attributes:
        first_segment: the first that the log still has.
        checkpoint_lsn: plain, undo and redo records below it are not needed.
        live: adds and updates that were not deleted, by record id.
        live_bytes: bytes of their bodies.
        open: transactions that have not ended, by number.
        decisions: decisions to commit that some resource has not confirmed, by gtrid.
        heuristics: heuristic outcomes that are not settled, by gtrid: their first segment, names.
        pending: persisting entries that some target does not hold, by number.
        incomplete: by the LSN of each end of a transaction with records missing: its number, which
            later ones may have again, and what is missing, in words.
        next_transaction: no smaller number of a transaction is free.
        next_key: no smaller number of an entry is free.
        early_deletes: segments of deletes of committed transactions, each with a later segment
            that has a record which it deletes: that record must not outlive it.
    """

    def __init__(self, first_segment: int = 1, checkpoint_lsn: int = 0) -> None:
        self.first_segment = first_segment
        self.checkpoint_lsn = checkpoint_lsn
        self.live: dict[int, tuple[Element, ...]] = {}
        self.live_bytes = 0
        self.open: dict[int, OpenTransaction] = {}
        self.decisions: dict[bytes, OpenDecision] = {}
        self.heuristics: dict[bytes, tuple[int, frozenset[str]]] = {}
        self.pending: dict[int, OpenEntry] = {}
        self.incomplete: Incomplete = {}
        self.next_transaction = 1
        self.next_key = 1
        self.early_deletes: set[tuple[int, int]] = set()
        self._live_in: Counter[int] = Counter()
        self.plain_lsns: dict[int, int] = {}

    @classmethod
    def before(cls, control: Control | None) -> Self:
        """Return the state before the first record of a log with this control block."""
        if control is None:
            return cls()
        state = cls(control.first_segment, control.checkpoint_lsn)
        state.next_transaction, state.next_key = control.next_transaction, control.next_key
        return state

    def apply(self, row: Row) -> None:
        """Apply one record; unknown codes change nothing."""
        record = row.record
        code, number = record.code, record.transaction
        if record.key is not None and _NUMBERED <= code < _UNASSIGNED:
            self.next_key = max(self.next_key, record.key + 1)
        if number is not None and number >= self.next_transaction:
            self.next_transaction = number + 1
        action = _ACTIONS.get(code)
        if action is not None:
            action(self, row)

    def apply_ending(self, row: Row, ending: Ending) -> None:
        """Apply a prepare or commit record that was made of this state: nothing can be missing."""
        number = row.record.transaction or 0
        self.next_transaction = max(self.next_transaction, number + 1)
        if row.record.code == _PREPARE:
            self.open.setdefault(number, OpenTransaction(row.segment)).ending = ending
        elif (transaction := self.open.pop(number, None)) is not None:
            for one in transaction.elements:
                self.take(one)

    def advance_checkpoint(self, checkpoint_lsn: int) -> None:
        """Give up plain, undo and redo records below this LSN."""
        self.checkpoint_lsn = max(self.checkpoint_lsn, checkpoint_lsn)

    def apply_plain(self, segment: int, last_lsn: int) -> None:
        """Apply plain records outside of transactions, up to ``last_lsn``, at once."""
        self.plain_lsns[segment] = last_lsn

    def apply_committed(self, segment: int, last_lsn: int, transaction: int) -> None:
        """Apply redo records with their commit records, whole transactions up to this number."""
        self.plain_lsns[segment] = last_lsn
        if transaction >= self.next_transaction:
            self.next_transaction = transaction + 1

    def apply_entry(
        self, number: int, segment: int, time_us: int, body: bytes, targets: tuple[str, ...]
    ) -> None:
        """Apply a persisting record whose body names these targets."""
        if number >= self.next_key:
            self.next_key = number + 1
        if targets:
            self.pending[number] = OpenEntry(segment, time_us, body, targets, target_set(targets))
        else:
            self.pending.pop(number, None)

    def apply_marks(self, numbers: Sequence[int], targets: Collection[str]) -> None:
        """Apply persisted records: these targets hold all of these entries."""
        self.next_key = max(self.next_key, max(numbers) + 1)
        pending = self.pending
        for number in numbers:
            entry = pending.get(number)
            if entry is not None:
                entry.remaining = entry.remaining.difference(targets)
                if not entry.remaining:
                    del pending[number]

    def apply_decisions(
        self, records: Iterable[UnplacedRecord], segment: int, time_us: int
    ) -> None:
        """Apply decision and finish records of one group, in order."""
        for code, body, _, _, _, gtrid in records:
            if code == _DECISION:
                self._decide(gtrid, body, segment, time_us)
            else:
                self._finish(gtrid, name_set(body))

    def needed_from(self) -> int | None:
        """Return the first segment that holds anything needed; None if none does."""
        needed = [segment for segment, number in self._live_in.items() if number > 0]
        needed += [one.first_segment for one in self.open.values()]
        needed += [one.segment for one in self.decisions.values()]
        needed += [segment for segment, _ in self.heuristics.values()]
        needed += [one.segment for one in self.pending.values()]
        needed += [
            segment for segment, lsn in self.plain_lsns.items() if lsn >= self.checkpoint_lsn
        ]
        return min(needed, default=None)

    def freeable_before(self, segment: int) -> int:
        """Return the greatest segment up to ``segment`` below which all may go at once.

        A delete of a transaction may stand before what it deletes, which was written, or moved by
        compaction, before the commit. Without the delete it would be live again.
        """
        for delete, last in sorted(self.early_deletes, reverse=True):
            if delete < segment <= last:
                segment = delete
        return segment

    def forget_before(self, segment: int) -> None:
        """Forget the segments below ``segment``: their files are freed."""
        self.first_segment = segment
        self.early_deletes = {one for one in self.early_deletes if one[1] >= segment}
        for counts in (self._live_in, self.plain_lsns):
            for old in [one for one in counts if one < segment]:
                del counts[old]

    # -- journal ------------------------------------------------------------------------

    def _element(self, row: Row) -> None:
        record = row.record
        one = Element(record.code, record.key, row.lsn, row.segment, len(record.body))
        if record.transaction is None:
            self.take(one)
            return
        # An element counts once its transaction commits.
        self._open(record.transaction, row.segment).elements.append(one)

    def _open(self, number: int, segment: int) -> OpenTransaction:
        """Return the open transaction, and count one more element of it in this segment."""
        transaction = self.open.get(number)
        if transaction is None:
            transaction = self.open[number] = OpenTransaction(segment)
        transaction.counts[segment] = transaction.counts.get(segment, 0) + 1
        return transaction

    def take(self, one: Element) -> None:
        """Apply an element that is committed."""
        if one.code == Code.APPEND:
            # Of a transaction it may stand before others of its segment.
            lsn = self.plain_lsns.get(one.segment, 0)
            self.plain_lsns[one.segment] = max(lsn, one.lsn)
            return
        if one.key is None:
            return
        before = self.live.get(one.key, ())
        if one.code in (Code.DELETE, Code.MOVED_ADD):
            for old in before:
                self._live_in[old.segment] -= 1
                self.live_bytes -= old.size
                if old.segment > one.segment:
                    self.early_deletes.add((one.segment, old.segment))
            before = ()
            self.live.pop(one.key, None)
        if one.code != Code.DELETE:
            self.live[one.key] = (*before, one)
            self._live_in[one.segment] += 1
            self.live_bytes += one.size

    def _prepare(self, row: Row) -> None:
        number = row.record.transaction or 0
        ending = decode_ending(row.record.body, row.record.gtrid)
        transaction = self.open.setdefault(number, OpenTransaction(row.segment))
        holes = self._holes(transaction, ending)
        if holes:
            self.incomplete[row.lsn] = number, holes
        transaction.ending = ending

    def _commit(self, row: Row) -> None:
        number = row.record.transaction or 0
        transaction = self.open.pop(number, OpenTransaction(row.segment))
        holes = self._holes(transaction, decode_ending(row.record.body))
        if holes:
            self.incomplete[row.lsn] = number, holes
            return
        for one in transaction.elements:
            self.take(one)

    def _holes(self, transaction: OpenTransaction, ending: Ending) -> str:
        """Return what is missing of a transaction, in words; freed segments may be missing."""
        # Segments below the first that is kept were freed, and only once nothing in them was
        # needed.
        want = {
            segment: number for segment, number in ending.pairs if segment >= self.first_segment
        }
        have = transaction.counts
        return "; ".join(
            f"segment {segment}: {have.get(segment, 0)} of {number} elements"
            for segment, number in sorted(want.items())
            if have.get(segment, 0) != number
        )

    def _rollback(self, row: Row) -> None:
        self.open.pop(row.record.transaction or 0, None)

    # -- undo/redo log ------------------------------------------------------------------

    def _page(self, row: Row) -> None:
        self.plain_lsns[row.segment] = row.lsn

    def _redo(self, row: Row) -> None:
        self.plain_lsns[row.segment] = row.lsn
        if row.record.transaction is not None:
            self._open(row.record.transaction, row.segment)

    # -- decisions ----------------------------------------------------------------------

    def _decision(self, row: Row) -> None:
        self._decide(row.record.gtrid, row.record.body, row.segment, row.time_us)

    def _decide(self, gtrid: bytes, body: bytes, segment: int, time_us: int) -> None:
        names, since = decision_names(body)
        before = self.decisions.get(gtrid)
        one = OpenDecision(segment, since or time_us, names)
        if before is not None:
            one.time_us = min(one.time_us, before.time_us)
            if not before.resources <= one.resources:
                one.segment = before.segment  # only both records together name all resources
            one.resources |= before.resources
        self.decisions[gtrid] = one

    def _end(self, row: Row) -> None:
        self._finish(row.record.gtrid, name_set(row.record.body))

    def _finish(self, gtrid: bytes, names: frozenset[str]) -> None:
        decision = self.decisions.get(gtrid)
        if decision is None:
            return
        if decision.resources <= names:
            del self.decisions[gtrid]
        else:
            decision.resources -= names

    def _heuristic(self, row: Row) -> None:
        names, gtrid = name_set(row.record.body), row.record.gtrid
        segment, before = self.heuristics.get(gtrid, (row.segment, frozenset()))
        if before <= names:
            segment = row.segment  # the record before is not needed any more
        self.heuristics[gtrid] = (segment, before | names)
        self._finish(gtrid, names)

    def _settle(self, row: Row) -> None:
        self.heuristics.pop(row.record.gtrid, None)

    # -- persist log --------------------------------------------------------------------

    def _persisting(self, row: Row) -> None:
        body = row.record.body
        targets = entry_targets(body)
        self.apply_entry(row.record.key or 0, row.segment, row.time_us, body, targets)

    def _persisted(self, row: Row) -> None:
        self.apply_marks((row.record.key or 0,), mark_targets(row.record.body))

    def _discard(self, row: Row) -> None:
        self.pending.pop(row.record.key or 0, None)


_JOURNAL = (
    Code.APPEND, Code.ADD, Code.UPDATE, Code.DELETE, Code.BEGIN, Code.MOVED_ADD, Code.MOVED_UPDATE,
)  # fmt: skip
_ACTIONS: Final[dict[int, Callable[[LogState, Row], None]]] = {
    **{code.value: LogState._element for code in _JOURNAL},
    Code.PREPARE.value: LogState._prepare,
    Code.COMMIT.value: LogState._commit,
    Code.ROLLBACK.value: LogState._rollback,
    **{code.value: LogState._page for code in (Code.UNDO, Code.UNDO_EMPTY, Code.CHECKPOINT)},
    **{code.value: LogState._redo for code in (Code.REDO_ADD, Code.REDO_REMOVE, Code.TRUNCATE)},
    Code.DECISION.value: LogState._decision,
    Code.FINISH.value: LogState._end,
    Code.HEURISTIC.value: LogState._heuristic,
    Code.SETTLE.value: LogState._settle,
    Code.PERSISTING.value: LogState._persisting,
    Code.PERSISTED.value: LogState._persisted,
    Code.DISCARD.value: LogState._discard,
}
