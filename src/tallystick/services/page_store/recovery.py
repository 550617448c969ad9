"""Opening a page store: a new one, one that was closed, one that crashed.

In: its folder. Out: its log, a cache over its pages, and the transactions in doubt. May be
interrupted at any step and repeated:

    1  pages go back, in place, to the oldest kept section, durably: repeating does no harm
    2  committed rows are applied in memory; no page changes in place
    3  the changed pages go to a side file, which gets its name when it is whole and durable
    4  from it they go in place; then the log starts a new section and frees the old ones
    5  the side file goes

A crash up to 3 starts over; one after it finds the side file, goes on with 4, and does not look
at what the log held before. With transactions in doubt it ends with 2, and the store is read-only.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tallystick.errors import CorruptLogError
from tallystick.roles import InDoubt, Ticket, UndoRedoLog
from tallystick.services.page_store.backup import BACKUP_MARK, PAGES, copy_pages
from tallystick.services.page_store.pages.layout import PAGE_SIZE, Leaf, Meta, Node, encode
from tallystick.services.page_store.pages.opened import Opened, pages_in
from tallystick.services.page_store.pages.space import OWN_PAGES, OwnPages
from tallystick.services.page_store.pages.tables import Tables
from tallystick.storage.crc import crc32
from tallystick.storage.files import File, FileSystem, read_file, write_whole

LOG_FOLDER = "log"
SIDE = "recovered"
FRESH = "fresh"
"""The pages of a store that is being made: they are durable before its log is there."""

OpenLog = Callable[[Path, FileSystem], UndoRedoLog]


_SIDE_HEAD = struct.Struct("<IQ")
_SIDE_PAGE = struct.Struct("<Q")


def open_pages(path: Path, fs: FileSystem, open_log: OpenLog, cache_bytes: int) -> Opened:
    """Open or create."""
    _require_whole(path, fs)
    if not fs.exists(str(path / PAGES)) and not fs.list(str(path / LOG_FOLDER)):
        write_whole(fs, str(path / FRESH), [_no_tables()])
    log = open_log(path / LOG_FOLDER, fs)
    try:
        if not fs.exists(str(path / PAGES)):
            fs.rename(str(path / FRESH), str(path / PAGES))
            fs.sync_dir(str(path))
        file = fs.open(str(path / PAGES))
    except BaseException:
        log.close()
        raise
    try:
        return _recover(path, fs, log, file, pages_in(cache_bytes, PAGE_SIZE))
    except BaseException:
        try:
            log.close()
        finally:
            file.close()
        raise


def _require_whole(path: Path, fs: FileSystem) -> None:
    """Pages without a log are whole only in a backup; a log without pages is not, once its
    first pages have got their name; a backup without pages was never finished."""
    pages, fresh, log, backup = (
        bool(fs.list(str(path / name))) if name == LOG_FOLDER else fs.exists(str(path / name))
        for name in (PAGES, FRESH, LOG_FOLDER, BACKUP_MARK)
    )
    if pages and not log and not backup:
        raise CorruptLogError(
            "the log of this page store is missing: committed rows may be lost",
            file=str(path / LOG_FOLDER),
            advice="Bring the folder back, or restore a backup",
        )
    if log and not pages and not fresh:
        raise CorruptLogError(
            "the pages of this page store are missing",
            file=str(path / PAGES),
            advice="Bring the file back, or restore a backup",
        )
    if backup and not pages:
        raise CorruptLogError(
            "this backup was never finished",
            file=str(path),
            advice="Take another; nothing in this folder is of use",
        )


def _no_tables() -> bytes:
    nodes: list[Node] = [Meta(2, 0, 1, secrets.randbits(63)), Leaf()]
    return b"".join(encode(number, node) for number, node in enumerate(nodes))


class _Handler:
    """What recovery of the log does to the pages."""

    def __init__(self, file: File, capacity: int) -> None:
        self.cache = OwnPages(file, NoUndo(), capacity, OWN_PAGES, steal=False)
        self._file = file
        self._tables: Tables | None = None

    def undo_page(self, page: int, image: bytes | None) -> None:
        self._file.pwrite(image or bytes(PAGE_SIZE), page * PAGE_SIZE)

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        self._redo().apply(table, key, row)
        self.cache.trim()

    def redo_remove(self, table: int, key: int) -> None:
        self._redo().apply(table, key, None)
        self.cache.trim()

    def redo_truncate(self, table: int) -> None:
        self._redo().tree(table).clear()

    def _redo(self) -> Tables:
        if self._tables is None:
            self._tables = Tables(self.cache)
        return self._tables


class _Ignore:
    """For a log whose content is in the side file already."""

    def undo_page(self, page: int, image: bytes | None) -> None:
        """It was undone."""

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        """It was redone."""

    def redo_remove(self, table: int, key: int) -> None:
        """It was redone."""

    def redo_truncate(self, table: int) -> None:
        """It was redone."""


class NoUndo:
    """Stands for the log while pages change in memory only."""

    def add_undo(self, page: int, image: bytes | None) -> None:
        """Nothing is written in place, so nothing needs an image."""

    def flush(self) -> Ticket:
        raise AssertionError("nothing is written in place while recovery runs")


def _recover(path: Path, fs: FileSystem, log: UndoRedoLog, file: File, capacity: int) -> Opened:
    side = path / SIDE
    if fs.exists(str(side)):
        log.recover(_Ignore())
    else:
        handler = _Handler(file, capacity)
        log.recover(handler)
        if doubtful := list(log.in_doubt()):
            _require_pages(path, handler.cache)
            return _opened(log, handler.cache, doubtful, 0)
        # Trees can get another shape than they had: what was put back may not be written again.
        file.datasync()
        if changed := {n: encode(n, handler.cache.nodes[n]) for n in sorted(handler.cache.dirty)}:
            write_whole(fs, str(side), [side_content(changed)])
    if fs.exists(str(side)):
        _install(side, read_file(fs, str(side)), file)
    file.datasync()
    section = log.checkpoint()
    log.flush().wait()
    log.remove_until(section)
    for done in (side, path / BACKUP_MARK):
        if fs.exists(str(done)):
            fs.remove(str(done))
            fs.sync_dir(str(path))
    cache = OwnPages(file, log, capacity, OWN_PAGES)
    _require_pages(path, cache)
    return _opened(log, cache, [], section)


def _opened(log: UndoRedoLog, cache: OwnPages, doubtful: list[InDoubt], section: int) -> Opened:
    copy = partial(copy_pages, cache.file)
    return Opened(log, cache, Tables(cache), doubtful, section, copy, finish=lambda: None)


def _require_pages(path: Path, cache: OwnPages) -> None:
    """Every page that page 0 speaks of is in the file, or in memory still."""
    count, most = cache.meta.page_count, cache.file.size() // PAGE_SIZE + len(cache.dirty)
    if count > most:
        raise CorruptLogError(
            "pages are missing at the end of the file",
            file=str(path / PAGES),
            expected=f"{count} pages",
            found=f"at most {most}",
            advice="Restore a backup",
        )


def side_content(pages: dict[int, bytes]) -> bytes:
    """The side file: CRC-32 of the rest, count; then per page its number and its bytes."""
    body = b"".join(_SIDE_PAGE.pack(number) + page for number, page in pages.items())
    count = struct.pack("<Q", len(pages))
    return struct.pack("<I", crc32(count + body)) + count + body


def _install(path: Path, content: bytes, file: File) -> None:
    head = content[: _SIDE_HEAD.size].ljust(_SIDE_HEAD.size, b"\0")
    crc, count = _SIDE_HEAD.unpack(head)
    step = _SIDE_PAGE.size + PAGE_SIZE
    if len(content) != _SIDE_HEAD.size + count * step or crc32(content[4:]) != crc:
        raise CorruptLogError(
            "the side file of a recovery is damaged",
            file=str(path),
            expected=f"{count} pages with their checksum",
            found=f"{len(content)} bytes with another",
            advice="Restore a backup: the pages it was to replace may be half written",
        )
    for place in range(_SIDE_HEAD.size, len(content), step):
        (number,) = _SIDE_PAGE.unpack_from(content, place)
        page = content[place + _SIDE_PAGE.size : place + step]
        file.pwrite(page, number * PAGE_SIZE)
