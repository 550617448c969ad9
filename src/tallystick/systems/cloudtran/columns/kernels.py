"""Blocks and entries walked without a Python object each.

Plain functions over NumPy arrays, compiled where numba is installed. They read the format of
`layout.py` and accept exactly what it accepts, for the plain case only: a block with both
headers whole. They stop in front of anything else, which the scan then judges.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.columns import put_view
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.cloudtran.format import entries, layout

Array = Any
"""A NumPy array; of bytes unless a docstring says otherwise."""

_HEADER = layout.HEADER_SIZE
_BOTH = layout.BOTH_HEADERS
_SIGNATURE = layout.SIGNATURE_SIZE
_PROLOGUE = layout.PROLOGUE_SIZE
_HEAD = entries.ENTRY_HEAD_SIZE
ENTRY_MIN = entries.ENTRY_HEAD_SIZE + 2
"""Bytes of the shortest entry: no reference, no target."""
_EVERY = entries.EVERY_TARGET
_NO_VALUE = entries.NO_VALUE

# columns of a block row
OFFSET, LENGTH, SIZE, CRC, COUNT, CODEC, SERIAL, SEQUENCE = range(8)
BLOCK_COLUMNS = 8
# rows of the table of entries: each is a column of the batch
PLACE, ENTRY_LENGTH, KIND, NUMBER, TIME, BODY, BODY_LENGTH, TARGETS, BLOCK = range(9)
ENTRY_COLUMNS = 9


@kernel
def _u16(data: Array, place: int) -> int:
    return int(data[place]) | int(data[place + 1]) << 8


@kernel
def _u32(data: Array, place: int) -> int:
    return _u16(data, place) | _u16(data, place + 2) << 16


@kernel
def _u64(data: Array, place: int) -> int:
    return _u32(data, place) | _u32(data, place + 4) << 32


@kernel
def _same(one: Array, other: Array) -> bool:
    for index in range(len(one)):  # noqa: SIM110 - a generator would not compile
        if one[index] != other[index]:
            return False
    return True


@kernel
def walk_blocks(
    data: Array,
    offset: int,
    stop: int,
    signature: Array,
    block_size: int,
    bytes_max: int,
    out: Array,
) -> int:
    """Rows of whole blocks from ``offset`` on that start before ``stop``, into ``out`` (unsigned
    64-bit, one row per block); returns how many. Ends at anything else, when ``out`` is full, or
    behind ``bytes_max``. Checksums are the caller's to check."""
    found = 0
    begin = offset
    while offset < stop and found < len(out) and offset - begin < bytes_max:
        if offset + _BOTH + _PROLOGUE > len(data):
            break
        length = _block(data, offset, signature, block_size, out[found])
        if length == 0:
            break
        found += 1
        offset += length
    return found


