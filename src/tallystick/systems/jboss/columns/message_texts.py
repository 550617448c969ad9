"""What messages hold as columns: their addresses, and their values as JSON texts.

In: user types and bodies of records of messages. Out: the texts of what `messages.message` returns,
which a kernel writes one after the other. One by one are decoded messages with odd properties, and
those that are of other protocols, maps or damaged.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.byte_kernels import Bytes, Number, be_int32, be_int64
from tallystick.arrow.columns import byte_ranges, joined_bytes
from tallystick.arrow.json_kernels import (
    packed_day,
    put_bytes,
    put_digits,
    put_hex,
    put_unit,
    put_whole,
)
from tallystick.arrow.numba_kernel import kernel
from tallystick.arrow.schemas import json_text
from tallystick.systems.jboss.format import messages

if TYPE_CHECKING:
    from tallystick.systems.protocol import Longs

_PAD = np.zeros(16, np.uint8)
_UNIT, _USER_SIZE = 2, 16
(
    _CONTENT, _CONTENT_END, _ADDRESS, _USER, _KIND, _DURABLE, _EXPIRATION, _TIMESTAMP, _PRIORITY,
    _PROPERTIES, _FIELDS,
) = range(11)  # fmt: skip
"""Fields of a message: their values, or where they begin; the last is how many there are."""
_SIZED, _UNKNOWN = -2, -1
_SIZES = np.full(256, _UNKNOWN)
"""Bytes of a property by the code of its type; those of a text or bytes stand before these."""
_SIZES[[messages.BYTES, messages.STRING]] = _SIZED
_SIZES[[messages.NULL, messages.CHAR]] = 0, 2
for _code, _form in messages.FIXED.items():
    _SIZES[_code] = struct.calcsize(_form)
_KEYS_MAX = 64
"""Most properties of a message that the kernel writes: it looks for two of one name."""
_GROWTH, _GROWTH_OF_EACH = 5, 400
"""The text of a message has at most so many bytes for each of its own, and so many besides."""


def _word(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8)


_NULL, _TRUE, _FALSE = map(_word, ("null", "true", "false"))
_HEAD, _TAIL = _word('{"protocol":"core","message_id":'), _word('"}')
_TO_ADDRESS, _TO_USER, _TO_KIND = map(_word, (',"address":', ',"user_id":', ',"type":'))
_TO_DURABLE, _TO_EXPIRATION = _word(',"durable":'), _word(',"expiration":')
_TO_TIMESTAMP, _TO_PRIORITY = _word(',"timestamp":'), _word(',"priority":')
_TO_PROPERTIES, _TO_TEXT, _TO_BODY = map(_word, (',"properties":', ',"text":', ',"body":"'))
_TEXT = next(code for code, name in messages.BODY_KINDS.items() if name == "text")
_KINDS = np.zeros((8, 16), np.uint8)
"""By code of a type of bodies the size of its name, and that as JSON; nothing of maps."""
for _code, _name in messages.BODY_KINDS.items():
    if _name != "map":
        _kind = _word(json.dumps(_name))
        _KINDS[_code, : len(_kind) + 1] = [len(_kind), *_kind]
_DAY, _LAST_MOMENT = 86_400_000, 253_402_300_800_000
"""Milliseconds of a day, and of the first moment that no calendar has."""


def contents(bodies: pa.Array) -> tuple[Any, Bytes]:
    """Return where each of some bytes begins, and the last one ends; and these, never few."""
    bodies = bodies.cast(pa.large_binary())
    _, ends, data = bodies.buffers()
    found = np.frombuffer(ends, np.int64)[bodies.offset :][: len(bodies) + 1]
    held = np.frombuffer(data or b"", np.uint8)
    return found, held if len(held) >= len(_PAD) else np.concatenate([held, _PAD])


def addresses(types: Any, bodies: pa.Array) -> list[str | None]:
    """Return the addresses of messages."""
    ends, data = contents(bodies)
    whole, begins = types == messages.MESSAGE, np.zeros(len(types), np.int64)
    sizes = np.full(len(types), -1)
    find_addresses(data, ends, _SIZES, np.empty(_FIELDS, np.int64), whole, begins, sizes)
    values = byte_ranges(data, begins, sizes).cast(pa.binary()).dictionary_encode()
    texts = [*map(messages.decoded, values.dictionary.to_pylist())]
    found: list[Any] = pa.array(texts, pa.string()).take(values.indices).to_pylist()
    for place in np.flatnonzero(~whole).tolist():
        one = messages.message(int(types[place]), bodies[place].as_py()) or {}
        found[place] = one.get("address")
    return found


def message_texts(types: Any, bodies: pa.Array, ids: Longs) -> pa.Array:
    """Return the values of messages, whose ids these are."""
    ends, data = contents(bodies)
    plain, room = types == messages.MESSAGE, int(ends[-1] - ends[0]) * _GROWTH
    out = np.empty(room + len(types) * _GROWTH_OF_EACH, np.uint8)
    offsets = np.empty(len(types) + 1, np.int64)
    fields, keys = np.empty(_FIELDS, np.int64), np.empty(_KEYS_MAX, np.int64)
    put_messages(data, ends, ids, _SIZES, fields, keys, plain, out, offsets)
    texts = joined_bytes(pa.large_string(), offsets, out, None).cast(pa.string())
    if plain.all():
        return texts
    one_by_one = [
        json_text(
            (messages.message(int(types[place]), bodies[place].as_py()) or {})
            | {"message_id": int(ids[place])}
        )
        for place in np.flatnonzero(~plain).tolist()
    ]
    return pc.replace_with_mask(texts, pa.array(~plain), pa.array(one_by_one, pa.string()))


@kernel
def find_addresses(
    data: Bytes, ends: Any, sizes: Any, fields: Any, whole: Any, begins: Any, lengths: Any
) -> None:
    """Find the addresses of messages; ``whole`` loses those that have not all of their fields."""
    for row in range(len(whole)):
        end = int(ends[row + 1])
        whole[row] = whole[row] and _found(data, int(ends[row]), end, sizes, fields)
        if whole[row] and data[fields[_ADDRESS]]:
            begins[row] = fields[_ADDRESS] + 5
            lengths[row] = be_int32(data, fields[_ADDRESS] + 1)


@kernel
def _found(data: Bytes, at: Number, end: Number, sizes: Any, fields: Any) -> bool:
    """Find the fields of a message of the protocol core; return whether it has them all."""
    if at + 9 > end or data[at] != messages.CORE:
        return False
    at = _after_text(data, at + 9, end)
    if at < 0 or at + 8 > end:
        return False
    size, length = be_int32(data, at), be_int32(data, at + 4) - messages.HEAD_AFTER_BODY
    at += 8
    if size < 4 or size - 4 > end - at or length < 0 or length > size - 4:
        return False
    end = at + size - 4
    fields[_CONTENT], fields[_CONTENT_END] = at, at + length
    fields[_ADDRESS] = at + length + 8
    at = _after_text(data, at + length + 8, end)
    if at < 0 or at >= end:
        return False
    fields[_USER] = at + 1 if data[at] else -1
    at += 1 + _USER_SIZE if data[at] else 1
    if at + 19 > end:
        return False
    fields[_KIND], fields[_DURABLE] = data[at], data[at + 1]
    fields[_EXPIRATION], fields[_TIMESTAMP] = be_int64(data, at + 2), be_int64(data, at + 10)
    fields[_PRIORITY] = (int(data[at + 18]) ^ 128) - 128
    fields[_PROPERTIES] = at + 19
    return bool(_end_of(data, at + 19, end, sizes) >= 0)


@kernel
def _after_text(data: Bytes, at: Number, end: Number) -> Number:
    """Return the place after a text that may be missing; -1 if it does not fit."""
    if at >= end:
        return -1
    return _after_sized(data, at + 1, end) if data[at] else at + 1


@kernel
def _end_of(data: Bytes, at: Number, end: Number, sizes: Any) -> Number:
    if at >= end:
        return -1
    if data[at] == 0:
        return at + 1
    if at + 5 > end:
        return -1
    count = be_int32(data, at + 1)
    at += 5
    for _ in range(count):
        at = _after_sized(data, at, end)
        if at < 0 or at >= end:
            return -1
        size = sizes[data[at]]
        at = _after_sized(data, at + 1, end) if size == _SIZED else at + 1 + size
        if at < 0 or at > end or size == _UNKNOWN:
            return -1
    return at


@kernel
def _after_sized(data: Bytes, at: Number, end: Number) -> Number:
    """Return the place after some bytes with their number before them; -1 if they do not fit."""
    if at + 4 > end:
        return -1
    size = be_int32(data, at)
    return -1 if size < 0 or size > end - at - 4 else at + 4 + size


@kernel
def put_messages(
    data: Bytes,
    ends: Any,
    ids: Any,
    sizes: Any,
    fields: Any,
    keys: Any,
    plain: Any,
    out: Any,
    offsets: Any,
) -> None:
    """Write the values of messages as JSON, one after the other.

    ``offsets`` gets where each text begins, and the last one ends; ``plain`` has those that are to
    be written, and loses those that are not: odd properties (`_put_properties`), halves of
    characters, maps and unknown types, or a message that is damaged.
    """
    to = 0
    for row in range(len(plain)):
        offsets[row], end = to, -1
        if plain[row] and _found(data, int(ends[row]), int(ends[row + 1]), sizes, fields):
            end = _put_message(data, int(ids[row]), sizes, fields, keys, out, to)
        plain[row] = end >= 0
        to = max(to, end)
    offsets[len(plain)] = to


@kernel
def _put_message(
    data: Bytes, number: Number, sizes: Any, fields: Any, keys: Any, out: Any, to: Number
) -> Number:
    """Return where the text ends, -1 if it is not to be written."""
    kind = fields[_KIND]
    if kind >= len(_KINDS) or _KINDS[kind, 0] == 0:
        return -1
    to = put_whole(number, out, _put_word(_HEAD, out, to))
    to = _put_text_or_null(data, fields[_ADDRESS], out, _put_word(_TO_ADDRESS, out, to))
    if to < 0:
        return -1
    to = _put_user(data, fields[_USER], out, _put_word(_TO_USER, out, to))
    to = _put_word(_KINDS[kind, 1 : 1 + _KINDS[kind, 0]], out, _put_word(_TO_KIND, out, to))
    to = _put_word(_TRUE if fields[_DURABLE] else _FALSE, out, _put_word(_TO_DURABLE, out, to))
    to = _put_moment(fields[_EXPIRATION], out, _put_word(_TO_EXPIRATION, out, to))
    to = _put_moment(fields[_TIMESTAMP], out, _put_word(_TO_TIMESTAMP, out, to))
    to = put_whole(fields[_PRIORITY], out, _put_word(_TO_PRIORITY, out, to))
    to = _put_word(_TO_PROPERTIES, out, to)
    to = _put_properties(data, fields[_PROPERTIES], sizes, keys, out, to)
    begin, end = fields[_CONTENT], fields[_CONTENT_END]
    if to >= 0 and kind == _TEXT and _after_text(data, begin, end) >= 0:
        to = _put_text_or_null(data, begin, out, _put_word(_TO_TEXT, out, to))
    if to < 0:
        return -1
    to = put_bytes(data, begin, end, out, _put_word(_TO_BODY, out, to))
    return _put_word(_TAIL, out, to)


@kernel
def _put_text_or_null(data: Bytes, at: Number, out: Any, to: Number) -> Number:
    """Write a text, or that there is none; -1 for one with half a character."""
    if not data[at]:
        return _put_word(_NULL, out, to)
    size, pair = be_int32(data, at + 1), False
    if size % _UNIT != 0:
        return -1
    out[to] = 34
    to += 1
    for place in range(at + 5, at + 5 + size, _UNIT):
        unit = int(data[place]) | int(data[place + 1]) << 8
        if pair != (0xDC00 <= unit < 0xE000):
            return -1
        pair = 0xD800 <= unit < 0xDC00
        to = put_unit(unit, out, to)
    out[to] = 34
    return -1 if pair else to + 1


@kernel
def _put_user(data: Bytes, at: Number, out: Any, to: Number) -> Number:
    """Write the id that a user's client gave as a UUID, or that there is none."""
    if at < 0:
        return _put_word(_NULL, out, to)
    out[to] = 34
    to += 1
    for place in range(_USER_SIZE):
        if place in (4, 6, 8, 10):
            out[to] = 45  # minus
            to += 1
        to = put_hex(int(data[at + place]), 2, out, to)
    out[to] = 34
    return to + 1


