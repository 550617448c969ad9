"""Read runs of small plain groups: one step of the walk for thousands of groups.

In: a segment's view and what is due in it. Out: the records of all of them in columns, and the
header of the last one. Import this module only where it pays: it loads NumPy and the compiler.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tallystick.arrow.columns import new_bitmap, new_views
from tallystick.arrow.neighbours import marked
from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.storage.mapped import NEAR
from tallystick.systems.tally.format import layout
from tallystick.systems.tally.format.columns import CODE_SHIFT, CODES, GTRIDS
from tallystick.systems.tally.format.kinds import NAMES, WITH_RESOURCES, Code
from tallystick.systems.tally.format.sealing import payload_bytes
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.walk import Expected, SegmentView
from tallystick.systems.tally.runs import walk
from tallystick.systems.tally.runs.chunk import Chunk

ROWS_MAX = 1 << 13
"""Records of a chunk at most."""
EVERY_SIZE = layout.LENGTH_MAX
"""Bytes that no large group exceeds."""

Found: TypeAlias = tuple[Chunk, layout.GroupHeader]
"""The records of whole groups in a row, and the header of the last one."""


ALL_CODES = marked(NAMES)
PLAIN_BODY_CODES = marked(NAMES.keys() - {*WITH_RESOURCES, Code.PREPARE})
"""Codes whose bodies fill no column: a batch needs no more than the columns of the group."""


_LSN_MAX = layout.NUMBER_MAX // 2
"""LSNs from here on are followed one by one: the kernel counts without a test for overflow."""


class ChunkReader:
    """Reads chunks of at most ``rows`` records.

    Groups with a code that ``known`` does not mark, or with columns of ``odd``, are left to
    `SegmentView.look`, one at a time. Large groups are taken if they have at most ``large`` bytes:
    as many as fit into a chunk, or one.
    """

    def __init__(
        self,
        rows: int = ROWS_MAX,
        known: npt.NDArray[np.bool_] = PLAIN_BODY_CODES,
        odd: int = GTRIDS,
        *,
        large: int = 0,
        key: bytes | None = None,
    ) -> None:
        self._rows = min(rows, ROWS_MAX)
        self._known = known
        self._odd = odd
        self._large = large
        self._key = key

    def __call__(self, view: SegmentView, due: Expected, stop: int | None) -> Found | None:
        """Return small plain groups from ``due`` on that begin before ``stop``."""
        first = layout.decode_group_header(view.data, due.offset)
        if (
            first is None
            or first.flags & ~layout.PACKED
            or (first.flags & layout.AES_GCM and not self._key)
        ):
            return None
        if first.columns & self._odd:  # the kernel would not take it: no need to prepare for it
            return None
        if first.stored > walk.STORED_MAX or first.count > self._rows:
            return self._large_groups(view, due, stop) if first.stored <= self._large else None
        data = np.frombuffer(view.data, np.uint8)
        # In steps of `NEAR` bytes: between two of them pages of the mapping are given back.
        end = min(due.offset + NEAR, len(data) if stop is None else stop)
        if first.flags:
            return self._packed(data, view, due, end, first.flags)
        chunk, state = self._walk(data, view, due, end)
        if chunk is None:
            return None
        last = layout.decode_group_header(view.data, int(state[walk.LAST]))
        assert last is not None  # the kernel has just verified it
        return chunk, last

    def _large_groups(self, view: SegmentView, due: Expected, stop: int | None) -> Found | None:
        """Return one packed group, or several others in a row: for each chunk time is taken."""
        first = self._verified(view, due)
        if first is None:
            return None
        if first.flags:
            return self._unpacked(view, [due.offset])
        headers, rows = [first], self._rows - first.count
        end = min(due.offset + NEAR, len(view.data) if stop is None else stop)
        while (due := Expected.after(headers[-1])).offset < end:
            header = layout.decode_group_header(view.data, due.offset)
            if (
                header is None
                or header.flags
                or not walk.STORED_MAX < header.stored <= self._large
                or header.count > rows
                or self._verified(view, due) is None
            ):
                break
            headers.append(header)
            rows -= header.count
        starts = [one.offset for one in headers]
        return self._taken(np.frombuffer(view.data, np.uint8), headers, starts)

    def _verified(self, view: SegmentView, due: Expected) -> layout.GroupHeader | None:
        """Return the header of the group that is due if it is whole and of records to be taken."""
        place = view.look(due)
        header = place.header
        if place.case is not Case.VALID or header is None or due.lsn > _LSN_MAX:
            return None
        # Each record takes four bytes at least: columns for a count that cannot be are not made.
        if header.count > header.raw:
            return None
        if header.flags:
            return header
        if header.raw != header.stored or header.columns & self._odd:
            return None
        # Here and not by the kernel alone: where it stops, what follows was verified for nothing.
        codes = view.payload(header)[: header.count] if header.columns & CODES else _code(header)
        return header if self._known[np.frombuffer(codes, np.uint8)].all() else None

    def _walk(
        self, data: Any, view: SegmentView, due: Expected, stop: int
    ) -> tuple[Chunk | None, Any]:
        state = np.array([due.offset, due.lsn, due.chain, -1], np.int64)
        out, codes, valid, views = _new_columns(self._rows)
        # Before that offset stand the two copies of the header, where no group is due.
        known = due.offset >= layout.DATA_OFFSET and due.lsn <= _LSN_MAX
        count = known and walk.walk_small(
            data, stop, _common_header(view, 0), view.header.sector_size, self._known,
            self._odd, state, out, codes, valid, views,
        )  # fmt: skip
        if state[walk.LAST] < 0:
            return None, state
        return Chunk(data, out[:, :count], codes[:count], valid, views[:count]), state

    def _packed(
        self, data: Any, view: SegmentView, due: Expected, stop: int, flags: int
    ) -> Found | None:
        """Return groups whose payloads are unpacked one after the other into bytes of their own."""
        if due.offset < layout.DATA_OFFSET or due.lsn > _LSN_MAX:
            return None
        state = np.array([due.offset, due.lsn, due.chain, -1], np.int64)
        places = np.empty(self._rows, np.int64)
        found = walk.walk_packed(
            data, stop, _common_header(view, flags), view.header.sector_size, self._rows,
            state, places,
        )  # fmt: skip
        return self._unpacked(view, places[:found].tolist())

    def _unpacked(self, view: SegmentView, places: list[int]) -> Found | None:
        """Return groups whose payloads are unpacked, each after its header as if stored so.

        Those after one that cannot be unpacked, or after `NEAR` bytes, are left out.
        """
        headers, starts, content = list[layout.GroupHeader](), list[int](), bytearray()
        for place in places:
            header = layout.decode_group_header(view.data, place)
            if header is None or not view.is_own(header) or len(content) + header.raw > NEAR:
                break
            try:
                payload = payload_bytes(view.payload(header), header, self._key)
            except (CorruptLogError, UnsupportedFormatError):
                break  # read by itself, it is judged
            headers.append(header)
            starts.append(len(content))
            # Behind a header that gives the unpacked size the kernel takes it as if stored plainly.
            content += view.data[place : place + layout.HEADER_SIZE]
            content[starts[-1] + layout.STORED_AT : starts[-1] + layout.STORED_AT + 4] = len(
                payload
            ).to_bytes(4, "little")
            content += payload
        return self._taken(np.frombuffer(bytes(content), np.uint8), headers, starts)

    def _taken(
        self, data: Any, headers: list[layout.GroupHeader], starts: list[int]
    ) -> Found | None:
        """Return groups that are verified, and begin at these places of ``data``."""
        out, codes, valid, views = _new_columns(sum(one.count for one in headers))
        counts = np.zeros(len(headers), np.int64)
        taken = walk.take_verified(
            data,
            np.array(starts, np.int64),
            self._known,
            self._odd,
            counts,
            out,
            codes,
            valid,
            views,
        )
        if not taken:
            return None
        # A group that needs more than columns is read by itself; those before it are a chunk.
        headers, counts = headers[:taken], counts[:taken]
        count, lengths = int(counts.sum()), None
        if headers[0].flags:
            out[walk.GROUP, :count] = np.repeat([one.offset for one in headers], counts)
            lengths = np.repeat([one.length for one in headers], counts)
        chunk = Chunk(data, out[:, :count], codes[:count], valid, views[:count], lengths)
        return chunk, headers[-1]


def _code(header: layout.GroupHeader) -> bytes:
    """Return the code of all records of a group without a column of codes."""
    return bytes([header.columns >> CODE_SHIFT & 0xFF])


def _new_columns(rows: int) -> tuple[Any, Any, Any, Any]:
    """Return what the walk fills: numbers, codes, bitmaps, views."""
    out, codes = np.empty((walk.COLUMNS, rows), np.int64), np.empty(rows, np.uint8)
    return out, codes, np.stack((new_bitmap(rows), new_bitmap(rows))), new_views(rows)


def _common_header(view: SegmentView, flags: int) -> npt.NDArray[np.uint8]:
    """Return a group header with the fields that all groups of the segment with flags share."""
    common = bytearray(layout.HEADER_SIZE)
    common[: len(layout.GROUP_MAGIC)] = layout.GROUP_MAGIC
    common[layout.VERSION_AT : layout.VERSION_AT + 2] = layout.VERSION.to_bytes(2, "little")
    common[layout.VERSION_AT + 2 : layout.VERSION_AT + 4] = flags.to_bytes(2, "little")
    common[layout.SEGMENT_AT : layout.SEGMENT_AT + 8] = view.header.number.to_bytes(8, "little")
    common[layout.TAG_AT : layout.TAG_AT + layout.LOG_TAG_SIZE] = view.header.tag
    return np.frombuffer(bytes(common), np.uint8)
