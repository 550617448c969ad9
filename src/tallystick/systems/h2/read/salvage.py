"""Records that the engine does not reach: behind damage, in dropped sections, in old logs.

In: the state of a file. Out: entries with the stream they were read from. A run is a row of
whole data pages that follow each other in a trunk's list. Where a run begins inside a record the
first place is taken from which records follow each other without a fault; what stands before it
belongs to a record whose beginning is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tallystick.errors import CorruptLogError
from tallystick.records import Outcome
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import INCOMPLETE, UNKNOWN, Entry, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.page_chain import PageFile, TrunkChain
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.stream import LogStream, data_fault

PROOF_RECORDS = 4
"""Records in a row, no-ops apart, that must make sense for a place to count as a beginning."""
_PROOF_PAGES = 2
TRIALS_MAX = 1 << 16
"""Places tried in one file; runs behind them are read from their first byte, or not at all."""


@dataclass(frozen=True, slots=True)
class Run:
    """Data pages to read on their own, and what their records are to the log."""

    pages: tuple[int, ...]
    outcome: Outcome
    why: str


def runs(pages: PageFile, stream: LogStream | None) -> Iterator[Run]:
    """Every run of data pages outside the log: dropped, behind damage, of older logs."""
    known: set[int] = set()
    if stream is not None:
        known.update(stream.data_pages)
        why = "behind damage"
        yield from _cut(tuple(stream.lost), Outcome.VALID, why, stream)
        passed = tuple(page for page in stream.passed if _is_data(pages, page))
        yield from _cut(passed, Outcome.STALE, "in a dropped section", stream)
        known.update(stream.lost, passed)
    for pages_of_old in _old_trunks(pages, known):
        yield Run(pages_of_old, Outcome.STALE, "left over from an earlier log")


def _cut(ids: tuple[int, ...], outcome: Outcome, why: str, stream: LogStream) -> Iterator[Run]:
    # Pages that were neighbours in the lists of the log stay together.
    listed = [page for trunk in stream.chain.trunks for page in trunk.data_pages]
    place = {page: at for at, page in enumerate(listed)}
    row: list[int] = []
    for page in ids:
        if row and place.get(page, page) != place.get(row[-1], row[-1]) + 1:
            yield Run(tuple(row), outcome, why)
            row = []
        row.append(page)
    if row:
        yield Run(tuple(row), outcome, why)


def _is_data(pages: PageFile, page: int) -> bool:
    return (
        pages.exists(page)
        and pages.page(page)[0] == layout.STREAM_DATA
        and layout.checksum_ok(pages.page(page), page)
    )


def _old_trunks(pages: PageFile, known: set[int]) -> Iterator[tuple[int, ...]]:
    kinds = bytes(pages.data[: pages.page_count * pages.page_size : pages.page_size])
    for page_id, kind in enumerate(kinds):
        page = pages.page(page_id)
        if kind != layout.STREAM_TRUNK or not layout.checksum_ok(page, page_id):
            continue
        try:
            trunk = layout.decode_trunk(page, page_id)
        except CorruptLogError:
            continue
        row: list[int] = []
        for data in trunk.data_pages:
            if data not in known and data_fault(pages, data, trunk.key) is None:
                row.append(data)
                known.add(data)
            elif row:
                yield tuple(row)
                row = []
        if row:
            yield tuple(row)


def salvaged(
    pages: PageFile, stream: LogStream | None, zone: Zone
) -> Iterator[tuple[Entry, LogStream, Run]]:
    """Entries of every run, with a stream to place them and the run they are from."""
    trials = TRIALS_MAX
    for run in runs(pages, stream):
        part = _part(pages, list(run.pages))
        start = _beginning(part, zone, max(trials, 1))
        trials -= part.body_size if start is None else start
        if start is None:
            continue
        part.skip = start
        for entry in Scan(part, zone).entries():
            if entry.type != INCOMPLETE:
                yield entry, part, run


def _part(pages: PageFile, ids: list[int]) -> LogStream:
    return LogStream(pages, TrunkChain(), ids, [], [], None, 0, 0, end_of_file=True)


def _beginning(part: LogStream, zone: Zone, trials: int) -> int | None:
    """The first place in the first page from which records make sense."""
    proof = replace(part, data_pages=part.data_pages[:_PROOF_PAGES])
    for start in range(min(part.body_size, trials)):
        proof.skip = start
        if _makes_sense(Scan(proof, zone)):
            return start
    return None


def _makes_sense(scan: Scan) -> bool:
    seen = 0
    for entry in scan.entries():
        if entry.type == INCOMPLETE:
            return seen > 0 and not scan.end.error and not scan.end.quiet_fault
        if entry.type == UNKNOWN or entry.fault or entry.session < 0:
            return False
        seen += entry.code != Type.NOOP
        if seen >= PROOF_RECORDS:
            return True
    return seen > 0 and not scan.end.quiet_fault
