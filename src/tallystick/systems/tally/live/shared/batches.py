"""Items of a log as bytes, from a member to the leader, and the LSN of each on the way back.

In: items, or LSNs. Out: bytes, and the same again. The first byte tells the kind:

    P  count u32, lengths u32 each, bodies           plain records
    M  one item after the other                      anything else, see `_ITEMS`
    L  first LSN u64, count u32                      LSNs without a gap
    N  LSNs i64 each, negative: see `encode_refusal`        others
    E  JSON                                          the leader refuses the whole batch
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from tallystick import errors
from tallystick.errors import CorruptLogError, LogWriteError, TallystickError
from tallystick.records import Answer, AtStake, Judgement, Xid
from tallystick.roles.record_ids import IdRefusal
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.live.items import Bundle, Item, UnplacedEnding

ITEMS_MAX: Final = 512
"""Items of a batch that are not all plain: so that their answer fits."""

_PLAIN, _MIXED, _RUN, _LSNS, _ERROR = b"P", b"M", b"L", b"N", b"E"
_COUNT: Final = struct.Struct("<I")
_RUN_FIELDS: Final = struct.Struct("<QI")
_RECORD: Final = struct.Struct("<BBBqqbHI")
"""Kind, code, flags, transaction, key, user type, length of gtrid, length of body."""
_ENDING: Final = struct.Struct("<BBqBiBBI")
"""Kind, code, transaction, 1 with an Xid, format id, lengths of gtrid and bqual, of extra."""
_HAS_TRANSACTION, _HAS_KEY = 1, 2
_REFUSAL_BITS: Final = 2
_OF_RECORD, _OF_ENDING, _OF_BUNDLE = 0, 1, 2


def encode_items(items: Sequence[Item]) -> bytes:
    """Return a batch as bytes."""
    if all(type(item) is bytes for item in items):
        bodies = cast(Sequence[bytes], items)
        lengths = struct.pack(f"<{len(bodies)}I", *map(len, bodies))
        return b"".join((_PLAIN, _COUNT.pack(len(bodies)), lengths, *bodies))
    return b"".join((_MIXED, *(piece for item in items for piece in _pieces(item))))


def _pieces(item: Item) -> Iterator[bytes]:
    if isinstance(item, Bundle):
        yield bytes((_OF_BUNDLE,)) + _COUNT.pack(len(item.records))
        for record in item.records:
            yield from _pieces(record)
    elif isinstance(item, UnplacedEnding):
        xid = item.xid or Xid(0, b"", b"")
        yield _ENDING.pack(
            _OF_ENDING, item.code, item.transaction, item.xid is not None, xid.format_id,
            len(xid.gtrid), len(xid.bqual), len(item.extra),
        )  # fmt: skip
        yield from (xid.gtrid, xid.bqual, item.extra)
    else:
        one = UnplacedRecord(1, item) if isinstance(item, bytes) else item
        assert isinstance(one, UnplacedRecord), "actions and columns stay in their process"
        flags = _HAS_TRANSACTION * (one.transaction is not None) | _HAS_KEY * (one.key is not None)
        yield _RECORD.pack(
            _OF_RECORD, one.code, flags, one.transaction or 0, one.key or 0, one.user_type,
            len(one.gtrid), len(one.body),
        )  # fmt: skip
        yield from (one.gtrid, one.body)


def decode_items(data: bytes) -> list[Item]:
    """Return the items of a batch.

    Raises:
        CorruptLogError: the bytes are no batch.
    """
    try:
        if data[:1] == _PLAIN:
            return list(_bodies(data))
        reader = _Reader(data, 1)
        items: list[Item] = []
        while reader.place < len(data):
            items.append(reader.item())
        if not items:
            raise IndexError("it is empty")
    except (struct.error, IndexError) as error:
        raise CorruptLogError(f"a batch that was handed over is damaged: {error}") from error
    return items


def _bodies(data: bytes) -> Iterator[bytes]:
    (count,) = _COUNT.unpack_from(data, 1)
    place = 5 + 4 * count
    for length in struct.unpack_from(f"<{count}I", data, 5):
        yield data[place : place + length]
        place += length


class _Reader:
    """Reads items one after the other."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self.place = place

    def _take(self, length: int) -> bytes:
        self.place += length
        return self._data[self.place - length : self.place]

    def item(self) -> Item:
        kind = self._data[self.place]
        if kind == _OF_RECORD:
            return self._record()
        if kind == _OF_ENDING:
            _, code, number, has_xid, format_id, gtrid, bqual, extra = _ENDING.unpack(
                self._take(_ENDING.size)
            )
            xid = Xid(format_id, self._take(gtrid), self._take(bqual))
            return UnplacedEnding(code, number, xid if has_xid else None, self._take(extra))
        self.place += 1
        (count,) = _COUNT.unpack(self._take(_COUNT.size))
        return Bundle(tuple(self._record() for _ in range(count)))

    def _record(self) -> UnplacedRecord:
        _, code, flags, transaction, key, user_type, gtrid, body = _RECORD.unpack(
            self._take(_RECORD.size)
        )
        name = self._take(gtrid)
        return UnplacedRecord(
            code,
            self._take(body),
            transaction if flags & _HAS_TRANSACTION else None,
            key if flags & _HAS_KEY else None,
            user_type,
            name,
        )


