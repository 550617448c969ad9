"""The entries of a log without what few of its judges ask for: rows, images, most values.

In: a log stream. Out: the entries of `scan.Scan`, those of a long log from the compiled walk.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from tallystick.arrow.numba_kernel import pays
from tallystick.systems.h2.format.entries import INCOMPLETE, TABLE_CATALOG, TABLE_META, Entry
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.scan import Scan, ScanEnd
from tallystick.systems.h2.read.stream import LogStream

if TYPE_CHECKING:
    from tallystick.systems.h2.read.walk import Piece

OWN_TABLES = frozenset((TABLE_META, TABLE_CATALOG))
COMPILED_FROM = 1 << 22
"""Bytes of a log from which on it pays to load the compiler for its records."""
LOADED_FROM = 1 << 18
"""The same where the compiler is loaded already."""
ROWS = 1 << 13


@dataclass(slots=True)
class Skim:
    """One reading of a log: iterate over `entries` once, then look at `end`.

    Added rows of the tables in ``valued`` have values; an entry of another row may have its bytes
    only, and that of an image, if it is in order, none. An entry that is not in order is whole.
    """

    stream: LogStream
    zone: Zone
    valued: Container[int] = OWN_TABLES
    end: ScanEnd = field(default_factory=ScanEnd)

    def entries(self) -> Iterator[Entry]:
        """Yield every record in order; a run of no-ops as one."""
        if not compiled(self.stream):
            scan = Scan(self.stream, self.zone)
            yield from scan.entries()
            self.end = scan.end
            return
        from tallystick.systems.h2.read.walk import Progress, entries_of, rest_of, walk

        progress = Progress()
        for piece in walk(self.stream, ROWS, progress):
            yield from entries_of(piece, self.stream, self.zone, self.valued)
        scan, rest = rest_of(self.stream, self.zone, progress)
        yield from rest
        self.end = scan.end


@dataclass(slots=True)
class PlainLog:
    """A log of which every record is in order but the last, which may be cut off.

    Attributes:
        tail: the entry of the record that is cut off, if there is one.
        end: how a scan of the log ends.
    """

    stream: LogStream
    zone: Zone
    tail: list[Entry]
    end: ScanEnd

    def entries(self, piece: Piece, chosen: Any, valued: Container[int] = ()) -> Iterator[Entry]:
        """Yield the chosen records of a piece; added rows of the tables in ``valued`` decoded."""
        from tallystick.systems.h2.read.walk import entries_of

        return entries_of(piece, self.stream, self.zone, valued, chosen)

    def pieces(self) -> Iterator[Piece]:
        """Yield the records as columns, piece by piece."""
        from tallystick.systems.h2.read.walk import Progress, walk

        yield from walk(self.stream, ROWS, Progress())


def plain_log(stream: LogStream, zone: Zone) -> PlainLog | None:
    """Read the log once; return None if it is not plain, or too short for compiled code to pay.

    In a plain log sessions have the numbers that the engine gives them, from 1 on, or 0.
    """
    if not compiled(stream):
        return None
    from tallystick.systems.h2.read.walk import Progress, rest_of, walk

    progress = Progress()
    for piece in walk(stream, ROWS, progress):
        if piece.has_odd_session():
            return None
    if progress.irregular:
        return None
    scan, rest = rest_of(stream, zone, progress)
    tail = list(islice(rest, 2))
    if any(entry.type != INCOMPLETE for entry in tail) or next(rest, None) is not None:
        return None
    return PlainLog(stream, zone, tail, scan.end)


def compiled(stream: LogStream) -> bool:
    """Return True if a log is long enough for compiled code to pay, and there is a compiler."""
    if not pays(stream.size, LOADED_FROM, COMPILED_FROM):
        return False
    try:
        import numba  # noqa: F401 - without it the walk is slower than the plain scan
    except ImportError:
        return False
    return True
