"""Records that the engine does not reach: after damage, in dropped sections, in old logs.

In: the pages of a file and its log. Out: parts of the file that can be read as logs. A run is here
a sequence of whole data pages that follow each other in a trunk's list, and not of plain records.
Where a run begins inside a record, reading starts at the first offset from which records follow
each other without a fault; what comes before belongs to a record whose beginning is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tallystick.records import Outcome
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import INCOMPLETE, UNKNOWN, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.stream import (
    LogStream,
    PageFile,
    TrunkChain,
    data_fault,
    whole_trunks,
)

PROOF_RECORDS = 4
"""Records in sequence, no-ops apart, that must be valid for an offset to count as a beginning."""
_PROOF_PAGES = 2
TRIALS_MAX = 1 << 16
"""Offsets tried in one file; runs after that are read from their first byte, or not at all."""


@dataclass(frozen=True, slots=True)
class PageRun:
    """Data pages to read on their own.

    Attributes:
        pages: their numbers, in the order of the stream.
        outcome: the outcome of whole records on them.
        why: why they are no part of the log, in words.
    """

    pages: tuple[int, ...]
    outcome: Outcome
    why: str


def page_runs(pages: PageFile, stream: LogStream | None) -> Iterator[PageRun]:
    """Yield every run of data pages outside the log: after damage, dropped, of older logs."""
    known: set[int] = set()
    if stream is not None:
        known.update(stream.data_pages)
        yield from _runs_of(list(stream.lost), Outcome.VALID, "after damage", stream)
        dropped = [page for page in stream.dropped if _is_data(pages, page)]
        yield from _runs_of(dropped, Outcome.STALE, "in a dropped section", stream)
        known.update(stream.lost, dropped)
    for pages_of_old in _runs_of_old_logs(pages, known):
        yield PageRun(pages_of_old, Outcome.STALE, "left over from an earlier log")


def _runs_of(ids: list[int], outcome: Outcome, why: str, stream: LogStream) -> Iterator[PageRun]:
    """Yield data pages that the trunks of the log list, as runs of neighbours in these lists."""
    if not ids:
        return
    # Pages that were neighbours in the lists of the log stay together.
    place = {page: at for at, (_, page) in enumerate(stream.chain.listed())}
    row: list[int] = []
    for page in ids:
        if row and place.get(page, page) != place.get(row[-1], row[-1]) + 1:
            yield PageRun(tuple(row), outcome, why)
            row = []
        row.append(page)
    if row:
        yield PageRun(tuple(row), outcome, why)


def _is_data(pages: PageFile, page: int) -> bool:
    return (
        pages.exists(page)
        and pages.page(page)[0] == layout.STREAM_DATA
        and layout.checksum_ok(pages.page(page), page)
    )


def _runs_of_old_logs(pages: PageFile, known: set[int]) -> Iterator[tuple[int, ...]]:
    """Yield runs of whole data pages that trunks list, without those that are ``known``.

    What is yielded is known from then on.
    """
    for trunk in whole_trunks(pages):
        row: list[int] = []
        for data in trunk.data_pages:
            if data not in known and data_fault(pages, data, trunk.key) is None:
                row.append(data)
                # A page is given once, though the lists of two old logs may have it.
                known.add(data)
            elif row:
                yield tuple(row)
                row = []
        if row:
            yield tuple(row)


def salvaged(
    pages: PageFile, stream: LogStream | None, zone: Zone
) -> Iterator[tuple[LogStream, PageRun]]:
    """Yield of every run outside the log the part that can be read, and the run."""
    yield from _parts_of(pages, page_runs(pages, stream), zone)


def parts_after(stream: LogStream, position: int, zone: Zone) -> Iterator[LogStream]:
    """Yield what can be read of the log from the page after the one that holds a stream offset.

    The pages are those of the log itself, which the engine does not reach, though they are whole.
    """
    behind = stream.data_pages[position // stream.body_size + 1 :]
    runs = [PageRun(tuple(behind), Outcome.VALID, "after damage")] if behind else []
    return (part for part, _ in _parts_of(stream.pages, runs, zone))


def _parts_of(
    pages: PageFile, runs: Iterable[PageRun], zone: Zone
) -> Iterator[tuple[LogStream, PageRun]]:
    """Yield the part of each run from its first whole record on, and the run."""
    trials = TRIALS_MAX
    for run in runs:
        part = LogStream(pages, TrunkChain(), list(run.pages))
        start = _beginning(part, zone, max(trials, 1))
        # Every offset that was tried costs a scan of some records; so the work stays linear in the
        # file.
        trials -= part.body_size if start is None else start
        if start is not None:
            part.skip = start
            yield part, run


def _beginning(part: LogStream, zone: Zone, trials: int) -> int | None:
    """Return the first offset in the first page from which records are valid."""
    proof = replace(part, data_pages=part.data_pages[:_PROOF_PAGES])
    for start in range(min(part.body_size, trials)):
        proof.skip = start
        if _is_valid(Scan(proof, zone)):
            return start
    return None


def _is_valid(scan: Scan) -> bool:
    """Return whether the first records of a scan, `PROOF_RECORDS` or up to its end, are whole."""
    seen = 0
    for entry in scan.entries():
        if entry.type == INCOMPLETE:
            # A run may end inside a record: what comes before counts, if there was any.
            return seen > 0 and not scan.end.error and not scan.end.quiet_fault
        if entry.type == UNKNOWN or entry.fault or entry.session < 0:
            return False
        seen += entry.code != Type.NOOP
        if seen >= PROOF_RECORDS:
            return True
    return seen > 0 and not scan.end.quiet_fault
