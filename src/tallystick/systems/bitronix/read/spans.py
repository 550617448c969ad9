"""A part of a journal as a `LogFile`, tiled by its spans, or as a `FileLife`.

In: a `Part` with its place in the order of the two, and its spans. Out: a `LogFile`, and lists of
spans whose neighbours of one kind are joined. Of a path: the life of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from tallystick.errors import LogUnreadableError
from tallystick.records import Clock, LogFile, Span
from tallystick.storage.source import open_source
from tallystick.systems.bitronix.format.layout import FileHeader
from tallystick.systems.bitronix.read.files import Part
from tallystick.systems.bitronix.read.scan import RecordSpan
from tallystick.systems.protocol import FileLife


def log_file(part: Part, order: int, spans: Iterable[Span], clock: Clock) -> LogFile:
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
        spans=tuple(spans),
    )


def join(spans: list[Span], found: RecordSpan) -> None:
    """Add a span after those of a file so far, to the last one if it is of the same kind."""
    kind = (found.outcome, found.what, found.reason)
    if spans and (spans[-1].outcome, spans[-1].what, spans[-1].reason) == kind:
        spans[-1] = Span(spans[-1].offset, spans[-1].length + found.length, *kind)
    else:
        spans.append(Span(found.offset, found.length, *kind))


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
