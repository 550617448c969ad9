"""What an open page store stands on: tables over pages, a log that undoes and redoes them.

Two things open it: `recovery` opens pages of our own beside any undo/redo log, `kept` opens what
an undo/redo log keeps in its own file, in its own layout (`roles.PagedLog`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tallystick.roles import InDoubt, TableSpace, UndoRedoLog
from tallystick.services.page_store.pages.cache import PageCache
from tallystick.storage.files import FileSystem

CACHE_PAGES_MIN = 16


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that is open: ``doubtful`` transactions, or none, and the ``section`` that is being
    logged. ``copy`` makes a backup, ``finish`` ends an orderly close."""

    log: UndoRedoLog
    cache: PageCache
    tables: TableSpace
    doubtful: list[InDoubt]
    section: int
    copy: Callable[[FileSystem, Path], None]
    finish: Callable[[], None]


def pages_in(cache_bytes: int, page_size: int) -> int:
    """How many pages a cache of so many bytes holds."""
    return max(cache_bytes // page_size, CACHE_PAGES_MIN)
