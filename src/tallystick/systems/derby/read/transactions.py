"""What becomes of each transaction: records in log order -> its life.

In: decoded records with their places. Out: one `History` per transaction, in order of first
records. Transaction numbers start anew after a reboot; a number that begins again opens the next
boot. The global id comes from the begin, prepare or end record or from a checkpoint's table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.records import Record, State, Transaction, Xid
from tallystick.systems.derby.engine.formatting import spelled
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import Group, instant_text
from tallystick.systems.derby.format.operations import Fields
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.byte_ranges import Piece

_STATES = {
    "committed": State.COMMITTED,
    "aborted": State.ROLLED_BACK,
    "prepared": State.PREPARED,
    "active": State.ACTIVE,
}


@dataclass(slots=True)
class History:
    """A transaction's life so far; ``first`` and ``last`` are instants.

    ``evidence`` is the path and offset of the record that decides its state.
    """

    number: int
    boot: int
    first: int
    begin_seen: bool
    last: int = 0
    state: str = "active"
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
    """Types of its records that lie behind damage."""

    def add(self, piece: Piece, body: Body) -> None:
        """Take in its next record."""
        self.records += 1
        self.bytes += piece.length
        self.last = piece.place
        self.paths[piece.file.path] = None
        self.undone += bool(body.group & Group.COMPENSATION)
        self.xid = body.xid or self.xid
        if body.operation == operations.BEGIN:
            self.internal = body.fields["transactionStatus"] == operations.STATUS_INTERNAL
        if body.operation in (operations.BEGIN, operations.END):
            self.evidence, self.evidence_type = (piece.file.path, piece.offset), body.name
        self._advance(body.group)

    def _advance(self, group: Group) -> None:
        if group & Group.PREPARE:
            self.state, self.prepared = "prepared", True
        if group & Group.LAST:
            self.state = "committed" if group & Group.COMMIT else "aborted"

    def oracle(self) -> Fields:
        """The entry in the engine's verdict."""
        entry: Fields = {
            "xid": str(self.number),
            "first": instant_text(self.first),
            "begin_seen": self.begin_seen,
            "state": self.state,
            "records": self.records,
            "undone": self.undone,
            "last": instant_text(self.last),
        }
        return entry if self.xid is None else entry | {"gid": spelled(self.xid)}

    def transaction(self, log: str) -> Transaction:
        """As the whole house speaks of it."""
        holes = [] if self.begin_seen else ["its begin record is not in the log files that exist"]
        if self.lost:
            holes.append(f"behind damage lie {len(self.lost)} of its records: {self._lost_names()}")
        return Transaction(
            "derby",
            log,
            f"{self.boot}.{self.number}",
            _STATES[self.state],
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

    def _lost_names(self) -> str:
        return ", ".join(dict.fromkeys(self.lost))

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


class Histories:
    """Follows all transactions of a log; memory grows with their number."""

    def __init__(self) -> None:
        self.all: list[History] = []
        self._current: dict[int, History] = {}
        self._begun: set[int] = set()
        self._named: dict[int, Xid] = {}
        self._boot = 1

    def add(self, piece: Piece) -> History | None:
        """Take in the next record; returns the transaction it belongs to."""
        body = piece.body
        if body is None:
            return None
        if body.operation == operations.CHECKPOINT:
            self._read_table(body.fields["transactionTable"])
        if body.transaction is None:
            return None
        one = self._of(body.transaction, piece.place, body)
        one.add(piece, body)
        return one

    def add_lost(self, piece: Piece) -> None:
        """Note a record that the engine does not reach."""
        body = piece.body
        if body is not None and body.transaction in self._current:
            self._current[body.transaction].lost.append(body.name)

    def _read_table(self, table: list[Fields]) -> None:
        self._named |= {entry["xid"]: entry["gid"] for entry in table if entry["gid"] is not None}

    def _of(self, number: int, place: int, body: Body) -> History:
        begins = body.operation == operations.BEGIN
        if begins and number in self._begun:
            self._boot += 1
            self._begun.clear()
            self._current.clear()
        if begins:
            self._begun.add(number)
        one = self._current.get(number)
        if one is None or begins:
            one = History(number, self._boot, place, begins, xid=self._named.get(number))
            self._current[number] = one
            self.all.append(one)
        return one


def with_xid(record: Record, xid: Xid | None) -> Record:
    """The record with the global id in its own columns."""
    if xid is not None:
        record.format_id, record.gtrid, record.bqual = xid.format_id, xid.gtrid, xid.bqual
    return record
