"""What the records of a log add up to: live records, prepared transactions, open work.

In: rows in log order. Out: a `LogState`, the same for recovery, for the reader's engine verdict
and for the running log, which folds in each record as it is written. Bodies are kept only of
what is open (prepared, decided, pending), so memory grows with open work, not with the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final

from tallystick.records import Xid
from tallystick.systems.tally.format.bodies import (
    Ending,
    decode_decision,
    decode_ending,
    decode_names,
)
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.persist_bodies import entry_targets, every, mark_targets
from tallystick.systems.tally.read.open_work import (
    Element,
    OpenDecision,
    OpenEntry,
    OpenTransaction,
    Row,
)

_PREPARE = Code.PREPARE.value
_NUMBERED = Code.PERSISTING.value
"""Codes from here on have numbers of their own for keys."""
_UNASSIGNED = 128


class LogState:
    """The fold. ``first_segment`` is the first that the log still has."""

    def __init__(self, first_segment: int = 1, checkpoint_lsn: int = 0) -> None:
        self.first_segment = first_segment
        self.checkpoint_lsn = checkpoint_lsn
        self.live: dict[int, tuple[Element, ...]] = {}
        self.live_bytes = 0
        self.open: dict[int, OpenTransaction] = {}
        self.decisions: dict[bytes, OpenDecision] = {}
        self.heuristics: dict[bytes, tuple[int, frozenset[str]]] = {}
        self.pending: dict[int, OpenEntry] = {}
        self.incomplete: dict[int, str] = {}
        """Transactions that ended with elements missing: what is missing, in words."""
        self.next_transaction = 1
        self.next_key = 1
        self._live_in: Counter[int] = Counter()
        self._plain_lsn: dict[int, int] = {}

    def apply(self, row: Row) -> None:
        """Fold in one record. Codes that are not known change nothing."""
        draft = row.draft
        code, number = draft.code, draft.transaction
        if draft.key is not None and _NUMBERED <= code < _UNASSIGNED:
            self.next_key = max(self.next_key, draft.key + 1)
        if number is not None and number >= self.next_transaction:
            self.next_transaction = number + 1
        action = _ACTIONS.get(code)
        if action is not None:
            action(self, row)

    def ending_of(self, transaction: int, xid: Xid | None, extra: bytes) -> Ending:
        """What the prepare or commit record of an open transaction has to say."""
        one = self.open.get(transaction)
        return Ending(tuple(sorted(one.counts.items())) if one else (), xid, extra)

    def end(self, row: Row, ending: Ending) -> None:
        """Fold in a prepare or commit record made of `ending_of`: nothing can be missing."""
        number = row.draft.transaction or 0
        self.next_transaction = max(self.next_transaction, number + 1)
        if row.draft.code == _PREPARE:
            self.open.setdefault(number, OpenTransaction(row.segment)).ending = ending
        elif (transaction := self.open.pop(number, None)) is not None:
            for one in transaction.elements:
                self._take(one)

    def advance(self, checkpoint_lsn: int) -> None:
        """Plain, undo and redo records below this LSN are not needed any more."""
        self.checkpoint_lsn = max(self.checkpoint_lsn, checkpoint_lsn)

    def plain(self, segment: int, last_lsn: int) -> None:
        """Fold in plain records outside of transactions, up to this one, at once."""
        self._plain_lsn[segment] = last_lsn

    def needed_from(self) -> int | None:
        """The first segment that holds anything needed; None if none does."""
        needed = [segment for segment, number in self._live_in.items() if number > 0]
        needed += [one.first_segment for one in self.open.values()]
        needed += [one.segment for one in self.decisions.values()]
        needed += [segment for segment, _ in self.heuristics.values()]
        needed += [one.segment for one in self.pending.values()]
        needed += [
            segment for segment, lsn in self._plain_lsn.items() if lsn >= self.checkpoint_lsn
        ]
        return min(needed, default=None)

    def forget_before(self, segment: int) -> None:
        """Segments below this one are gone."""
        self.first_segment = segment
        for counts in (self._live_in, self._plain_lsn):
            for old in [one for one in counts if one < segment]:
                del counts[old]

    def live_lsns(self) -> Iterator[tuple[int, Element]]:
        """Live elements with their LSN."""
        return ((one.lsn, one) for elements in self.live.values() for one in elements)

    # -- journal ------------------------------------------------------------------------

    def _element(self, row: Row) -> None:
        draft = row.draft
        one = Element(draft.code, draft.key, row.lsn, row.segment, len(draft.body))
        if draft.transaction is None:
            self._take(one)
            return
        self._open(draft.transaction, row.segment).elements.append(one)

    def _open(self, number: int, segment: int) -> OpenTransaction:
        """The open transaction, which has one element more in this segment."""
        transaction = self.open.get(number)
        if transaction is None:
            transaction = self.open[number] = OpenTransaction(segment)
        transaction.counts[segment] = transaction.counts.get(segment, 0) + 1
        return transaction

    def _take(self, one: Element) -> None:
        if one.code == Code.APPEND:
            self._plain_lsn[one.segment] = one.lsn
            return
        if one.key is None:
            return
        before = self.live.get(one.key, ())
        if one.code in (Code.DELETE, Code.MOVED_ADD):
            for old in before:
                self._live_in[old.segment] -= 1
                self.live_bytes -= old.size
            before = ()
            self.live.pop(one.key, None)
        if one.code != Code.DELETE:
            self.live[one.key] = (*before, one)
            self._live_in[one.segment] += 1
            self.live_bytes += one.size

    def _prepare(self, row: Row) -> None:
        number = row.draft.transaction or 0
        ending = decode_ending(row.draft.body, row.draft.gtrid)
        transaction = self.open.setdefault(number, OpenTransaction(row.segment))
        holes = self._holes(transaction, ending)
        if holes:
            self.incomplete[number] = holes
        transaction.ending = ending

    def _commit(self, row: Row) -> None:
        number = row.draft.transaction or 0
        transaction = self.open.pop(number, OpenTransaction(row.segment))
        holes = self._holes(transaction, decode_ending(row.draft.body))
        if holes:
            self.incomplete[number] = holes
            return
        for one in transaction.elements:
            self._take(one)

    def _holes(self, transaction: OpenTransaction, ending: Ending) -> str:
        """What is missing of a transaction, in words. Segments that were freed may be gone."""
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
        self.open.pop(row.draft.transaction or 0, None)

    # -- undo/redo log ------------------------------------------------------------------

    def _page(self, row: Row) -> None:
        self._plain_lsn[row.segment] = row.lsn

    def _redo(self, row: Row) -> None:
        self._plain_lsn[row.segment] = row.lsn
        if row.draft.transaction is not None:
            self._open(row.draft.transaction, row.segment)

    # -- decisions ----------------------------------------------------------------------

    def _decide(self, row: Row) -> None:
        names, since = decode_decision(row.draft.body)
        one = OpenDecision(row.segment, since or row.time_us, set(names))
        before = self.decisions.get(row.draft.gtrid)
        if before is not None:
            one.time_us = min(one.time_us, before.time_us)
            if not before.resources <= one.resources:
                one.segment = before.segment  # only both records together say it all
            one.resources |= before.resources
        self.decisions[row.draft.gtrid] = one

    def _finish(self, row: Row) -> None:
        names, _ = decode_names(row.draft.body)
        decision = self.decisions.get(row.draft.gtrid)
        if decision is None:
            return
        decision.resources.difference_update(names)
        if not decision.resources:
            del self.decisions[row.draft.gtrid]

    def _heuristic(self, row: Row) -> None:
        names, _ = decode_names(row.draft.body)
        segment, before = self.heuristics.get(row.draft.gtrid, (row.segment, frozenset()))
        if before <= set(names):
            segment = row.segment  # it says all there is to say
        self.heuristics[row.draft.gtrid] = (segment, before | frozenset(names))
        self._finish(row)

    def _settle(self, row: Row) -> None:
        self.heuristics.pop(row.draft.gtrid, None)

    # -- persist log --------------------------------------------------------------------

    def _persisting(self, row: Row) -> None:
        number = row.draft.key or 0
        targets = entry_targets(row.draft.body)
        self.pending[number] = OpenEntry(
            row.segment, row.time_us, row.draft.body, targets, every(targets)
        )
        if not targets:
            del self.pending[number]

    def _persisted(self, row: Row) -> None:
        self._hold(row.draft.key, mark_targets(row.draft.body))

    def _discard(self, row: Row) -> None:
        entry = self.pending.get(row.draft.key or 0)
        self._hold(row.draft.key, entry.targets if entry else ())

    def _hold(self, number: int | None, targets: Collection[str]) -> None:
        entry = self.pending.get(number or 0)
        if entry is None or number is None:
            return
        entry.remaining = entry.remaining.difference(targets)
        if not entry.remaining:
            del self.pending[number]


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
    Code.DECISION.value: LogState._decide,
    Code.FINISH.value: LogState._finish,
    Code.HEURISTIC.value: LogState._heuristic,
    Code.SETTLE.value: LogState._settle,
    Code.PERSISTING.value: LogState._persisting,
    Code.PERSISTED.value: LogState._persisted,
    Code.DISCARD.value: LogState._discard,
}
