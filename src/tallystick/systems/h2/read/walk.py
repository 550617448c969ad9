"""The records of a log as columns of numbers, window by window.

In: the log stream of a file. Out: `Piece`s: bytes of the stream, and a table of the records that
the compiled walk found in them. It ends at the first record that is not in order. Import this
module only where a log is long: it loads NumPy and the compiler.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from tallystick.systems.h2.format import layout, record_kernels
from tallystick.systems.h2.format.entries import CHANGE_TYPES, SESSION_TYPES, Entry, Type
from tallystick.systems.h2.format.numbers import decode_string, decode_var_int
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.types import decode_row
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.stream import LogStream

WINDOW = 1 << 20
"""Stream bytes that are joined at once; more only for a record that does not fit."""
TABLE_ROWS = 1 << 13
"""Records of a piece at most, however many are wanted."""
_NEAR = 1 << 14
"""Numbers within a range of this size are told apart without sorting them."""
_NAMES = [one.name for one in Type]
_WITH_SESSION = np.array([one in SESSION_TYPES for one in Type])
_WITH_TABLE = np.array([one in CHANGE_TYPES for one in Type])


@dataclass(slots=True)
class Progress:
    """How far a walk came: rows, records and sections read, and the offset in the stream."""

    rows: int = 0
    records: int = 0
    sections: int = 0
    offset: int = 0
    irregular: bool = False
    """The walk ended at a record that is not in order."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Stream bytes that are joined now, and the records that the walk found in them.

    Attributes:
        data: the bytes; the table has offsets in them.
        table: as `record_kernels.walk` fills it.
        begin: the offset in the stream of the first of the bytes.
        sequence: the position of each record in the log, counted from 1, no-ops included.
        sections: how many checkpoints come before each record.
    """

    data: Any
    table: Any
    begin: int
    sequence: Any
    sections: Any

    @property
    def codes(self) -> Any:
        """The type of each record."""
        return self.table[record_kernels.CODE]

    @property
    def end(self) -> int:
        """The offset in the stream after the last record."""
        return (
            int(self.table[record_kernels.START : record_kernels.LENGTH + 1, -1].sum()) + self.begin
        )

    @property
    def starts(self) -> Any:
        """The offset of each record in the stream."""
        return self.table[record_kernels.START] + self.begin

    @property
    def changes(self) -> Any:
        """Which records are changes of rows."""
        return _WITH_TABLE[self.codes]

    @property
    def tables(self) -> Any:
        """The table of each record; meaningless where the record has none."""
        return signed32(self.table[record_kernels.TABLE])

    def has_odd_session(self) -> bool:
        """Return True if a session has a number that the engine gives none."""
        sessions = signed32(self.table[record_kernels.SESSION])
        return bool((sessions[_WITH_SESSION[self.codes]] < 0).any())

    def sessions(self) -> tuple[list[int], Any]:
        """Return the sessions, and the place among them of each record's session; -1: of none."""
        known = _WITH_SESSION[self.codes]
        found, places = distinct(signed32(self.table[record_kernels.SESSION][known]))
        slots = np.full(len(known), -1, dtype=np.int64)
        slots[known] = places
        return found, slots

    def of_type(self, code: int) -> Any:
        """Return the places of the records of a type."""
        return np.flatnonzero(self.codes == code)

    def added_to(self, table: int) -> Any:
        """Return the places of the rows that are added to a table."""
        places = self.of_type(Type.ADD)
        return places[self.tables[places] == table]

    def last_ends(self) -> Any:
        """Return the places of prepare records, and of the last COMMIT of each session."""
        commits = self.of_type(Type.COMMIT)
        sessions = self.table[record_kernels.SESSION][commits]
        last = dict(zip(sessions.tolist(), commits.tolist(), strict=True)).values()
        prepared = self.of_type(Type.PREPARE_COMMIT).tolist()
        return np.array(sorted([*last, *prepared]), dtype=np.int64)

    def follow_noops(self, filled: bool) -> Any:
        """Return which records follow no-ops; ``filled``: no-ops stand before the first."""
        noops = self.codes == Type.NOOP
        return np.concatenate(([filled], noops[:-1])) & ~noops

    def last_but_noops(self) -> Any:
        """Return the place of the last record that is no no-op, as an array of one, or none."""
        return np.flatnonzero(self.codes != Type.NOOP)[-1:]

    def undone_pages(self) -> Iterator[tuple[int, int, int]]:
        """Yield page, position and offset in the stream of each undo image."""
        places = self.of_type(Type.UNDO)
        pages = signed32(self.table[record_kernels.NUMBER][places])
        columns = pages, self.sequence[places], self.starts[places]
        return zip(*(one.tolist() for one in columns), strict=True)

    def rows(self, chosen: Any | None = None) -> Iterator[tuple[int, ...]]:
        """Yield position, section, code, offset in the data, length, count, session, table, number.

        Those that a record does not have are 0. Last comes the size of the row or the image at the
        end of the record; -1 where there is none. With ``chosen`` (their places) only some records.
        """
        table, sequence, sections = self.table, self.sequence, self.sections
        if chosen is not None:
            table, sequence, sections = table[:, chosen], sequence[chosen], sections[chosen]
        codes = table[record_kernels.CODE]
        columns = (
            sequence,
            sections,
            codes,
            table[record_kernels.START],
            table[record_kernels.LENGTH],
            table[record_kernels.COUNT],
            np.where(_WITH_SESSION[codes], signed32(table[record_kernels.SESSION]), 0),
            np.where(_WITH_TABLE[codes], signed32(table[record_kernels.TABLE]), 0),
            np.where(
                codes == Type.UNDO,
                signed32(table[record_kernels.NUMBER]),
                table[record_kernels.NUMBER],
            ),
            table[record_kernels.BODY_LENGTH],
        )
        return zip(*(one.tolist() for one in columns), strict=True)


