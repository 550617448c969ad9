"""The transactions of a log, put together from their records.

In: records as `ByteRange`s in log order. Out: one `LoggedTransaction` for each, in order of first
records. Transaction numbers start anew after a reboot; a number that begins again opens the next
boot. The global id is in the begin, prepare or end record or in a checkpoint's table.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
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
OPEN = (ACTIVE, PREPARED)
LATEST = 80
"""Transactions that the oracle lists: the last ones."""
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
        changes: it changes rows, tables or indexes.
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
    changes: bool = False
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
        self.changes = self.changes or not operations.keeps_house(body.operation, body.fields)
        if body.operation == operations.BEGIN:
            self.internal = body.fields["transactionStatus"] == operations.STATUS_INTERNAL
        if body.operation in (operations.BEGIN, operations.END):
            self.evidence, self.evidence_type = (record.file.path, record.offset), body.name
        self._advance(body.group)

    def add_run(
        self, path: str, records: int, size: int, undone: int, last: int, group: int, changes: int
    ) -> None:
        """Take in its next records of one file; ``group`` has the bits of all of them."""
        self.records += records
        self.bytes += size
        self.undone += undone
        self.last = last
        self.paths[path] = None
        self.changes = self.changes or bool(changes)
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


class Numbers:
    """A set of numbers that mostly follow each other: one mask for each 64 of them."""

    def __init__(self) -> None:
        # A log may have millions of transactions. A set takes tens of bytes for each of them, masks
        # with their keys about three.
        self._masks: dict[int, int] = {}

    def __contains__(self, number: int) -> bool:
        return bool(self._masks.get(number >> 6, 0) >> (number & 63) & 1)

    def isdisjoint(self, numbers: Iterable[int]) -> bool:
        """Return whether it has none of the numbers."""
        masks = self._masks
        return not any(masks.get(number >> 6, 0) >> (number & 63) & 1 for number in numbers)

    def update(self, numbers: Iterable[int]) -> None:
        """Add numbers."""
        masks = self._masks
        for number in numbers:
            masks[number >> 6] = masks.get(number >> 6, 0) | 1 << (number & 63)

    def clear(self) -> None:
        """Remove all."""
        self._masks.clear()


class TransactionCollector:
    """Collects the transactions of a log; those that have ended are counted and forgotten.

    Args:
        keep_all: none is forgotten; memory grows with their number.

    Attributes:
        kept: those that are not forgotten, by the instants of their first records, in this order.
        latest: the last `LATEST` ones by their first records, whether they have ended or not.
        begun: numbers that began in this boot.
        again: one that was forgotten has further records: what is said of it holds only if all
            transactions are collected once more, and kept.
    """

    def __init__(self, *, keep_all: bool = False) -> None:
        self.kept: dict[int, LoggedTransaction] = {}
        self.latest: deque[LoggedTransaction] = deque(maxlen=LATEST)
        self.begun = Numbers()
        self.again = False
        self.keep_all = keep_all
        self._ended: Counter[str] = Counter()
        self._current: dict[int, LoggedTransaction] = {}
        self._without_begin: set[int] = set()
        """Numbers of forgotten ones that have no begin record in this boot."""
        self._xids: dict[int, Xid] = {}
        self._boot = 1

    @property
    def states(self) -> Counter[str]:
        """How many there are, by state."""
        return self._ended + Counter(one.state for one in self.kept.values())

    def prepared(self) -> list[LoggedTransaction]:
        """Return those that are prepared."""
        return [one for one in self.kept.values() if one.state == PREPARED]

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
            one = self.transaction(body.transaction, record.place, begins=begins)
            one.add(record, body)
            self.forget_ended(one)

    def open_one(self, number: int) -> LoggedTransaction | None:
        """Return the transaction of this number that has begun in this boot and not ended."""
        return self._current.get(number)

    def add_lost(self, number: int, name: str) -> None:
        """Take in a record that the engine does not reach: its transaction, and its operation."""
        if number in self._current:
            self._current[number].lost.append(name)

    def transaction(self, number: int, place: int, *, begins: bool) -> LoggedTransaction:
        """Return the transaction of the next record, which is at ``place``."""
        if begins and number in self.begun:
            self._boot += 1
            self.begun.clear()
            self._current.clear()
            self._without_begin.clear()
        if begins:
            self.begun.update([number])
        one = self._current.get(number)
        if one is None or begins:
            self.again |= not begins and (number in self.begun or number in self._without_begin)
            xid = self._xids.get(number)
            one = LoggedTransaction(number, self._boot, place, begins, xid=xid)
            self._current[number] = self.kept[place] = one
            self.latest.append(one)
        return one

    def forget_ended(self, one: LoggedTransaction) -> None:
        """Forget the transaction whose records were just taken in, if it has ended."""
        if self.keep_all or one.state in OPEN:
            return
        self._ended[one.state] += 1
        del self.kept[one.first], self._current[one.number]
        if not one.begin_seen:
            self._without_begin.add(one.number)

    def add_ended(self, numbers: Collection[int], states: Mapping[str, int]) -> None:
        """Count transactions that began and ended in this boot, and are none of the latest."""
        self.begun.update(numbers)
        self._ended.update(states)
        for number in self._current.keys() & {*numbers}:
            del self._current[number]  # it had no begin record
