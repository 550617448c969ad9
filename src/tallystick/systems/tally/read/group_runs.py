"""Leaps over small plain groups: one step of the walk for thousands.

In: a segment's view and what is due in it. Out: a `Place` that ends behind the last group taken,
with the records of all of them in columns; None where the plain walk has to look.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tallystick.arrow.columns import new_bitmap, new_views
from tallystick.arrow.crc_kernel import crc_table
from tallystick.systems.tally.columns import kernels as kernel
from tallystick.systems.tally.format.columns import GTRIDS
from tallystick.systems.tally.format.kinds import NAMES, WITH_RESOURCES, Code
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    GROUP_MAGIC,
    HEADER_SIZE,
    VERSION,
    decode_group_header,
)
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.walk import Expected, Place, SegmentView

ROWS = 1 << 13
"""Records of a leap at most."""
_TABLE = crc_table()


def _marked(codes: Iterable[int]) -> npt.NDArray[np.bool_]:
    marks = np.zeros(256, np.bool_)
    marks[list(codes)] = True
    return marks


ALL_CODES = _marked(NAMES)
COLUMNS_SAY_ALL = _marked(NAMES.keys() - {*WITH_RESOURCES, Code.PREPARE})
"""Codes whose bodies are the application's."""

_OF_ENTRIES = _marked((Code.PERSISTING, Code.PERSISTED, Code.DISCARD))


@dataclass(frozen=True, slots=True)
class Run:
    """Records of several groups, one number or view each; ``views`` point into ``data``."""

    data: Any
    numbers: Any
    """Rows of signed 64-bit numbers: `small_kernel.OFFSET` and so on."""
    codes: npt.NDArray[np.uint8]
    valid: Any
    """Bitmaps of transactions and of keys."""
    views: Any

    @property
    def count(self) -> int:
        return len(self.codes)

    @property
    def plain(self) -> bool:
        """True if all records are appended ones outside of transactions."""
        return bool((self.codes == Code.APPEND).all()) and not self.valid[0].any()

    def present(self) -> Any:
        """Two rows of 0 and 1: which records have a transaction, and which a key."""
        return np.unpackbits(self.valid, axis=1, count=self.count, bitorder="little")

    def groups_with_work(self) -> list[int]:
        """Offsets of the groups with records of transactions or entries."""
        work = self.present()[0].astype(np.bool_) | _OF_ENTRIES[self.codes]
        offsets: list[int] = np.unique(self.numbers[kernel.GROUP, work]).tolist()
        return offsets

    def groups(self) -> list[tuple[int, int, int]]:
        """Offset, first LSN and time of each group."""
        first = np.flatnonzero(np.diff(self.numbers[kernel.GROUP], prepend=-1))
        rows = self.numbers[[kernel.GROUP, kernel.LSN, kernel.TIME]][:, first]
        return list(zip(*rows.tolist(), strict=True))


class Leaper:
    """Leaps in a log, of at most ``rows`` records each; those with the codes that ``known`` marks
    are taken."""

    def __init__(self, rows: int = ROWS, known: npt.NDArray[np.bool_] = COLUMNS_SAY_ALL) -> None:
        self._rows = min(rows, ROWS)
        self._known = known

    def __call__(self, view: SegmentView, due: Expected, to: int | None) -> Place | None:
        """The place of all small plain groups from ``due`` on, up to ``to``."""
        first = decode_group_header(view.data, due.offset)
        if first is None or first.flags or first.stored > kernel.STORED_MAX:
            return None
        if first.columns & GTRIDS:  # the walk would not take it: no need to prepare for one
            return None
        data = np.frombuffer(view.data, np.uint8)
        run, state = self._walk(data, view, due, len(data) if to is None else to)
        if run is None:
            return None
        last = decode_group_header(view.data, int(state[kernel.LAST]))
        assert last is not None  # the walk has just verified it
        behind = Expected(last.end, last.last_lsn + 1, last.checksum)
        return Place(Case.VALID, due.offset, last.end, due.lsn, last, then=behind, run=run)

    def _walk(
        self, data: Any, view: SegmentView, due: Expected, stop: int
    ) -> tuple[Run | None, Any]:
        rows = self._rows
        state = np.array([due.offset, due.lsn, due.chain, -1], np.int64)
        out = np.empty((kernel.COLUMNS, rows), np.int64)
        codes = np.empty(rows, np.uint8)
        valid = np.stack((new_bitmap(rows), new_bitmap(rows)))
        views = new_views(rows)
        known = due.offset >= DATA_OFFSET
        count = known and kernel.walk_small(
            data, stop, _own(view), view.header.sector_size, self._known, _TABLE,
            state, out, codes, valid, views,
        )  # fmt: skip
        if state[kernel.LAST] < 0:
            return None, state
        return Run(data, out[:, :count], codes[:count], valid, views[:count]), state


def _own(view: SegmentView) -> npt.NDArray[np.uint8]:
    """What each header of the segment has in common, where it stands in one."""
    common = bytearray(HEADER_SIZE)
    common[:8] = GROUP_MAGIC
    common[8:10] = VERSION.to_bytes(2, "little")
    common[16:24] = view.header.number.to_bytes(8, "little")
    common[96:104] = view.header.identity[:8]
    return np.frombuffer(bytes(common), np.uint8)