# -- answers --------------------------------------------------------------------------------


REFUSED: Final = 0
"""In place of an LSN: there was no room for this item."""


def encode_refusal(refusal: IdRefusal, place: int = 0) -> int:
    """Return what stands in place of an LSN: why, and which id of a transaction is wrong."""
    return -(place << _REFUSAL_BITS | refusal)


def decode_refusal(number: int) -> tuple[IdRefusal, int]:
    """Return what `encode_refusal` was called with."""
    return IdRefusal(-number & ((1 << _REFUSAL_BITS) - 1)), -number >> _REFUSAL_BITS


def encode_lsns(lsns: Sequence[int]) -> bytes:
    """Return the LSN of each item, or its refusal, as bytes."""
    if type(lsns) is range:
        return _RUN + _RUN_FIELDS.pack(lsns[0], len(lsns))
    return _LSNS + struct.pack(f"<{len(lsns)}q", *lsns)


def encode_error(error: TallystickError) -> bytes:
    """Return an error as bytes; at most half of an answer's length."""
    fields = [type(error).__name__, error.message[:1000], error.expected, error.found, error.advice]
    return _ERROR + json.dumps(fields).encode()


def decode_lsns(data: bytes, folder: str | None = None) -> Sequence[int]:
    """Return the LSN of each item, negative for a refusal; ``folder`` as of `decode_error`.

    Raises:
        TallystickError: the leader has refused the whole batch.
    """
    if data[:1] == _RUN:
        first, count = _RUN_FIELDS.unpack_from(data, 1)
        return range(first, first + count)
    if data[:1] == _ERROR:
        raise decode_error(data, folder)
    return struct.unpack(f"<{(len(data) - 1) // 8}q", data[1:])


def decode_error(data: bytes, folder: str | None = None) -> TallystickError:
    """Return the error that the leader had, for the log in ``folder`` as it is opened here."""
    name, message, expected, found, advice = json.loads(data[1:])
    made = _ERRORS.get(name, LogWriteError)
    return made(message, file=folder, expected=expected, found=found, advice=advice)


def judgement_fields(one: Judgement) -> list[object]:
    """Return an answer about a log as JSON values; at most half of an answer's length."""
    stake = [one.at_stake.transactions, one.at_stake.rows]
    return [one.answer.value, one.reason, one.text[:500], one.after_crash, stake, one.decided_by]


def judgement_of_fields(fields: Sequence[Any]) -> Judgement:
    """Return the answer that the leader gave."""
    answer, reason, text, after_crash, stake, decided_by = fields
    return Judgement(Answer(answer), reason, text, after_crash, AtStake(*stake), decided_by)


_ERRORS: Final[dict[str, type[TallystickError]]] = {
    name: one
    for name, one in vars(errors).items()
    if isinstance(one, type) and issubclass(one, TallystickError)
}
"""What an answer can name."""


# -- calls ----------------------------------------------------------------------------------


def encode_call(name: str, **arguments: int) -> bytes:
    """Return a call that writes no record of the application."""
    return b"C" + json.dumps([name, arguments]).encode()


def decode_call(data: bytes) -> tuple[str, dict[str, int]]:
    """Return name and arguments of a call; an empty name for bytes that are none."""
    try:
        name, arguments = json.loads(data[1:])
        numbers = arguments.values()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return "", {}
    fit = type(name) is str and all(type(one) is int and abs(one) < 1 << 63 for one in numbers)
    return (name, arguments) if fit else ("", {})
