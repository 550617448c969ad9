"""Compiled walk over small groups in a row: the log of a single caller consists of them.

In: the bytes of a segment and what is due. Out: columns of records. A group is taken if all of it
is whole (both headers, the chain, every checksum, offsets that rise) and it needs no more than its
columns: no index, global id or names. Packed and encrypted groups are found first (`walk_packed`),
unpacked by the caller, and taken then (`take_verified`); so are large ones, which the caller has
verified. The walk stops before any other place, which `SegmentView` then judges.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.byte_kernels import le_int32, le_int64, le_uint32, le_word32
from tallystick.arrow.columns import put_bit, put_view
from tallystick.arrow.crc_kernel import crc32_of
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.tally.format import columns as bits
from tallystick.systems.tally.format import layout

# Rows of the table that `walk_small` fills: each is a column of a batch.
OFFSET, LENGTH, LSN, TIME, TRANSACTION, KEY, GROUP = range(7)
COLUMNS = 7
# State of the walk: where it is, what is due there, and the place of the last group.
PLACE, DUE_LSN, DUE_CHAIN, LAST = range(4)

STORED_MAX = 128 << 10
"""Larger groups are left to the CRC of the machine."""

_HEADER = layout.HEADER_SIZE
_CODES, _TRANSACTIONS, _TRANSACTION_NULLS = bits.CODES, bits.TRANSACTIONS, bits.TRANSACTION_NULLS
_KEYS, _KEY_NULLS, _USER_TYPES = bits.KEYS, bits.KEY_NULLS, bits.USER_TYPES
_CODE_SHIFT = bits.CODE_SHIFT
_SHARED = (0, 4, layout.VERSION_AT, layout.SEGMENT_AT, layout.SEGMENT_AT + 4, layout.TAG_AT,
           layout.TAG_AT + 4)  # fmt: skip
"""Words of a header that are the same in all groups of a segment: magic, version and flags, segment
number, log tag."""
_LENGTH, _OFFSET, _LSN, _COUNT = (
    layout.LENGTH_AT, layout.OFFSET_AT, layout.LSN_AT, layout.COUNT_AT,
)  # fmt: skip
_COLUMNS, _STORED, _RAW, _TIME = (
    layout.COLUMNS_AT, layout.STORED_AT, layout.RAW_AT, layout.TIME_AT,
)  # fmt: skip
_PAYLOAD_CRC, _CHAIN, _CHECKSUM = layout.PAYLOAD_CRC_AT, layout.CHAIN_AT, layout.CHECKSUM_AT


@kernel
def _same(data: Any, one: int, other: int, size: int) -> bool:
    for step in range(0, size, 4):
        if le_word32(data, one + step) != le_word32(data, other + step):
            return False
    return True


@kernel
def _whole(data: Any, at: int, common: Any, sector: int, state: Any) -> int:
    """Return the size of the group at ``at`` if it is small, whole, plain and due; else 0.

    ``common`` is a header with the fields that all groups of a run share, its flags among them.
    """
    for place in _SHARED:
        if le_word32(data, at + place) != le_word32(common, place):
            return 0
    length, stored = le_uint32(data, at + _LENGTH), le_uint32(data, at + _STORED)
    end = at + length
    if stored > STORED_MAX or end > len(data) or length % sector != 0:
        return 0
    # Padding is shorter than a sector: a longer one would hide what no checksum covers.
    if stored + 2 * _HEADER > length or length > stored + 2 * _HEADER + sector:
        return 0
    packed = le_word32(common, _SHARED[2]) >> 16 != 0  # the flags stand above the version
    if (
        (not packed and le_uint32(data, at + _RAW) != stored)
        or le_int64(data, at + _OFFSET) != at
        or le_int64(data, at + _LSN) != state[DUE_LSN]
    ):
        return 0
    # The chain tells a group of this life from one that an earlier life left in its place.
    if le_uint32(data, at + _CHAIN) != state[DUE_CHAIN]:
        return 0
    # The header stands at both ends: a torn write leaves the second one as it was before.
    if not _same(data, at, end - _HEADER, _HEADER):
        return 0
    if crc32_of(data, at, at + _CHECKSUM) != le_uint32(data, at + _CHECKSUM):
        return 0
    payload_crc = crc32_of(data, at + _HEADER, end - _HEADER)
    return length if payload_crc == le_uint32(data, at + _PAYLOAD_CRC) else 0


@kernel
def _padded(size: int) -> int:
    return (size + 7) & ~7


@kernel
def _rises(data: Any, offsets: int, count: int) -> bool:
    before = le_int32(data, offsets)
    if before != 0:
        return False
    for index in range(1, count + 1):
        after = le_int32(data, offsets + 4 * index)
        if after < before:
            return False
        before = after
    return True


@kernel
def _is_plain(data: Any, place: int, count: int, code: int, has_codes: bool, known: Any) -> bool:
    """Return True if no code of the group needs more than the columns."""
    if not has_codes:
        return bool(known[code])
    for index in range(count):  # noqa: SIM110 - a generator would not compile
        if not known[data[place + index]]:
            return False
    return True


@kernel
def _go_on(data: Any, at: int, length: int, state: Any) -> None:
    """Set what the group after the one at ``at``, which has this size, must continue."""
    state[PLACE] = at + length
    state[DUE_LSN] += le_uint32(data, at + _COUNT)
    state[DUE_CHAIN] = le_uint32(data, at + _CHECKSUM)


@kernel
def _take(
    data: Any,
    at: int,
    known: Any,
    odd: int,
    row: int,
    out: Any,
    codes: Any,
    valid: Any,
    views: Any,
) -> Any:
    """Put the records of the whole group at ``at`` into the columns from ``row`` on.

    Returns their number; -1 if its columns do not fit, or are more than the caller takes.
    """
    count, form, stored = (
        le_uint32(data, at + _COUNT),
        le_uint32(data, at + _COLUMNS),
        le_uint32(data, at + _STORED),
    )
    start = at + _HEADER
    bitmap = (count + 7) >> 3
    # A count above the bytes would run over the columns: each record takes four at least.
    if form & odd or count > stored:
        return -1
    offsets = start + (_padded(count) if form & _CODES else 0)
    transactions = offsets + _padded(4 * (count + 1))
    transaction_bits = transactions + (8 * count if form & _TRANSACTIONS else 0)
    keys = transaction_bits + (_padded(bitmap) if form & _TRANSACTION_NULLS else 0)
    key_bits = keys + (8 * count if form & _KEYS else 0)
    types = key_bits + (_padded(bitmap) if form & _KEY_NULLS else 0)
    bodies = types + (_padded(count) if form & _USER_TYPES else 0)
    # A checksum vouches for the bytes, not for a writer: places that the columns give are checked
    # before they are read.
    if bodies > start + stored or not _rises(data, offsets, count):
        return -1
    if bodies + le_int32(data, offsets + 4 * count) != start + stored:
        return -1
    code = form >> _CODE_SHIFT & 0xFF
    if not _is_plain(data, start, count, code, form & _CODES != 0, known):
        return -1
    lsn, time = le_int64(data, at + _LSN), le_int64(data, at + _TIME)
    for index in range(count):
        begin, end = le_int32(data, offsets + 4 * index), le_int32(data, offsets + 4 * index + 4)
        to = row + index
        out[OFFSET, to], out[LENGTH, to] = bodies + begin, end - begin
        out[LSN, to], out[TIME, to], out[GROUP, to] = lsn + index, time, at
        # The table is not cleared before; what a record does not have is 0, and its bit is not set.
        out[TRANSACTION, to] = out[KEY, to] = 0
        codes[to] = data[start + index] if form & _CODES else code
        put_view(data, bodies + begin, end - begin, views, to)
        if form & _TRANSACTIONS:
            out[TRANSACTION, to] = le_int64(data, transactions + 8 * index)
            if not form & _TRANSACTION_NULLS or _bit(data, transaction_bits, index):
                put_bit(valid[0], to)
        if form & _KEYS:
            out[KEY, to] = le_int64(data, keys + 8 * index)
            if not form & _KEY_NULLS or _bit(data, key_bits, index):
                put_bit(valid[1], to)
    return count


@kernel
def _bit(data: Any, at: int, index: int) -> bool:
    return int(data[at + (index >> 3)]) >> (index & 7) & 1 != 0


@kernel
def walk_small(
    data: Any,
    stop: int,
    common: Any,
    sector: int,
    known: Any,
    odd: int,
    state: Any,
    out: Any,
    codes: Any,
    valid: Any,
    views: Any,
) -> int:
    """Read the records of small plain groups that begin before ``stop``; return their number.

    ``known`` marks the codes that need no more than columns; groups with one of the columns ``odd``
    are not taken. ``out`` has `COLUMNS` rows of signed
    64-bit numbers, ``valid`` a bitmap for transactions and one for keys. ``state`` says where the
    walk begins, and is set to where it ends.
    """
    row = 0
    while state[PLACE] < stop and state[PLACE] + 2 * _HEADER <= len(data):
        at = state[PLACE]
        length = _whole(data, at, common, sector, state)
        # A group is never divided: one that has no room left begins the next chunk.
        if length == 0 or row + le_uint32(data, at + _COUNT) > len(codes):
            break
        count = _take(data, at, known, odd, row, out, codes, valid, views)
        if count < 0:
            break
        row += count
        state[LAST] = at
        _go_on(data, at, length, state)
    return row


@kernel
def walk_packed(
    data: Any, stop: int, common: Any, sector: int, rows: int, state: Any, places: Any
) -> int:
    """Find small whole groups that begin before ``stop``, of at most ``rows`` records.

    Their offsets are put into ``places``; returns how many these are. ``state`` is where the walk
    begins, and is set to where it ends.
    """
    found = 0
    while found < len(places) and state[PLACE] < stop and state[PLACE] + 2 * _HEADER <= len(data):
        at = state[PLACE]
        length = _whole(data, at, common, sector, state)
        rows -= le_uint32(data, at + _COUNT)
        if length == 0 or rows < 0:
            break
        places[found] = at
        found += 1
        _go_on(data, at, length, state)
    return found


@kernel
def take_verified(
    data: Any,
    places: Any,
    known: Any,
    odd: int,
    counts: Any,
    out: Any,
    codes: Any,
    valid: Any,
    views: Any,
) -> int:
    """Put the records of whole groups, each unpacked after its header, into the columns.

    ``counts`` is set to the records of each group; returns how many groups were taken, up to the
    first that needs more than columns.
    """
    row = 0
    for index in range(len(places)):
        count = _take(data, places[index], known, odd, row, out, codes, valid, views)
        if count < 0:
            return index
        counts[index] = count
        row += count
    return len(places)