def entries_of(
    piece: Piece,
    stream: LogStream,
    zone: Zone,
    valued: Container[int] = (),
    chosen: Any | None = None,
) -> Iterator[Entry]:
    """Yield the records of a piece, or the ``chosen`` ones, as entries with their rows.

    Added rows of the tables in ``valued`` have values; images are left out.
    """
    data = memoryview(piece.data)
    for row in piece.rows(chosen):
        pos, section, code, begin, length, count, session, table, number, size = row
        start = begin + piece.begin
        entry = Entry(pos, section, code, start, length, _NAMES[code], count, session, table)
        if code == Type.UNDO:
            entry.page = number
        elif code == Type.PREPARE_COMMIT:
            _, at = decode_var_int(data, begin + 1)
            entry.name, _ = decode_string(data, at)
            entry.page, _ = stream.place(start + length - 1)
        else:
            entry.key = number
            if code == Type.ADD:
                entry.row = bytes(data[begin + length - size : begin + length])
            if code == Type.ADD and table in valued:
                entry.values, _ = decode_row(entry.row, zone)
        yield entry


def walk(stream: LogStream, rows: int, progress: Progress) -> Iterator[Piece]:
    """Yield pieces of at most ``rows`` records, of a part of a stream from its first one on."""
    ids = np.array(stream.data_pages, dtype=np.int64)
    file = np.frombuffer(stream.pages.data, dtype=np.uint8)
    rest = np.zeros(0, dtype=np.uint8)
    window = max(WINDOW // stream.body_size, 1)
    page, pages, at = 0, window, stream.skip
    while page < len(ids) or len(rest):
        data = _join(file, stream, ids[page : page + pages], rest)
        page += pages
        last = page >= len(ids)
        first, why = at, record_kernels.FULL
        while why == record_kernels.FULL:
            # a batch keeps its table
            table = np.empty((record_kernels.COLUMNS, min(rows, TABLE_ROWS)), dtype=np.int64)
            count, at, why = record_kernels.walk(data, at, last, stream.pages.page_size, table)
            if count:
                yield _piece(data, table[:, :count], progress)
        pages = pages * 2 if at == first else window
        progress.offset += at
        progress.irregular = why == record_kernels.IRREGULAR
        if last or progress.irregular:
            return
        rest, at = data[at:], 0


def rest_of(stream: LogStream, zone: Zone, progress: Progress) -> tuple[Scan, Iterator[Entry]]:
    """Return the scan of what a walk left, and its entries.

    A record cut by the end of the log needs nothing before it. A damaged one may show bytes of
    earlier records, so then the plain scan starts from the first.
    """
    if progress.irregular:
        scan = Scan(stream, zone)
        return scan, islice(scan.entries(), progress.rows, None)
    page, at = divmod(progress.offset, stream.body_size)
    part = replace(stream, data_pages=stream.data_pages[page:], skip=at)
    origin = page * stream.body_size
    scan = Scan(part, zone, progress.records, progress.sections, origin)
    return scan, scan.entries()


def distinct(values: Any) -> tuple[list[int], Any]:
    """Return the numbers of an array, ascending, and the place among them of each."""
    if not len(values):
        return [], values
    least = values.min()
    if values.max() - least >= _NEAR:
        found, places = np.unique(values, return_inverse=True)
        return found.tolist(), places
    found = np.flatnonzero(np.bincount(values - least))
    of_number = np.zeros(int(found[-1]) + 1, np.int64)
    of_number[found] = np.arange(len(found))
    return (found + least).tolist(), of_number[values - least]


def signed32(values: Any) -> Any:
    """Return 32-bit patterns as signed numbers."""
    return values.astype(np.int32).astype(np.int64)


def _piece(data: Any, table: Any, progress: Progress) -> Piece:
    counts, ends = table[record_kernels.COUNT], table[record_kernels.CODE] == Type.CHECKPOINT
    after = progress.records + 1 + np.cumsum(counts)
    sections = progress.sections + np.cumsum(ends)
    progress.rows += table.shape[1]
    progress.records, progress.sections = int(after[-1]) - 1, int(sections[-1])
    return Piece(data, table, progress.offset, after - counts, sections - ends)


def _join(file: Any, stream: LogStream, ids: Any, rest: Any) -> Any:
    """Return ``rest`` followed by the stream bytes of these pages."""
    size = stream.pages.page_size
    data = np.empty(len(rest) + len(ids) * stream.body_size, dtype=np.uint8)
    data[: len(rest)] = rest
    bodies = data[len(rest) :].reshape(-1, stream.body_size)
    whole = file[: stream.pages.page_count * size].reshape(-1, size)
    if len(ids) and ids[-1] - ids[0] == len(ids) - 1 and (np.diff(ids) == 1).all():
        bodies[:] = whole[ids[0] : ids[-1] + 1, layout.DATA_START :]
    else:
        bodies[:] = whole[ids, layout.DATA_START :]
    return data
