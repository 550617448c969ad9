"""One scan of the log stream: records in order, as the engine reads them.

In: a `LogStream`. Out: one `Entry` after the other, with memory for one record and the engine's two
buffers only, and at the end how the scan ended. Defects of the engine that can be seen are kept:
unknown types are skipped byte by byte, a bad undo image is used half expanded, a row with too
many columns continues in stale bytes. `Entry.fault` says what is wrong with an entry.
Source: docs/formats/h2.md, "Records" and "What the engine does not say".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from tallystick.storage.files import SECTOR
from tallystick.systems.h2.format.entries import (
    END_FIRST,
    INCOMPLETE,
    UNDO_EMPTY,
    UNDO_RAW,
    UNKNOWN,
    UNKNOWN_FIRST,
    Entry,
    Type,
    begun_row,
    decode_keyed_row,
)
from tallystick.systems.h2.format.lzf import ExpansionError, expand_into
from tallystick.systems.h2.format.numbers import decode_string, decode_var_int, decode_var_long
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.types import (
    EngineFailureError,
    FileCorruptedError,
    Value,
    decode_row,
)
from tallystick.systems.h2.read.stream import LogStream

_ZEROS = re.compile(rb"\0*")
WINDOW_PAGES = 256
"""Data pages that are joined at once; more only for a record that does not fit."""


@dataclass(slots=True)
class ScanEnd:
    """How a scan ended.

    Attributes:
        text: the end in the oracle's words.
        error: why the engine fails instead of ending quietly.
        quiet_fault: why the engine drops readable bytes that follow, without an error.
    """

    text: str = ""
    error: str = ""
    quiet_fault: str = ""


class Buffers:
    """The engine's two buffers: they hold bytes of earlier records, which damaged ones show.

    Attributes:
        rows: where rows and images of pages are put together; it grows.
        packed: where compressed images are.
    """

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.rows = bytearray(page_size)
        self.packed = bytearray(2 * page_size)

    def fill(self, row: bytes | memoryview) -> None:
        """Put in a row."""
        self.grow(len(row))
        self.rows[: len(row)] = row

    def grow(self, size: int) -> None:
        """Make room for a row of so many bytes, as the engine does."""
        if size >= len(self.rows):
            # The engine's own rule, as what stands after a short row depends on the size.
            self.rows += bytes(2 * (len(self.rows) + size) - len(self.rows))

    def restore(self, size: int, stored: bytes | memoryview) -> str:
        """Expand an undo image at the start of ``rows``, as the engine does; it may be damaged.

        Args:
            size: as the record states it, `UNDO_RAW` and `UNDO_EMPTY` included.
            stored: the bytes after it.

        Returns:
            What is wrong with the image; empty if nothing is.
        """
        fault = ""
        if size == UNDO_RAW:
            self.rows[: self.page_size] = stored
        elif size == UNDO_EMPTY:
            self.rows[: self.page_size] = bytes(self.page_size)
        else:
            self.packed[: len(stored)] = stored
            try:
                used = expand_into(memoryview(self.packed), self.rows, self.page_size)
                if used > size:
                    fault = "undo image runs over its end into stale bytes"
            except ExpansionError as error:
                fault = f"undo image damaged: {error.reason}; {error.done} bytes restored"
        return fault


@dataclass(slots=True)
class Scan:
    """The state of one scan: iterate over `entries` once, then look at `end`.

    Attributes:
        before: records of the log before the place where the scan begins, `LogStream.skip`.
        sections: checkpoints before that place.
        buffers: the engine's buffers as the records before that place have left them; the scan
            writes to them. None for new ones.
    """

    stream: LogStream
    zone: Zone
    before: int = 0
    sections: int = 0
    buffers: Buffers | None = None
    end: ScanEnd = field(default_factory=ScanEnd)
    _buffers: Buffers = field(init=False)

    def entries(self) -> Iterator[Entry]:
        """Yield every record in order; no-ops in a row as one."""
        self._buffers = self.buffers or Buffers(self.stream.pages.page_size)
        pos, section = self.before, self.sections
        for entry in self._walk():
            entry.pos, entry.section = pos + 1, section
            pos += entry.count
            section += entry.code == Type.CHECKPOINT
            yield entry

    def _walk(self) -> Iterator[Entry]:
        """Yield every record without its position and section; note how the scan ends."""
        window = _Window(self.stream)
        while True:
            entry = Entry(0, 0, 0, window.position)
            try:
                window.read(partial(self._decode, entry))
            except IndexError:
                self._end_of_stream()
                if window.at < len(window.data):
                    entry.odd = self._odd(entry, window.data, window.at + 1)
                    yield _cut(entry, window, entry.odd or "the stream ends inside it")
                return
            except FileCorruptedError as error:
                self.end = ScanEnd(f"quiet: file corrupted ({error})", quiet_fault=str(error))
                yield _cut(entry, window, str(error))
                return
            except EngineFailureError as error:
                self.end = ScanEnd(f"error: {error}", error=str(error))
                yield _cut(entry, window, str(error))
                return
            # The type is a signed byte in the engine: a negative one ends its loop without a word.
            if entry.code >= END_FIRST:
                fault = f"record type {entry.code - 256}"
                self.end = ScanEnd(f"quiet: {fault}", quiet_fault=fault)
                return
            entry.length = window.position - entry.start
            if entry.code == Type.PREPARE_COMMIT:
                # The engine notes the page that it reads when the name ends: COMMIT is written over
                # that one.
                entry.page, _ = self.stream.place(window.position - 1)
            yield entry

    def _end_of_stream(self) -> None:
        known = "true" if self.stream.end_of_file else "false"
        self.end = ScanEnd(f"quiet: end of stream (key={self.stream.end_key} eof={known})")

    def _odd(self, entry: Entry, data: bytes, at: int) -> str:
        """Return why the engine cannot have begun the record inside which the stream ends.

        Empty if it can have. ``at``: the offset in ``data`` after the type of the record.
        """
        page_size = self.stream.pages.page_size
        if entry.code == Type.UNDO and entry.size > page_size:
            return f"the stream ends inside an undo image of {entry.size} bytes"
        if entry.code != Type.ADD:
            return ""
        try:
            row = begun_row(data, self._table(data, at, entry))
            zeros = len(row) - len(row.rstrip(b"\0"))  # of sectors that may not have been written
            decode_row(row[: len(row) - zeros // SECTOR * SECTOR], self.zone)
        except IndexError:
            return ""
        except (FileCorruptedError, EngineFailureError) as error:
            return f"the stream ends inside it, and its row is damaged: {error}"
        return "the stream ends inside it, and after its row"

    def _decode(self, entry: Entry, data: bytes, at: int) -> int:
        """Fill an entry from the record at an offset in ``data``; return the offset after it.

        The functions of `_DECODERS` do this for the fields after the type. Where the data end
        inside the record `IndexError` is raised, and all is done again with more data.
        """
        code = entry.code = data[at]
        if code >= UNKNOWN_FIRST:
            entry.type = UNKNOWN
            entry.fault = f"unknown record type {code}: the engine skips this one byte"
            return at + 1
        entry.type = Type(code).name
        return _DECODERS[code](self, data, at + 1, entry)

    def _undo(self, data: bytes, at: int, entry: Entry) -> int:
        page_size = self.stream.pages.page_size
        entry.page, at = decode_var_int(data, at)
        entry.size, at = decode_var_int(data, at)
        count = page_size if entry.size == UNDO_RAW else entry.size
        if entry.size == UNDO_EMPTY:
            count = 0
        if count > len(self._buffers.packed):
            raise FileCorruptedError(f"undo image of {count} bytes")
        entry.stored = bytes(_exactly(data, at, max(count, 0)))
        entry.fault = self._buffers.restore(entry.size, entry.stored)
        entry.image = bytes(self._buffers.rows[:page_size])
        return at + max(count, 0)

    def _session(self, data: bytes, at: int, entry: Entry) -> int:
        entry.session, at = decode_var_int(data, at)
        return at

    def _prepare(self, data: bytes, at: int, entry: Entry) -> int:
        at = self._session(data, at, entry)
        count, _ = decode_var_int(data, at)
        if count < 0:
            raise EngineFailureError(f"a transaction name of {count} characters")
        entry.name, at = decode_string(data, at)
        return at

    def _table(self, data: bytes, at: int, entry: Entry) -> int:
        at = self._session(data, at, entry)
        entry.table, at = decode_var_int(data, at)
        return at

    def _remove(self, data: bytes, at: int, entry: Entry) -> int:
        at = self._table(data, at, entry)
        entry.key, at = decode_var_long(data, at)
        return at

    def _add(self, data: bytes, at: int, entry: Entry) -> int:
        at = self._table(data, at, entry)
        entry.key, entry.row, at = decode_keyed_row(data, at)
        # Before its values are decoded: a row that is too short goes on in what stands here after
        # it.
        self._buffers.fill(entry.row)
        entry.values, used = self._row_values(entry.row)
        if used > len(entry.row):
            entry.fault = "its values run over the row's end into stale bytes"
        elif used < len(entry.row):
            entry.fault = f"{len(entry.row) - used} bytes of the row belong to no value"
        return at

    def _row_values(self, row: bytes) -> tuple[tuple[Value | None, ...], int]:
        """Return the values of a row as the engine reads them, and how many bytes that takes."""
        try:
            return decode_row(row, self.zone)
        except IndexError:
            # The engine reads on in what its buffer holds from earlier records.
            with memoryview(self._buffers.rows) as stale:
                try:
                    return decode_row(stale, self.zone)
                except IndexError:
                    raise EngineFailureError("a row that runs over the buffer") from None

    def _nothing(self, _data: bytes, at: int, _entry: Entry) -> int:
        return at

    def _noops(self, data: bytes, at: int, entry: Entry) -> int:
        zeros = _ZEROS.match(data, at)
        end = at if zeros is None else zeros.end()
        entry.count = end - at + 1
        return end

    def _free_log(self, data: bytes, at: int, entry: Entry) -> int:
        count, at = decode_var_int(data, at)
        pages = []
        for _ in range(count):
            page, at = decode_var_int(data, at)
            pages.append(page)
        entry.pages = tuple(pages)
        return at


_DECODERS: dict[int, Callable[[Scan, bytes, int, Entry], int]] = {
    Type.NOOP: Scan._noops,
    Type.UNDO: Scan._undo,
    Type.COMMIT: Scan._session,
    Type.PREPARE_COMMIT: Scan._prepare,
    Type.ROLLBACK: Scan._session,
    Type.ADD: Scan._add,
    Type.REMOVE: Scan._remove,
    Type.TRUNCATE: Scan._table,
    Type.CHECKPOINT: Scan._nothing,
    Type.FREE_LOG: Scan._free_log,
}


def whole_entries(stream: LogStream) -> Iterator[Entry]:
    """Yield the records that are whole and known, in order."""
    return (entry for entry in Scan(stream, Zone()).entries() if entry.is_known)


def _exactly(data: bytes, at: int, count: int) -> bytes:
    some = data[at : at + count]
    if len(some) < count:
        raise IndexError
    return some


def _cut(entry: Entry, window: _Window, fault: str) -> Entry:
    """Return the entry as one that is cut off: with all that follows in the stream."""
    entry.type = INCOMPLETE
    entry.length = window.stream.size - entry.start
    entry.fault = fault
    return entry


class _Window:
    """The stream bytes that are joined now: more pages are joined until the next record fits.

    Attributes:
        data: the bytes.
        at: the offset in them of the next record.
        next_page: the number in the stream of the data page after them.
    """

    def __init__(self, stream: LogStream) -> None:
        self.stream = stream
        page, at = divmod(stream.skip, stream.body_size)
        self.data = stream.bodies(page, 1)
        self.next_page = min(page + 1, len(stream.data_pages))
        self.at = min(at, len(self.data))

    @property
    def position(self) -> int:
        """The offset in the stream of ``data[at]``."""
        return self.next_page * self.stream.body_size - len(self.data) + self.at

    @property
    def whole(self) -> bool:
        """True where the bytes go on to the end of the stream."""
        return self.next_page >= len(self.stream.data_pages)

    def read(self, decode: Callable[[bytes, int], int]) -> None:
        """Decode one record; it is tried again with more pages where it touches the end."""
        pages = WINDOW_PAGES
        while True:
            try:
                end = decode(self.data, self.at)
            except IndexError:
                if self.whole:
                    raise
                end = len(self.data)
            # What reaches exactly to the end of the window may go on after it: no-ops do.
            if end < len(self.data) or self.whole:
                self.at = end
                return
            self._grow(pages)
            pages *= 2

    def _grow(self, pages: int) -> None:
        more = self.stream.bodies(self.next_page, pages)
        self.next_page = min(self.next_page + pages, len(self.stream.data_pages))
        self.data = self.data[self.at :] + more
        self.at = 0
