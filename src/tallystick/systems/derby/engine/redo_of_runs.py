"""Redo of runs of plain records, for `engine.recovery`.

In: runs, from the one on in which recovery begins. Out: what `Recovery` and `PageVersions` hold
after them. What a boot would not redo without a question is left to record by record redo, and so
is everything after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np

from tallystick.records import Xid
from tallystick.systems.derby.engine import redo_kernels as kernels
from tallystick.systems.derby.engine.page_files import PageFile
from tallystick.systems.derby.engine.page_versions import (
    CUT,
    UNDONE,
    PageGap,
    PageVersions,
    RedonePage,
    RedonePages,
)
from tallystick.systems.derby.engine.result import OpenTransaction, Recovery
from tallystick.systems.derby.format.field_types import Container, Page
from tallystick.systems.derby.format.layout import make_instant, split_instant
from tallystick.systems.derby.format.operations import ENCRYPT_CONTAINER
from tallystick.systems.derby.read.files import LogBytes
from tallystick.systems.derby.runs import walk
from tallystick.systems.derby.runs.chunk import Chunk, PlainRun, Runs, xid_at
from tallystick.systems.derby.runs.stored import versions

SLOTS = 1 << 10
"""Slots of a new hash table."""


class RedoOfRuns:
    """Redoes runs: from its first record that is not redone so on, none."""

    def __init__(self, runs: Runs, result: Recovery, versions: PageVersions) -> None:
        self._runs = runs
        self._result, self._versions = result, versions
        self._table = kernels.new_table(kernels.TRANSACTION_COLUMNS, SLOTS)
        self._pages = kernels.new_table(kernels.PAGE_COLUMNS, SLOTS)
        self._counters = np.zeros(kernels.COUNTERS, np.int64)
        self._gap = np.zeros(2, np.int64)
        self._done = False

    def take(self, file: LogBytes, begin: int) -> PlainRun | None:
        """Redo the records from an offset on that a boot redoes without a question."""
        if self._done:
            return None
        run = PlainRun(begin)
        for chunk in self._runs.chunks(file, begin):
            count = self._redo(chunk)
            if count:
                run = run.extended(chunk.rows(0, count))
            # The rest is redone record by record: who goes on here would redo it twice.
            if count < chunk.size:
                break
        return run

    def release(self) -> None:
        """Hand everything over, and take no more runs."""
        if self._done:
            return
        self.settle()
        used = self._pages[self._pages[:, 0] != kernels.FREE].tolist()
        self._versions.versions |= {
            Page(*page[: kernels.PAGE_VERSION]): tuple(page[kernels.PAGE_VERSION :])
            for page in used
        }
        # They are handed over: `pages` must not give them once more.
        self._pages = self._pages[:0]

    def by_container(self) -> Iterator[RedonePages]:
        """Yield the pages that were redone and not handed over, by segment and container."""
        used = self._used_pages()
        ends = np.flatnonzero((used[1:, :2] != used[:-1, :2]).any(axis=1)) + 1
        for pages in np.split(used, ends) if len(used) else ():
            yield _PagesOfRuns(pages)

    def _used_pages(self) -> kernels.Table:
        used = self._pages[self._pages[:, 0] != kernels.FREE]
        # By segment, container and page: the last key of `lexsort` counts first.
        found: kernels.Table = used[np.lexsort(used[:, [2, 1, 0]].T)]
        return found

    def settle(self) -> None:
        """Bring the table of the result up to date."""
        if self._done:
            return
        self._done = True
        used = self._table[self._table[:, kernels.NUMBER] != kernels.FREE].tolist()
        # Slots are in order of their hashes; the engine's table is in order of begin records.
        used.sort(key=lambda one: one[kernels.FIRST])
        self._result.table |= {one[kernels.NUMBER]: self._open(*one) for one in used}
        self._result.redone += int(self._counters[kernels.REDONE])
        self._result.highest = max(self._result.highest, int(self._counters[kernels.HIGHEST]))

    def _open(
        self, number: int, first: int, last: int, internal: int, xid: int, prepared: int, count: int
    ) -> OpenTransaction:
        known = self._xid(xid) if xid >= 0 else None
        return OpenTransaction(number, first, last, bool(internal), known, bool(prepared), count)

    def _xid(self, place: int) -> Xid | None:
        number, offset = split_instant(place)
        return xid_at(self._runs.log.files[number].data, offset)

    def _redo(self, chunk: Chunk) -> int:
        """Redo rows of the chunk; return how many."""
        row, how = 0, kernels.GROW
        while how not in (kernels.DONE, kernels.LEFT):
            row, how = kernels.redo_rows(
                chunk.columns,
                row,
                make_instant(chunk.file.number, 0),
                self._result.redo_mark,
                len(self._versions.creators) + len(self._versions.encrypted),
                kernels.FLAGS,
                self._table,
                self._pages,
                self._counters,
                self._gap,
            )
            self._answer(how, chunk, row - 1)
        return row

    def _answer(self, how: int, chunk: Chunk, row: int) -> None:
        if how == kernels.GROW:
            self._grow()
        elif how == kernels.NOTE:
            self._note(chunk, row)
        elif how == kernels.GAP:
            self._add_gap(chunk, row)

    def _grow(self) -> None:
        open_slots, page_slots = self._counters[: kernels.PAGES + 1].tolist()
        # More than half full, and probing gets long; one free slot has to end every search.
        if 2 * open_slots >= len(self._table):
            self._table = _moved(self._table, kernels.move_transactions)
        if 2 * page_slots >= len(self._pages):
            self._pages = _moved(self._pages, kernels.move_pages)

    def _note(self, chunk: Chunk, row: int) -> None:
        place = int(chunk.instants[row])
        if (operation := chunk.columns[walk.OPERATION, row]) in kernels.NOTED:
            body = chunk.body(row)
            self._versions.note_creation(place, body)
            if place >= self._result.redo_mark and operation != ENCRYPT_CONTAINER:
                self._versions.note_change(body)
        else:
            self._versions.note_end(place, int(chunk.columns[walk.TRANSACTION, row]))

    def _add_gap(self, chunk: Chunk, row: int) -> None:
        numbers = chunk.columns[
            [walk.SEGMENT, walk.CONTAINER, walk.PAGE, walk.VERSION], row
        ].tolist()
        page, version = Page(*numbers[:-1]), numbers[-1]
        known, before = self._gap.tolist()
        built = before < self._versions.built.get(page.of, 0)
        gap = PageGap(int(chunk.instants[row]), page, known, version, built)
        self._versions.gaps.append(gap)


class _PagesOfRuns(RedonePages):
    """Those of a table of pages: rows of it."""

    def __init__(self, table: kernels.Table) -> None:
        super().__init__(Container(*table[0, :2].tolist()), ())
        self._table = table

    def __iter__(self) -> Iterator[RedonePage]:
        return self.others(())

    def others(self, than: Collection[int]) -> Iterator[RedonePage]:
        table = self._table
        if than:
            table = table[~np.isin(table[:, 2], np.fromiter(than, np.int64))]
        for begin in range(0, len(table), SLOTS):
            for *page, after, last, first, bits in table[begin : begin + SLOTS].tolist():
                undone, cut = bool(bits & UNDONE), bool(bits & CUT)
                yield RedonePage(Page(*page), first, after, last, undone, cut)

    @property
    def numbers(self) -> list[int]:
        found: list[int] = self._table[:, 2].tolist()
        return found

    @property
    def cut(self) -> bool:
        return self._has(CUT)

    @property
    def undone(self) -> bool:
        return self._has(UNDONE)

    def _has(self, bit: int) -> bool:
        return bool((self._table[:, kernels.PAGE_BITS] & bit).any())

    def plain(self, file: PageFile) -> dict[int, tuple[int, int]]:
        size, found = file.page_size, dict[int, tuple[int, int]]()
        # The first page has the head of the container in it, which has a checksum of its own.
        first, end = np.searchsorted(self._table[:, 2], (1, file.size // size)).tolist()
        for near, data in file.stretches(self.numbers[first:end]):
            table = self._table[first : (first := first + len(near))]
            begins = (table[:, 2] - near[0]) * size
            if len(data) < begins[-1] + size:  # its file became shorter
                break
            version = versions(data, begins, size)
            after = table[:, kernels.PAGE_VERSION]
            plain = (table[:, kernels.PAGE_FIRST] <= version) & (version <= after)
            pairs = zip(version[plain].tolist(), (after - version)[plain].tolist(), strict=True)
            found |= zip(table[plain, 2].tolist(), pairs, strict=True)
        return found


def _moved(
    table: kernels.Table, move: Callable[[kernels.Table, kernels.Table], None]
) -> kernels.Table:
    """Return a copy of a hash table with twice the slots."""
    larger = kernels.new_table(table.shape[1], 2 * len(table))
    move(table, larger)
    return larger
