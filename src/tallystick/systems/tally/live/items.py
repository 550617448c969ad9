"""Items that can be submitted to a native log, their sizes, and what fits in one group.

In: items, or bodies of many plain records. Out: sizes; items in pieces that are written as one
group each; groups of plain records, encoded ahead (by NumPy where it is installed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from tallystick.arguments import bytes_of, integer
from tallystick.errors import RecordTooLargeError
from tallystick.records import Xid
from tallystick.storage.crc import crc32
from tallystick.systems.tally.format.bodies import (
    FORMAT_ID_MAX,
    FORMAT_ID_MIN,
    ROW_HEAD,
    ROW_HEAD_SIZE,
    Ending,
    encode_ending,
    encode_row,
)
from tallystick.systems.tally.format.columns import (
    GTRID_MAX,
    KEY_MAX,
    KEY_MIN,
    PLAIN,
    TRANSACTION_MAX,
    TRANSACTION_ROWS,
    USER_TYPE_MAX,
    USER_TYPE_MIN,
    GroupPayload,
    UnplacedRecord,
    encode_columns,
    encode_plain,
    transaction_form,
)
from tallystick.systems.tally.format.kinds import Code

RECORD_BYTES: Final = 64
"""More than the columns of one record take."""
PAIR_BYTES: Final = 12
"""Bytes of a (segment, count) pair of a prepare or commit record."""


class Bundle(NamedTuple):
    """Records that are written in one group; the LSN of the item is that of the last one."""

    records: tuple[UnplacedRecord, ...]


class UnplacedEnding(NamedTuple):
    """A prepare or commit record whose pairs are counted when its place is known."""

    code: int
    transaction: int
    xid: Xid | None = None
    extra: bytes = b""


class CommittedRows(NamedTuple):
    """All rows of a transaction by table and key, None for removed ones, and their commit record.

    They are written in one group, and the LSN of the item is that of the commit record.
    """

    transaction: int
    rows: Mapping[tuple[int, int], bytes | None]
    size: int
    """As `size_of_rows` returns it."""


class UnplacedEntry(NamedTuple):
    """A persisting record with the targets that its body names."""

    number: int
    body: bytes
    targets: tuple[str, ...]


class UnplacedMarks(NamedTuple):
    """Persisted records of several entries with the targets that their one body names.

    They are written in one group, and the LSN of the item is that of the last one.
    """

    numbers: Sequence[int]
    body: bytes
    targets: frozenset[str]

    @property
    def size(self) -> int:
        """An upper bound of the payload bytes."""
        return len(self.numbers) * (len(self.body) + RECORD_BYTES)


class Columnar(NamedTuple):
    """Plain records that are encoded already: a group of their own.

    The LSN of the item is that of its first record.
    """

    payload: GroupPayload
    record_count: int


class Action(NamedTuple):
    """A function that the writer calls between two groups, to roll or reclaim; no record."""

    run: Callable[[], None]


Item: TypeAlias = (
    bytes
    | UnplacedRecord
    | UnplacedEnding
    | Bundle
    | CommittedRows
    | UnplacedEntry
    | UnplacedMarks
    | Columnar
    | Action
)
"""``bytes`` is a plain record (`Code.APPEND`)."""


ROW_BYTES = RECORD_BYTES + ROW_HEAD_SIZE
_PLAIN = {bytes}
_FREELY_GROUPED = {bytes, UnplacedRecord, Bundle, UnplacedEntry, UnplacedMarks}
"""Items that have neither pairs nor a group of their own."""


# -- what callers may pass ------------------------------------------------------------------


def checked(item: Item) -> Item:
    """Return an item that nothing can fail to encode, nor change any more.

    Raises:
        TypeError: a field has another type.
        ValueError: a field is out of the range that the format holds.
    """
    check = _CHECKS.get(type(item))
    return item if check is None else check(item)


def _checked_record(item: UnplacedRecord) -> UnplacedRecord:
    code, body, transaction, key, user_type, gtrid = item
    return UnplacedRecord(
        code,
        bytes_of(body),
        None if transaction is None else transaction_number(transaction),
        None if key is None and code not in _KEYED else integer(key, "key", KEY_MIN, KEY_MAX),
        integer(user_type, "user_type", USER_TYPE_MIN, USER_TYPE_MAX),
        global_id(gtrid, "gtrid"),
    )


def _checked_ending(item: UnplacedEnding) -> UnplacedEnding:
    code, transaction, xid, extra = item
    number = transaction_number(transaction)
    return UnplacedEnding(code, number, checked_xid(xid), bytes_of(extra, "extra"))


def transaction_number(value: object) -> int:
    """Return the number of a transaction. Raises as `checked` does."""
    return integer(value, "transaction", KEY_MIN, TRANSACTION_MAX)


def checked_xid(value: object) -> Xid | None:
    """Return the id of a branch, or None. Raises as `checked` does."""
    if value is None:
        return None
    if not isinstance(value, Xid):
        raise TypeError(f"xid is of type {type(value).__name__}; expected an Xid")
    format_id = integer(value.format_id, "format_id", FORMAT_ID_MIN, FORMAT_ID_MAX)
    return Xid(format_id, global_id(value.gtrid, "gtrid"), global_id(value.bqual, "bqual"))


def global_id(value: object, name: str) -> bytes:
    """Return a part of the id of a branch. Raises as `checked` does."""
    part = bytes_of(value, name)
    if len(part) > GTRID_MAX:
        raise ValueError(f"{name} has {len(part)} bytes; expected at most {GTRID_MAX}")
    return part


_KEYED: Final = frozenset(
    {Code.ADD, Code.UPDATE, Code.DELETE, Code.UNDO, Code.UNDO_EMPTY, Code.DISCARD}
)
"""Codes of records that callers give a key."""
_CHECKS: Final[dict[type, Callable[[Any], Item]]] = {
    UnplacedRecord: _checked_record,
    UnplacedEnding: _checked_ending,
    Bundle: lambda item: Bundle(tuple([_checked_record(one) for one in item.records])),
}
"""For the types of items whose fields come from callers as they are."""


# -- sizes ----------------------------------------------------------------------------------


def size_of(item: Item) -> int:
    """Return an upper bound of the payload bytes of an item, without its pairs."""
    if isinstance(item, bytes):
        return len(item) + RECORD_BYTES
    if isinstance(item, UnplacedRecord):
        return len(item.body) + len(item.gtrid) + RECORD_BYTES
    if isinstance(item, UnplacedEntry):
        return len(item.body) + RECORD_BYTES
    if isinstance(item, Bundle):
        return sum([len(one.body) + len(one.gtrid) + RECORD_BYTES for one in item.records])
    if isinstance(item, (CommittedRows, UnplacedMarks)):
        return item.size
    if isinstance(item, Columnar):
        return item.payload.size
    if isinstance(item, Action):
        return 0
    xid = item.xid
    return len(item.extra) + RECORD_BYTES + (len(xid.gtrid) + len(xid.bqual) if xid else 0)


def size_of_rows(rows: Mapping[tuple[int, int], bytes | None]) -> int:
    """Return an upper bound of the payload bytes of rows and their commit record."""
    return sum(map(len, filter(None, rows.values()))) + ROW_BYTES * len(rows) + 2 * RECORD_BYTES


def too_large(path: str, capacity: int, size: int) -> RecordTooLargeError:
    """Return the error for a record of ``size`` bytes in a log whose segments hold ``capacity``."""
    return RecordTooLargeError(
        "the record does not fit in a segment",
        file=path,
        expected=f"at most {capacity} bytes",
        found=f"{size} bytes",
        advice="Make the log with larger segments",
    )


def split_into_groups(
    items: Sequence[Item], capacity: int, pairs_of: Callable[[Item], int]
) -> Iterator[tuple[type, list[Item], int]]:
    """Yield items that can be one group each, with their kind and the sum of their sizes.

    ``pairs_of(item)`` returns an upper bound of the bytes of its pairs, which are no part of its
    size; it is called once all groups before are written. An item that does not fit is a group of
    its own. The kind is ``bytes`` for plain records only, `Columnar` or `Action` for a single item,
    else ``object``.
    """
    sizes = [size_of(item) for item in items]
    kinds = set(map(type, items))
    # The usual case: everything that waits fits into one group.
    if items and kinds <= _FREELY_GROUPED and sum(sizes) <= capacity:
        yield bytes if kinds == _PLAIN else object, list(items), sum(sizes)
        return
    group: list[Item] = []
    size = pairs = 0
    for item, own in zip(items, sizes, strict=True):
        kind = type(item)
        alone = kind is Columnar or kind is Action
        own_pairs = pairs_of(item)
        pairs += own_pairs
        if group and (size + pairs + own > capacity or alone):
            yield object, group, size
            group, size, pairs = [], 0, own_pairs
        if alone:
            yield kind, [item], own
        else:
            group.append(item)
            size += own
    if group:
        yield object, group, size


# -- rows of committed transactions ---------------------------------------------------------

_ADD, _REMOVE, _COMMIT = Code.REDO_ADD.value, Code.REDO_REMOVE.value, Code.COMMIT.value


def rows_of(item: CommittedRows) -> Iterator[UnplacedRecord]:
    """Yield the redo records of a transaction."""
    for (table, key), row in item.rows.items():
        yield row_record(item.transaction, table, key, row)


def row_record(transaction: int, table: int, key: int, row: bytes | None) -> UnplacedRecord:
    """Return the redo record of an added row, or with None of a removed one."""
    if row is None:
        return UnplacedRecord(_REMOVE, encode_row(table), transaction, key)
    return UnplacedRecord(_ADD, encode_row(table, row), transaction, key)


def encode_committed(
    items: Sequence[CommittedRows], segment: int
) -> tuple[GroupPayload, Sequence[int]]:
    """Encode whole transactions of which nothing was logged before, as one group.

    Returns:
        The payload; for each item the number of records up to its commit record.
    """
    codes: list[int] = []
    bodies: list[bytes] = []
    ends: list[int] = [0]
    transactions: list[int] = []
    keys: list[int] = []
    counts: list[int] = []
    keyed = end = 0
    head = ROW_HEAD.pack
    for transaction, rows, _ in items:
        before, count = len(codes), len(rows)
        for (table, key), row in rows.items():
            if row is None:
                codes.append(_REMOVE)
                bodies.append(head(table))
                end += ROW_HEAD_SIZE
            else:
                codes.append(_ADD)
                bodies += (head(table), row)
                end += ROW_HEAD_SIZE + len(row)
            keys.append(key)
            ends.append(end)
        ending = _ending_of(segment, count)
        end += len(ending)
        bodies.append(ending)
        codes.append(_COMMIT)
        keys.append(0)
        ends.append(end)
        # An integer without limit is the bitmap of the keys; the bit of the commit record stays 0.
        keyed |= ((1 << count) - 1) << before
        transactions += [transaction] * (count + 1)
        counts.append(before + count + 1)
    return encode_columns(codes, ends, transactions, keys, keyed, bodies), counts


def encode_one_committed(item: CommittedRows, segment: int) -> tuple[int, int, bytes, bytes]:
    """Encode one transaction as `encode_committed` does, at a third of the cost.

    Returns:
        The number of records, the column bits, the columns, and the bodies.
    """
    transaction, rows, _ = item
    pack, codes, keyed, ending = _shape(segment, len(rows))
    head = ROW_HEAD.pack
    ends, keys, end = [0], [], 0
    bodies: list[bytes] = []
    removed = False
    for (table, key), row in rows.items():
        if row is None:
            removed, row = True, b""
        keys.append(key)
        bodies += (head(table), row)
        end += ROW_HEAD_SIZE + len(row)
        ends.append(end)
    if removed:
        codes = bytes([_REMOVE if row is None else _ADD for row in rows.values()]) + codes[-1:]
    bodies.append(ending)
    ends.append(end + len(ending))
    count = len(codes)
    columns = pack(codes, *ends, *[transaction] * count, *keys, 0, keyed)
    return count, TRANSACTION_ROWS, columns, b"".join(bodies)


@lru_cache(maxsize=256)
def _shape(segment: int, count: int) -> tuple[Callable[..., bytes], bytes, bytes, bytes]:
    """Return what all transactions that add so many rows have in common.

    That is: what packs the columns; the codes; the bitmap of the keys; the commit record's body.
    """
    keyed = ((1 << count) - 1).to_bytes(-(-(count + 1) // 8), "little")
    codes = bytes([_ADD] * count + [_COMMIT])
    return transaction_form(count + 1).pack, codes, keyed, _ending_of(segment, count)


@lru_cache(maxsize=256)
def _ending_of(segment: int, count: int) -> bytes:
    """Return the body of a commit record of so many rows, all of them in one segment."""
    return encode_ending(Ending(((segment, count),) if count else ()))


# -- many plain records at once ------------------------------------------------------------

BULK_BYTES: Final = 8 << 20
"""A disk that syncs 1 GB/s in groups of this size does 0.6 in groups of half of it."""
PIECE_BYTES: Final = 128 << 10
"""Bytes of bodies that are joined at once: they stay in the processor's cache meanwhile."""
_OFFSET_BYTES: Final = 4
"""Bytes of a body's offset in the columns."""
_COLUMNS_BYTES: Final = 16
"""Bytes of the columns of a plain group that come once: the last offset, and padding."""


