"""What opening a native log does, and why that can be said.

In: the scan of the log. Out: the `Ground`s of the answer. A group is acknowledged after its sync;
the control block of a closed or idle log says up to where everything is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from tallystick.records import AtStake, Finding
from tallystick.storage.source import ByteSource
from tallystick.storage.zeros import is_zero
from tallystick.systems.answers import Ground
from tallystick.systems.tally.codes import fatal
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    HEADER_SIZE,
    SECTOR_SIZE,
    decode_group_header,
)
from tallystick.systems.tally.read.files import Archive
from tallystick.systems.tally.read.header_search import magic_places
from tallystick.systems.tally.read.scan import Scan, open_segment

_ODD_ENDS = {"odd-group", "odd-end", "misplaced-group"}


def grounds(scan: Scan, ended: int | None) -> Iterator[Ground]:
    """Yield what holds of the log; ``ended`` is the number of transactions with an outcome."""
    if scan.broken and scan.catalog.archive is None:
        first = next((one.message for one in fatal(scan.findings)), "")
        text = f"Opening it is refused: {first}." if first else ""
        yield Ground("refused", text, AtStake(ended))
    if any(one.code == "encrypted" for one in scan.findings):
        yield Ground("encrypted")
    if scan.catalog.archive is not None and scan.end is not None:
        yield Ground(_archive_reason(scan))
        return
    if scan.catalog.unused and scan.catalog.segments and not scan.catalog.others:
        yield Ground("never-used")
        return
    control = scan.catalog.control
    if control is None or scan.end is None:
        return
    yield from _end_grounds(scan)


def _end_grounds(scan: Scan) -> list[Ground]:
    """Return what the end of the log says; the last segment is read once for all of it."""
    assert scan.end is not None
    assert scan.catalog.control is not None
    file, due = scan.end
    source, view = open_segment(file, scan.access)
    with source:
        whole = view.look(due).case.whole
        view.data = b""
        if whole:
            # The log is in use, and its writer has gone on: a group stands by now where the walk
            # found the end, so what stands after it was written since.
            return [Ground("last-group-whole")]
        found = [Ground("misplaced-group")] if _has_misplaced_group(scan, source) else []
        if not scan.clean:
            return [*found, Ground("last-group-cut" if _is_cut(scan) else "odd-group")]
        if not _is_unused(scan, source):
            return [*found, Ground("odd-end")]
    known = scan.catalog.control.durable_lsn == scan.next_lsn - 1
    return [*found, Ground("durable-mark" if known else "last-group-whole")]


def _archive_reason(scan: Scan) -> str:
    if any(one.code == "archive-gap" for one in scan.findings):
        return "archive-gap"
    if scan.catalog.archive is Archive.SEALED:
        return "archive-unnamed"
    return "archived-segments" if scan.clean else "archive-end"


def end_findings(scan: Scan, answer: Iterable[Ground]) -> Iterator[Finding]:
    """Yield a finding if a group may be gone whose loss no other finding tells."""
    odd = _ODD_ENDS & {one.code for one in answer}
    if odd and scan.end is not None:
        file, due = scan.end
        text = "no crash leaves this end of the log: a group may have stood there"
        yield scan.catalog.finding("end-damaged", text, file=file.path, offset=due.offset)


def _has_misplaced_group(scan: Scan, source: ByteSource) -> bool:
    """Return whether a group that is due, or a later one, has a header where it does not belong.

    Among the groups it takes the sectors of another one, which is found: without a finding only
    what lies before and after them has to be searched.
    """
    assert scan.end is not None
    first = DATA_OFFSET if scan.findings else scan.end[1].offset
    number = _last_segment(scan)
    for place in chain(
        magic_places(source.data, 0, DATA_OFFSET),
        magic_places(source.data, first, source.written),
    ):
        one = decode_group_header(source.data, place)
        if one is None or one.segment != number or one.first_lsn < scan.next_lsn:
            continue
        if place not in (one.offset, one.end - HEADER_SIZE):
            return True
    return False


def _is_cut(scan: Scan) -> bool:
    """Return whether a sector of the torn group, or its end, may never have been written.

    It is zero, as a failed write leaves the second header, or the segment has been recycled and an
    earlier life may show in it.
    """
    torn = [one for one in scan.findings if one.code == "torn-tail"][-1]
    assert torn.file is not None
    assert torn.offset is not None
    begin, end = torn.offset, torn.offset + torn.bytes_at_risk
    with scan.access.open(torn.file) as source:
        sectors = range(begin, min(end, source.size), SECTOR_SIZE)
        empty = any(is_zero(source.data, one, one + SECTOR_SIZE) for one in sectors)
        empty = empty or is_zero(source.data, end - HEADER_SIZE, end)
        return empty or _is_recycled(source, begin, _last_segment(scan))


def _is_unused(scan: Scan, source: ByteSource) -> bool:
    """Return whether a crash can have left the sector where the next group is due.

    It begins with a group, or was never written: then it is zero, or of an earlier life.
    """
    assert scan.end is not None
    due = scan.end[1].offset
    if is_zero(source.data, due, min(due + SECTOR_SIZE, source.size)):
        return True
    return _is_recycled(source, due, _last_segment(scan))


def _last_segment(scan: Scan) -> int:
    assert scan.end is not None
    header = scan.end[0].header
    assert header is not None
    return header.number


def _is_recycled(source: ByteSource, start: int, number: int) -> bool:
    """Return whether a group of another segment has a header from ``start`` on."""
    data, places = source.data, magic_places(source.data, start, source.written)
    headers = (decode_group_header(data, place) for place in places)
    return any(one is not None and one.segment != number for one in headers)
