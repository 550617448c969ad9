"""Opening a page store whose log keeps the pages beside itself, in one file.

In: its folder. Out: its log, a cache over its pages, its tables, the transactions in doubt. The log
does the recovery, undone by itself: a crash in the middle of it leaves nothing but another one
to do, for us and for the system whose log it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tallystick.errors import UnsupportedFormatError
from tallystick.roles import PagedLog
from tallystick.services.page_store.backup import PAGES
from tallystick.services.page_store.pages.cache import PageCache
from tallystick.services.page_store.pages.opened import Opened, pages_in
from tallystick.services.page_store.recovery import LOG_FOLDER
from tallystick.storage.files import FileSystem

OpenPaged = Callable[[Path, FileSystem], PagedLog]


def open_kept(path: Path, fs: FileSystem, open_log: OpenPaged, cache_bytes: int) -> Opened:
    """Open or create. Raises `UnsupportedFormatError` for a store with pages of our own."""
    if fs.exists(str(path / PAGES)) or fs.list(str(path / LOG_FOLDER)):
        raise UnsupportedFormatError(
            "the pages of this store are not in the layout of its log",
            file=str(path / PAGES),
            expected="one file with log and pages",
            found=f"{PAGES} and {LOG_FOLDER}, each by itself",
            advice="Open it with the release, or the system, that made it, and copy its tables",
        )
    log = open_log(path, fs)
    try:
        cache = PageCache(log.file, log, pages_in(cache_bytes, log.codec.page_size), log.codec)
        tables = log.open_tables(cache)
        doubtful = list(log.in_doubt())
        return Opened(log, cache, tables, doubtful, log.section, log.copy, log.finish)
    except BaseException:
        log.close()
        raise
