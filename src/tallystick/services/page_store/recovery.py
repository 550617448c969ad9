"""Open a page store that is new, was closed, or has crashed.

In: its folder. Out: an `OpenStore`: its log, a cache over its pages, its tables, the transactions
in doubt. A log that keeps the pages in its own file (`roles.PagedLog`) recovers them itself. For
all others, with pages in a file of our own, the steps are these; each may be interrupted and
repeated:

    1  pages go back, in place, to the oldest kept section, durably
    2  committed rows are applied in memory; no page changes in place
    3  the changed pages are written to a side file, which gets its name when it is complete and
       durable (a double-write buffer)
    4  they are copied from it in place; then the log starts a new section and frees the old ones
    5  the side file is removed

After a crash up to 3 recovery starts over; after a later one it finds the side file, goes on with
4, and ignores what the log held before. With transactions in doubt it ends with 2, and the store is
read-only.

Side file, little-endian: 4 CRC-32 of the rest, 8 number of pages; then per page 8 number, content.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.roles import InDoubt, PagedLog, Role, TableSpace, Ticket, UndoRedoLog
from tallystick.roles.page_store_files import BACKUP_MARK, PAGES
from tallystick.services.page_store.backup import copy_pages
from tallystick.services.page_store.pages.cache import PageCache
from tallystick.services.page_store.pages.layout import PAGE_SIZE, Leaf, Meta, Node, decode, encode
from tallystick.services.page_store.pages.space import OWN_PAGES, OwnPages
from tallystick.services.page_store.pages.tables import Tables
from tallystick.storage.crc import crc32
from tallystick.storage.files import File, FileSystem, read_file, write_whole
from tallystick.systems.folders import require_no_other, require_role

LOG_FOLDER = "log"
SIDE = "recovered"
FRESH = "fresh"
"""The first pages of a new store: durable before its log is created."""
CACHE_PAGES_MIN = 16
_SIDE_HEAD = struct.Struct("<IQ")
_SIDE_CRC = struct.Struct("<I")
_SIDE_NUMBER = struct.Struct("<Q")

OpenLog = Callable[[Path, FileSystem], UndoRedoLog]
OpenPagedLog = Callable[[Path, FileSystem], PagedLog]


@dataclass(frozen=True, slots=True)
class OpenStore:
    """The parts of an open store.

    ``in_doubt`` lists transactions prepared before the last crash; ``section`` is the section being
    logged. ``copy`` makes a backup, ``finish`` ends an orderly close.
    """

    log: UndoRedoLog
    cache: PageCache
    tables: TableSpace
    in_doubt: list[InDoubt]
    section: int
    copy: Callable[[FileSystem, Path], None]
    finish: Callable[[], None]


def open_paged(path: Path, fs: FileSystem, open_log: OpenPagedLog, cache_bytes: int) -> OpenStore:
    """Open or create a store whose log keeps the pages.

    Raises `UnsupportedFormatError` for a store with pages in a file of our own.
    """
    if fs.exists(str(path / PAGES)) or fs.list(str(path / LOG_FOLDER)):
        raise UnsupportedFormatError(
            "the pages of this store are not in the layout of its log",
            file=str(path / PAGES),
            expected="one file with log and pages",
            found=f"{PAGES} and {LOG_FOLDER}, each by itself",
            advice="Open it with the release, or the system, that made it, and copy its tables",
        )
    require_no_other(path, fs, "")
    log = open_log(path, fs)
    try:
        capacity = _cache_capacity(cache_bytes, log.codec.page_size)
        cache = PageCache(log.file, log, capacity, log.codec)
        tables = log.open_tables(cache)
        in_doubt = list(log.in_doubt())
        return OpenStore(log, cache, tables, in_doubt, log.section, log.copy, log.finish)
    except BaseException:
        log.close()
        raise


def open_own_pages(path: Path, fs: FileSystem, open_log: OpenLog, cache_bytes: int) -> OpenStore:
    """Open or create a store with pages in a file of our own.

    Raises:
        CorruptLogError: A part is missing, damaged, or another store's.
        UnsupportedFormatError: The folder holds another log.
    """
    require_no_other(path, fs, LOG_FOLDER)
    _require_complete(path, fs)
    if not fs.exists(str(path / PAGES)) and not fs.list(str(path / LOG_FOLDER)):
        write_whole(fs, str(path / FRESH), [_no_tables()])
    log = open_log(path / LOG_FOLDER, fs)
    try:
        if log.sealed:
            raise UnsupportedFormatError(
                "the log is encrypted, and the pages of a store are not: they would hold its rows "
                "in plain text",
                file=str(path),
                advice="Open it without a key, on a file system that is encrypted",
            )
        if not fs.exists(str(path / PAGES)):
            fs.rename(str(path / FRESH), str(path / PAGES))
            fs.sync_dir(str(path))
        file = fs.open(str(path / PAGES))
    except BaseException:
        log.close()
        raise
    try:
        return _recover(path, fs, log, file, _cache_capacity(cache_bytes, PAGE_SIZE))
    except BaseException:
        try:
            log.close()
        finally:
            file.close()
        raise


def _cache_capacity(cache_bytes: int, page_size: int) -> int:
    return max(cache_bytes // page_size, CACHE_PAGES_MIN)


def _require_complete(path: Path, fs: FileSystem) -> None:
    """Refuse a folder in which a part is missing.

    Pages without a log are complete only in a backup. A log without pages is not, once its first
    pages have their name. A backup without pages is unfinished.
    """
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
        require_role(str(path / LOG_FOLDER), fs, Role.UNDO_REDO_LOG)
        raise CorruptLogError(
            "the pages of this page store are missing",
            file=str(path / PAGES),
            advice="Bring the file back, or restore a backup",
        )
    if backup and not pages:
        raise CorruptLogError(
            "this backup was never finished",
            file=str(path),
            advice="Remove this folder and take another backup; nothing in it is of use",
        )


def owner_of(path: Path, fs: FileSystem) -> str:
    """Return the name by which the log of a store knows whose it is; empty if pages do not tell."""
    for name in (PAGES, FRESH):
        if fs.exists(str(path / name)):
            with closing(fs.open(str(path / name), write=False)) as file, suppress(CorruptLogError):
                meta = _meta_of(file)
                return "" if meta is None else f"page store {meta.store_id:x}"
    return ""


def _meta_of(file: File) -> Meta | None:
    """Return page 0 as it is in the file, or None for a page of another kind."""
    meta = decode(0, file.pread(PAGE_SIZE, 0))
    return meta if isinstance(meta, Meta) else None


def _no_tables() -> bytes:
    nodes: list[Node] = [Meta(2, 0, 1, secrets.randbits(63)), Leaf()]
    return b"".join(encode(number, node) for number, node in enumerate(nodes))


class _PageRecovery:
    """Undo pages on disk, and redo rows in memory, as the log says."""

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


class _NoRecovery:
    """Ignore the content of a log that the side file holds already."""

    def undo_page(self, page: int, image: bytes | None) -> None:
        """Ignore an image."""

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        """Ignore a row."""

    def redo_remove(self, table: int, key: int) -> None:
        """Ignore a removed row."""

    def redo_truncate(self, table: int) -> None:
        """Ignore a truncated table."""


class NoUndo:
    """An undo log for a cache that writes nothing in place."""

    def add_undo(self, page: int, image: bytes | None) -> None:
        """Ignore an image: nothing will need it."""

    def flush(self) -> Ticket:
        """Fail: pages are only written in place after a flush."""
        raise AssertionError("nothing is written in place while recovery runs")


def _recover(path: Path, fs: FileSystem, log: UndoRedoLog, file: File, capacity: int) -> OpenStore:
    side = path / SIDE
    _require_same_moment(path, log, file)
    if fs.exists(str(side)):
        log.recover(_NoRecovery())
    else:
        pages = _PageRecovery(file, capacity)
        log.recover(pages)
        if in_doubt := list(log.in_doubt()):
            _require_pages(path, pages.cache)
            return _opened(log, pages.cache, in_doubt, 0)
        # Trees can get another shape than they had: what was undone may not be written again.
        file.datasync()
        if changed := {n: encode(n, pages.cache.nodes[n]) for n in sorted(pages.cache.dirty)}:
            write_whole(fs, str(side), [side_content(changed)])
    if fs.exists(str(side)):
        _install(side, read_file(fs, str(side)), file)
    file.datasync()
    section = log.checkpoint(_mark_of(file))
    log.flush().wait()
    log.remove_until(section)
    for done in (side, path / BACKUP_MARK):
        if fs.exists(str(done)):
            fs.remove(str(done))
            fs.sync_dir(str(path))
    cache = OwnPages(file, log, capacity, OWN_PAGES)
    _require_pages(path, cache)
    return _opened(log, cache, [], section)


def _require_same_moment(path: Path, log: UndoRedoLog, file: File) -> None:
    """Raise `CorruptLogError` if pages and log come from different moments, or copies.

    Each section of the log begins with the mark that page 0 gets with it, and the pages in place
    have that of one of the kept sections. A release without marks may have been at work last.
    """
    marks = log.marks()
    try:
        found = _mark_of(file)
    except CorruptLogError:  # half written: then the log, or the side file, has it
        return
    if not marks or not marks[-1] or found in marks:
        return
    raise CorruptLogError(
        "the pages of this store and its log are of different moments",
        file=str(path / PAGES),
        expected=f"the mark of a section of {LOG_FOLDER}",
        advice=f"Bring back {PAGES} and {LOG_FOLDER} of one moment, or restore a backup",
    )


def _mark_of(file: File) -> int:
    meta = _meta_of(file)
    return 0 if meta is None else meta.mark


def _opened(log: UndoRedoLog, cache: OwnPages, in_doubt: list[InDoubt], section: int) -> OpenStore:
    copy = partial(copy_pages, cache.file)
    return OpenStore(log, cache, Tables(cache), in_doubt, section, copy, finish=lambda: None)


def _require_pages(path: Path, cache: OwnPages) -> None:
    """Raise `CorruptLogError` unless every page that page 0 counts is in the file or in memory."""
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
    """Return the content of a side file for pages by number."""
    body = b"".join(_SIDE_NUMBER.pack(number) + page for number, page in pages.items())
    count = _SIDE_NUMBER.pack(len(pages))
    return _SIDE_CRC.pack(crc32(count + body)) + count + body


def _install(path: Path, content: bytes, file: File) -> None:
    head = content[: _SIDE_HEAD.size].ljust(_SIDE_HEAD.size, b"\0")
    crc, count = _SIDE_HEAD.unpack(head)
    step = _SIDE_NUMBER.size + PAGE_SIZE
    if len(content) != _SIDE_HEAD.size + count * step or crc32(content[_SIDE_CRC.size :]) != crc:
        raise CorruptLogError(
            "the side file of a recovery is damaged",
            file=str(path),
            expected=f"{count} pages with their checksum",
            found=f"{len(content)} bytes with another",
            advice="Restore a backup: the pages it was to replace may be half written",
        )
    for offset in range(_SIDE_HEAD.size, len(content), step):
        (number,) = _SIDE_NUMBER.unpack_from(content, offset)
        page = content[offset + _SIDE_NUMBER.size : offset + step]
        file.pwrite(page, number * PAGE_SIZE)
