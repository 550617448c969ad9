"""Transactions and committed changes of one log.

In: the entries of a scan. Out: a `Group` per transaction of a session, ended by COMMIT, by the
resolution of an in-doubt transaction, or by the end of the log. A rollback by a running engine is
written as the inverse of every change and a COMMIT; behind a prepare record that is told apart.
Memory grows with open transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tallystick.records import State
from tallystick.systems.h2.format.entries import INCOMPLETE, Entry, Type

_INVERSE = {Type.ADD: Type.REMOVE, Type.REMOVE: Type.ADD}


@dataclass(slots=True)
class Group:
    """The entries of one transaction of a session. ``last`` decides its state; ``names`` are
    those it prepared under, the last one in force; ``prepared_at`` counts changes before it."""

    session: int
    changes: list[Entry] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    prepared_at: int = 0
    records: int = 0
    bytes: int = 0
    state: State = State.ACTIVE
    last: Entry | None = None

    @property
    def late(self) -> int:
        """Changes logged behind the prepare record."""
        return len(self.changes) - self.prepared_at if self.names else 0

    def add(self, entry: Entry) -> None:
        self.records += 1
        self.bytes += entry.length
        if entry.session_bound:
            self.changes.append(entry)
        else:
            self.last = entry
        if entry.code == Type.PREPARE_COMMIT:
            self.names.append(entry.name)
            self.prepared_at = len(self.changes)


def groups(entries: Iterable[Entry], *, keep_rows: bool = True) -> Iterator[Group]:
    """Transactions in the order in which they end, open ones last. Commits of nothing are left
    out. Without ``keep_rows`` the changes hold no row bytes and no values."""
    open_groups: dict[int, Group] = {}
    for entry in entries:
        if entry.type == INCOMPLETE or entry.code not in _SESSION_TYPES:
            continue
        if not keep_rows:
            entry.row, entry.values = b"", ()
        group = open_groups.setdefault(entry.session, Group(entry.session))
        group.add(entry)
        state = _ended(group, entry)
        if state is not None:
            del open_groups[entry.session]
            group.state = state
            if group.changes or group.names:
                yield group
    for group in open_groups.values():
        group.state = State.PREPARED if group.names else State.ACTIVE
        yield group


def _ended(group: Group, entry: Entry) -> State | None:
    if entry.code == Type.COMMIT:
        return State.ROLLED_BACK if taken_back(group) else State.COMMITTED
    # The rollback of a second prepare leaves the first one in doubt.
    if entry.code == Type.ROLLBACK and not group.names:
        return State.ROLLED_BACK
    return None


_SESSION_TYPES = frozenset(
    (Type.COMMIT, Type.PREPARE_COMMIT, Type.ROLLBACK, Type.ADD, Type.REMOVE, Type.TRUNCATE)
)


def taken_back(group: Group) -> bool:
    """True if the changes behind the prepare record take back those before it, one by one from
    the last: the session was rolled back, and its COMMIT says no more than that it ended.

    Without a prepare record nobody can tell: the deletion of a row and its return look like
    an update, for a REMOVE does not hold the row.
    """
    before, behind = group.changes[: group.prepared_at], group.changes[group.prepared_at :]
    if not group.names or not before or len(before) != len(behind):
        return False
    return all(
        _INVERSE.get(Type(one.code)) == back.code and (one.table, one.key) == (back.table, back.key)
        for one, back in zip(before, reversed(behind), strict=True)
    )
