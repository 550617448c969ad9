"""The walk over whole blocks and their entries, without a Python object each.

In: the bytes of a file and output arrays. Out: columns of blocks and of entries. They are functions
over NumPy arrays, compiled where numba is installed, which accept exactly what `format` accepts, of
blocks with both headers whole. They stop before anything else, which the scan then reads.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.byte_kernels import Number, le_int64, le_uint16, le_uint32
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.cloudtran.format import entries, layout

Array = Any
"""A NumPy array; of bytes unless a docstring says otherwise."""

_HEADER = layout.HEADER_SIZE
_BOTH = layout.BOTH_HEADERS
_SIGNATURE = layout.SIGNATURE_SIZE
_PROLOGUE = layout.PROLOGUE_SIZE
_HEAD = entries.ENTRY_HEAD_SIZE
ENTRY_MIN = entries.ENTRY_HEAD_SIZE + entries.TARGET_COUNT_SIZE
"""Bytes of the shortest entry: no reference, no target."""
_EVERY = entries.EVERY_TARGET
_VERSION, _CODEC_NONE, _CODEC_MAX = layout.VERSION, layout.CODEC_NONE, layout.CODEC_ZLIB
_CLOSING = layout.FLAG_CLOSING
_OFFSET_AT, _COUNT_AT, _SIZE_AT = layout.OFFSET_AT, layout.COUNT_AT, layout.SIZE_AT
_CRC_AT, _CRC_HIGH_AT = layout.CRC_AT, layout.CRC_AT + 4
_CODEC_AT, _FLAGS_AT = layout.CODEC_AT, layout.FLAGS_AT
_SERIAL_AT, _SEQUENCE_AT = layout.SERIAL_AT, layout.SEQUENCE_AT
_LENGTH_FIELD = entries.LENGTH_FIELD_SIZE
_KIND_AT, _ENTRY_FLAGS_AT = entries.ENTRY_KIND_AT, entries.ENTRY_FLAGS_AT
_REFERENCE_SIZE_AT, _NUMBER_AT = entries.ENTRY_REFERENCE_SIZE_AT, entries.ENTRY_NUMBER_AT
_TIME_AT = entries.ENTRY_TIME_AT
_PERSISTING, _PERSISTED = int(entries.EntryKind.PERSISTING), int(entries.EntryKind.PERSISTED)
_CARRIED = int(entries.PersistingFlag.CARRIED_FORWARD)
_ALL_TARGETS = int(entries.PersistedFlag.ALL_TARGETS)
_DISCARDED = int(entries.PersistedFlag.DISCARDED)
_PERSISTED_FLAGS_MAX = _ALL_TARGETS | _DISCARDED
_TARGET_COUNT, _OPERATION_COUNT = entries.TARGET_COUNT_SIZE, entries.OPERATION_COUNT_SIZE
_OPERATION_HEAD, _BLOB_SIZE = entries.OPERATION_HEAD_SIZE, entries.BLOB_SIZE_SIZE
_CODE_AT, _NAME_SIZE_AT = entries.OPERATION_CODE_AT, entries.OPERATION_NAME_SIZE_AT
_CODE_MAX = int(entries.OperationKind.DELETE)

# columns of a block row
OFFSET, LENGTH, SIZE, CRC, COUNT, CODEC, SERIAL, SEQUENCE, SECOND, CLOSING = range(10)
BLOCK_COLUMNS = 10
# rows of the table of entries: each is a column of the batch
PLACE, ENTRY_LENGTH, KIND, NUMBER, TIME, BODY, BODY_LENGTH, TARGETS, BLOCK, FLAGS = range(10)
TARGETS_END = 10
"""Where the operations of a persisting entry begin, with their number."""
OPERATIONS = 11
"""Their number; 0 of a persisted entry."""
ENTRY_COLUMNS = 12


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
    """Fill a row per whole block that starts in ``offset <= start < stop``; return how many.

    ``out`` is unsigned 64-bit, one row per block. The walk ends at anything else, when ``out`` is
    full, or after ``bytes_max`` bytes. The caller checks the checksums.
    """
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
def _block(data: Array, offset: int, signature: Array, block_size: int, row: Array) -> Number:
    """Fill the row of one whole block; return its length, or 0 if it is none."""
    header = data[offset : offset + _HEADER]
    size = le_uint32(header, _SIZE_AT)
    if le_uint32(header, _OFFSET_AT) != offset or le_uint32(header, _CRC_HIGH_AT) != 0:
        return 0
    if size < _PROLOGUE:
        return 0
    data_end = offset + _HEADER + size
    if data_end + _HEADER > len(data) or not _same(signature, header[:_SIGNATURE]):
        return 0
    length = -(-(_BOTH + size) // block_size) * block_size
    last = offset + length - _HEADER
    # First where the writer puts the second header, then where readers accept it, too: right after
    # the data (format, Block).
    at_end = offset + length <= len(data) and _same(header, data[last : last + _HEADER])
    if not at_end:
        if not _same(header, data[data_end : data_end + _HEADER]):
            return 0
        last, length = data_end, min(length, len(data) - offset)
    prologue = data[offset + _HEADER : offset + _HEADER + _PROLOGUE]
    codec, flags = int(prologue[_CODEC_AT]), le_uint16(prologue, _FLAGS_AT)
    sequence = le_int64(prologue, _SEQUENCE_AT)
    if prologue[0] != _VERSION or codec > _CODEC_MAX or flags > _CLOSING or sequence == 0:
        return 0
    # A closing block has a prologue and nothing else.
    if flags == _CLOSING and (codec != _CODEC_NONE or size != _PROLOGUE):
        return 0
    row[OFFSET], row[LENGTH], row[SIZE] = offset, length, size
    row[CRC], row[COUNT] = le_uint32(header, _CRC_AT), le_uint32(header, _COUNT_AT)
    row[CODEC] = codec
    row[SERIAL], row[SEQUENCE] = le_uint32(prologue, _SERIAL_AT), sequence
    row[SECOND], row[CLOSING] = last, flags
    return length


@kernel
def walk_entries(data: Array, starts: Array, ends: Array, counts: Array, out: Array) -> int:
    """Fill a column per entry of the blocks; return how many leading blocks are exact.

    The entries of a block lie from ``starts`` to ``ends`` in ``data``. ``out`` has `ENTRY_COLUMNS`
    rows of unsigned 64-bit numbers; places count in ``data``. A block is exact if it holds
    ``counts`` entries and nothing else.
    """
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
        # Entries without gaps, as many as the header counts: else the scan judges the block.
        if place != end or row != last:
            return block
    return len(starts)


@kernel
def _entry(data: Array, place: int, limit: int, out: Array, row: int) -> Number:
    """Fill the column of one entry; return its length, or 0 if it is none."""
    if limit - place < _HEAD:
        return 0
    end = place + _LENGTH_FIELD + le_uint32(data, place)
    kind, flags = int(data[place + _KIND_AT]), int(data[place + _ENTRY_FLAGS_AT])
    body = place + _HEAD + le_uint16(data, place + _REFERENCE_SIZE_AT)
    number = le_int64(data, place + _NUMBER_AT)
    if end > limit or body + _TARGET_COUNT > end or number == 0:
        return 0
    if kind < _PERSISTING or kind > _PERSISTED or flags > _PERSISTED_FLAGS_MAX:
        return 0
    if flags == _DISCARDED or (kind == _PERSISTING and flags > _CARRIED):
        return 0
    targets = le_uint16(data, body)
    if (targets == 0) != (kind == _PERSISTED and flags > 0) or not is_utf8(
        data, place + _HEAD, body
    ):
        return 0
    operations = _names(data, body + _TARGET_COUNT, end, targets)
    reached = operations
    if operations > 0 and kind == _PERSISTING:
        reached = _operations(data, operations, end, targets)
    if reached != end:
        return 0
    out[PLACE, row], out[ENTRY_LENGTH, row], out[KIND, row] = place, end - place, kind
    out[NUMBER, row], out[TIME, row] = number, le_int64(data, place + _TIME_AT)
    out[BODY, row], out[BODY_LENGTH, row], out[TARGETS, row] = body, end - body, targets
    out[FLAGS, row], out[TARGETS_END, row] = flags, operations
    out[OPERATIONS, row] = le_uint32(data, operations) if kind == _PERSISTING else 0
    return end - place


@kernel
def _names(data: Array, place: int, end: int, count: int) -> int:
    """Return the end of a list of names with a length byte each; 0 if it is beyond ``end``."""
    for _ in range(count):
        if place >= end:
            return 0
        size = int(data[place])
        place += 1 + size
        if size == 0 or place > end or not is_utf8(data, place - size, place):
            return 0
    return place


@kernel
def _operations(data: Array, place: int, end: int, targets: int) -> int:
    """Return the end of the operations of an entry; 0 if it is beyond ``end``."""
    if place + _OPERATION_COUNT > end:
        return 0
    count = le_uint32(data, place)
    place += _OPERATION_COUNT
    for _ in range(count):
        if place + _OPERATION_HEAD > end:
            return 0
        index, code = le_uint16(data, place), int(data[place + _CODE_AT])
        name = place + _OPERATION_HEAD
        place = name + le_uint16(data, place + _NAME_SIZE_AT)
        if code > _CODE_MAX or (index >= targets and index != _EVERY) or place + _BLOB_SIZE > end:
            return 0
        if not is_utf8(data, name, place):
            return 0
        place += _BLOB_SIZE + le_uint32(data, place)
        if place + _BLOB_SIZE > end:
            return 0
        size = le_uint32(data, place)
        place += _BLOB_SIZE
        if size != entries.NO_VALUE:
            place += size
        if place > end:
            return 0
    return place


@kernel
def is_utf8(data: Array, place: int, end: int) -> bool:
    """Return whether bytes are UTF-8: no overlong form, no surrogate, nothing above U+10FFFF."""
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
        # The second byte decides: after E0 and F0 a low one makes an overlong form, after ED a high
        # one a surrogate, after F4 a number above U+10FFFF.
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for index in range(place + 1, place + more):
            if int(data[index]) & 0xC0 != 0x80:
                return False
        place += more
    return True
