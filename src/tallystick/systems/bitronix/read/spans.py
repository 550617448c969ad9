"""A part of a journal as a `LogFile`, tiled by its spans, or as a `FileLife`.

In: a `Part` with its place in the order of the two, and the newest record that is counted. Out: a
`LogFile` whose neighbouring spans of one kind are joined. Of a path: the life of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from tallystick.errors import LogUnreadableError
from tallystick.records import Clock, LogFile, Outcome, Span
from tallystick.storage.source import open_source
from tallystick.systems.bitronix.format.layout import HEADER_LENGTH, FileHeader
from tallystick.systems.bitronix.read.files import Part
from tallystick.systems.bitronix.read.scan import RecordSpan, Stamp
from tallystick.systems.protocol import FileLife


def log_file(part: Part, order: int, newest: Stamp | None, clock: Clock) -> LogFile:
    """Return the file of a part that can be read; ``order`` is 1 for the part in use."""
    return LogFile(
        path=part.path or "",
        size=part.size,
        role=f"part {part.number}, {'in use' if order else 'passive'}",
        order=order,
        generation=None if part.header is None else part.header.timestamp,
        clock=clock,
        redundant=order == 0,
        why="its open decisions were copied at the change of files" if order == 0 else "in use",
        spans=_joined(_spans(part, newest)),
    )


def _spans(part: Part, newest: Stamp | None) -> Iterator[RecordSpan]:
    """Yield the spans of a part, all plain records as one."""
    odd = part.odd_spans(newest)
    if part.plain is not None and part.plain.count:
        yield next(odd)  # the header
        length = part.plain.end - HEADER_LENGTH
        yield RecordSpan(HEADER_LENGTH, length, Outcome.VALID, "record")
    yield from odd


def _joined(found: Iterable[RecordSpan]) -> tuple[Span, ...]:
    spans: list[Span] = []
    for one in found:
        last = spans[-1] if spans else None
        kind = (one.outcome, one.what, one.reason)
        if last is not None and (last.outcome, last.what, last.reason) == kind:
            spans[-1] = Span(last.offset, last.length + one.length, *kind)
        else:
            spans.append(Span(one.offset, one.length, *kind))
    return tuple(spans)


class Lives(Mapping[str, FileLife]):
    """The life of every file that can be read, by path; only a file that is asked for is read.

    Its generation is the timestamp in its header. A torn record ends nothing: no whole one follows
    it among those that the header counts.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self._found: dict[str, FileLife] = {}

    def __iter__(self) -> Iterator[str]:
        return (path for path in self._paths if path in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, path: str) -> FileLife:
        if path not in self._found and path in self._paths:
            with suppress(LogUnreadableError), open_source(path) as opened:
                header = FileHeader.decode(opened.data)
                generation = None if header is None else header.timestamp
                self._found[path] = FileLife(None, generation, opened.size)
        return self._found[path]
