"""What a page store stands on: tables over pages, and a log that undoes and redoes them.

Two things do it: `recovery` opens pages of our own beside any undo/redo log, `kept` opens what
an undo/redo log keeps in its own file, in its own layout (`PagedLog`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tallystick.services.page_store.cache import Codec, PageCache
from tallystick.services.roles import InDoubt, UndoRedoLog
from tallystick.storage.files import File, FileSystem

CACHE_PAGES_MIN = 16
CATALOGUE = 0
"""The table that makes tables: a row is the name, in UTF-8, its key the number."""

Row = tuple[int, int]
"""Table number and key."""
Changes = Mapping[Row, bytes | None]
"""New rows, None for removed ones."""


@dataclass(frozen=True, slots=True)
class Defect:
    """Something wrong, with the number of the page where it shows."""

    page: int
    what: str


class Tree(Protocol):
    """The committed rows of one table, in order of their keys."""

    def get(self, key: int) -> bytes | None:
        """The row of ``key``, None if there is none."""
        ...

    def batch(
        self, start: int, count: int, size: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """Rows from ``start`` on, at most ``count``, and no more once they have ``size`` bytes;
        and the key to go on from, if any."""
        ...


class TableSpace(Protocol):
    """The tables of a store. Called under the store's latch, except `to_log`."""

    @property
    def store_id(self) -> int:
        """A random number made with the store."""
        ...

    def names(self) -> list[str]: ...

    def id_of(self, name: str) -> int:
        """The number of a table. Raises `KeyError`."""
        ...

    def free_id(self) -> int:
        """A number that a new table can have."""
        ...

    def tree(self, table: int) -> Tree:
        """The rows of a table. Raises `CorruptLogError` for a number that none has."""
        ...

    def to_log(self, changes: Changes, latch: AbstractContextManager[object], /) -> Changes:
        """What the log is told of these changes; their rows are locked, so that it stays true
        until they are applied."""
        ...

    def apply(self, table: int, key: int, row: bytes | None) -> None:
        """Change a row, or remove it with None; a row of the catalogue makes a table."""
        ...

    def check(self) -> list[Defect]:
        """Everything that is wrong; empty is good."""
        ...


class PagedLog(UndoRedoLog, Protocol):
    """An undo/redo log that keeps the pages beside itself, in its own file and layout."""

    @property
    def codec(self) -> Codec: ...

    @property
    def file(self) -> File:
        """The file of the pages: page ``n`` stands at ``n`` times the page size."""
        ...

    @property
    def section(self) -> int:
        """The section that is being logged."""
        ...

    def open_tables(self, cache: PageCache) -> TableSpace:
        """The tables with every committed row; called once. What recovery changes is undone by
        the log like any other change, so it may be interrupted and repeated."""
        ...

    def copy(self, fs: FileSystem, target: Path) -> None:
        """The pages as they are in the file now, in a folder of their own. Raises
        `LogWriteError` if there is a store already."""
        ...

    def finish(self) -> None:
        """Give the log up, as far as nobody needs it; every change is in the pages, durably."""
        ...


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
