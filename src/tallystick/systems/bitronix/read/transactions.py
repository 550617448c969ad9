"""The last status of each global transaction, and the resources for which it is still open.

In: both files. Out: `Transaction` values by gtrid; memory grows with their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tallystick.records import State, Transaction
from tallystick.systems.bitronix.format import layout
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.read.files import DualFiles
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions

STATE_OF = {
    layout.ACTIVE: State.ACTIVE,
    layout.MARKED_ROLLBACK: State.ACTIVE,
    layout.PREPARING: State.UNDECIDED,
    layout.PREPARED: State.UNDECIDED,
    layout.COMMITTING: State.COMMITTED,
    layout.COMMITTED: State.COMMITTED,
    layout.ROLLING_BACK: State.ROLLING_BACK,
    layout.ROLLEDBACK: State.ROLLED_BACK,
    layout.UNKNOWN: State.HEURISTIC,
}
"""The state by the last status, for a gtrid whose decision is not open."""


def state_of(last_status: int, *, is_open: bool) -> State:
    """Return the state of a gtrid by its last status, and whether its decision is open."""
    return State.COMMITTING if is_open else STATE_OF.get(last_status, State.UNKNOWN)


@dataclass(slots=True)
class GtridSummary:
    """The records of one gtrid, summed up."""

    first_time: int
    last_status: int = 0
    last_time: int = 0
    last_place: tuple[str, int] = ("", 0)
    decision_place: tuple[str, int] | None = None
    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    records: int = 0
    bytes: int = 0

    def add(self, place: tuple[str, int], record: TransactionLogRecord) -> None:
        """Add a record at a place: path and offset."""
        self.last_status, self.last_time, self.last_place = record.status, record.time, place
        if record.status == layout.COMMITTING:
            self.decision_place = place
        self.names = united(self.names, record.unique_names)
        if place[0] not in self.files:
            self.files = (*self.files, place[0])
        self.records += 1
        self.bytes += record.size


def transactions(pair: DualFiles, log: str) -> Iterator[Transaction]:
    """Yield every gtrid of the journal in order of its first record."""
    found, decisions = dict[bytes, GtridSummary](), OpenDecisions()
    for part, offset, record in pair.records():
        decisions.apply(record)
        one = found.setdefault(record.gtrid, GtridSummary(record.time))
        one.add((part.path or "", offset), record)
    for gtrid, summary in found.items():
        yield _transaction(log, gtrid, summary, decisions.get(gtrid))


@lru_cache(maxsize=1024)
def united(names: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of both, sorted; cached, as a program has few sets of names."""
    return tuple(sorted({*names, *more}))


def _transaction(
    log: str, gtrid: bytes, summary: GtridSummary, open_names: tuple[str, ...] | None
) -> Transaction:
    decided = None if open_names is None else summary.decision_place
    last = summary.last_status
    return Transaction(
        system=layout.SYSTEM_NAME,
        log=log,
        key=gtrid.hex() or "(empty)",
        state=state_of(last, is_open=open_names is not None),
        format_id=layout.FORMAT_ID,
        gtrid=gtrid,
        name=gtrid.hex().upper(),
        participants=summary.names,
        open_participants=open_names or (),
        first_time=summary.first_time,
        last_time=summary.last_time,
        records=summary.records,
        bytes=summary.bytes,
        files=summary.files,
        evidence=decided or summary.last_place,
        evidence_type=layout.status_name(layout.COMMITTING if decided else last),
        attributes=_attributes(gtrid, last, len(summary.names)),
    )


def _attributes(gtrid: bytes, last: int, names: int) -> dict[str, object]:
    parts = layout.split_gtrid(gtrid)
    return {
        "lastStatus": layout.status_name(last),
        "onePhase": names == 1,
        "serverId": parts.server_id,
        "gtridTimestamp": parts.time,
        "gtridSequence": parts.sequence,
    }
