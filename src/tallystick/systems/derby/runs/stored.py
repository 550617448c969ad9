"""Compiled comparison of a row on a page with its image in the log.

In: the bytes of both. Out: whether the page has the row; what is no plain case is decoded.
"""

from __future__ import annotations

import numpy as np

from tallystick.arrow.byte_kernels import Bytes, Number, be_uint16, int64, uint64
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.derby.format.number_kernels import compressed_int, int_size
from tallystick.systems.derby.format.page_rows import (
    FIELD_FIXED_LENGTH,
    FIELD_NONEXISTENT,
    FIELD_NULL,
    ROW_FIRST_FIELD,
    ROW_OVERFLOW,
)
from tallystick.systems.derby.read import containers

_COUNT_AT, _SLOTS_FROM, _SLOT_SIZE = 14, 16, 6
_PAD = 8
"""Bytes after the rows of a page, and of an image: numbers that are cut are read, and left."""
_CUT = ROW_OVERFLOW | ROW_FIRST_FIELD


def holds(page: memoryview, image: bytes) -> bool:
    """Return the same as `read.containers.holds`."""
    padded = np.frombuffer(image + bytes(_PAD), np.uint8)
    return bool(_has_row(np.frombuffer(page, np.uint8), padded)) or containers.holds(page, image)


@kernel
def _has_row(page: Bytes, image: Bytes) -> bool:
    """Return whether a page has the row of an image, which is not in parts; False if in doubt."""
    end = len(page) - _PAD
    if len(image) <= _PAD or image[0] & _CUT:
        return False
    number = compressed_int(image, 1)
    for slot in range(be_uint16(page, _COUNT_AT), 0, -1):
        place = end - _SLOT_SIZE * slot
        if place < _SLOTS_FROM:
            return False
        at = int64(be_uint16(page, place))
        if at + 1 < end and compressed_int(page, at + 1) == number:
            after = at + 1 + int_size(page, at + 1)
            begin = 1 + int_size(image, 1)
            return page[uint64(at)] & _CUT == 0 and _same_fields(page, after, image, begin)
    return False


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