@kernel
def _block(data: Array, offset: int, signature: Array, block_size: int, row: Array) -> int:
    """Fill the row of one whole block; its length, or 0 if it is none."""
    header = data[offset : offset + _HEADER]
    size = _u32(header, 72)
    if _u32(header, 64) != offset or _u32(header, 80) != 0 or size < _PROLOGUE:
        return 0
    behind = offset + _HEADER + size
    if behind + _HEADER > len(data) or not _same(signature, header[:_SIGNATURE]):
        return 0
    length = -(-(_BOTH + size) // block_size) * block_size
    last = offset + length - _HEADER
    at_end = offset + length <= len(data) and _same(header, data[last : last + _HEADER])
    if not at_end and not _same(header, data[behind : behind + _HEADER]):
        return 0
    prologue = data[offset + _HEADER : offset + _HEADER + _PROLOGUE]
    codec, flags, sequence = int(prologue[1]), _u16(prologue, 2), _u64(prologue, 8)
    if prologue[0] != 1 or codec > 1 or flags > 1 or sequence == 0:
        return 0
    if flags == 1 and (codec != 0 or size != _PROLOGUE):
        return 0
    row[OFFSET], row[LENGTH], row[SIZE] = offset, length, size
    row[CRC], row[COUNT], row[CODEC] = _u32(header, 76), _u32(header, 68), codec
    row[SERIAL], row[SEQUENCE] = _u32(prologue, 4), sequence
    return length


@kernel
def walk_entries(data: Array, starts: Array, ends: Array, counts: Array, out: Array) -> int:
    """All entries of blocks whose entries lie at ``starts`` to ``ends`` of ``data``, into the
    columns of ``out`` (`ENTRY_COLUMNS` rows of unsigned 64-bit numbers, places in ``data``).
    Returns how many leading blocks hold exactly ``counts`` entries and nothing else."""
    row = 0
    for block in range(len(starts)):
        place, end = int(starts[block]), int(ends[block])
        last = row + int(counts[block])
        while place < end and row < last:
            length = _entry(data, place, end, out, row)
            if length == 0:
                return block
            out[BLOCK, row] = block
            place += length
            row += 1
        if place != end or row != last:
            return block
    return len(starts)


@kernel
def _entry(data: Array, place: int, limit: int, out: Array, row: int) -> int:
    """Fill the column of one entry; its length, or 0 if it is none."""
    if limit - place < _HEAD:
        return 0
    end = place + 4 + _u32(data, place)
    kind, flags = int(data[place + 4]), int(data[place + 5])
    body = place + _HEAD + _u16(data, place + 6)
    number = _u64(data, place + 8)
    if end > limit or body + 2 > end or number == 0 or kind < 1 or kind > 2:
        return 0
    if flags > 3 or flags == 2 or (kind == 1 and flags > 1):
        return 0
    targets = _u16(data, body)
    if (targets == 0) != (kind == 2 and flags > 0) or not _utf8(data, place + _HEAD, body):
        return 0
    behind = _names(data, body + 2, end, targets)
    if behind > 0 and kind == 1:
        behind = _operations(data, behind, end, targets)
    if behind != end:
        return 0
    out[PLACE, row], out[ENTRY_LENGTH, row], out[KIND, row] = place, end - place, kind
    out[NUMBER, row], out[TIME, row] = number, _u64(data, place + 16)
    out[BODY, row], out[BODY_LENGTH, row], out[TARGETS, row] = body, end - body, targets
    return end - place


@kernel
def _names(data: Array, place: int, end: int, count: int) -> int:
    """Behind a list of names with a length byte each; 0 if it does not lie before ``end``."""
    for _ in range(count):
        if place >= end:
            return 0
        size = int(data[place])
        place += 1 + size
        if size == 0 or place > end or not _utf8(data, place - size, place):
            return 0
    return place


@kernel
def _operations(data: Array, place: int, end: int, targets: int) -> int:
    """Behind the operations of an entry; 0 if they do not lie before ``end``."""
    if place + 4 > end:
        return 0
    count = _u32(data, place)
    place += 4
    for _ in range(count):
        if place + 5 > end:
            return 0
        index, name = _u16(data, place), place + 5
        place = name + _u16(data, place + 3)
        if data[name - 3] > 3 or (index >= targets and index != _EVERY) or place + 4 > end:
            return 0
        if not _utf8(data, name, place):
            return 0
        place += 4 + _u32(data, place)
        if place + 4 > end:
            return 0
        size = _u32(data, place)
        place += 4
        if size != _NO_VALUE:
            place += size
        if place > end:
            return 0
    return place


@kernel
def _utf8(data: Array, place: int, end: int) -> bool:
    """True for well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF."""
    while place < end:
        lead = int(data[place])
        place += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 + (lead >= 0xE0) + (lead >= 0xF0)
        if place + more > end:
            return False
        second = int(data[place])
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for index in range(place + 1, place + more):
            if int(data[index]) & 0xC0 != 0x80:
                return False
        place += more
    return True


@kernel
def put_targets(data: Array, bodies: Array, counts: Array, views: Array) -> None:
    """Views of the target names of all entries, one behind the other."""
    name = 0
    for index in range(len(bodies)):
        place = int(bodies[index]) + 2
        for _ in range(int(counts[index])):
            size = int(data[place])
            put_view(data, place + 1, size, views, name)
            place += 1 + size
            name += 1
