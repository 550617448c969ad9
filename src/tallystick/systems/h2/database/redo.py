"""Redo of the log's rows in the tables: stage 2 of recovery, for a store with pages in the file.

In: the records of a log whose images are restored, and the tables as of then. Out: the tables with
every committed row. Pages change under undo, so this may be interrupted and repeated. The rules are
the engine's; where it assumes what does not hold, `CorruptLogError` is raised.
"""

from __future__ import annotations

from collections.abc import Collection

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.systems.h2.database import schema
from tallystick.systems.h2.database.nodes import Empty, EnginePage, Leaf, empty_index
from tallystick.systems.h2.database.schema import IndexRow
from tallystick.systems.h2.database.tables import H2Tables
from tallystick.systems.h2.database.tree import DataTree
from tallystick.systems.h2.engine.recovery import Recovery, recover, used_pages
from tallystick.systems.h2.format.entries import TABLE_META, Entry, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.read.scan import whole_entries
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.runs.pieces import LogPieces


class Redo:
    """The redo of one file: it changes pages. `engine.redo.Redo` only tells what the engine would.

    ``released`` are pages of older logs that may already belong to the current one.
    """

    def __init__(self, tables: H2Tables, store: PageStoreFile, released: Collection[int]) -> None:
        self._tables = tables
        self._space = tables.space
        self._store = store
        self._released = released
        self._roots: dict[int, int] = {}

    def run(self, stream: LogStream) -> None:
        """Apply everything that was committed.

        Raises `CorruptLogError` if the log contradicts the pages, `UnsupportedFormatError` if rows
        of an indexed table changed.
        """
        recovery, of_log = recover(LogPieces(stream, Zone())), used_pages(stream)
        self._reserve(stream, recovery)
        for entry in whole_entries(stream):
            if entry.code == Type.FREE_LOG:
                self._free(set(entry.pages) - of_log)
            elif entry.session_bound and recovery.redo(entry):
                self._apply(entry)
                self._space.cache.trim()

    def _reserve(self, stream: LogStream, recovery: Recovery) -> None:
        """Reserve the root pages of new tables until the last record that uses each."""
        for entry in whole_entries(stream):
            if entry.code == Type.ADD and entry.table == TABLE_META and recovery.redo(entry):
                row = schema.decode_index_row(schema.split_row(entry.row)[1])
                if row.root:
                    self._roots[row.root] = entry.pos
        self._space.reserved.update(self._roots)
        for root in self._roots:
            if not self._space.in_use(root):
                self._space.take(root, Empty())

    def _free(self, pages: Collection[int]) -> None:
        """Unmark pages that FREE_LOG names, where no table has made them its own."""
        for page in sorted(pages):
            in_use = page < self._space.page_count and self._space.in_use(page)
            if in_use and isinstance(self._space.cache.get(page), Empty):
                self._space.forget(page)
                if page not in self._released:
                    self._store.release([page], zero=())

    def _apply(self, entry: Entry) -> None:
        """Apply a change. The page index comes first: its row makes the tree, or removes it."""
        if entry.code == Type.ADD:
            _, row = schema.split_row(entry.row)
            if entry.table == TABLE_META:
                self._add_index(schema.decode_index_row(row), entry.pos)
            tree = self._tree(entry)
            if tree.has(entry.key):
                raise CorruptLogError(f"the log adds row {entry.key} of table {entry.table} twice")
            self._tables.guard.row(tree, entry.key)
            tree.set(entry.key, row)
        elif entry.code == Type.REMOVE:
            if entry.table == TABLE_META:
                self._drop_index(entry.key - 1)
            tree = self._tree(entry)
            self._tables.guard.row(tree, entry.key)
            tree.delete(entry.key)
        else:
            self._tree(entry).clear()

    def _tree(self, entry: Entry) -> DataTree:
        if self._tables.indexed(entry.table):
            raise self._refused(f"the log changes table {entry.table}, which has an index")
        return self._tables.tree_of(entry.table)

    def _add_index(self, row: IndexRow, pos: int) -> None:
        cache, root = self._space.cache, row.root
        if root:
            if not isinstance(cache.get(root), Empty):
                # The engine's redo gives trees the shape that they had; ours another one.
                raise self._refused(f"the log makes index {row.number} on a page that is in use")
            cache.put(root, self._empty_root(row))
            if self._roots[root] == pos:
                self._space.reserved.discard(root)
        self._tables.add_index(row)

    def _empty_root(self, row: IndexRow) -> Leaf | EnginePage:
        if row.is_table:
            return Leaf(row.number, row.columns)
        return empty_index(row.number, self._space.page_size)

    def _drop_index(self, number: int) -> None:
        """Remove a table or index, and free its pages."""
        row = self._tables.index.get(number)
        if row is not None and row.root:
            if not row.is_table:
                raise self._refused(f"the log drops index {number}")
            self._tables.tree_of(number).clear()
            self._space.release(row.root)
        self._tables.remove_index(number)

    def _refused(self, why: str) -> UnsupportedFormatError:
        return UnsupportedFormatError(
            why,
            file=self._store.path,
            advice="Let H2 open the database once: it recovers its indexes itself",
        )