@kernel
def _put_moment(milliseconds: Number, out: Any, to: Number) -> Number:
    """Write what `messages.moment` returns."""
    if milliseconds <= 0 or milliseconds >= _LAST_MOMENT:
        return _put_word(_NULL, out, to)
    day, rest = packed_day(milliseconds // _DAY), milliseconds % _DAY
    out[to] = 34
    to = _put_padded(day >> 9, 4, 45, out, to + 1)
    to = _put_padded(day >> 5 & 15, 2, 45, out, to)
    to = _put_padded(day & 31, 2, 32, out, to)
    to = _put_padded(rest // 3_600_000, 2, 58, out, to)
    to = _put_padded(rest // 60_000 % 60, 2, 58, out, to)
    to = _put_padded(rest // 1_000 % 60, 2, 34 if rest % 1_000 == 0 else 46, out, to)
    return to if rest % 1_000 == 0 else _put_padded(rest % 1_000 * 1_000, 6, 34, out, to)


@kernel
def _put_padded(value: Number, digits: Number, after: Number, out: Any, to: Number) -> Number:
    """Write a number with zeros before it, and a character after it."""
    to = put_digits(np.uint64(value), digits, out, to)
    out[to] = after
    return to + 1


@kernel
def _put_properties(data: Bytes, at: Number, sizes: Any, keys: Any, out: Any, to: Number) -> Number:
    """Write properties, which are whole, as JSON in a text; -1 of odd ones.

    These have floats, halves of characters, characters that JSON has other names for, two of one
    name, or more than ``keys`` has room for.
    """
    out[to], out[to + 1] = 34, 123  # "{
    to += 2
    count = be_int32(data, at + 1) if data[at] else 0
    if count > len(keys):
        return -1
    at += 5
    for number in range(count):
        keys[number] = at
        for earlier in range(number):
            if _same(data, keys[earlier], at):
                return -1
        if number:
            out[to], out[to + 1] = 44, 32  # comma, blank
            to += 2
        to = _put_text(data, at, out, to)
        if to < 0:
            return -1
        out[to], out[to + 1] = 58, 32  # colon, blank
        at += 4 + be_int32(data, at)
        kind = data[at]
        to = _put_value(data, kind, at + 1, int(sizes[kind]), out, to + 2)
        if to < 0:
            return -1
        at += 1 + (4 + be_int32(data, at + 1) if sizes[kind] == _SIZED else sizes[kind])
    out[to], out[to + 1] = 125, 34  # }"
    return to + 2


@kernel
def _same(data: Bytes, one: Number, other: Number) -> bool:
    """Return whether two texts with their sizes before them are equal."""
    place, size = 0, 4 + be_int32(data, one)
    while place < size and data[one + place] == data[other + place]:
        place += 1
    return bool(place == size)


@kernel
def _put_value(data: Bytes, kind: Number, at: Number, size: Number, out: Any, to: Number) -> Number:
    if kind == messages.STRING:
        return _put_text(data, at, out, to)
    if kind == messages.BYTES:
        end = at + 4 + be_int32(data, at)
        return _put_quote(out, put_bytes(data, at + 4, end, out, _put_quote(out, to)))
    if kind == messages.CHAR:
        to = _put_unit(int(data[at]) << 8 | int(data[at + 1]), out, _put_quote(out, to))
        return to if to < 0 else _put_quote(out, to)
    if kind == messages.NULL:
        return _put_word(_NULL, out, to)
    if kind == messages.FLAG:
        return _put_word(_TRUE if data[at] else _FALSE, out, to)
    if kind == messages.FLOAT or kind == messages.DOUBLE:
        return -1
    value = -1 if data[at] >= 128 else 0
    for place in range(at, at + size):
        value = value << 8 | int(data[place])
    return put_whole(value, out, to)


@kernel
def _put_text(data: Bytes, at: Number, out: Any, to: Number) -> Number:
    size, to = be_int32(data, at), _put_quote(out, to)
    if size % _UNIT != 0:
        return -1
    for place in range(at + 4, at + 4 + size, _UNIT):
        to = _put_unit(int(data[place]) | int(data[place + 1]) << 8, out, to)
        if to < 0:
            return -1
    return _put_quote(out, to)


@kernel
def _put_unit(unit: Number, out: Any, to: Number) -> Number:
    if unit < 32 or unit == 34 or unit == 92 or 0xD800 <= unit < 0xE000:
        return -1
    if unit < 127:
        out[to] = unit
        return to + 1
    out[to], out[to + 1] = 92, 117  # backslash, u
    return put_hex(unit, 4, out, to + 2)


@kernel
def _put_quote(out: Any, to: Number) -> Number:
    """Write the quote of a text that stands in a text."""
    out[to], out[to + 1] = 92, 34
    return to + 2


@kernel
def _put_word(word: Any, out: Any, to: Number) -> Number:
    for place in range(len(word)):
        out[to + place] = word[place]
    return to + len(word)
