"""Redo of a log whose splits have read its records: what each finds, and what all find together.

In: the chunks of a split; then the `Part`s of all splits, and the records that these leave open.
Out: what `redo_of_runs` finds in the whole log. A gap between the versions of a page, and what no
boot redoes without a question, are left to a reading of the whole log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tallystick.systems.derby.engine import redo_kernels as kernels
from tallystick.systems.derby.engine.page_versions import CUT, PageVersions
from tallystick.systems.derby.engine.redo_of_runs import RedoOfRuns
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format.layout import CHECKSUM_OPERATION, make_instant
from tallystick.systems.derby.format.operations import CHECKPOINT
from tallystick.systems.derby.read.files import LogBytes
from tallystick.systems.derby.runs import walk
from tallystick.systems.derby.runs.chunk import Chunk, Column, PlainRun, Runs
from tallystick.systems.protocol import NotClosedInPartsError
from tallystick.systems.rests import items, longs

PAGES_MAX = 1 << 16
"""Most pages that a split hands on: those of all splits are in memory when they are joined."""
_PAGE = slice(0, kernels.PAGE_VERSION)


class Part(NamedTuple):
    """What the records of a split tell of redo and of the log.

    Attributes:
        start, mark: where redo begins, and its mark.
        size: number of records.
        before, after: the records before the start of redo as a run, and those from there on.
        checkpoints: the instants of checkpoint records.
        redone, highest: as `Recovery` has them, of the transactions that end in their chunk; the
            records of the others count as redone, too.
        pages: those that are redone, in order, as rows of the table of `redo_kernels`.
    """

    start: int
    mark: int
    size: int
    before: PlainRun
    after: PlainRun
    checkpoints: Column
    redone: int
    highest: int
    pages: kernels.Table

    @classmethod
    def built(cls, value: Any) -> Part:
        """Return the part whose value was packed."""
        start, mark, size, before, after, checkpoints, redone, highest, pages = items(
            value, int, int, int, list, list, bytes, int, int, bytes
        )
        runs = [PlainRun(*items(one, int, int, int, int, int)) for one in (before, after)]
        table = longs(pages).reshape(-1, kernels.PAGE_COLUMNS)
        places = longs(checkpoints)
        return cls(start, mark, size, runs[0], runs[1], places, redone, highest, table)

    @property
    def run(self) -> PlainRun:
        """All records."""
        return self.before.joined(self.after)


class RedoOfSplit(RedoOfRuns):
    """Redoes the chunks of a split: their pages, and the transactions that end in their chunk."""

    def __init__(self, runs: Runs, recovery: Recovery, begin: int) -> None:
        """``recovery`` tells where redo begins; ``begin`` is the offset of the first record."""
        start, mark = recovery.start, recovery.redo_mark
        super().__init__(runs, Recovery(start=start, redo_mark=mark), PageVersions([]))
        self._size = self._count = 0
        self._before = self._after = PlainRun(begin)
        self._checkpoints = [np.empty(0, np.int64)]
        self._plain = True

    def add(self, chunk: Chunk, closed: Chunk) -> None:
        """Take in the next chunk, and those of its records whose transactions end in it."""
        start, instants = self._result.start, chunk.instants
        at = int(instants.searchsorted(start))
        if at:
            self._before = self._before.extended(chunk.rows(0, at))
            self._after = PlainRun(self._before.end)
            # Inside of a record a boot would see others than these.
            self._plain &= start >= make_instant(chunk.file.number, self._before.end)
        if at < chunk.size:
            self._after = self._after.extended(chunk.rows(at, chunk.size))
        self._size += chunk.size
        self._checkpoints.append(instants[chunk.columns[walk.OPERATION] == CHECKPOINT])
        self._note_pages(chunk.rows(at, chunk.size))
        mine = closed.rows(int(closed.instants.searchsorted(start)), closed.size)
        self._plain &= self._redo(_without_pages(mine)) == mine.size

    def _note_pages(self, chunk: Chunk) -> None:
        records = chunk.columns[walk.OPERATION] != CHECKSUM_OPERATION
        if (chunk.columns[walk.TRANSACTION, records] < 0).any():
            self._plain = False
        self._count += int(np.count_nonzero(records & (chunk.instants >= self._result.redo_mark)))
        row, how = 0, kernels.GROW
        while how == kernels.GROW:
            self._grow()
            row, how = kernels.note_pages(
                chunk.columns,
                row,
                make_instant(chunk.file.number, 0),
                self._result.redo_mark,
                self._pages,
                self._counters,
                self._gap,
            )
        self._plain &= how == kernels.DONE

    def part(self) -> Part | None:
        """Return what was found; None if only a pass over the whole log can tell."""
        if not self._plain or self._counters[kernels.PAGES] > PAGES_MAX:
            return None
        return Part(
            self._result.start,
            self._result.redo_mark,
            self._size,
            self._before,
            self._after,
            np.concatenate(self._checkpoints),
            self._count,
            int(self._counters[kernels.HIGHEST]),
            self._used_pages(),
        )


class RedoOfParts(RedoOfRuns):
    """Redoes a log by what its splits have found.

    Raises:
        NotClosedInPartsError: a boot has to be followed through the whole log.
    """

    def __init__(
        self,
        runs: Runs,
        parts: Sequence[tuple[int, Part]],
        left: Iterable[Chunk],
        result: Recovery,
        versions: PageVersions,
    ) -> None:
        """``parts`` follow the numbers of their files; ``left`` are the other records, in order."""
        super().__init__(runs, result, versions)
        self._parts = parts
        if any(one[:2] != (result.start, result.redo_mark) for _, one in parts):
            raise NotClosedInPartsError("there was a checkpoint while the splits were read")
        for chunk in left:
            mine = chunk.rows(int(chunk.instants.searchsorted(result.start)), chunk.size)
            if self._redo(_without_pages(mine)) != mine.size:
                raise NotClosedInPartsError("a boot is not plain")
        highest = (one.highest for _, one in parts)
        self._counters[kernels.HIGHEST] = max(self._counters[kernels.HIGHEST], *highest, 0)
        self._counters[kernels.REDONE] = sum(one.redone for _, one in parts)
        self._pages = _joined([one.pages for _, one in parts])

    def take(self, file: LogBytes, begin: int) -> PlainRun:
        """Return the records from an offset on as a run."""
        run = PlainRun(begin)
        for number, part in self._parts:
            if number == file.number and part.after.end > begin:
                run = run.joined(part.after)
        return run

    def release(self) -> None:
        """Refuse: a record is in no part."""
        raise NotClosedInPartsError("a boot goes on after what is plain")


def _without_pages(chunk: Chunk) -> Chunk:
    """Return the records as if none changed a page."""
    columns = np.empty((len(chunk.columns), chunk.size + 1), np.int64)[:, :-1]
    columns[:] = chunk.columns
    columns[walk.SEGMENT] = -1
    return replace(chunk, columns=columns)


def _joined(tables: Sequence[kernels.Table]) -> kernels.Table:
    """Return the pages of all parts, of which the tables follow each other in the log."""
    pages = np.concatenate([kernels.new_table(kernels.PAGE_COLUMNS, 0), *tables])
    # By segment, container and page; what is stable keeps the order of the parts.
    pages = pages[np.lexsort(pages[:, [2, 1, 0]].T)]
    again = (pages[1:, _PAGE] == pages[:-1, _PAGE]).all(axis=1)
    firsts, befores = pages[1:, kernels.PAGE_FIRST], pages[:-1, kernels.PAGE_VERSION]
    if (firsts > befores)[again].any():
        raise NotClosedInPartsError("versions of a page are missing between two parts")
    starts = np.flatnonzero(np.append(True, ~again)[: len(pages)])
    if not starts.size:
        return pages
    found: kernels.Table = pages[np.append(starts[1:], len(pages)) - 1]
    found[:, kernels.PAGE_FIRST] = pages[starts, kernels.PAGE_FIRST]
    found[:, kernels.PAGE_BITS] |= np.bitwise_or.reduceat(pages[:, kernels.PAGE_BITS] & CUT, starts)
    return found
