"""Read runs of small plain groups: one step of the walk for thousands of groups.

In: a segment's view and what is due in it. Out: a `Place` that ends after the last group of the
run, with the records of all of them in columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tallystick.arrow.columns import new_bitmap, new_views
from tallystick.arrow.crc_kernel import crc_table
from tallystick.systems.tally.columns import kernels
from tallystick.systems.tally.format.columns import GTRIDS, Row, UnplacedRecord
from tallystick.systems.tally.format.kinds import NAMES, WITH_RESOURCES, Code
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    GROUP_MAGIC,
    HEADER_SIZE,
    LOG_TAG_SIZE,
    NUMBER_MAX,
    SEGMENT_AT,
    TAG_AT,
    VERSION,
    VERSION_AT,
    decode_group_header,
)
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.walk import Expected, Place, SegmentView

ROWS_MAX = 1 << 13
"""Records of a run at most."""
_TABLE = crc_table()


def _marked(codes: Iterable[int]) -> npt.NDArray[np.bool_]:
    marks = np.zeros(256, np.bool_)
    marks[list(codes)] = True
    return marks


ALL_CODES = _marked(NAMES)
PLAIN_BODY_CODES = _marked(NAMES.keys() - {*WITH_RESOURCES, Code.PREPARE})
"""Codes whose bodies fill no column: a batch needs no more than the columns of the group."""

_OF_ENTRIES = _marked((Code.PERSISTING, Code.PERSISTED, Code.DISCARD))


@dataclass(frozen=True, slots=True)
class ColumnarRun:
    """Records of several groups in columns.

    Attributes:
        data: the bytes of the segment.
        numbers: rows of signed 64-bit numbers, by `kernels.OFFSET` to `kernels.GROUP`.
        codes: the code of each record.
        valid: bitmaps of the records that have a transaction, and of those that have a key.
        views: Arrow's binary views of the bodies, into ``data``.
    """

    data: Any
    numbers: Any
    codes: npt.NDArray[np.uint8]
    valid: Any
    views: Any

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.codes)

    @property
    def plain(self) -> bool:
        """True if all are plain records outside of transactions."""
        return bool((self.codes == Code.APPEND).all()) and not self.valid[0].any()

    def _present(self) -> Any:
        """Return two rows of 0 and 1: which records have a transaction, and which a key."""
        return np.unpackbits(self.valid, axis=1, count=self.count, bitorder="little")

    def groups_with_work(self) -> list[int]:
        """Return the offsets of groups with records of transactions or entries."""
        work = self._present()[0].astype(np.bool_) | _OF_ENTRIES[self.codes]
        offsets: list[int] = np.unique(self.numbers[kernels.GROUP, work]).tolist()
        return offsets

    def groups(self) -> list[tuple[int, int, int]]:
        """Return offset, first LSN and time of each group."""
        first = np.flatnonzero(np.diff(self.numbers[kernels.GROUP], prepend=-1))
        rows = self.numbers[[kernels.GROUP, kernels.LSN, kernels.TIME]][:, first]
        return list(zip(*rows.tolist(), strict=True))

    def rows(self, segment: int) -> Iterator[tuple[int, Row]]:
        """Yield the rows, each with the offset of its group."""
        data = memoryview(self.data)
        rows = zip(
            self.codes.tolist(), self.numbers.T.tolist(), self._present().T.tolist(), strict=True
        )
        for code, (offset, length, lsn, time, transaction, key, group), (inside, keyed) in rows:
            body = bytes(data[offset : offset + length])
            record = UnplacedRecord(
                code, body, transaction if inside else None, key if keyed else None
            )
            yield group, Row(lsn, segment, time, record)


_LSN_MAX = NUMBER_MAX // 2
"""LSNs from here on are followed one by one: the kernel counts without a test for overflow."""


class CompiledRunReader:
    """A `RunReader` of at most ``rows`` records per run.

    Groups with a code that ``known`` does not mark are left to the walk.
    """

    def __init__(
        self, rows: int = ROWS_MAX, known: npt.NDArray[np.bool_] = PLAIN_BODY_CODES
    ) -> None:
        self._rows = min(rows, ROWS_MAX)
        self._known = known

    def __call__(self, view: SegmentView, due: Expected, stop: int | None) -> Place | None:
        """Return a place with all small plain groups from ``due`` on that begin before ``stop``."""
        first = decode_group_header(view.data, due.offset)
        if first is None or first.flags or first.stored > kernels.STORED_MAX:
            return None
        if first.columns & GTRIDS:  # the kernel would not take it: no need to prepare for it
            return None
        data = np.frombuffer(view.data, np.uint8)
        run, state = self._walk(data, view, due, len(data) if stop is None else stop)
        if run is None:
            return None
        last = decode_group_header(view.data, int(state[kernels.LAST]))
        assert last is not None  # the kernel has just verified it
        then = Expected(last.end, last.last_lsn + 1, last.checksum)
        return Place(Case.VALID, due.offset, last.end, due.lsn, last, then=then, run=run)

    def _walk(
        self, data: Any, view: SegmentView, due: Expected, stop: int
    ) -> tuple[ColumnarRun | None, Any]:
        rows = self._rows
        state = np.array([due.offset, due.lsn, due.chain, -1], np.int64)
        out = np.empty((kernels.COLUMNS, rows), np.int64)
        codes = np.empty(rows, np.uint8)
        valid = np.stack((new_bitmap(rows), new_bitmap(rows)))
        views = new_views(rows)
        known = due.offset >= DATA_OFFSET and due.lsn <= _LSN_MAX
        count = known and kernels.walk_small(
            data, stop, _common_header(view), view.header.sector_size, self._known, _TABLE,
            state, out, codes, valid, views,
        )  # fmt: skip
        if state[kernels.LAST] < 0:
            return None, state
        return ColumnarRun(data, out[:, :count], codes[:count], valid, views[:count]), state


def _common_header(view: SegmentView) -> npt.NDArray[np.uint8]:
    """Return a group header with the fields that all groups of the segment share."""
    common = bytearray(HEADER_SIZE)
    common[: len(GROUP_MAGIC)] = GROUP_MAGIC
    common[VERSION_AT : VERSION_AT + 2] = VERSION.to_bytes(2, "little")
    common[SEGMENT_AT : SEGMENT_AT + 8] = view.header.number.to_bytes(8, "little")
    common[TAG_AT : TAG_AT + LOG_TAG_SIZE] = view.header.tag
    return np.frombuffer(bytes(common), np.uint8)
