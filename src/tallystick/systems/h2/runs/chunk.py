"""The records of a log as columns of numbers, chunk by chunk.

In: the log stream of a file. Out: `Chunk`s, which together have all its records: bytes of the
stream, and a table of the records that the compiled walk found in them. Where the walk meets a
record that it cannot vouch for, the scan reads that one, into a chunk of odd records, and the walk
goes on after it. Import this module only where a log is long: it loads NumPy and the compiler.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallystick.arrow.neighbours import distinct, marked
from tallystick.storage.mapped import let_go
from tallystick.systems import runs
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import (
    CHANGE_TYPES,
    INCOMPLETE,
    SESSION_TYPES,
    UNDO_RAW,
    Entry,
    Type,
)
from tallystick.systems.h2.format.numbers import decode_string, decode_var_int
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.types import decode_row
from tallystick.systems.h2.read.scan import Buffers, Scan, ScanEnd
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.runs import walk

WINDOW = 1 << 20
"""Stream bytes that are joined at once; more only for a record that does not fit."""
TABLE_ROWS = 1 << 13
"""Records of a chunk at most, however many are wanted."""
_ODD_MAX = 1 << 10
"""Odd records that are read one by one before the walk is tried again, at most."""
_CONTINUED = 0x80
"""A byte of a number from here on is not its last one."""
_NAMES = [one.name for one in Type]
WITH_SESSION = marked(SESSION_TYPES)
_WITH_TABLE = marked(CHANGE_TYPES)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records that follow each other: all found by the walk, or all read one by one by the scan.

    The place of a record is its number among those of the chunk, from 0: its column in ``table``.

    Attributes:
        data: stream bytes that are joined now; the table has offsets in them. None of odd records.
        table: numbers of the records, as `walk.walk` fills it; not a table of the database, which
            each record has in `tables`.
        begin: the offset in the stream of the first of the bytes.
        sequence: the position of each record in the log, counted from 1, no-ops included.
        sections: how many checkpoints come before each record.
        odd: the entries, where the scan has read the records one by one, else empty.
    """

    data: Any
    table: Any
    begin: int
    sequence: Any
    sections: Any
    odd: Sequence[Entry] = ()

    @property
    def codes(self) -> Any:
        """The type of each record."""
        return self.table[walk.CODE]

    @property
    def end(self) -> int:
        """The offset in the stream after the last record."""
        # Start and length are the first two rows of the table.
        return int(self.table[walk.START : walk.LENGTH + 1, -1].sum()) + self.begin

    @property
    def starts(self) -> Any:
        """The offset of each record in the stream."""
        return self.table[walk.START] + self.begin

    @property
    def changes(self) -> Any:
        """Which records are changes of rows."""
        return _WITH_TABLE[self.codes]

    @property
    def tables(self) -> Any:
        """The table of the database that each record changes; meaningless where it changes none."""
        return signed32(self.table[walk.TABLE])

    def sessions(self) -> tuple[list[int], Any]:
        """Return the sessions, ascending, and for each record the index of its own; -1 for none."""
        known = WITH_SESSION[self.codes]
        found, places = distinct(signed32(self.table[walk.SESSION][known]))
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
        sessions = self.table[walk.SESSION][commits]
        # Of equal keys a dict keeps the last value: the last COMMIT of each session.
        last = dict(zip(sessions.tolist(), commits.tolist(), strict=True)).values()
        prepared = self.of_type(Type.PREPARE_COMMIT).tolist()
        return np.array(sorted([*last, *prepared]), dtype=np.int64)

    def committed(self) -> tuple[int, dict[int, int], dict[int, int]]:
        """Count the COMMITs, and the changes before and after the last one of each session.

        Returns:
            How many COMMITs there are; by session with a COMMIT, the changes before its last one;
            by session, the changes that no COMMIT of it follows.
        """
        sessions, slots = self.sessions()
        commits, changes = self.of_type(Type.COMMIT), np.flatnonzero(self.changes)
        last = np.full(len(sessions), -1, np.int64)
        # `maximum.at`, as a plain assignment does not say which of equal slots would win.
        np.maximum.at(last, slots[commits], commits)
        # Everything before the last COMMIT of a session counts as committed (format, What recovery
        # does).
        before = changes < last[slots[changes]]
        counts = [
            np.bincount(slots[changes[chosen]], minlength=len(sessions)).tolist()
            for chosen in (before, ~before)
        ]
        ended = (last >= 0).tolist()
        found = zip(sessions, ended, *counts, strict=True)
        done, left = dict[int, int](), dict[int, int]()
        for session, is_ended, some, others in found:
            if is_ended:
                done[session] = some
            if others:
                left[session] = others
        return len(commits), done, left

    def follow_noops(self, filled: bool) -> Any:
        """Return which records follow a no-op; ``filled`` says whether the first one does.

        No-ops fill a page after an end that was decided by hand.
        """
        # No-ops in a row are one record here, so that one place in front is enough.
        noops = self.codes == Type.NOOP
        return np.concatenate(([filled], noops[:-1])) & ~noops

    def last_but_noops(self) -> Any:
        """Return the place of the last record that is no no-op, as an array of one, or none."""
        return np.flatnonzero(self.codes != Type.NOOP)[-1:]

    def undone_pages(self) -> Iterator[tuple[int, int, int]]:
        """Yield page, position and offset in the stream of each undo image."""
        places = self.of_type(Type.UNDO)
        pages = signed32(self.table[walk.NUMBER][places])
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
        codes = table[walk.CODE]
        columns = (
            sequence,
            sections,
            codes,
            table[walk.START],
            table[walk.LENGTH],
            table[walk.COUNT],
            np.where(WITH_SESSION[codes], signed32(table[walk.SESSION]), 0),
            np.where(_WITH_TABLE[codes], signed32(table[walk.TABLE]), 0),
            np.where(
                codes == Type.UNDO,
                signed32(table[walk.NUMBER]),
                table[walk.NUMBER],
            ),
            table[walk.BODY_LENGTH],
        )
        return zip(*(one.tolist() for one in columns), strict=True)


