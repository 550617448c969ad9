"""Split a plain log into parts that are read, and closed, each on its own.

In: the log stream of a file. Out: `Split`s whose state says what a part needs of the rest. One
compiled walk over the log finds where records begin, and follows what is open; so a part knows how
many transactions end before it, and what becomes of those that are open at its end. Nothing of a
log that is not plain is split, nor of one whose pages do not follow each other in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from tallystick.roles import branch_of
from tallystick.systems.h2.columns.parts import End, Ending, Mark, Opened, Pages, Part, keys_of
from tallystick.systems.h2.format import session_kernels as kernels
from tallystick.systems.h2.format.catalogue import TableLives
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.format.numbers import decode_string, decode_var_int
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.skim import ROWS, ended_plainly
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.walk import Piece, Progress, walk
from tallystick.systems.protocol import Split

SESSIONS_MAX = 1 << 20
"""A log with higher numbers of sessions is not split."""

Observer = Callable[[Piece], None]
_Transaction = tuple[int, int]
"""Its session, and the offset of its first record."""


def splits_of(
    stream: LogStream, zone: Zone, target_bytes: int, observe: Observer,
    names: Callable[[], TableLives],
) -> list[Split]:  # fmt: skip
    """Return parts of about ``target_bytes`` that are the whole file; none where it has no parts.

    Args:
        stream: the log.
        zone: of the process that wrote it.
        target_bytes: bytes of the stream.
        observe: takes each piece of the log.
        names: returns the tables as they are expected to be, when all pieces are observed.
    """
    count = round(stream.size / max(1, target_bytes))
    ids = np.array(stream.data_pages, np.int64)
    if count < 2 or not (np.diff(ids) > 0).all():
        return []
    cutter = _Cutter(stream, [stream.size * index // count for index in range(1, count)])
    progress = Progress()
    for piece in walk(stream, ROWS, progress):
        if not cutter.take(piece):
            return []
        observe(piece)
    marks = cutter.marks()
    if len(marks) < 2 or ended_plainly(stream, zone, progress) is None:
        return []
    end = Mark(progress.offset, opened=cutter.opened())
    return list(_splits(stream, [*marks, end], cutter.endings, ids, names()))


@dataclass(slots=True)
class _Cutter:
    """Follows a log, and marks where parts may begin.

    Attributes:
        places: offsets from which on the next part may begin, ascending.
        endings: what became of transactions that crossed a mark.
    """

    stream: LogStream
    places: list[int]
    endings: dict[_Transaction, Ending] = field(default_factory=dict)
    _marks: list[Mark] = field(default_factory=lambda: [Mark()])
    _whole: list[tuple[int, int]] = field(default_factory=list)
    """Between which offsets no part may begin."""
    _filled: bool = False
    _opened: Any = field(
        default_factory=lambda: np.zeros((SESSIONS_MAX, kernels.OPEN_COLUMNS), np.int64)
    )
    _counts: Any = field(default_factory=lambda: np.zeros(3, np.int64))

    def take(self, piece: Piece) -> bool:
        """Take the next piece; return False where the log cannot be split."""
        starts, row = piece.starts, 0
        while self.places and self.places[0] < piece.end:
            following = int(np.searchsorted(starts, self.places[0]))
            if following == len(starts):
                break
            if not self._follow(piece, row, following):
                return False
            row = following
            self._marks.append(self._mark(piece, row))
            while self.places and self.places[0] <= starts[row]:
                del self.places[0]
        followed = self._follow(piece, row, len(starts))
        self._filled = int(piece.codes[-1]) == Type.NOOP
        return followed

    def marks(self) -> list[Mark]:
        """Return the marks, but for those in a transaction that only a part of it may explain."""
        return [
            mark
            for mark in self._marks
            if not any(begin < mark.position <= end for begin, end in self._whole)
        ]

    def opened(self) -> tuple[Opened, ...]:
        """Return what is open after the records that were followed, in the order of beginnings."""
        found = np.flatnonzero(self._opened[: self._counts[kernels.SESSIONS], kernels.OPEN_RECORDS])
        return tuple(sorted(map(self._one, found.tolist()), key=lambda one: one.begin))

    def _follow(self, piece: Piece, first: int, last: int) -> bool:
        crossed = np.empty((last - first, kernels.CROSSED_COLUMNS), np.int64)
        count = kernels.follow_sessions(
            piece.table, (first, last), piece.begin, self._marks[-1].position,
            self._opened, self._counts, crossed,
        )  # fmt: skip
        for session, begin, end, commit, name, halves in crossed[: max(count, 0)].tolist():
            if halves:
                self._whole.append((begin, end))
            named = commit and name != kernels.NONE
            xid = branch_of(self._name(name)) if named else None
            gtrid = xid.gtrid if xid else None
            self.endings[session, begin] = Ending(session, begin, commit, gtrid)
        return count != kernels.ODD

    def _mark(self, piece: Piece, row: int) -> Mark:
        listed, commits, _ = self._counts.tolist()
        filled = int(piece.codes[row - 1]) == Type.NOOP if row else self._filled
        return Mark(
            int(piece.starts[row]),
            int(piece.sequence[row]) - 1,
            int(piece.sections[row]),
            listed,
            commits,
            int(filled),
            self.opened(),
        )

    def _one(self, session: int) -> Opened:
        records, size, changes, prepared, begin, last, names, *places = self._opened[
            session
        ].tolist()
        code = self.stream.raw(last - 1, 1)[0] if last else 0
        return Opened(
            session, begin, records, size, changes, prepared - 1, last - 1, code,
            tuple(map(self._name, places[:names])),
        )  # fmt: skip

    def _name(self, start: int) -> str:
        """Return the name in the prepare record at an offset."""
        size = self.stream.pages.page_size
        while True:
            data = self.stream.raw(start, min(size, self.stream.size - start))
            try:
                _, at = decode_var_int(data, 1)
                name, _ = decode_string(data, at)
            except IndexError:
                size *= 2
                continue
            return name


def _splits(
    stream: LogStream,
    marks: Sequence[Mark],
    endings: dict[_Transaction, Ending],
    ids: Any,
    names: TableLives,
) -> Iterator[Split]:
    """Yield the parts that begin at each mark but the last one, which is the end of the log."""
    keys = keys_of(stream)
    edges = [0, *(stream.file_offset(mark.position) for mark in marks[1:-1])]
    edges.append(len(stream.pages.data))
    for (begin, after), (first, end) in zip(pairwise(marks), pairwise(edges), strict=True):
        last = after is marks[-1]
        page = begin.position // stream.body_size
        stop = len(ids) if last else -(-after.position // stream.body_size)
        pages = Pages(stream.pages.page_size, page, ids[page:stop], keys[page:stop])
        of_part = [
            endings.get((one.session, one.begin), Ending(one.session, one.begin, 0, None))
            for one in after.opened
        ]
        part = Part(begin, after.position, _end(stream) if last else None, pages, of_part, names)
        yield Split(stream.pages.file, first, end, part.packed())


def _end(stream: LogStream) -> End:
    fault = stream.fault or ""
    return End(str(fault), stream.fault_page, stream.end_key, int(stream.end_of_file))
