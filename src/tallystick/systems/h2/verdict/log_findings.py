"""What a person should know about the log in a file: how it ends, its records and transactions.

In: the state of a file and its log stream. Out: findings.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import Finding, Severity, State
from tallystick.systems.h2.engine.state import LogState
from tallystick.systems.h2.format.entries import INCOMPLETE, UNKNOWN, Entry, Type
from tallystick.systems.h2.format.xid import parse_name
from tallystick.systems.h2.read.page_chain import TrunkEnd
from tallystick.systems.h2.read.salvage import salvaged
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.transactions import Group, groups
from tallystick.systems.h2.verdict.place import Place

_SOME = 5
_GROWTH_WARNING = 64
"""A listed page this many times beyond the end of the file is called damage."""


def log_findings(state: LogState, stream: LogStream, place: Place) -> Iterator[Finding]:
    """Every finding about the log: its end, its records, its transactions, names that are stale."""
    yield from _ending_findings(state, stream, place)
    yield from _entry_findings(state, stream, place)
    yield from _group_findings(state, stream, place)
    yield from _stale_names(state, stream, place)


def _ending_findings(state: LogState, stream: LogStream, place: Place) -> Iterator[Finding]:
    if stream.lost:
        yield _lost_finding(state, stream, place)
    elif stream.chain.end in (TrunkEnd.CHECKSUM, TrunkEnd.WRONG_PREVIOUS, TrunkEnd.CYCLE):
        yield place.finding(
            "trunk-chain-broken",
            Severity.DAMAGE,
            f"the chain of log pages breaks off: {stream.chain.end}",
            offset=stream.chain.end_page * stream.pages.page_size,
        )
    elif stream.fault is not None and not stream.end_of_file:
        yield place.finding(
            "log-page-damaged",
            Severity.DAMAGE,
            f"the log ends at page {stream.fault_page}, which was written once: {stream.fault}",
            offset=stream.fault_page * stream.pages.page_size,
        )
    far = [page for page in _listed(stream) if page >= stream.pages.page_count * _GROWTH_WARNING]
    if far:
        yield place.finding(
            "page-far-outside",
            Severity.DAMAGE,
            f"the log lists page {max(far)}, far behind the end of the file; opening the "
            f"database could grow the file to {max(far) * stream.pages.page_size} bytes",
            advice="Do not open the database; copy the file first",
        )


def _listed(stream: LogStream) -> Iterator[int]:
    for trunk in stream.chain.trunks:
        yield from trunk.data_pages


def _lost_finding(state: LogState, stream: LogStream, place: Place) -> Finding:
    commits = rows = 0
    for entry, _, run in salvaged(stream.pages, stream, state.zone):
        if run.pages[0] in stream.lost:
            commits += entry.code == Type.COMMIT
            rows += entry.session_bound
    where = stream.fault_page if stream.fault is not None else stream.chain.end_page
    reason = stream.fault if stream.fault is not None else stream.chain.end
    return place.finding(
        "lost-behind-damage",
        Severity.LOSS,
        f"log page {where} is damaged ({reason}), and the engine takes it for the end: a restart "
        f"silently drops at least {commits} commits and {rows} row changes that stand on it or on "
        f"the {len(stream.lost) - (where in stream.lost)} whole pages of this log behind it",
        offset=where * stream.pages.page_size,
        advice="Copy the file before any restart; dump it with salvage to see what is behind",
        risk=len(stream.lost) * stream.body_size,
    )


def _entry_findings(state: LogState, stream: LogStream, place: Place) -> Iterator[Finding]:
    scan = Scan(stream, state.zone)
    counts: dict[str, int] = {}
    first: dict[str, Entry] = {}
    for entry in scan.entries():
        code = _entry_code(entry)
        if code:
            counts[code] = counts.get(code, 0) + 1
            first.setdefault(code, entry)
    for code, entry in first.items():
        yield place.finding(
            code,
            Severity.LOSS if code != "torn-record" else Severity.INFO,
            f"{_ENTRY_TEXTS[code]} ({counts[code]} times, first: {entry.fault})",
            offset=stream.file_offset(entry.start),
        )
    if scan.end.quiet_fault:
        at = scan.end.quiet_fault
        yield place.finding(
            "log-cut-short",
            Severity.LOSS,
            f"the engine stops reading the log early and says nothing: {at}; whatever follows "
            "is dropped by a restart",
            advice="Copy the file before any restart",
        )


def _entry_code(entry: Entry) -> str:
    if entry.type == INCOMPLETE:
        return "torn-record"
    if entry.type == UNKNOWN:
        return "unknown-record-type"
    if not entry.fault:
        return ""
    return "damaged-undo-image" if entry.code == Type.UNDO else "damaged-row"


_ENTRY_TEXTS = {
    "torn-record": "the last record was not written whole, and is dropped",
    "unknown-record-type": "bytes that are no record: the engine skips them one by one and takes "
    "what follows for records",
    "damaged-undo-image": "an undo image does not expand to a page; the engine swallows the "
    "error and restores the page half",
    "damaged-row": "a row does not fit its length; the engine reads stale bytes or drops some",
}


def _group_findings(state: LogState, stream: LogStream, place: Place) -> Iterator[Finding]:
    lost = 0
    for group in groups(Scan(stream, state.zone).entries(), keep_rows=False):
        if group.state is State.PREPARED:
            yield from _in_doubt_findings(group, stream, place)
        elif group.state is State.ACTIVE and group.changes:
            lost += 1
    if lost:
        yield place.finding(
            "uncommitted",
            Severity.INFO,
            f"{lost} transactions were at work when the process ended; a restart rolls them back",
        )


def _in_doubt_findings(group: Group, stream: LogStream, place: Place) -> Iterator[Finding]:
    name = group.names[-1]
    xid = parse_name(name)
    offset = stream.file_offset(group.last.start) if group.last is not None else None
    gtrid = xid.gtrid if xid else None
    yield place.finding(
        "in-doubt",
        Severity.WARNING,
        f"transaction {name!r} is prepared and not decided: the database opens read-only. The "
        "engine writes COMMIT of a prepared transaction later than it says so, so it may have "
        "been committed: ask the coordinator before rolling it back",
        offset=offset,
        gtrid=gtrid,
        advice="COMMIT TRANSACTION or ROLLBACK TRANSACTION with this name, then reopen",
    )
    if len(group.names) > 1:
        hidden = ", ".join(repr(one) for one in group.names[:-1][:_SOME])
        yield place.finding(
            "name-hidden",
            Severity.WARNING,
            f"the transaction was prepared before as {hidden}; the engine lists {name!r} only",
            offset=offset,
            gtrid=gtrid,
        )
    if group.late:
        yield place.finding(
            "changes-behind-prepare",
            Severity.WARNING,
            f"{group.late} changes were logged behind the prepare record of {name!r} and are "
            "lost whichever way it is decided",
            offset=offset,
            gtrid=gtrid,
        )


def _stale_names(state: LogState, stream: LogStream, place: Place) -> Iterator[Finding]:
    names = []
    at = None
    for entry, part, run in salvaged(stream.pages, stream, state.zone):
        if entry.code == Type.PREPARE_COMMIT and run.pages[0] not in stream.lost:
            names.append(entry.name)
            at = part.file_offset(entry.start) if at is None else at
    if names:
        some = ", ".join(repr(name) for name in names[:_SOME])
        yield place.finding(
            "stale-names",
            Severity.INFO,
            f"{len(names)} names of finished transactions stand in passed log pages ({some}); "
            "they count for nothing",
            offset=at,
        )
