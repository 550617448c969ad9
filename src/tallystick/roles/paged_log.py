"""The role of an undo/redo log that keeps the pages in a file and layout of its own.

In: a store's pages in memory, changed rows. Out: tables over these pages, a codec for them, and the
file with both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tallystick.arguments import bytes_of, integer
from tallystick.roles.undo_redo_log import UndoRedoLog
from tallystick.storage.files import File, FileSystem

CATALOGUE = 0
"""The table that makes tables: a row is the name, in UTF-8, its key the number."""

Row = tuple[int, int]
"""Table number and key."""
Changes = Mapping[Row, bytes | None]
"""New rows, None for removed ones."""


class Rows(dict[Row, bytes | None]):
    """New rows that were checked as each of them was put in: a log takes them as they are."""

    __slots__ = ()


TABLE_MIN, TABLE_MAX = -(1 << 31), (1 << 31) - 1
ROW_KEY_MIN, ROW_KEY_MAX = -(1 << 63), (1 << 63) - 1
"""Numbers of tables and keys of rows are signed, 4 and 8 bytes wide, in every log."""


def checked_rows(rows: Changes) -> Rows:
    """Return rows that nothing can change any more, or fail to be written.

    Raises:
        TypeError: they are no rows by table and key.
        ValueError: a table or a key is out of range.
    """
    if type(rows) is Rows:
        return rows
    if not isinstance(rows, Mapping):
        raise TypeError(f"rows are of type {type(rows).__name__}; expected rows by table and key")
    return Rows(
        {
            (
                integer(table, "table", TABLE_MIN, TABLE_MAX),
                integer(key, "key", ROW_KEY_MIN, ROW_KEY_MAX),
            ): None if row is None else bytes_of(row, "row")
            for (table, key), row in rows.items()
        }
    )


@dataclass(frozen=True, slots=True)
class Defect:
    """Something wrong: ``what``, found on page number ``page``."""

    page: int
    what: str

    def __str__(self) -> str:
        return f"page {self.page}: {self.what}"


class Codec(NamedTuple):
    """Pages of ``page_size`` bytes <-> nodes, each with its page number.

    ``decode`` raises `CorruptLogError`.
    """

    page_size: int
    encode: Callable[[int, Any], bytes]
    decode: Callable[[int, bytes], Any]


class Pages(Protocol):
    """Pages in memory, as nodes. Called under the store's latch."""

    @property
    def sections(self) -> int:
        """Return how many sections of the log were begun."""
        ...

    def get(self, number: int) -> Any:
        """Return the node of a page; it must not be changed.

        Raises:
            CorruptLogError: The page is damaged.
        """
        ...

    def edit(self, number: int) -> Any:
        """Return the node of a page to be changed; the undo log holds its old image."""
        ...

    def put(self, number: int, node: Any) -> None:
        """Set the node of a page that held another kind, or nothing."""
        ...

    def log_image(self, number: int) -> None:
        """Log the page's image as of the last checkpoint, though it may not change."""
        ...

    def trim(self) -> None:
        """Evict pages. Call it while no caller holds a node.

        A change to an evicted node would be lost.
        """
        ...


class Tree(Protocol):
    """The committed rows of one table, in order of their keys."""

    def get(self, key: int) -> bytes | None:
        """Return the row of ``key``, None if there is none."""
        ...

    def batch(
        self, start: int, count: int, size: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """Return some rows in order of their keys.

        Args:
            start: Lowest key.
            count: Most rows.
            size: Bytes of rows after which no more are added.

        Returns:
            Pairs of key and row, and the key to go on from, None at the end.
        """
        ...


class TableSpace(Protocol):
    """The tables of a store. Called under the store's latch, except `to_log`."""

    @property
    def store_id(self) -> int:
        """Return the random number that was made with the store."""
        ...

    def names(self) -> list[str]:
        """Return the names of the tables."""
        ...

    def id_of(self, name: str) -> int:
        """Return the number of a table.

        Raises:
            KeyError: There is no table of that name.
        """
        ...

    def free_id(self) -> int:
        """Return a number that a new table can have."""
        ...

    def tree(self, table: int) -> Tree:
        """Return the rows of a table.

        Raises:
            CorruptLogError: No table has this number.
        """
        ...

    def to_log(self, changes: Changes, latch: AbstractContextManager[object], /) -> Changes:
        """Return what the log records for these changes.

        The caller has locked their rows, so that the result holds until they are applied.
        """
        ...

    def apply(self, table: int, key: int, row: bytes | None) -> None:
        """Change a row, or remove it with None; a row of the catalogue makes a table."""
        ...

    def check(self) -> list[Defect]:
        """Return every defect found; an empty list is good."""
        ...


class PagedLog(UndoRedoLog, Protocol):
    """An undo/redo log that keeps the pages in a file and layout of its own."""

    @property
    def codec(self) -> Codec:
        """Return the codec of the pages."""
        ...

    @property
    def file(self) -> File:
        """Return the file of the pages: page ``n`` is at ``n`` times the page size."""
        ...

    @property
    def section(self) -> int:
        """Return the number of the section that is being logged."""
        ...

    def open_tables(self, pages: Pages) -> TableSpace:
        """Open the tables with every committed row; called once.

        The log undoes the changes of recovery like any others, so recovery may be interrupted and
        repeated.
        """
        ...

    def copy(self, fs: FileSystem, target: Path) -> None:
        """Copy the pages, as they are in the file now, to a folder of their own.

        Raises:
            LogWriteError: There is a store in the folder already.
        """
        ...

    def finish(self) -> None:
        """Give up what the log need not keep: every change is durable in the pages."""
        ...
