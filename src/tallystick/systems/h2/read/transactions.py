"""Transactions of one log.

In: the entries of a scan. Out: a `LoggedTransaction` per transaction of a session, ended by COMMIT,
by the resolution of an in-doubt transaction, or by the end of the log. A running engine writes a
rollback as the inverse of every change and a COMMIT; after a prepare record that can be detected.
Memory grows with open transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tallystick.records import State, Transaction, Xid
from tallystick.roles import branch_of
from tallystick.systems.h2.format.entries import INCOMPLETE, SESSION_TYPES, Entry, Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.read.stream import LogStream

_INVERSE = {Type.ADD: Type.REMOVE, Type.REMOVE: Type.ADD}


@dataclass(slots=True)
class LoggedTransaction:
    """The entries of one transaction of a session.

    Attributes:
        last: the entry that decides its state.
        names: those it prepared under, the last one in force.
        prepared_at: how many changes come before the last prepare record.
        bytes: of all its records.
    """

    session: int
    changes: list[Entry] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    prepared_at: int = 0
    records: int = 0
    bytes: int = 0
    state: State = State.ACTIVE
    last: Entry | None = None

    @property
    def name(self) -> str | None:
        """The name it is prepared under."""
        return self.names[-1] if self.names else None

    @property
    def xid(self) -> Xid | None:
        """The branch that its name says it is."""
        return branch_of(self.names[-1]) if self.names else None

    @property
    def late_changes(self) -> int:
        """How many changes were logged after the prepare record."""
        return len(self.changes) - self.prepared_at if self.names else 0

    def add(self, entry: Entry) -> None:
        """Add the next entry of the session."""
        self.records += 1
        self.bytes += entry.length
        if entry.session_bound:
            self.changes.append(entry)
        else:
            self.last = entry
        if entry.code == Type.PREPARE_COMMIT:
            self.names.append(entry.name)
            self.prepared_at = len(self.changes)

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
        attributes: dict[str, object] = {"changes": len(self.changes)}
        if len(self.names) > 1:
            attributes["hidden_names"] = self.names[:-1]
        if self.late_changes:
            attributes["changes_behind_prepare"] = self.late_changes
        return attributes


def transactions_of(
    entries: Iterable[Entry], *, keep_rows: bool = True
) -> Iterator[LoggedTransaction]:
    """Yield transactions in the order in which they end, open ones last.

    Commits of nothing are left out. Without ``keep_rows`` the changes hold no row bytes and no
    values.
    """
    open_ones: dict[int, LoggedTransaction] = {}
    for entry in entries:
        if entry.type == INCOMPLETE or entry.code not in SESSION_TYPES:
            continue
        if not keep_rows:
            entry.row, entry.values = b"", ()
        one = open_ones.setdefault(entry.session, LoggedTransaction(entry.session))
        one.add(entry)
        state = _end_state(one, entry)
        if state is not None:
            del open_ones[entry.session]
            one.state = state
            if one.changes or one.names:
                yield one
    for one in open_ones.values():
        one.state = State.PREPARED if one.names else State.ACTIVE
        yield one


def _end_state(one: LoggedTransaction, entry: Entry) -> State | None:
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
