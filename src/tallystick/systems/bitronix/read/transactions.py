"""The last status of each global transaction, and the resources for which it is still open.

In: the records of both parts, earlier part first. Out: `Transaction` values by gtrid. Memory grows
with the number of gtrids in the journal, which its two files bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tallystick.records import State, Transaction
from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    FORMAT_ID,
    GTRID_OFFSET,
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
from tallystick.systems.bitronix.read.plain_records import Chunk, stored_names

STATE_OF = {
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
    last_status: int = 0
    last_time: int = 0
    last_place: tuple[str, int] = ("", 0)
    decision_place: tuple[str, int] | None = None
    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    records: int = 0
    bytes: int = 0

    def add(self, place: tuple[str, int], record: TransactionLogRecord) -> None:
        self.last_status, self.last_time, self.last_place = record.status, record.time, place
        if record.status == COMMITTING:
            self.decision_place = place
        self.names = _united(self.names, record.unique_names)
        self.files = _united_files(self.files, place[0])
        self.records += 1
        self.bytes += record.size


def transactions(pair: DualFiles, log: str) -> Iterator[Transaction]:
    """Yield every gtrid of the journal in order of its first record."""
    summaries: dict[bytes, _GtridSummary] = {}
    for part in pair.order():
        for chunk in () if part.plain is None else part.plain.chunks():
            _add_chunk(summaries, part.path or "", chunk)
        for span, record in pair.records_of(part):
            summary = summaries.get(record.gtrid)
            if summary is None:
                summary = summaries[record.gtrid] = _GtridSummary(record.time)
            summary.add((part.path or "", span.offset), record)
    dangling = pair.dangling()
    for gtrid, summary in summaries.items():
        yield _transaction(log, gtrid, summary, dangling.get(gtrid))


def _add_chunk(summaries: dict[bytes, _GtridSummary], path: str, chunk: Chunk) -> None:
    """Add plain records: what `_GtridSummary.add` does of each, gtrid by gtrid."""
    data, base = chunk.data, chunk.base
    rows, names = chunk.gtrids()
    found = []
    for begin, end, first_time, status, time, last, decision, count, size in rows:
        gtrid = data[begin + GTRID_OFFSET : end]
        one = summaries.get(gtrid)
        if one is None:
            one = summaries[gtrid] = _GtridSummary(first_time)
        found.append(one)
        one.last_status, one.last_time, one.last_place = status, time, (path, base + last)
        if decision >= 0:
            one.decision_place = (path, base + decision)
        one.files = _united_files(one.files, path)
        one.records += count
        one.bytes += size
    for number, begin, end in names:
        one = found[number]
        one.names = _united(one.names, stored_names(data[begin:end]))


@lru_cache(maxsize=1024)
def _united(names: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of both, sorted; cached, as a program has few sets of names."""
    return tuple(sorted({*names, *more}))


def _united_files(files: tuple[str, ...], path: str) -> tuple[str, ...]:
    return files if path in files else (*files, path)


def _transaction(
    log: str, gtrid: bytes, summary: _GtridSummary, kept: TransactionLogRecord | None
) -> Transaction:
    open_names = () if kept is None else kept.unique_names
    decided = summary.decision_place if kept is not None else None
    last = summary.last_status
    return Transaction(
        system=SYSTEM_NAME,
        log=log,
        key=gtrid.hex() or "(empty)",
        state=STATE_OF.get(last, State.UNKNOWN) if kept is None else State.COMMITTING,
        format_id=FORMAT_ID,
        gtrid=gtrid,
        name=gtrid.hex().upper(),
        participants=summary.names,
        open_participants=open_names,
        first_time=summary.first_time,
        last_time=summary.last_time,
        records=summary.records,
        bytes=summary.bytes,
        files=summary.files,
        evidence=decided or summary.last_place,
        evidence_type=status_name(COMMITTING if decided else last),
        attributes=_attributes(gtrid, last, len(summary.names)),
    )


def _attributes(gtrid: bytes, last: int, names: int) -> dict[str, object]:
    parts = split_gtrid(gtrid)
    return {
        "lastStatus": status_name(last),
        "onePhase": names == 1,
        "serverId": parts.server_id,
        "gtridTimestamp": parts.time,
        "gtridSequence": parts.sequence,
    }
