"""The last status of each global transaction, and the resources for which it is still open.

In: the records of both parts, earlier part first. Out: `Transaction` values by gtrid. Memory grows
with the number of gtrids in the journal, which its two files bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tallystick.records import State, Transaction
from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    FORMAT_ID,
    MARKED_ROLLBACK,
    PREPARED,
    PREPARING,
    ROLLEDBACK,
    ROLLING_BACK,
    SYSTEM_NAME,
    UNKNOWN,
    split_gtrid,
    status_name,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.read.files import DualFiles
from tallystick.systems.bitronix.read.open_decisions import DanglingSet

_STATE_OF = {
    ACTIVE: State.ACTIVE,
    MARKED_ROLLBACK: State.ACTIVE,
    PREPARING: State.UNDECIDED,
    PREPARED: State.UNDECIDED,
    COMMITTING: State.COMMITTED,
    COMMITTED: State.COMMITTED,
    ROLLING_BACK: State.ROLLING_BACK,
    ROLLEDBACK: State.ROLLED_BACK,
    UNKNOWN: State.HEURISTIC,
}
"""The state by the last status, for a gtrid whose decision is not open."""


@dataclass(slots=True)
class _GtridSummary:
    """The records of one gtrid, summed up."""

    first_time: int
    last: TransactionLogRecord
    last_place: tuple[str, int]
    decision_place: tuple[str, int] | None = None
    names: set[str] = field(default_factory=set)
    files: dict[str, None] = field(default_factory=dict)
    records: int = 0
    bytes: int = 0

    def add(self, path: str, offset: int, record: TransactionLogRecord) -> None:
        self.last = record
        self.last_place = (path, offset)
        if record.status == COMMITTING:
            self.decision_place = self.last_place
        self.names.update(record.unique_names)
        self.files[path] = None
        self.records += 1
        self.bytes += record.size


def transactions(pair: DualFiles, log: str) -> Iterator[Transaction]:
    """Yield every gtrid of the journal in order of its first record."""
    summaries: dict[bytes, _GtridSummary] = {}
    dangling = DanglingSet()
    for part, span in pair.records():
        record, path = span.record, part.path
        assert record is not None  # `records` gives no others
        assert path is not None
        place = (path, span.offset)
        summary = summaries.setdefault(record.gtrid, _GtridSummary(record.time, record, place))
        summary.add(path, span.offset, record)
        dangling.apply(record)
    for gtrid, summary in summaries.items():
        yield _transaction(log, gtrid, summary, dangling.get(gtrid))


def _transaction(
    log: str, gtrid: bytes, summary: _GtridSummary, kept: TransactionLogRecord | None
) -> Transaction:
    open_names = () if kept is None else kept.unique_names
    decided = summary.decision_place if kept is not None else None
    last = summary.last
    return Transaction(
        system=SYSTEM_NAME,
        log=log,
        key=gtrid.hex() or "(empty)",
        state=_STATE_OF.get(last.status, State.UNKNOWN) if kept is None else State.COMMITTING,
        format_id=FORMAT_ID,
        gtrid=gtrid,
        name=gtrid.hex().upper(),
        participants=tuple(sorted(summary.names)),
        open_participants=open_names,
        first_time=summary.first_time,
        last_time=last.time,
        records=summary.records,
        bytes=summary.bytes,
        files=tuple(summary.files),
        evidence=decided or summary.last_place,
        evidence_type=status_name(COMMITTING if decided else last.status),
        attributes=_attributes(gtrid, last, len(summary.names)),
    )


def _attributes(gtrid: bytes, last: TransactionLogRecord, names: int) -> dict[str, object]:
    parts = split_gtrid(gtrid)
    return {
        "lastStatus": status_name(last.status),
        "onePhase": names == 1,
        "serverId": parts.server_id,
        "gtridTimestamp": parts.time,
        "gtridSequence": parts.sequence,
    }
