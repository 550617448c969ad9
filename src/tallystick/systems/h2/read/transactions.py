"""Transactions of one log.

In: the entries of a scan. Out: a `LoggedTransaction` per transaction of a session, ended by COMMIT,
by the resolution of an in-doubt transaction, or by the end of the log. A running engine writes a
rollback as the inverse of every change and a COMMIT; after a prepare record that can be detected.
Memory grows with open transactions.

COMMIT TRANSACTION and ROLLBACK TRANSACTION by hand overwrite the prepare record and its name.
ROLLBACK is written by nothing else. COMMIT is recognised by the fill around it: a prepare record
has a data page to itself, so the page before it and its own are filled with no-operations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tallystick.records import State, Transaction, Xid
from tallystick.roles import branch_of
from tallystick.systems.h2.format.entries import INCOMPLETE, SESSION_TYPES, Entry, Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.read.stream import LogStream

ENDED_BY_HAND = "ended_by_hand"
"""The attribute of a transaction that COMMIT or ROLLBACK TRANSACTION by hand has ended."""
_ENDS = (Type.COMMIT, Type.ROLLBACK)
_Window = Sequence["Entry | None"]
_FILLING = (Type.PREPARE_COMMIT, Type.CHECKPOINT)
"""Records after which the rest of a page is filled."""
_INVERSE = {Type.ADD: Type.REMOVE, Type.REMOVE: Type.ADD}


@dataclass(slots=True)
class LoggedTransaction:
    """The entries of one transaction of a session.

    Attributes:
        changes: the entries of its changes; empty where the log was read in runs: see `count`.
        names: those under which it was prepared; the last one is in force.
        prepared_at: how many changes come before the last prepare record.
        records: how many records it has.
        bytes: of all its records.
        last: its last record that is no change: it decides the state.
    """

    session: int
    changes: list[Entry] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    prepared_at: int = 0
    records: int = 0
    bytes: int = 0
    state: State = State.ACTIVE
    last: Entry | None = None
    count: int = 0
    """How many changes it has."""
    by_hand: bool = False
    """True if the record that ends it was written by hand over its prepare record."""
    begin: tuple[int, int] = (0, 0)
    """Section and stream start of its first record."""

    @property
    def name(self) -> str | None:
        """The name it is prepared under."""
        return self.names[-1] if self.names else None

    @property
    def xid(self) -> Xid | None:
        """The id of the branch, if the name of the transaction has one."""
        return branch_of(self.names[-1]) if self.names else None

    @property
    def late_changes(self) -> int:
        """How many changes were logged after the prepare record."""
        return self.count - self.prepared_at if self.names else 0

    def add(self, entry: Entry) -> None:
        """Add the next entry of the session."""
        self.records += 1
        self.bytes += entry.length
        if entry.session_bound:
            self.changes.append(entry)
            self.count += 1
        else:
            self.last = entry
        if entry.code == Type.PREPARE_COMMIT:
            self.names.append(entry.name)
            self.prepared_at = self.count

    def to_transaction(self, number: int, stream: LogStream, log: str) -> Transaction:
        """Return the transaction, number ``number`` of the log, in the words of all systems."""
        xid, last, file = self.xid, self.last, stream.pages.file
        return Transaction(
            SYSTEM_NAME,
            log,
            key=f"{self.session}.{number}",
            state=self.state,
            transaction=self.session,
            format_id=xid.format_id if xid else None,
            gtrid=xid.gtrid if xid else None,
            bqual=xid.bqual if xid else None,
            name=self.name,
            records=self.records,
            bytes=self.bytes,
            files=(file,),
            evidence=(file, stream.file_offset(last.start)) if last is not None else None,
            evidence_type=last.type if last is not None else "",
            attributes=self._attributes(),
        )

    def _attributes(self) -> dict[str, object]:
        attributes: dict[str, object] = {"changes": self.count}
        if len(self.names) > 1:
            attributes["hidden_names"] = self.names[:-1]
        if self.by_hand:
            attributes[ENDED_BY_HAND] = True
        if self.late_changes:
            attributes["changes_behind_prepare"] = self.late_changes
        return attributes


class Tracker:
    """Transactions of a log whose entries come one after the other.

    `runs.transactions.Ledger` does the same with chunks.
    """

    def __init__(self, by_hand: Callable[[], Collection[int]] = tuple) -> None:
        self._by_hand = by_hand
        self._open: dict[int, LoggedTransaction] = {}
        self._filled = False

    def add(self, entry: Entry) -> LoggedTransaction | None:
        """Take the next entry; return the transaction that it ends.

        None if it ends none, or one without changes and without a name, which is not listed.
        """
        filled, self._filled = self._filled, _is_fill(entry)
        if entry.type == INCOMPLETE or entry.code not in SESSION_TYPES:
            return None
        begun = LoggedTransaction(entry.session, begin=(entry.section, entry.start))
        one = self._open.setdefault(entry.session, begun)
        one.add(entry)
        state = _end_state(one, entry)
        if state is None:
            return None
        del self._open[entry.session]
        one.state = state
        if not one.names:
            bare = entry.code == Type.ROLLBACK
            one.by_hand = bare or (filled and entry.start in self._by_hand())
        return one if one.changes or one.names else None

    def rest(self) -> Iterator[LoggedTransaction]:
        """Yield the transactions that are open at the end of the log."""
        for one in self._open.values():
            one.state = State.PREPARED if one.names else State.ACTIVE
            yield one


def transactions_of(
    entries: Iterable[Entry],
    *,
    keep_rows: bool = True,
    by_hand: Callable[[], Collection[int]] = tuple,
) -> Iterator[LoggedTransaction]:
    """Yield transactions in the order in which they end, open ones last.

    Commits of nothing are left out. Without ``keep_rows`` the changes hold no row bytes and no
    values. ``by_hand`` returns the `hand_commits` of the log; it is called if there may be some.
    """
    tracker = Tracker(by_hand)
    for entry in entries:
        if not keep_rows:
            entry.row, entry.values = b"", ()
        ended = tracker.add(entry)
        if ended is not None:
            yield ended
    yield from tracker.rest()


def hand_commits(entries: Iterable[Entry]) -> frozenset[int]:
    """Return where in the stream COMMITs stand that were provably written over a prepare record.

    None in a log that has a fill without a cause: a checkpoint, a prepare record, or what replaced
    one. The engine fills pages for nothing else; our live log does, after every forced write.
    """
    ends = _LoneEnds()
    causes: list[tuple[int, ...]] = []
    for window in _windows(entries):
        entry = window[3]
        assert entry is not None
        ends.add(entry, window)
        if _is_fill(entry) and (cause := _ends_beside(window)) is not None:
            causes.append(cause)
            if not cause:
                return frozenset()
    replaced = ends.replaced()
    if not all(any(start in replaced for start in cause) for cause in causes):
        return frozenset()
    return frozenset(start for start, proved in replaced.items() if proved)


class _LoneEnds:
    """COMMITs and ROLLBACKs that may stand over a prepare record."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, bool] | None] = {}
        """By session, its last end: where it is, and whether it is proved; None if it cannot be."""
        self._changed: set[int] = set()
        self._named: set[int] = set()

    def add(self, entry: Entry, window: _Window) -> None:
        """Take the entry in the middle of the window."""
        session = entry.session
        if entry.code == Type.PREPARE_COMMIT:
            self._named.add(session)
        elif entry.session_bound:
            self._changed.add(session)
        elif entry.code in _ENDS:
            fits = session in self._changed and session not in self._named
            proved = entry.code == Type.COMMIT and _is_over_prepare(window)
            self._last[session] = (entry.start, proved) if fits else None
            self._changed.discard(session)
            self._named.discard(session)

    def replaced(self) -> dict[int, bool]:
        """Return where they are, and which are proved.

        A branch that was in doubt has no later end: the process that prepared it is gone.
        """
        return dict(one for one in self._last.values() if one is not None)


