"""Compiled comparison of rows on pages with their images in the log.

In: the bytes of both. Out: whether a page has the row; what is no plain case is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallystick.arrow.byte_kernels import Bytes, Number, be_uint16, int64, uint64
from tallystick.arrow.numba_kernel import kernel
from tallystick.storage.crc import crc32
from tallystick.systems.derby.format.container_pages import CHECKSUM_SIZE, ROW_DELETED, ROWS
from tallystick.systems.derby.format.number_kernels import compressed_int, int_size
from tallystick.systems.derby.format.page_rows import (
    FIELD_FIXED_LENGTH,
    FIELD_NONEXISTENT,
    FIELD_NULL,
    ROW_FIRST_FIELD,
    ROW_OVERFLOW,
)

Numbers = NDArray[np.int64]
_KIND_SIZE, _VERSION = 2, slice(6, 14)
_COUNT_AT, _SLOTS_FROM, _SLOT_SIZE = 14, 16, 6
_PAD = 8
"""Bytes after the rows of a page, and of an image: numbers that are cut are read, and left."""
_CUT = ROW_OVERFLOW
NO_MARK = -1
"""Instead of whether a row is marked as deleted: it is not asked."""


def stand(
    pages: memoryview, begins: Numbers, size: int, images: Sequence[memoryview], rows: Numbers
) -> NDArray[np.bool_]:
    """Return of each page whether it has a row; False if in doubt.

    Args:
        pages: the bytes of pages that follow each other.
        begins: where each page of them begins.
        size: of a page.
        images: the row of each; of an empty one the mark is asked alone.
        rows: by column the record id of each, and whether it is marked as deleted, or `NO_MARK`.
    """
    ends = np.cumsum([len(one) for one in images], dtype=np.int64)
    joined = np.frombuffer(b"".join((*images, bytes(_PAD))), np.uint8)
    found = np.zeros(len(begins), np.bool_)
    _stand(np.frombuffer(pages, np.uint8), begins, size, joined, ends, rows, found)
    return found


def versions(pages: memoryview, begins: Numbers, size: int) -> Numbers:
    """Return the versions of pages of rows that have the checksums of their bytes; else -1.

    Args:
        pages: the bytes of pages that follow each other, not the first one of a container.
        begins: where each page of them begins.
        size: of a page.
    """
    whole = np.frombuffer(pages, np.uint8).reshape(-1, size)[begins // size]
    kinds = whole[:, :_KIND_SIZE].copy().view(">u2")[:, 0]
    stored = whole[:, -CHECKSUM_SIZE:].copy().view(">u8")[:, 0]
    ends = (begins + size - CHECKSUM_SIZE).tolist()
    sums = [crc32(pages[begin:end]) for begin, end in zip(begins.tolist(), ends, strict=True)]
    found = whole[:, _VERSION].copy().view(">i8")[:, 0].astype(np.int64)
    found[(kinds != ROWS) | (stored != np.array(sums, np.uint64))] = -1
    return found


@kernel
def _stand(
    pages: Bytes,
    begins: Numbers,
    size: Number,
    images: Bytes,
    ends: Numbers,
    rows: Numbers,
    found: NDArray[np.bool_],
) -> None:
    first = int64(0)
    for at in range(len(begins)):
        page = pages[begins[at] : begins[at] + size]
        # The number after the last one of an image is that of the next, or of zeros.
        image = images[first : ends[at] + _PAD]
        has_row = ends[at] == first or _has_row(page, image)
        found[at] = has_row and (rows[1, at] < 0 or _is_marked(page, rows[0, at], rows[1, at]))
        first = ends[at]


@kernel
def _is_marked(page: Bytes, number: Number, deleted: Number) -> bool:
    """Return whether a page has a row, and it is deleted or not; False if in doubt."""
    at = _row_at(page, number)
    return bool(at >= 0 and page[uint64(at)] & ROW_DELETED == deleted)


@kernel
def _has_row(page: Bytes, image: Bytes) -> bool:
    """Return whether a page has the row of an image, which is not in parts; False if in doubt."""
    if len(image) <= _PAD or image[0] & _CUT:
        return False
    at = _row_at(page, compressed_int(image, 1))
    if at < 0 or (page[uint64(at)] ^ image[0]) & ROW_FIRST_FIELD or page[uint64(at)] & _CUT:
        return False
    after = at + 1 + int_size(page, at + 1)
    begin = 1 + int_size(image, 1)
    if image[0] & ROW_FIRST_FIELD:
        is_cut = after >= len(page) - _PAD or begin >= len(image) - _PAD
        if is_cut or compressed_int(page, after) != compressed_int(image, begin):
            return False
        after += int_size(page, after)
        begin += int_size(image, begin)
    return _same_fields(page, after, image, begin)


@kernel
def _row_at(page: Bytes, number: Number) -> Number:
    """Return where the last row of a number begins; -1 if in doubt."""
    end = len(page) - _PAD
    for slot in range(be_uint16(page, _COUNT_AT), 0, -1):
        place = end - _SLOT_SIZE * slot
        if place < _SLOTS_FROM:
            return -1
        at = int64(be_uint16(page, place))
        if at + 1 >= end:
            return -1
        if compressed_int(page, at + 1) == number:
            return at
    return -1


@kernel
def _same_fields(page: Bytes, place: Number, image: Bytes, at: Number) -> bool:
    """Return whether fields of a row are those of its image; what that leaves out may be any."""
    end, size = len(page) - _PAD, len(image) - _PAD
    if place >= end or at >= size:
        return False
    stored, count = compressed_int(page, place), compressed_int(image, at)
    place += int_size(page, place)
    at += int_size(image, at)
    if stored < count:
        return False
    for _ in range(count):
        if place >= end or at >= size:
            return False
        kept, status = page[uint64(place)], image[uint64(at)]
        begin, first = _value(page, place), _value(image, at)
        place, at = _after(page, place), _after(image, at)
        if status & FIELD_NONEXISTENT == FIELD_NONEXISTENT:
            continue
        if (
            kept & FIELD_NONEXISTENT == FIELD_NONEXISTENT
            or (kept ^ status) & FIELD_NULL
            or place > end
            or at > size
            or place - begin != at - first
        ):
            return False
        for byte in range(place - begin):
            if page[uint64(begin + byte)] != image[uint64(first + byte)]:
                return False
    return True


@kernel
def _value(data: Bytes, place: Number) -> Number:
    """Return where the bytes of a field begin."""
    status = data[uint64(place)]
    if status & FIELD_NULL:
        return place + 1
    return place + 1 + (2 if status & FIELD_FIXED_LENGTH else int_size(data, place + 1))


@kernel
def _after(data: Bytes, place: Number) -> Number:
    """Return the offset after a field."""
    status = data[uint64(place)]
    if status & FIELD_NULL:
        return place + 1
    fixed = status & FIELD_FIXED_LENGTH
    size = be_uint16(data, place + 1) if fixed else compressed_int(data, place + 1)
    return _value(data, place) + int64(size)
