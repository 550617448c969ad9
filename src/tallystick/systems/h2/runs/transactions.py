"""The transactions of a log whose records come as columns.

In: the chunks of a log, one after the other. Out: for each its `ChunkTransactions`: those that have
records in it, numbered as they begin, with figures of each. What `read.transactions` finds entry by
entry; memory grows with open transactions only. Import this module only where a log is long: it
loads NumPy and the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from tallystick.records import State
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.read.transactions import LoggedTransaction
from tallystick.systems.h2.runs.chunk import Chunk
from tallystick.systems.h2.runs.pieces import LogPieces
from tallystick.systems.h2.runs.sessions import (
    BYTES,
    CHANGES,
    END,
    FIGURES,
    LAST,
    NONE,
    PREPARED_AT,
    RECORDS,
    SLOT,
    number_transactions,
)
from tallystick.systems.h2.runs.walk import CODE, NUMBER, TABLE

_INVERSES = Type.ADD + Type.REMOVE
"""Tells an addition with its removal: no other pair of types of changes has this sum."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that has records before a chunk and does not end there.

    Attributes:
        figures: those of `sessions`.
        begin: section and stream start of its first record.
        names: those under which it was prepared, the last one in force.
        last: its last record that is no change.
        parts: for each chunk type, table and key of its changes there, an array of three rows.
    """

    figures: Any
    begin: tuple[int, int]
    names: list[str] = field(default_factory=list)
    last: Entry | None = None
    parts: list[Any] = field(default_factory=list)

    def logged(self, session: int) -> LoggedTransaction:
        """Return it as it is where the log ends, without the entries of its changes."""
        state = State.PREPARED if self.names else State.ACTIVE
        found = logged(session, self.figures, self.names, self.last, state)
        found.begin = self.begin
        return found


@dataclass(frozen=True, slots=True)
class Endings:
    """Transactions that end in a chunk, in the order of their ends.

    Attributes:
        numbers: their numbers in the chunk: columns of `ChunkTransactions.figures`.
        rows: the places of the records that end them.
        committed: which are committed; the others are rolled back.
        named: which were prepared under a name.
        by_hand: which were ended by hand.
    """

    numbers: Any
    rows: Any
    committed: Any
    named: Any
    by_hand: Any

    def chosen(self, places: Any) -> Endings:
        """Return some of them."""
        columns = self.numbers, self.rows, self.committed, self.named, self.by_hand
        return Endings(*(one[places] for one in columns))


@dataclass(slots=True)
class ChunkTransactions:
    """The transactions that have records in a chunk.

    Attributes:
        sessions: the sessions; `sessions.SLOT` is an index into these.
        numbers: for each record the number of its transaction; -1 for none.
        figures: a column for each transaction, with the rows that `sessions` names.
        names: by number of a transaction, the names under which it was prepared.
        before: by number of a transaction that was open before the chunk, what is known of it.
    """

    log: LogPieces
    chunk: Chunk
    sessions: list[int]
    numbers: Any
    figures: Any
    names: dict[int, list[str]]
    before: dict[int, OpenTransaction]

    def ended(self) -> Any:
        """Return the transactions that end and are to be listed, in the order of their ends."""
        ends, prepared = self.figures[END], self.figures[PREPARED_AT] != NONE
        listed = np.flatnonzero((ends != NONE) & ((self.figures[CHANGES] > 0) | prepared))
        return listed[np.argsort(ends[listed])]

    def committed(self, ended: Any) -> Any:
        """Return which of the transactions that end are committed."""
        found = self.chunk.codes[self.figures[END][ended]] == Type.COMMIT
        figures = self.figures[:, ended]
        # A live rollback writes the opposite of each change, and then COMMIT. So only a transaction
        # that was prepared after half of its changes can be one; whether it is, their keys tell.
        halves = figures[CHANGES] == 2 * figures[PREPARED_AT]
        for at in np.flatnonzero(found & halves & (figures[PREPARED_AT] > 0)).tolist():
            found[at] = not self._was_compensated(int(ended[at]))
        return found

    def states(self) -> dict[State, int]:
        """Return how many transactions end in each state."""
        ended = self.ended()
        committed = int(self.committed(ended).sum())
        counts = {State.COMMITTED: committed, State.ROLLED_BACK: len(ended) - committed}
        return {state: count for state, count in counts.items() if count}

    def changes_of(self, chosen: Any) -> Iterator[tuple[int, Any]]:
        """Yield the chosen transactions with type, table and key of each change in the chunk."""
        rows = np.flatnonzero((self.numbers != NONE) & self.chunk.changes)
        # -1, for no transaction, was taken out before: as an index it would be the last one.
        rows = rows[chosen[self.numbers[rows]]]
        numbers = self.numbers[rows]
        # Stable: the changes of a transaction stay in log order.
        order = np.argsort(numbers, kind="stable")
        changes = self.chunk.table[[CODE, TABLE, NUMBER]][:, rows[order]]
        wanted = np.flatnonzero(chosen)
        edges = np.searchsorted(numbers[order], np.append(wanted, len(chosen))).tolist()
        for number, edge in zip(wanted.tolist(), pairwise(edges), strict=True):
            yield number, changes[:, slice(*edge)]

    def all_changes(self, number: int) -> Any:
        """Return type, table and key of each change of a transaction."""
        ((_, own),) = self.changes_of(np.arange(self.figures.shape[1]) == number)
        before = self.before[number].parts if number in self.before else []
        return np.concatenate([*before, own], axis=1)

    def _was_compensated(self, number: int) -> bool:
        """Return True if the second half of the changes undoes the first, the last one first.

        As `read.transactions.was_compensated` does, in columns.
        """
        changes = self.all_changes(number)
        half = changes.shape[1] // 2
        # The last change is undone first.
        done, undone = changes[:, :half], changes[:, half:][:, ::-1]
        return bool((done[0] + undone[0] == _INVERSES).all() and (done[1:] == undone[1:]).all())

    def endings(self, filled: bool, by_hand: Callable[[], Collection[int]]) -> Endings:
        """Return those that end and are to be listed; ``filled``: no-ops stand before the chunk.

        ``by_hand`` returns the `hand_commits` of the log; it is called if there may be some.
        """
        numbers = self.ended()
        rows = self.figures[END][numbers]
        named = np.isin(numbers, [number for number, names in self.names.items() if names])
        hand = ~named & (self.chunk.codes[rows] == Type.ROLLBACK)
        after_fill = np.append(filled, self.chunk.codes[:-1] == Type.NOOP)[rows]
        doubtful = after_fill & ~named & ~hand
        # `by_hand` reads the whole log: few logs have such a place.
        if doubtful.any():
            hand[doubtful] = np.isin(self.chunk.starts[rows[doubtful]], list(by_hand()))
        return Endings(numbers, rows, self.committed(numbers), named, hand)

    def logged(self, endings: Endings) -> Iterator[LoggedTransaction]:
        """Yield transactions that end."""
        entries = self.log.of_chunk(self.chunk, endings.rows)
        columns = (endings.numbers, endings.committed, endings.by_hand)
        for number, ok, hand, end in zip(*(one.tolist() for one in columns), entries, strict=True):
            names, figures = self.names.get(number, []), self.figures[:, number]
            state = State.COMMITTED if ok else State.ROLLED_BACK
            one = logged(end.session, figures, names, end, state)
            one.by_hand = hand
            yield one

    def begins(self, chosen: Any) -> dict[int, tuple[int, int]]:
        """Return section and stream start of the first record of each chosen transaction."""
        rows = np.flatnonzero(self.numbers != NONE)
        rows = rows[chosen[self.numbers[rows]]]
        numbers, firsts = np.unique(self.numbers[rows], return_index=True)
        firsts = rows[firsts]
        columns = self.chunk.sections[firsts].tolist(), self.chunk.starts[firsts].tolist()
        return dict(zip(numbers.tolist(), zip(*columns, strict=True), strict=True))

    def record_at(self, row: int) -> Entry:
        """Return a record of the chunk."""
        return next(self.log.of_chunk(self.chunk, np.array([row])))


class Ledger:
    """The transactions that are open between two chunks, as `transactions.Tracker` has them."""

    def __init__(self, log: LogPieces) -> None:
        self._log = log
        self._open: dict[int, OpenTransaction] = {}

    def add(self, chunk: Chunk) -> ChunkTransactions:
        """Take the next chunk; return the transactions in it."""
        sessions, slots = chunk.sessions()
        numbers = np.empty(len(slots), np.int64)
        figures = np.empty((FIGURES, len(slots)), np.int64)
        current = np.full(len(sessions), NONE, np.int64)
        count = number_transactions(
            chunk.table, slots, self._carried(sessions), current, numbers, figures
        )
        figures = figures[:, :count]
        found = ChunkTransactions(self._log, chunk, sessions, numbers, figures, {}, {})
        self._continue(found)
        self._name(found)
        self._keep(found)
        return found

    def rest(self, *, prepared: bool = False) -> Iterator[LoggedTransaction]:
        """Yield the transactions that are open at the end of the log, or the prepared ones."""
        for session, one in self._open.items():
            if one.names or not prepared:
                yield one.logged(session)

    def active(self) -> tuple[int, int]:
        """Return how many open ones are not prepared, and how many of these have changes."""
        counts = [one.figures[CHANGES] > 0 for one in self._open.values() if not one.names]
        return len(counts), sum(map(bool, counts))

    def oldest(self) -> LoggedTransaction | None:
        """Return the open one with changes that began first."""
        found = [item for item in self._open.items() if item[1].figures[CHANGES] > 0]
        if not found:
            return None
        session, one = min(found, key=lambda item: item[1].begin)
        return one.logged(session)

    def _carried(self, sessions: list[int]) -> Any:
        """Return the figures of what is open, a column for each of the sessions."""
        carried = np.zeros((FIGURES, len(sessions)), np.int64)
        carried[PREPARED_AT] = NONE
        for slot, session in enumerate(sessions):
            if session in self._open:
                carried[:, slot] = self._open[session].figures
        return carried

    def _continue(self, found: ChunkTransactions) -> None:
        """Note which transactions were open before: the first one of each session that has any."""
        slots = found.figures[SLOT]
        # Transactions are numbered as they begin, so the first one of a session carries what was
        # open.
        _, firsts = np.unique(slots, return_index=True)
        for number in firsts.tolist():
            one = self._open.get(found.sessions[slots[number]])
            if one is not None:
                found.before[number] = one
                found.names[number] = one.names

    @staticmethod
    def _name(found: ChunkTransactions) -> None:
        """Add the names of the prepare records in the chunk."""
        rows = found.chunk.of_type(Type.PREPARE_COMMIT)
        entries = found.log.of_chunk(found.chunk, rows)
        for number, entry in zip(found.numbers[rows].tolist(), entries, strict=True):
            found.names.setdefault(number, []).append(entry.name)

    def _keep(self, found: ChunkTransactions) -> None:
        """Drop what ends, and keep what is open after the chunk, in the order of beginnings."""
        sessions = np.array(found.sessions, np.int64)[found.figures[SLOT]].tolist()
        opened, lasts = found.figures[END] == NONE, found.figures[LAST].tolist()
        for number in found.before:
            if not opened[number]:
                del self._open[sessions[number]]
        begins = found.begins(opened)
        # Rows of one array: a copy for each would take as long as all else here.
        kept = iter(found.figures[:, opened].T.copy())
        for (number, parts), figures in zip(found.changes_of(opened), kept, strict=True):
            one = found.before.get(number)
            if one is None:
                one = self._open[sessions[number]] = OpenTransaction(figures, begins[number])
            if number in found.names:
                one.names = found.names[number]
            if lasts[number] != NONE:
                one.last = found.record_at(lasts[number])
            one.figures = figures
            one.parts.append(parts)


def transactions_in_runs(
    log: LogPieces, by_hand: Callable[[], Collection[int]]
) -> Iterator[LoggedTransaction]:
    """Yield what `read.transactions.transactions_of` yields, without the entries of changes."""
    ledger, filled = Ledger(log), False
    for chunk in log.chunks():
        found = ledger.add(chunk)
        yield from found.logged(found.endings(filled, by_hand))
        filled = int(chunk.codes[-1]) == Type.NOOP
    yield from ledger.rest()


def logged(
    session: int, figures: Any, names: list[str], last: Entry | None, state: State
) -> LoggedTransaction:
    """Return a transaction without the entries of its changes."""
    return LoggedTransaction(
        session,
        names=names,
        prepared_at=max(int(figures[PREPARED_AT]), 0),
        records=int(figures[RECORDS]),
        bytes=int(figures[BYTES]),
        state=state,
        last=last,
        count=int(figures[CHANGES]),
    )
