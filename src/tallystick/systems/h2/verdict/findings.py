"""Findings of one file: damage, doubt, and what a restart would lose.

In: an `EngineResult` and a builder. Out: findings, the file's own first, then those of its log.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.printable import counted
from tallystick.records import Finding
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.h2.engine.digest import LogDigest
from tallystick.systems.h2.engine.opening import EngineResult, Opening
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.files import OpenedFile
from tallystick.systems.h2.read.salvage import salvaged
from tallystick.systems.h2.read.stream import DataFault, LogStream, PageFile, TrunkEnd
from tallystick.systems.h2.read.transactions import LoggedTransaction
from tallystick.systems.h2.runs.pieces import LogPieces
from tallystick.systems.h2.verdict.closed import is_freed
from tallystick.systems.h2.verdict.losses import lost_with

_NAMES_MAX = 5
"""Names that a message lists."""
_CHAIN_DAMAGES = (TrunkEnd.CHECKSUM, TrunkEnd.WRONG_PREVIOUS, TrunkEnd.CYCLE)


def findings_of(result: EngineResult, finding: FindingBuilder) -> Iterator[Finding]:
    """Yield every finding of a file."""
    file = result.file
    if result.opening.replaced and not (file.being_created or file.header_only):
        yield finding(
            "file-would-be-replaced",
            "the file is so short that the engine takes it for empty and starts a new database "
            "in its place",
            bytes_at_risk=file.size,
        )
    yield from _file_findings(file, finding)
    if file.encrypted:
        return
    if file.pages is not None:
        yield from _header_findings(file, file.pages, finding)
    if file.stream is not None:
        yield from _misnamed_findings(result, file.stream, finding)
        yield from _ending_findings(result, file.stream, finding)
    if result.digest is not None and result.recovery is not None:
        quiet = result.recovery.end.quiet_fault
        yield from _entry_findings(result, result.digest, quiet, finding)
        yield from _transaction_findings(result.digest, finding)
        yield from _stale_names(result.digest.stream, file.zone, finding)
    yield from _opening_findings(result, finding)


# -- the file -------------------------------------------------------------------------------


def _file_findings(file: OpenedFile, finding: FindingBuilder) -> Iterator[Finding]:
    if file.problem is not None and not file.header_only:
        error = file.problem
        yield finding(
            "unreadable-structure", error.message, advice=error.advice, offset=error.offset
        )
    if file.encrypted:
        yield finding(
            "encrypted",
            f"{file.why_encrypted}: its log cannot be read",
            offset=layout.INNER_MAGIC_OFFSET,
            advice="Give the right file password (--boot-password)"
            if file.password_given
            else None,
        )


def _header_findings(
    file: OpenedFile, pages: PageFile, finding: FindingBuilder
) -> Iterator[Finding]:
    first, second = pages.headers()
    for page, header in zip(layout.VARIABLE_HEADER_PAGES, (first, second), strict=True):
        if header is None and pages.exists(page):
            yield finding(
                "header-copy-damaged",
                f"the CRC-32 of header page {page} is wrong"
                + ("; the other copy is used" if first or second else ""),
                offset=page * pages.page_size,
            )
    misnamed = file.stream is not None and file.stream.misnamed
    if first and second and first != second and not misnamed:
        yield finding(
            "header-copies-differ",
            "the two header copies differ; the process ended between writing them, and the "
            "first is used",
            offset=2 * pages.page_size,
        )


def _misnamed_findings(
    result: EngineResult, stream: LogStream, finding: FindingBuilder
) -> Iterator[Finding]:
    file, header = result.file, result.file.header
    if not stream.misnamed or stream.lost or header is None:
        return
    if is_freed(stream.pages, stream, header):
        return
    copy = file.used_copy
    lost = lost_with(result, "header-drops-log")
    what = f"header page {copy} is whole but leads to no log ({stream.misnamed}); "
    offset = copy * stream.pages.page_size
    if lost.commits and file.other is not None:
        other = sum(layout.VARIABLE_HEADER_PAGES) - copy
        yield finding(
            "header-drops-log",
            f"{what}the engine uses it, begins an empty log and says nothing: it drops {lost}, "
            f"to which header page {other} leads, whole as well",
            offset=offset,
            advice=f"Type tallystick repair FILE --to COPY: it puts header page {other} in the "
            f"place of page {copy}; open the copy",
        )
    elif lost.commits and stream.dropped:
        yield finding(
            "header-drops-log",
            f"{what}the engine begins an empty log and says nothing: of {lost} on pages of this "
            "log it redoes none, and which of them are in the tables already is not known",
            offset=offset,
        )
    else:
        yield finding(
            "header-names-no-log",
            f"{what}the engine begins an empty log and says nothing; whether the log that was "
            "meant held commits cannot be told from this file",
            offset=offset,
        )


def _opening_findings(result: EngineResult, finding: FindingBuilder) -> Iterator[Finding]:
    opening = result.opening
    if not opening.opened:
        yield finding(
            "does-not-open",
            f"the engine refuses to open the database: error {opening.error_code}, {opening.error}",
            offset=opening.failed_at if opening.failed_at >= 0 else None,
        )
    if opening.partial:
        yield finding(
            "partial-redo",
            f"the engine stops redoing here without a word and opens the database: "
            f"{opening.partial}; changes of {lost_with(result, 'partial-redo')} after this place "
            "are lost",
            offset=opening.partial_at if opening.partial_at >= 0 else None,
        )
    yield from _table_findings(result, finding)


def _table_findings(result: EngineResult, finding: FindingBuilder) -> Iterator[Finding]:
    opening, pages = result.opening, result.file.pages
    for page, reason in opening.damaged_pages.items():
        yield finding(
            "table-page-damaged",
            f"page {page} of a table, an index or the free list is damaged: {reason}",
            offset=page * pages.page_size if pages is not None else None,
        )
    if opening.damaged_blocks:
        some = ", ".join(map(str, opening.damaged_blocks[:_NAMES_MAX]))
        yield finding(
            "large-object-damaged",
            f"of {counted(len(opening.damaged_blocks), 'block')} of large objects the hash is "
            f"another one than the map of blocks says (LOB_DATA {some}): their bytes are not those "
            "that were stored",
        )
    if opening.missing_objects:
        some = ", ".join(map(str, opening.missing_objects[:_NAMES_MAX]))
        yield finding(
            "large-object-damaged",
            f"{counted(len(opening.missing_objects), 'large object')} that rows name "
            f"(LOBS {some}) without blocks, or without one of them: the engine fails when it "
            "reads these rows",
        )
    yield from _oddities(opening, finding)
    for index, root in opening.emptied.items():
        sure = index in opening.had_rows
        others = "" if sure else "; whether it had others, nothing tells"
        yield finding(
            "table-page-empty" if sure else "table-page-zeroed",
            f"page {root} is zeroed, where table {index} begins, and the log has no image of it: "
            f"the engine opens the table with no row but those that the log adds{others}",
            offset=root * pages.page_size if pages is not None else None,
        )


def _oddities(opening: Opening, finding: FindingBuilder) -> Iterator[Finding]:
    """Yield what the engine never writes into the catalog, the page index and rows."""
    if opening.odd_sql:
        yield finding(
            "catalog-damaged",
            "a statement of the catalog holds bytes that the engine never writes: "
            f"{opening.odd_sql[:200]!r}",
        )
    if opening.odd_catalog:
        yield finding(
            "catalog-damaged",
            "the catalog and the page index are not as the engine leaves them: "
            + "; ".join(opening.odd_catalog[:_NAMES_MAX]),
        )
    for place in opening.odd_index_rows[:1]:
        yield finding(
            "catalog-damaged",
            f"rows, {len(opening.odd_index_rows):,} in all, that the log adds to the page index "
            "hold what the engine never writes; it reads each row, committed or not",
            offset=place,
        )
    for what, (count, first) in opening.odd_changes.items():
        yield finding(
            "damaged-row",
            f"the log has {count} {what}, which the engine never writes",
            offset=first,
        )


# -- how the log ends -----------------------------------------------------------------------


def _ending_findings(
    result: EngineResult, stream: LogStream, finding: FindingBuilder
) -> Iterator[Finding]:
    page_size = stream.pages.page_size
    if stream.lost:
        yield _lost_finding(result, stream, finding)
    elif stream.chain.end in _CHAIN_DAMAGES:
        yield finding(
            "trunk-chain-broken",
            f"the chain of log pages breaks off: {stream.chain.end}",
            offset=stream.chain.end_page * page_size,
        )
    elif stream.fault is DataFault.CHECKSUM:
        yield finding(
            "log-page-damaged",
            f"the log ends at page {stream.fault_page}, which was written once: {stream.fault}",
            offset=stream.fault_page * page_size,
        )
    yield from _outside_findings(stream, finding)
    yield from _impossible_findings(stream, finding)


def _outside_findings(stream: LogStream, finding: FindingBuilder) -> Iterator[Finding]:
    page_size, page_count = stream.pages.page_size, stream.pages.page_count
    last = max((page for _, page in stream.chain.listed()), default=-1)
    if stream.chain.trunks and stream.chain.end is TrunkEnd.OUTSIDE and not stream.lost:
        last = max(last, stream.chain.end_page)
    if page_count <= last < page_count * layout.GROWTH_MAX:
        yield finding(
            "file-cut-short",
            f"the file ends after page {page_count - 1}, and its log has page {last}: the file was "
            "cut, or that list is damaged. The engine takes a missing log page for the end of the "
            "log and says nothing; what stood after the cut cannot be told",
            offset=page_count * page_size,
        )
    if last >= page_count * layout.GROWTH_MAX:
        yield finding(
            "page-far-outside",
            f"the log lists page {last}, far after the end of the file; opening the "
            f"database could grow the file to {last * page_size} bytes",
        )


def _impossible_findings(stream: LogStream, finding: FindingBuilder) -> Iterator[Finding]:
    trunks = stream.chain.trunks
    seen = {trunk.page for trunk in trunks}
    impossible: dict[int, int] = {}
    for trunk in trunks:
        for page in trunk.data_pages:
            if page in seen or stream.pages.is_reserved(page):
                impossible.setdefault(page, trunk.page)
            seen.add(page)
    if impossible:
        page, place = next(iter(impossible.items()))
        yield finding(
            "impossible-log-page",
            f"the log lists {counted(len(impossible), 'page')} that no log has, first page {page}: "
            "of a header, of the free list or of the page index, or listed twice",
            offset=place * stream.pages.page_size,
        )


def _lost_finding(result: EngineResult, stream: LogStream, finding: FindingBuilder) -> Finding:
    where = stream.fault_page if stream.fault is not None else stream.chain.end_page
    reason = stream.fault if stream.fault is not None else stream.chain.end
    lost = lost_with(result, "lost-behind-damage")
    after = len(stream.lost) - (where in stream.lost)
    if stream.fault is DataFault.EMPTY and result.digest is not None and result.digest.flushed_end:
        return finding(
            "log-page-damaged",
            f"log page {where} is empty, and the log ends before it as one does of which nothing "
            f"is missing; but whole pages of a log stand after it ({after}): those are of "
            "another time or database, or the pages before them are",
            offset=where * stream.pages.page_size,
        )
    if not lost.commits:
        return finding(
            "log-page-damaged",
            f"log page {where} is damaged ({reason}), and the engine takes it for the end; no "
            f"commit stands on the {counted(after, 'whole page')} of this log after it, and what "
            "stood on the page itself is not known",
            offset=where * stream.pages.page_size,
        )
    return finding(
        "lost-behind-damage",
        f"log page {where} is damaged ({reason}), and the engine takes it for the end: a restart "
        f"silently drops at least {lost} that stand on it or on "
        f"the {counted(after, 'whole page')} of this log after it",
        offset=where * stream.pages.page_size,
        bytes_at_risk=len(stream.lost) * stream.body_size,
    )


# -- records --------------------------------------------------------------------------------

_ENTRY_TEXTS = {
    "torn-record": "the last record was not written whole, and is dropped",
    "odd-last-record": "the last record is damaged, and whatever stood after it is dropped",
    "unknown-record-type": "bytes that are no record: the engine skips them one by one and takes "
    "what follows for records",
    "damaged-undo-image": "an undo image does not expand to a page; the engine swallows the "
    "error and restores the page half",
    "damaged-row": "a row does not fit its length; the engine reads stale bytes or drops some",
}


def _entry_findings(
    result: EngineResult, digest: LogDigest, quiet_fault: str, finding: FindingBuilder
) -> Iterator[Finding]:
    for code, fault in digest.faults.items():
        yield finding(
            code,
            f"{_ENTRY_TEXTS[code]} ({counted(fault.count, 'time')}, first: {fault.text})",
            offset=digest.stream.file_offset(fault.start),
        )
    if quiet_fault:
        yield finding(
            "log-cut-short",
            f"the engine stops reading the log early and says nothing: {quiet_fault}; "
            "whatever follows is dropped by a restart, at least "
            f"{lost_with(result, 'log-cut-short')} on later pages",
        )


# -- transactions ---------------------------------------------------------------------------


def _transaction_findings(digest: LogDigest, finding: FindingBuilder) -> Iterator[Finding]:
    for one in digest.prepared:
        yield from _in_doubt_findings(one, digest.stream, finding)
    if digest.uncommitted:
        yield finding(
            "uncommitted",
            f"{counted(digest.uncommitted, 'transaction')} at work when the process ended: a "
            "restart rolls back what was open",
        )


def _in_doubt_findings(
    one: LoggedTransaction, stream: LogStream, finding: FindingBuilder
) -> Iterator[Finding]:
    name, xid = one.name, one.xid
    offset = stream.file_offset(one.last.start) if one.last is not None else None
    gtrid = xid.gtrid if xid else None
    yield finding(
        "in-doubt",
        f"transaction {name!r} is prepared and not decided: the database opens read-only. The "
        "engine writes COMMIT of a prepared transaction later than it says so, so it may have "
        "been committed: ask the coordinator before rolling it back",
        offset=offset,
        gtrid=gtrid,
    )
    if len(one.names) > 1:
        hidden = ", ".join(repr(one) for one in one.names[:-1][:_NAMES_MAX])
        yield finding(
            "name-hidden",
            f"the transaction was prepared before as {hidden}; the engine lists {name!r} only",
            offset=offset,
            gtrid=gtrid,
        )
    if one.late_changes:
        yield finding(
            "changes-behind-prepare",
            f"{counted(one.late_changes, 'change')} logged after the prepare record of {name!r}: "
            "lost whichever way it is decided",
            offset=offset,
            gtrid=gtrid,
        )


def _stale_names(stream: LogStream, zone: Zone, finding: FindingBuilder) -> Iterator[Finding]:
    names = []
    at = None
    for part, run in salvaged(stream.pages, stream, zone):
        for entry in () if run.pages[0] in stream.lost else LogPieces(part, zone).prepared():
            names.append(entry.name)
            at = part.file_offset(entry.start) if at is None else at
    if names:
        some = ", ".join(repr(name) for name in names[:_NAMES_MAX])
        stand, they = f"{len(names):,} names of finished transactions stand", "they count"
        if len(names) == 1:
            stand, they = "1 name of a finished transaction stands", "it counts"
        yield finding(
            "stale-names",
            f"{stand} in passed log pages ({some}); {they} for nothing",
            offset=at,
        )