def columnar(
    bodies: Sequence[bytes], capacity: int, check: Callable[[int], None]
) -> Iterator[Columnar]:
    """Return plain records as groups of about `BULK_BYTES`, in order.

    ``check(size)`` raises if a body of that size is too large; it is called before the first group
    is made.
    """
    limit = min(BULK_BYTES, capacity)
    try:
        import numpy
    except ImportError:
        check(max(map(len, bodies), default=0))
        return _plain_groups(bodies, limit)
    lengths = numpy.fromiter(map(len, bodies), numpy.int64, len(bodies))
    check(int(lengths.max(initial=0)))
    return _numpy_groups(numpy, lengths, bodies, limit)


def _plain_groups(bodies: Sequence[bytes], limit: int) -> Iterator[Columnar]:
    sizes = [len(body) + _OFFSET_BYTES for body in bodies]
    for start, stop in cuts(sizes, limit - _COLUMNS_BYTES):
        yield Columnar(encode_plain(Code.APPEND, bodies[start:stop]), stop - start)


def cuts(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Yield where pieces begin and end of at most ``limit`` bytes, or of one that is larger."""
    start = size = 0
    for place, own in enumerate(sizes):
        if size + own > limit and place > start:
            yield start, place
            start, size = place, 0
        size += own
    if sizes:
        yield start, len(sizes)


def _numpy_groups(
    numpy: Any, lengths: Any, bodies: Sequence[bytes], limit: int
) -> Iterator[Columnar]:
    count = len(bodies)
    sizes = numpy.zeros(count + 1, numpy.int64)
    numpy.cumsum(lengths + _OFFSET_BYTES, out=sizes[1:])
    start = 0
    while start < count:
        # ``sizes`` are sums up to each body: the last one that is not above the limit. "right", so
        # that a body that just fits is taken.
        stop = int(numpy.searchsorted(sizes, sizes[start] + limit - _COLUMNS_BYTES, "right")) - 1
        # At least one, however large: ``check`` has found that it fits a segment.
        stop = max(stop, start + 1)
        own = stop - start
        offsets = sizes[start : stop + 1] - sizes[start] - _OFFSET_BYTES * numpy.arange(own + 1)
        cuts = numpy.searchsorted(offsets, numpy.arange(0, offsets[-1], PIECE_BYTES))
        # `unique`, as a body larger than a piece is found several times.
        cuts = start + numpy.unique(numpy.append(cuts, own))
        yield Columnar(_payload(offsets.astype("<i4").tobytes(), bodies, cuts.tolist()), own)
        start = stop


def _payload(offsets: bytes, bodies: Sequence[bytes], cuts: Sequence[int]) -> GroupPayload:
    """Return the bodies from the first cut to the last, joined between two cuts each."""
    padding = bytes(-len(offsets) % 8)
    buffers = [offsets, padding]
    crc = crc32(padding, crc32(offsets))
    for begin, end in pairwise(cuts):
        piece = b"".join(bodies[begin:end])
        crc = crc32(piece, crc)
        buffers.append(piece)
    return GroupPayload(PLAIN, buffers, sum(map(len, buffers)), crc)