def entries_of(
    chunk: Chunk,
    stream: LogStream,
    zone: Zone,
    valued: Container[int] = (),
    chosen: Any | None = None,
) -> Iterator[Entry]:
    """Yield the records of a chunk, or the ``chosen`` ones, as entries with their rows.

    Added rows of the tables in ``valued`` have values; images are left out. Entries of odd records
    have all that the scan has read.
    """
    if chunk.odd:
        yield from chunk.odd if chosen is None else (chunk.odd[row] for row in chosen.tolist())
        return
    data = memoryview(chunk.data)
    for row in chunk.rows(chosen):
        pos, section, code, begin, length, count, session, table, number, size = row
        start = begin + chunk.begin
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


class Chunks:
    """The chunks of a log, or of a part of it: iterate over `read` once, then look at `end`."""

    def __init__(self, stream: LogStream, zone: Zone) -> None:
        self.end = ScanEnd()
        self._stream, self._zone = stream, zone
        self._ids = np.array(stream.data_pages, dtype=np.int64)
        self._file = np.frombuffer(stream.pages.data, dtype=np.uint8)
        self._buffers = Buffers(stream.pages.page_size)
        self._next = stream.skip
        """The offset in the stream of the record that is read next."""
        self._records = self._sections = 0
        self._ended = False

    def read(self, rows: int) -> Iterator[Chunk]:
        """Yield the records in order, at most ``rows`` in a chunk."""
        odd = 1
        while not self._ended:
            found = 0
            for chunk in self._plain(rows):
                yield chunk
                found += len(chunk.codes)
            # Where odd records are dense each try of the walk is wasted: they are tried less often.
            odd = 1 if found >= runs.RUN_MIN else min(2 * odd, _ODD_MAX)
            if entries := self._scanned(min(odd, rows)):
                yield self._chunk_of(entries)

    def _scanned(self, most: int) -> list[Entry]:
        """Return the next ``most`` records, read one by one; note the end of the log if it comes.

        Where they end is noted by `_chunk_of`.
        """
        # The scan goes on in the middle of the stream with the engine's buffers as they are there:
        # a short row takes bytes that an earlier one left in them.
        part = replace(self._stream, skip=self._next)
        scan = Scan(part, self._zone, self._records, self._sections, self._buffers)
        found = []
        for entry in scan.entries():
            found.append(entry)
            # An incomplete record is the last one: the scan must run out, for its end is that of
            # the log.
            if len(found) >= most and entry.type != INCOMPLETE:
                return found
        self.end, self._ended = scan.end, True
        return found

    def _chunk_of(self, odd: list[Entry]) -> Chunk:
        """Return records that the scan has read as a chunk, and go on after them."""
        first, last = odd[0], odd[-1]
        table = np.zeros((walk.COLUMNS, len(odd)), np.int64)
        for row, one in enumerate(odd):
            code = one.code if one.is_known else _NEUTRAL
            number = one.page & walk.MASK_32 if code == Type.UNDO else one.key
            start = one.start - first.start
            session, of = one.session & walk.MASK_32, one.table & walk.MASK_32
            table[:, row] = start, one.length, code, one.count, session, number, start, -1, of
        chunk = Chunk(
            np.zeros(0, np.uint8),
            table,
            first.start,
            np.array([one.pos for one in odd], np.int64),
            np.array([one.section for one in odd], np.int64),
            odd,
        )
        self._next = last.start + last.length
        self._records = last.pos + last.count - 1
        self._sections = last.section + (last.code == Type.CHECKPOINT)
        return chunk

    def _plain(self, rows: int) -> Iterator[Chunk]:
        """Yield the records up to the first one that is odd."""
        body_size, page_size = self._stream.body_size, self._stream.pages.page_size
        rest = np.zeros(0, dtype=np.uint8)
        window = max(WINDOW // body_size, 1)
        page, at = divmod(self._next, body_size)
        begin, pages, size = page * body_size, min(_FIRST_PAGES, window), min(_FIRST_ROWS, rows)
        while page < len(self._ids) or len(rest):
            data = self._join(self._ids[page : page + pages], rest)
            page += pages
            last = page >= len(self._ids)
            first, why = at, walk.FULL
            while why == walk.FULL:
                # A new one each time: who has a chunk may keep views of its table.
                table = np.empty((walk.COLUMNS, size), dtype=np.int64)
                count, at, why = walk.walk(data, at, last, page_size, table)
                if count:
                    yield self._chunk(data, table[:, :count], begin, begin + at)
                    size = min(rows, TABLE_ROWS)
            # A record longer than the window: it is joined with twice as much until it fits.
            pages = pages * 2 if at == first or pages < window else window
            if last or why == walk.IRREGULAR:
                return
            # The record that reaches over the end is read again, with more bytes after it.
            rest, at, begin = data[at:], 0, begin + at

    def _chunk(self, data: Any, table: Any, begin: int, end: int) -> Chunk:
        """Return the records of a table that the walk has filled, and go on after them.

        Args:
            data: the bytes in which the table has offsets.
            table: a column for each record.
            begin: the offset in the stream of ``data``.
            end: the offset in the stream after the last record.
        """
        counts, ends = table[walk.COUNT], table[walk.CODE] == Type.CHECKPOINT
        # No-ops in a row count as so many records; the sum minus their own count is the position of
        # the first one.
        after = self._records + 1 + np.cumsum(counts)
        sections = self._sections + np.cumsum(ends)
        # Minus ``ends``, as a checkpoint belongs to the section that it closes.
        chunk = Chunk(data, table, begin, after - counts, sections - ends)
        self._records, self._sections = int(after[-1]) - 1, int(sections[-1])
        self._next = end
        leave(chunk, self._buffers)
        return chunk

    def _join(self, ids: Any, rest: Any) -> Any:
        """Return ``rest`` followed by the stream bytes of these pages."""
        if len(ids):
            let_go(self._stream.pages.data, int(ids[0]) * self._stream.pages.page_size)
        size, body_size = self._stream.pages.page_size, self._stream.body_size
        data = np.empty(len(rest) + len(ids) * body_size, dtype=np.uint8)
        data[: len(rest)] = rest
        bodies = data[len(rest) :].reshape(-1, body_size)
        whole = self._file[: self._stream.pages.page_count * size].reshape(-1, size)
        # Log pages mostly lie side by side: a slice copies them several times as fast as a list.
        if len(ids) and ids[-1] - ids[0] == len(ids) - 1 and (np.diff(ids) == 1).all():
            bodies[:] = whole[ids[0] : ids[-1] + 1, layout.DATA_START :]
        else:
            bodies[:] = whole[ids, layout.DATA_START :]
        return data


_NEUTRAL = Type.CHECKPOINT
"""Stands in a table for a record that is not whole: a checkpoint is of no session, and fills no
page."""
_FIRST_PAGES = 16
_FIRST_ROWS = 1 << 8
"""Pages and records of the first chunk after an odd record: the next one may be near."""


def leave(chunk: Chunk, buffers: Buffers) -> None:
    """Bring the engine's buffers to their state after the records of a chunk.

    A buffer keeps bytes of earlier longer rows after a shorter one. So only those rows and images
    are copied after which none as long follows.
    """
    rows, images = chunk.of_type(Type.ADD), chunk.of_type(Type.UNDO)
    begins, sizes = chunk.table[[walk.BODY_START, walk.BODY_LENGTH]]
    for size in _growing(sizes[rows], len(buffers.rows)):
        buffers.grow(size)
    packed = images[(sizes[images] > 0) & ~_is_raw(chunk.data, begins[images])]
    kept = [_longest_to_come(packed, sizes[packed])]
    lengths = np.append(sizes[rows], np.full(len(images), buffers.page_size))
    # Every image is restored into the buffer of rows, where it is as long as a page.
    places = np.append(rows, images)
    order = np.argsort(places)
    kept.append(_longest_to_come(places[order], lengths[order]))
    data = memoryview(chunk.data)
    for row in np.unique(np.concatenate(kept)).tolist():
        begin = int(begins[row])
        body = data[begin : begin + int(sizes[row])]
        if chunk.codes[row] == Type.ADD:
            buffers.fill(body)
        else:
            _, at = decode_var_int(data, int(chunk.table[walk.START, row]) + 1)
            buffers.restore(decode_var_int(data, at)[0], body)


def _growing(sizes: Any, room: int) -> Iterator[int]:
    """Yield the sizes of rows for which the engine's buffer grows."""
    while (found := np.flatnonzero(sizes >= room)).size:
        size = int(sizes[found[0]])
        yield size
        room = 2 * (room + size)
        sizes = sizes[found[0] + 1 :]


def _is_raw(data: Any, begins: Any) -> Any:
    """Return which images are not compressed: a 0 stands before them in place of their size."""
    # The byte before the 0 has to end the number of the page: else the 0 is the last byte of a
    # longer size.
    return (data[begins - 1] == UNDO_RAW) & (data[begins - 2] < _CONTINUED)


def _longest_to_come(places: Any, sizes: Any) -> Any:
    """Return those of the places, which are in order, after which no size is as large again."""
    if not len(places):
        return places
    # From the end: the largest that is still to come after each place.
    most = np.maximum.accumulate(sizes[::-1])[::-1]
    return places[np.append(most[:-1] > most[1:], True)]


def signed32(values: Any) -> Any:
    """Return 32-bit patterns as signed numbers."""
    # The way through 32 bits gives bit 31 the sense of a sign.
    return values.astype(np.int32).astype(np.int64)
