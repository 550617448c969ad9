"""The role of an undo/redo log that keeps the pages beside itself, in its own file and layout.

In: a store's pages in memory, changed rows. Out: tables over these pages, a codec for them, and the
file with both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tallystick.roles.undo_redo_log import UndoRedoLog
from tallystick.storage.files import File, FileSystem

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


class Codec(NamedTuple):
    """Pages of ``page_size`` bytes <-> nodes, each with its page number. ``decode`` raises
    `CorruptLogError`."""

    page_size: int
    encode: Callable[[int, Any], bytes]
    decode: Callable[[int, bytes], Any]


class Pages(Protocol):
    """Pages in memory, as nodes. Called under the store's latch."""

    @property
    def sections(self) -> int:
        """Sections of the log that were begun."""
        ...

    def get(self, number: int) -> Any:
        """The node of a page; not to be changed. Raises `CorruptLogError`."""
        ...

    def edit(self, number: int) -> Any:
        """The node of a page, to be changed: its old image is in the undo log."""
        ...

    def put(self, number: int, node: Any) -> None:
        """A node for a page that held another kind, or nothing."""
        ...

    def log_image(self, number: int) -> None:
        """Let the undo log have the page as of the last checkpoint, though it may not change."""
        ...

    def trim(self) -> None:
        """Make room. Called where nobody holds a node: a change to one let go would be lost."""
        ...


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

    def open_tables(self, pages: Pages) -> TableSpace:
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
