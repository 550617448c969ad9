"""What every page of a file is, as spans that tile it.

In: an `OpenedFile`. Out: spans in file order, page by page, like neighbours joined.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tallystick.records import Outcome, Span
from tallystick.storage.mapped import let_go
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.read.files import OpenedFile
from tallystick.systems.h2.read.stream import AT_ONCE, DataFault, LogStream, PageFile, TrunkEnd

_Sorted = tuple[Outcome, str, str]
"""The outcome of a page, what it is, and why it has that outcome; empty where that is plain."""

_KINDS = {
    layout.DATA_LEAF: "table page",
    layout.DATA_NODE: "table page",
    layout.DATA_OVERFLOW: "table page",
    layout.BTREE_LEAF: "index page",
    layout.BTREE_NODE: "index page",
    layout.FREE_LIST: "free list page",
    layout.STREAM_TRUNK: "log trunk page",
    layout.STREAM_DATA: "log data page",
}
_DAMAGES = (DataFault.CHECKSUM, DataFault.NOT_DATA)
"""Faults that are damage in themselves; the others are the normal end unless log pages follow."""


def spans_of(opened: OpenedFile) -> tuple[Span, ...]:
    """Return spans that tile the file."""
    if opened.pages is None:
        if not opened.size:
            return ()
        reason = str(opened.problem) if opened.problem else "no page store header"
        return (Span(0, opened.size, Outcome.CORRUPT, "file", reason),)
    return tuple(_page_spans(opened, opened.pages))


def _page_spans(opened: OpenedFile, pages: PageFile) -> Iterator[Span]:
    known = _log_pages(opened.stream) if opened.stream is not None else {}
    for page_id in (0, *layout.VARIABLE_HEADER_PAGES):
        if pages.exists(page_id):
            known[page_id] = _header(opened, pages, page_id)
    place = 0
    for one, neighbours in groupby(_every_page(pages, known)):
        length = sum(1 for _ in neighbours) * pages.page_size
        yield Span(place, length, *one)
        place += length
    if place < opened.size:
        reason = "the file ends inside a page; the engine ignores the fragment"
        yield Span(place, opened.size - place, Outcome.TORN, "fragment of a page", reason)


def _every_page(pages: PageFile, known: dict[int, _Sorted]) -> Iterator[_Sorted]:
    """Yield what every page of the file is, in order; ``known`` has some of them by number."""
    for page_id in range(pages.page_count):
        if page_id % AT_ONCE == 0:
            let_go(pages.data, page_id * pages.page_size)
        yield known.get(page_id) or _other(pages, page_id)


def _header(opened: OpenedFile, pages: PageFile, page_id: int) -> _Sorted:
    if page_id == 0:
        if pages.static.magic_ok:
            return Outcome.VALID, "static header", ""
        return Outcome.CORRUPT, "static header", "the text it begins with is damaged"
    header = pages.headers()[page_id - 1]
    if header is None:
        return Outcome.CORRUPT, "variable header", "its CRC-32 is wrong"
    if header != opened.header:
        return Outcome.STALE, "variable header", "the first copy says otherwise and is used"
    return Outcome.VALID, "variable header", ""


def _log_pages(stream: LogStream) -> dict[int, _Sorted]:
    """Return what the pages are that the log lists, by number."""
    found: dict[int, _Sorted] = {}
    # A damaged log may list a page twice: what the engine uses comes later, and replaces the rest.
    for page in stream.dropped:
        found[page] = (Outcome.STALE, "log data page", "its section was dropped")
    for page in stream.after_end:
        found[page] = _after_end(stream, page)
    if stream.fault is not None and stream.pages.exists(stream.fault_page):
        found[stream.fault_page] = _ending(stream)
    for page in stream.data_pages:
        found[page] = (Outcome.VALID, "log data page", "")
    for trunk in stream.chain.trunks:
        found[trunk.page] = (Outcome.VALID, "log trunk page", "")
    if stream.chain.end is TrunkEnd.CHECKSUM:
        found[stream.chain.end_page] = (
            Outcome.CORRUPT,
            "log trunk page",
            "its checksum is wrong",
        )
    return found


def _ending(stream: LogStream) -> _Sorted:
    """Return what the page is that ended the stream."""
    if stream.fault in _DAMAGES or stream.lost:
        return Outcome.CORRUPT, "log data page", f"the log breaks off here: {stream.fault}"
    if stream.fault is DataFault.EMPTY:
        return Outcome.UNUSED, "reserved log page", "listed in advance, not written"
    return Outcome.STALE, "log data page", f"the log ends here: {stream.fault}"


def _after_end(stream: LogStream, page: int) -> _Sorted:
    """Return what a page is that the log lists after the one that ended the stream."""
    if page in stream.lost:
        return Outcome.VALID, "log data page", "whole, but after damage: the engine drops it"
    if stream.pages.exists(page) and stream.pages.page(page)[0] == layout.EMPTY:
        return Outcome.UNUSED, "reserved log page", "listed in advance, not written"
    return Outcome.STALE, "log data page", "listed after the end of the log"


def _other(pages: PageFile, page_id: int) -> _Sorted:
    """Return what a page is that is no header, and that the log does not list."""
    page = pages.page(page_id)
    kind = page[0] & ~layout.LAST
    if page[0] == layout.EMPTY:
        return Outcome.UNUSED, "empty page", "its first byte is zero"
    what = _KINDS.get(kind, "page")
    if pages.static.encrypted:
        return Outcome.VALID, "encrypted page", ""
    if not layout.checksum_ok(page, page_id):
        return Outcome.CORRUPT, what, "its checksum is wrong"
    if kind in (layout.STREAM_TRUNK, layout.STREAM_DATA):
        return Outcome.STALE, what, "left over from an earlier log, or given up"
    return Outcome.VALID, what, ""
