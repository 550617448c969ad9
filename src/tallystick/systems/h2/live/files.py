"""The page store file under a live log: pages with checksums, allocation, both headers.

In: page numbers and page contents. Out: a file that the engine opens. The minimum that a log
needs: no tables, no indexes. Which pages are in use is known in memory; the free list on disk is
written when the file is closed in order, and recovery marks the log's own pages itself.
Source: docs/formats/h2.md, "The file".
"""

from __future__ import annotations

import glob
import posixpath
from collections.abc import Collection, Mapping
from typing import Self

from tallystick.errors import CorruptLogError, LogWriteError
from tallystick.storage.files import File, FileSystem, absolute, read_source, write_whole
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import Closing, closes, lock_log, opens_log
from tallystick.storage.scheduling import threading
from tallystick.systems.folders import require_own
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import META_COLUMNS, TABLE_META
from tallystick.systems.h2.format.layout import VariableHeader
from tallystick.systems.h2.format.numbers import encode_var_int
from tallystick.systems.h2.read.stream import PageFile

GROWTH_PAGES = 256
"""Pages by which the file grows at least."""
_FREE, _USED = 0, 1


class PageStoreFile(Closing):
    """One ``*.h2.db`` file, opened for writing by one owner.

    Opening neither recovers nor writes. Allocation may be used from any thread.

    Attributes:
        path: the file.
        static: its header.
        header: where the log begins.
        page_size: bytes per page.
        page_count: size of the file in pages.

    Raises:
        CorruptLogError: it is no plain page store file, or both headers are damaged.
        LogLockedError: it has another owner.
        LogWriteError: it is of a newer version.
        UnsupportedFormatError: the folder holds the log of another system.
    """

    @opens_log
    def __init__(self, path: str, *, fs: FileSystem = LOCAL) -> None:
        self.path = path = absolute(path)
        self._mutex = threading.RLock()
        _require_own(path, fs)
        self._lock = lock_log(fs, f"{path}.lck")
        try:
            self._file: File = self._lock.fs.open(path)
            try:
                self._load()
            except BaseException:
                self._file.close()
                raise
        except BaseException:
            self._lock.release()
            raise

    def _load(self) -> None:
        head = self._file.pread(layout.STATIC_HEADER.size, 0)
        self.static = layout.decode_static_header(head, self.path)
        self.page_size = self.static.page_size
        self.page_count = self._file.size() // self.page_size
        # Pages after these are new, and hold zeros: see `holds_after`.
        self._found = self.page_count
        if self.static.encrypted or not self.static.magic_ok:
            raise CorruptLogError("no plain page store file", file=self.path, offset=0)
        versions = self.static.read_version, self.static.write_version
        if not all(0 <= version <= layout.VERSION for version in versions):
            raise LogWriteError(
                "the file is of another version",
                file=self.path,
                expected=f"at most {layout.VERSION}, not negative",
                found=str(self.static.write_version),
            )
        self.header = self._read_header()
        self.load_free_list()

    def _read_header(self) -> VariableHeader:
        for page in layout.VARIABLE_HEADER_PAGES:
            header = layout.decode_variable_header(self._raw(page))
            if header is not None:
                return header
        raise CorruptLogError(
            "both copies of the variable header are damaged",
            file=self.path,
            offset=self.page_size,
            expected="a right CRC-32 in page 1 or 2",
            advice="Restore one of them from a backup",
        )

    @classmethod
    def create(
        cls,
        path: str,
        *,
        page_size: int = layout.PAGE_SIZE_DEFAULT,
        first_pages: bytes = b"",
        fs: FileSystem = LOCAL,
    ) -> Self:
        """Create a file without a log; it gets its name when it is whole and durable.

        One that another owner has made meanwhile is opened as it is.

        Args:
            path: the file to create.
            page_size: bytes per page, a power of two from 64 to 32768.
            first_pages: its pages; by default those of a database without tables.
            fs: the file system.

        Raises:
            LogLockedError: it has another owner by now.
            LogWriteError: the page size is impossible.
            UnsupportedFormatError: the folder holds another log.
        """
        _require_own(path, fs)
        if not layout.valid_page_size(page_size):
            raise LogWriteError(f"impossible page size {page_size}", file=path)
        path = absolute(path)
        lock = lock_log(fs, f"{path}.lck")
        try:
            if not lock.fs.exists(path):
                write_whole(lock.fs, path, [first_pages or _first_pages(page_size)])
        finally:
            lock.release()
        return cls(path, fs=fs)

    # -- pages ----------------------------------------------------------------------------

    @property
    def file(self) -> File:
        """The open file: page ``n`` begins at ``n`` times the page size."""
        return self._file

    def _raw(self, page_id: int) -> bytes:
        return self._file.pread(self.page_size, page_id * self.page_size)

    def read_page(self, page_id: int) -> bytes:
        """Return a page.

        Raises:
            CorruptLogError: its checksum is wrong, or it does not exist.
        """
        page = self._raw(page_id) if 0 <= page_id < self.page_count else b""
        if len(page) < self.page_size or not layout.checksum_ok(page, page_id):
            raise CorruptLogError(
                f"page {page_id} is damaged or missing",
                file=self.path,
                offset=page_id * self.page_size,
            )
        return page

    def write_page(self, page_id: int, page: bytes) -> None:
        """Write a page with its checksum; not synced."""
        self.write_pages({page_id: layout.seal(bytearray(page), page_id)})

    def write_pages(self, pages: Mapping[int, bytes]) -> None:
        """Write sealed pages, adjacent ones in one call; not synced."""
        self.grow(max(pages, default=-1) + 1)
        run: list[bytes] = []
        first = 0
        for page_id in sorted(pages):
            if run and page_id != first + len(run):
                self._file.pwritev(run, first * self.page_size)
                run = []
            first = first if run else page_id
            run.append(pages[page_id])
        if run:
            self._file.pwritev(run, first * self.page_size)

    def write_start(self, page_id: int, data: bytes) -> None:
        """Write the first bytes of a page; not synced."""
        self.grow(page_id + 1)
        self._file.pwrite(data, page_id * self.page_size)

    def sync(self) -> None:
        """Make everything written durable."""
        self._file.datasync()

    def holds_trunk(self, page_id: int) -> bool:
        """Return True if a page is, or once was, a trunk page; it may be damaged."""
        return self._raw(page_id)[:1] == bytes([layout.STREAM_TRUNK])

    def holds_after(self, page_id: int, offset: int) -> bool:
        """Return True if a page holds anything after ``offset``.

        The engine leaves in a free page what it held. New pages, and those that were released
        here, hold zeros.
        """
        return page_id < self._found and any(self._raw(page_id)[offset:])

    def view(self) -> PageFile:
        """Return the file as it is now, for reading."""
        source = read_source(self._lock.fs, self.path)
        return PageFile(self.path, source.data, self.static)

    def write_header(self, header: VariableHeader) -> None:
        """Point both headers to a log whose pages are written.

        It syncs before, between and after them: at any moment one copy is whole and the pages that
        it names are durable.
        """
        header = VariableHeader(
            self.header.write_counter + 1, header.log_key, header.first_trunk, header.first_data
        )
        page = layout.encode_variable_header(header, self.page_size)
        self.sync()
        for copy in layout.VARIABLE_HEADER_PAGES:
            self._file.pwrite(page, copy * self.page_size)
            self.sync()
        self.header = header

    # -- allocation -----------------------------------------------------------------------

    def allocate(self, after: int = 0, exclude: Collection[int] = ()) -> int:
        """Allocate the first free page with a number above ``after`` that is not excluded."""
        page_id = after
        with self._mutex:
            while True:
                page_id = self._used.find(_FREE, page_id + 1)
                if page_id < 0:
                    page_id = max(self.page_count, after + 1) - 1
                    self.grow(page_id + 2, ahead=True)
                    continue
                if page_id not in exclude:
                    self._used[page_id] = _USED
                    return page_id

    def mark_used(self, page_id: int) -> None:
        """Mark a page as used, growing the file to it."""
        with self._mutex:
            self.grow(page_id + 1)
            self._used[page_id] = _USED

    def release(self, pages: Collection[int], *, zero: Collection[int] | None = None) -> None:
        """Make pages free again; those in ``zero`` (default: all) are overwritten with zeros.

        So no later log can use what they held.
        """
        wiped, blank = pages if zero is None else zero, bytes(self.page_size)
        self.write_pages({page_id: blank for page_id in wiped if page_id < self.page_count})
        with self._mutex:
            for page_id in pages:
                self._used[page_id] = _FREE

    def is_used(self, page_id: int) -> bool:
        """Return True for a page that cannot be allocated."""
        return page_id < self.page_count and bool(self._used[page_id])

    def grow(self, pages: int, *, ahead: bool = False) -> None:
        """Make the file at least so many pages long; with ``ahead`` by `GROWTH_PAGES` at least."""
        with self._mutex:
            if pages <= self.page_count:  # under the lock: another thread may have grown it
                return
            if ahead:
                pages = max(pages, self.page_count + GROWTH_PAGES)
            self._zero_rest()
            self._file.allocate(pages * self.page_size)
            self._used += bytes(pages - self.page_count)
            self.page_count = pages
            for page_id in self.free_list_pages:
                self._used[page_id] = _USED

    def _zero_rest(self) -> None:
        """Overwrite what a cut file holds of the page after its last whole one.

        New pages are taken to hold zeros: the end of a log page is not always written.
        """
        end = self.page_count * self.page_size
        if (rest := self._file.size() - end) > 0:
            self._file.pwrite(bytes(rest), end)

    @property
    def free_list_pages(self) -> range:
        """The pages that hold the free list."""
        return layout.free_lists(self.page_count, self.page_size)

    def load_free_list(self) -> None:
        """Read again from the file which pages are in use."""
        self._used = bytearray(self.page_count)
        self._used[: layout.FIRST_FREE_PAGE] = bytes((_USED,)) * layout.FIRST_FREE_PAGE
        for first in self.free_list_pages:
            bits = self._bits(self._raw(first))
            for page in range(first, min(first + self.free_list_pages.step, self.page_count)):
                self._used[page] |= layout.marks(bits, page - first)
            self._used[first] = _USED

    def listed(self, pages: Collection[int], images: Mapping[int, bytes]) -> list[int]:
        """Return those of the pages that the free list on disk marks as used, in order.

        ``images`` are pages as recovery restores them; they stand for what is on disk.
        """
        found, lists = list[int](), self.free_list_pages
        for first in lists:
            within = [page for page in pages if first < page < first + lists.step]
            bits = self._bits(images.get(first, self._raw(first))) if within else b""
            found += [page for page in within if layout.marks(bits, page - first)]
        return sorted(found)

    def _bits(self, page: bytes) -> bytes:
        """Return the marks of a page of the free list; zeros where it is not one yet."""
        if page[0] & ~layout.LAST == layout.FREE_LIST:
            return page[layout.FREE_LIST_START :]
        return bytes(self.page_size)

    def _free_lists(self) -> dict[int, bytes]:
        lists = {}
        for first in self.free_list_pages:
            page = bytearray(self.page_size)
            page[0] = layout.FREE_LIST
            for at, used in enumerate(self._used[first : first + self.free_list_pages.step]):
                page[layout.FREE_LIST_START + (at >> 3)] |= used << (at & 7)
            lists[first] = layout.seal(page, first)
        return lists

    # -- closing --------------------------------------------------------------------------

    def write_free_list(self) -> None:
        """Write which pages are in use and truncate the file after the last one.

        Only for a file without a log: a log needs undo images of these pages.
        """
        self._end_after(self._used.rfind(_USED))
        self.write_pages(self._free_lists())
        self._truncate()

    def cut(self) -> None:
        """Truncate the file after the last page in use, pages of the free list aside."""
        lists = self.free_list_pages
        last = self._used.rfind(_USED)
        while last in lists:
            last = self._used.rfind(_USED, 0, last)
        self._end_after(last)
        self._truncate()

    def _end_after(self, last: int) -> None:
        self.page_count = max(last + 1, layout.PAGE_COUNT_MIN)
        del self._used[self.page_count :]

    def _truncate(self) -> None:
        self._file.truncate(self.page_count * self.page_size)
        self.sync()

    @closes
    def close(self) -> None:
        """Close without writing and release the lock; a second call does nothing."""
        self._file.close()
        self._lock.release()


def _require_own(path: str, fs: FileSystem) -> None:
    folder, name = posixpath.split(path)
    require_own(folder, fs, layout.SYSTEM_NAME, glob.escape(name))


def _first_pages(page_size: int) -> bytes:
    free_list = bytearray(page_size)
    free_list[0] = layout.FREE_LIST
    free_list[layout.FREE_LIST_START] = 0b11  # itself and the root of the meta table
    lists = layout.seal(free_list, layout.FREE_LIST_ROOT)
    index = layout.seal(_empty_meta(page_size), layout.META_ROOT)
    return layout.encode_headers(page_size) + lists + index


def _empty_meta(page_size: int) -> bytearray:
    """Return the page index without rows: a data leaf of table -1 with six columns."""
    fields = encode_var_int(TABLE_META) + encode_var_int(META_COLUMNS)
    head = layout.PAGE_HEADER.pack(layout.DATA_LEAF | layout.LAST, 0, 0, 0)
    return bytearray((head + fields).ljust(page_size, b"\0"))
