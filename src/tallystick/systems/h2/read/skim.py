"""The entries of a log without what few of its judges ask for: rows, images, most values.

In: a log stream. Out: the entries of `scan.Scan`, those of a long log from the compiled walk.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystick.arrow.numba_kernel import pays
from tallystick.systems.h2.format.entries import (
    TABLE_CATALOG,
    TABLE_META,
    Entry,
    Type,
)
from tallystick.systems.h2.format.numbers import decode_string, decode_var_int
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.types import decode_row
from tallystick.systems.h2.read.scan import Scan, ScanEnd
from tallystick.systems.h2.read.stream import LogStream

if TYPE_CHECKING:
    from tallystick.systems.h2.read.walk import Piece

OWN_TABLES = frozenset((TABLE_META, TABLE_CATALOG))
COMPILED_FROM = 1 << 22
"""Bytes of a log from which on it pays to load the compiler for its records."""
LOADED_FROM = 1 << 18
"""The same where the compiler is loaded already."""
_ROWS = 1 << 13
_NAMES = [one.name for one in Type]


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
        if not _compiled(self.stream):
            scan = Scan(self.stream, self.zone)
            yield from scan.entries()
            self.end = scan.end
            return
        from tallystick.systems.h2.read.walk import Progress, rest_of, walk

        progress = Progress()
        for piece in walk(self.stream, _ROWS, progress):
            yield from self._entries_of(piece)
        scan, rest = rest_of(self.stream, self.zone, progress)
        yield from rest
        self.end = scan.end

    def _entries_of(self, piece: Piece) -> Iterator[Entry]:
        data = memoryview(piece.data)
        for pos, section, code, start, length, count, session, table, number, size in piece.rows():
            begin = start
            entry = Entry(
                pos, section, code, start + piece.begin, length, _NAMES[code], count, session, table
            )
            if code == Type.UNDO:
                entry.page = number
            elif code == Type.PREPARE_COMMIT:
                _, at = decode_var_int(data, begin + 1)
                entry.name, _ = decode_string(data, at)
                entry.page, _ = self.stream.place(entry.start + length - 1)
            else:
                entry.key = number
                if code == Type.ADD:
                    entry.row = bytes(data[begin + length - size : begin + length])
                if code == Type.ADD and table in self.valued:
                    entry.values, _ = decode_row(entry.row, self.zone)
            yield entry


def _compiled(stream: LogStream) -> bool:
    if not pays(stream.size, LOADED_FROM, COMPILED_FROM):
        return False
    try:
        import numba  # noqa: F401 - without it the walk is slower than the plain scan
    except ImportError:
        return False
    return True
