"""The transactions of a log, put together from their records.

In: records as `ByteRange`s in log order. Out: one `LoggedTransaction` for each, in order of first
records. Transaction numbers start anew after a reboot; a number that begins again opens the next
boot. The global id is in the begin, prepare or end record or in a checkpoint's table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.records import State, Transaction, Xid
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.field_types import Fields
from tallystick.systems.derby.format.layout import SYSTEM_NAME, Group, instant_text
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.spans import ByteRange

ACTIVE, PREPARED, COMMITTED, ABORTED = "active", "prepared", "committed", "aborted"
"""States in the engine's words."""
STATES = {
    COMMITTED: State.COMMITTED,
    ABORTED: State.ROLLED_BACK,
    PREPARED: State.PREPARED,
    ACTIVE: State.ACTIVE,
}
"""States in the words of every system."""
NO_BEGIN = "its begin record is not in the log files that exist"
"""A hole in a transaction."""

_COMMIT, _PREPARE = int(Group.COMMIT), int(Group.PREPARE)
"""As plain numbers: the operators of flags take longer than all else that is done with a run."""


def ended_state(group: int) -> str:
    """Return the state of a transaction whose last record has this group."""
    return COMMITTED if group & _COMMIT else ABORTED


@dataclass(slots=True)
class LoggedTransaction:
    """What the log holds of one transaction so far.

    Attributes:
        number: unique within one boot.
        boot: number of the boot, from 1.
        first, last: instants of its first and last record.
        internal: begun by the engine itself.
        prepared: its prepare record was seen; ``state`` may have advanced since.
        evidence: path and offset of the record that decides its state.
        lost: types of its records that follow damage.
    """

    number: int
    boot: int
    first: int
    begin_seen: bool
    last: int = 0
    state: str = ACTIVE
    records: int = 0
    undone: int = 0
    bytes: int = 0
    internal: bool = False
    prepared: bool = False
    xid: Xid | None = None
    evidence: tuple[str, int] | None = None
    evidence_type: str = ""
    paths: dict[str, None] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def add(self, record: ByteRange, body: Body) -> None:
        """Take in its next record."""
        self.records += 1
        self.bytes += record.length
        self.last = record.place
        self.paths[record.file.path] = None
        self.undone += bool(body.group & Group.COMPENSATION)
        self.xid = body.xid or self.xid
        if body.operation == operations.BEGIN:
            self.internal = body.fields["transactionStatus"] == operations.STATUS_INTERNAL
        if body.operation in (operations.BEGIN, operations.END):
            self.evidence, self.evidence_type = (record.file.path, record.offset), body.name
        self._advance(body.group)

    def add_run(
        self, path: str, records: int, size: int, undone: int, last: int, group: int
    ) -> None:
        """Take in its next records of one file; ``group`` has the bits of all of them."""
        self.records += records
        self.bytes += size
        self.undone += undone
        self.last = last
        self.paths[path] = None
        self.prepared = self.prepared or bool(group & _PREPARE)

    def _advance(self, group: Group) -> None:
        if group & Group.PREPARE:
            self.state, self.prepared = PREPARED, True
        if group & Group.LAST:
            self.state = ended_state(group)

    def transaction(self, log: str) -> Transaction:
        """Return it as a `Transaction` of the log of that name."""
        holes = [] if self.begin_seen else [NO_BEGIN]
        if self.lost:
            names = ", ".join(dict.fromkeys(self.lost))
            holes.append(f"after damage lie {len(self.lost)} of its records: {names}")
        return Transaction(
            SYSTEM_NAME,
            log,
            f"{self.boot}.{self.number}",
            STATES[self.state],
            transaction=self.number,
            format_id=self.xid.format_id if self.xid else None,
            gtrid=self.xid.gtrid if self.xid else None,
            bqual=self.xid.bqual if self.xid else None,
            records=self.records,
            bytes=self.bytes,
            files=tuple(self.paths),
            complete=not holes,
            holes="; ".join(holes),
            evidence=self.evidence,
            evidence_type=self.evidence_type,
            attributes=self._attributes(),
        )

    def _attributes(self) -> Fields:
        found: Fields = {
            "boot": self.boot,
            "first": instant_text(self.first),
            "last": instant_text(self.last),
            "internal": self.internal,
            "undone": self.undone,
        }
        if self.xid is not None:
            found["phases"] = 2 if self.prepared else 1
        return found


class TransactionCollector:
    """Collects the transactions of a log in ``all``; memory grows with their number."""

    def __init__(self) -> None:
        self.all: list[LoggedTransaction] = []
        self._current: dict[int, LoggedTransaction] = {}
        self.begun: set[int] = set()
        """Numbers that began in this boot."""
        self._xids: dict[int, Xid] = {}
        self._boot = 1

    def add(self, record: ByteRange) -> None:
        """Take in the next record."""
        body = record.body
        if body is None:
            return
        if body.operation == operations.CHECKPOINT:
            table = body.fields["transactionTable"]
            self._xids |= {one["xid"]: one["gid"] for one in table if one["gid"] is not None}
        if body.transaction is not None:
            begins = body.operation == operations.BEGIN
            self.transaction(body.transaction, record.place, begins=begins).add(record, body)

    def add_lost(self, record: ByteRange) -> None:
        """Take in a record that the engine does not reach."""
        body = record.body
        if body is not None and body.transaction in self._current:
            self._current[body.transaction].lost.append(body.name)

    def transaction(self, number: int, place: int, *, begins: bool) -> LoggedTransaction:
        """Return the transaction of the next record, which is at ``place``."""
        if begins and number in self.begun:
            self._boot += 1
            self.begun.clear()
            self._current.clear()
        if begins:
            self.begun.add(number)
        one = self._current.get(number)
        if one is None or begins:
            xid = self._xids.get(number)
            one = LoggedTransaction(number, self._boot, place, begins, xid=xid)
            self._current[number] = one
            self.all.append(one)
        return one