def _ends_beside(window: _Window) -> tuple[int, ...] | None:
    """Return where COMMITs and ROLLBACKs stand that may be the cause of the fill in the middle.

    None if it has another cause; empty if it has none that can be seen.
    """
    _, fill_before, before, _, after, fill_after = window
    if after is None or not after.is_known:
        return None
    if after.code == Type.PREPARE_COMMIT or _code(before) in _FILLING:
        return None
    found = [after] if after.code in _ENDS and _is_fill(fill_after) else []
    if before is not None and before.code in _ENDS and _is_fill(fill_before):
        found.append(before)
    return tuple(one.start for one in found)


def _is_over_prepare(window: _Window) -> bool:
    """Return True if a fill beside the COMMIT in the middle has no cause but one.

    The cause is a prepare record that stood where the COMMIT stands.
    """
    first, before, fill, _, fill_after, after = window
    if not _is_fill(fill):
        return False
    # An end that follows a fill may itself stand over a prepare record, which explains the next.
    explained = _code(before) in _ENDS and _is_fill(first)
    if before is not None and before.code not in _FILLING and not explained:
        return True
    known = after is not None and after.is_known
    return _is_fill(fill_after) and known and _code(after) not in (*_ENDS, Type.PREPARE_COMMIT)


def _windows(entries: Iterable[Entry]) -> Iterator[_Window]:
    """Yield each entry as the fourth of six: with three before it and two after it."""
    window: deque[Entry | None] = deque([None] * 6, maxlen=6)
    for following in chain(entries, (None, None)):
        window.append(following)
        if window[3] is not None:
            yield tuple(window)


def _code(entry: Entry | None) -> int | None:
    return None if entry is None else entry.code


def _is_fill(entry: Entry | None) -> bool:
    """Return True for no-ops in a row, with which the rest of a page is filled."""
    return entry is not None and entry.code == Type.NOOP and entry.type != INCOMPLETE


def _end_state(one: LoggedTransaction, entry: Entry) -> State | None:
    """Return the state that a transaction ends in with its last entry; None if it goes on."""
    if entry.code == Type.COMMIT:
        return State.ROLLED_BACK if was_compensated(one) else State.COMMITTED
    # The rollback of a second prepare leaves the first one in doubt.
    if entry.code == Type.ROLLBACK and not one.names:
        return State.ROLLED_BACK
    return None


def was_compensated(one: LoggedTransaction) -> bool:
    """Return True if the changes after the prepare record undo those before it, last one first.

    Then the session was rolled back, and its COMMIT only says that it ended. Without a prepare
    record this cannot be decided: the deletion of a row and its return look like an update, for
    a REMOVE does not hold the row.
    """
    before, after = one.changes[: one.prepared_at], one.changes[one.prepared_at :]
    if not one.names or not before or len(before) != len(after):
        return False
    return all(
        _INVERSE.get(Type(done.code)) == undone.code
        and (done.table, done.key) == (undone.table, undone.key)
        for done, undone in zip(before, reversed(after), strict=True)
    )
