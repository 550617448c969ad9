"""Classify every byte of a file of a native log.

In: the bytes of a file and the places found in it. Out: `Span` objects that tile the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tallystick.records import Outcome, Span
from tallystick.storage.files import Bytes
from tallystick.storage.zeros import is_zero
from tallystick.systems.tally.format.layout import (
    COPY_OFFSET,
    DATA_OFFSET,
    HEADER_SIZE,
    GroupHeader,
    decode_group_header,
)
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.files import SegmentFile
from tallystick.systems.tally.read.header_search import magic_places
from tallystick.systems.tally.read.walk import Place, SegmentView

_BLOCK = 512
_OUTCOME = {
    Case.VALID: Outcome.VALID,
    Case.REPAIRED: Outcome.VALID,
    Case.CORRUPT: Outcome.CORRUPT,
    Case.TORN: Outcome.TORN,
}


def doubled_spans(size: int, what: str, damaged: int | None, *, whole: bool = True) -> list[Span]:
    """Return the spans of the first `DATA_OFFSET` bytes of a file of ``size`` bytes.

    ``damaged`` is the offset of a damaged copy; ``whole`` is False if both are damaged.
    """
    spans = []
    for start in (0, COPY_OFFSET):
        bad = damaged == start or not whole
        outcome = Outcome.CORRUPT if bad else Outcome.VALID
        reason = "its checksum does not fit" if bad else ""
        spans.append(Span(start, _BLOCK, outcome, what, reason))
        fill = COPY_OFFSET - _BLOCK
        spans.append(Span(start + _BLOCK, fill, Outcome.UNUSED, "fill", "between the copies"))
    return list(cut(spans, size))


def cut(spans: Iterable[Span], size: int) -> Iterator[Span]:
    """Yield the spans as far as a file of ``size`` bytes reaches."""
    for span in spans:
        if span.offset < size:
            length = min(span.length, size - span.offset)
            yield Span(span.offset, length, span.outcome, span.what, span.reason)


def add_place(spans: list[Span], place: Place) -> None:
    """Append the span of a place of one segment; whole groups next to each other share one."""
    outcome = _OUTCOME.get(place.case)
    if outcome is None or place.end <= place.offset:  # the file may end before the place
        return
    whole = place.case is Case.VALID
    what, reason = ("groups", "") if whole else ("group", place.reason)
    begin = place.offset
    if whole and spans and spans[-1].what == what and spans[-1].end == begin:
        begin = spans.pop().offset
    spans.append(Span(begin, place.end - begin, outcome, what, reason))


def segment_spans(file: SegmentFile, view: SegmentView, judged: Iterable[Span]) -> list[Span]:
    """Return the spans of a live segment, with those of the places that its walk found."""
    spans = doubled_spans(len(view.data), "segment header", file.damaged_copy)
    end = min(DATA_OFFSET, len(view.data))
    for span in judged:
        if span.offset > end:
            spans += remains(view.data, end, span.offset, view.header.number, view.written)
        spans.append(span)
        end = span.end
    index = view.index
    limit = index.offset if index is not None and index.offset >= end else len(view.data)
    spans += remains(view.data, end, limit, view.header.number, view.written)
    if limit < len(view.data):
        spans.append(_index_span(view, limit))
    return spans


def _index_span(view: SegmentView, start: int) -> Span:
    length = len(view.data) - start
    if view.index_whole:
        return Span(start, length, Outcome.VALID, "index")
    return Span(start, length, Outcome.CORRUPT, "index", "the index is damaged; groups are not")


def remains(
    data: Bytes, start: int, end: int, number: int, written: int | None = None
) -> Iterator[Span]:
    """Yield the spans of bytes from ``start`` to ``end`` that hold no group of segment ``number``.

    They are groups of earlier segments in the same file, fill, and remains of damaged groups. From
    ``written`` on all bytes are known to be zero.
    """
    place, written = start, end if written is None else min(end, written)
    for found in magic_places(data, start, written):
        if found < place:
            continue
        header = decode_group_header(data, found)
        if header is None or not _stale(data, header, found, number) or header.end > end:
            continue
        yield from _fill(data, place, found, written)
        reason = f"of segment {header.segment}, an earlier life of this file"
        yield Span(found, header.length, Outcome.STALE, "group", reason)
        place = header.end
    yield from _fill(data, place, end, written)


def _stale(data: Bytes, header: GroupHeader, place: int, number: int) -> bool:
    twin = bytes(data[header.end - HEADER_SIZE : header.end])
    return (
        header.offset == place
        and header.segment != number
        and twin == bytes(data[place : place + HEADER_SIZE])
    )


def _fill(data: Bytes, start: int, end: int, written: int) -> Iterator[Span]:
    if end <= start:
        return
    searched = max(min(end, written), start)
    blank = is_zero(memoryview(data), start, searched)
    what, reason = ("fill", "preallocated") if blank else ("remains", "no whole group of this life")
    yield Span(start, end - start, Outcome.UNUSED, what, reason)
