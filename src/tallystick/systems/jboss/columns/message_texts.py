"""What messages hold as columns: their addresses, and their values as JSON texts.

In: user types and bodies of records of messages. Out: the texts of what `messages.message` returns.
The fields of all messages are found together, step by step, and properties are written by a kernel.
One by one are decoded properties that are odd, and messages that are of other protocols, maps or
damaged.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.byte_kernels import Bytes, Number, be_int32
from tallystick.arrow.columns import byte_ranges, joined_bytes, numbers_at, texts_of
from tallystick.arrow.lines import IN_JSON, hex_texts
from tallystick.arrow.numba_kernel import kernel
from tallystick.arrow.schemas import json_text
from tallystick.systems.jboss.format import messages

Ranges = tuple[Any, Any]
"""Begins and sizes; a size below 0 for nothing."""

_PAD = np.zeros(16, np.uint8)
_ASCII, _UNIT = 128, 2
_USER_SIZE = 16
_SIZED, _UNKNOWN = -2, -1
_SIZES = np.full(256, _UNKNOWN)
"""Bytes of a property by the code of its type; those of a text or bytes stand before these."""
_SIZES[[messages.BYTES, messages.STRING]] = _SIZED
_SIZES[[messages.NULL, messages.CHAR]] = 0, 2
for _code, _form in messages.FIXED.items():
    _SIZES[_code] = struct.calcsize(_form)
_KEYS_MAX = 64
"""Most properties of a message that the kernel writes: it looks for two of one name."""
_GROWTH, _GROWTH_OF_EACH = 3, 4
"""The text of properties has at most so many bytes for each of theirs, and so many besides."""
_NULL, _TRUE, _FALSE = (np.frombuffer(one, np.uint8) for one in (b"null", b"true", b"false"))
_KINDS = {name: code for code, name in messages.BODY_KINDS.items()}


def contents(bodies: pa.Array) -> tuple[Any, Bytes]:
    """Return where each of some bytes begins, and the last one ends; and these, never few."""
    bodies = bodies.cast(pa.large_binary())
    _, ends, data = bodies.buffers()
    found = np.frombuffer(ends, np.int64)[bodies.offset :][: len(bodies) + 1]
    held = np.frombuffer(data or b"", np.uint8)
    return found, held if len(held) >= len(_PAD) else np.concatenate([held, _PAD])


def addresses(types: Any, bodies: pa.Array) -> list[str | None]:
    """Return the addresses of messages."""
    found = _Found.of(types, bodies)
    texts = _by_bytes(byte_ranges(found.data, *found.address), messages.decoded)
    named: list[Any] = texts.to_pylist()
    for place in np.flatnonzero(~found.whole).tolist():
        values = messages.message(int(types[place]), bodies[place].as_py()) or {}
        named[place] = values.get("address")
    return named


def message_texts(types: Any, bodies: pa.Array, keys: Sequence[str]) -> pa.Array:
    """Return the values of messages, whose ids are ``keys``."""
    found = _Found.of(types, bodies)
    texts = found.texts(keys)
    whole = found.whole & (found.kind != _KINDS["map"])
    others = np.flatnonzero(~whole).tolist()
    if not others:
        return texts
    one_by_one = [
        json_text(
            (messages.message(int(types[place]), bodies[place].as_py()) or {})
            | {"message_id": int(keys[place])}
        )
        for place in others
    ]
    return pc.replace_with_mask(texts, pa.array(~whole), pa.array(one_by_one, pa.string()))


class _Cursor:
    """Reads the same fields of many messages; ``whole`` tells which had them all."""

    def __init__(self, data: Bytes, begins: Any, ends: Any, whole: Any) -> None:
        self._data, self.at, self.ends, self.whole = data, begins, ends, whole

    def take(self, size: Any) -> Any:
        """Return where the next bytes begin."""
        self.whole = self.whole & (size >= 0) & (size <= self.ends - self.at)
        begins = np.where(self.whole, self.at, 0)
        self.at = begins + np.where(self.whole, size, 0)
        return begins

    def number(self, kind: str) -> Any:
        return self._number(self.take(np.dtype(kind).itemsize), kind)

    def flag(self) -> Any:
        return self.number("u1") != 0

    def text_or_none(self) -> Ranges:
        there = self.flag()
        size = self._number(self.take(np.where(there, 4, 0)), ">i4")
        # Half a character at the end is read one by one.
        self.whole = self.whole & ~(there & (size % _UNIT != 0))
        begins = self.take(np.where(there, size, 0))
        return begins, np.where(there & self.whole, size, -1)

    def _number(self, begins: Any, kind: str) -> Any:
        # What is not there is read elsewhere, and means nothing.
        within = np.minimum(begins, len(self._data) - np.dtype(kind).itemsize)
        return numbers_at(self._data, within, kind).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Found:
    """The fields of messages; of those that are not ``whole`` they mean nothing."""

    data: Bytes
    whole: Any
    content: Ranges
    address: Ranges
    user: Ranges
    kind: Any
    durable: Any
    expiration: Any
    timestamp: Any
    priority: Any
    properties: Ranges

    @staticmethod
    def of(types: Any, bodies: pa.Array) -> _Found:
        ends, data = contents(bodies)
        outer = _Cursor(data, ends[:-1], ends[1:], types == messages.MESSAGE)
        outer.whole &= outer.number("i1") == messages.CORE
        outer.take(8)
        outer.text_or_none()
        size = outer.number(">i4")
        begins = outer.take(size)
        inner = _Cursor(data, begins, begins + np.where(outer.whole, size, 0), outer.whole)
        length = inner.number(">i4") - messages.HEAD_AFTER_BODY
        content = inner.take(length), length
        inner.take(8)
        address = inner.text_or_none()
        named = inner.flag()
        user = inner.take(np.where(named, _USER_SIZE, 0)), np.where(named, _USER_SIZE, -1)
        kind, durable = inner.number("i1"), inner.flag()
        moments = inner.number(">i8"), inner.number(">i8")
        priority = inner.number("i1")
        after = np.empty(len(types), np.int64)
        find_ends(data, inner.at, np.where(inner.whole, inner.ends, 0), _SIZES, after)
        properties = inner.at, after - inner.at
        whole = inner.whole & (after >= 0)
        return _Found(
            data, whole, content, address, user, kind, durable, *moments, priority, properties
        )

    def texts(self, keys: Sequence[str]) -> pa.Array:
        """Return the JSON of all values."""
        parts = [
            '{"protocol":"core","message_id":', pa.array(keys, pa.string()),
            ',"address":', self._utf16(self.address),
            ',"user_id":', self._uuids(),
            texts_of(self.kind, _kind_text),
            texts_of(self.durable.astype(np.int64), _durable_text),
            ',"expiration":', _moments(self.expiration),
            ',"timestamp":', _moments(self.timestamp),
            ',"priority":', pa.array(self.priority).cast(pa.string()),
            ',"properties":', self._properties(),
            self._content_texts(),
            ',"body":"', hex_texts(self._ranges(self.content).cast(pa.binary())), '"}',
        ]  # fmt: skip
        parts = [one if isinstance(one, str) else one.cast(pa.string()) for one in parts]
        return pc.binary_join_element_wise(
            *parts, "", null_handling="replace", null_replacement="null"
        )

    def _ranges(self, found: Ranges) -> pa.Array:
        begins, sizes = found
        return byte_ranges(self.data, begins, np.where(self.whole, sizes, -1))

    def _properties(self) -> pa.Array:
        """Return the properties as JSON, that is, JSON in a text."""
        begins, sizes = self.properties
        room = int(sizes[self.whole].sum()) * _GROWTH + len(begins) * _GROWTH_OF_EACH
        out, offsets = np.empty(room, np.uint8), np.empty(len(begins) + 1, np.int64)
        plain, keys = self.whole.copy(), np.empty(_KEYS_MAX, np.int64)
        put_properties(self.data, begins, _SIZES, keys, plain, out, offsets)
        texts = joined_bytes(pa.large_string(), offsets, out, None).cast(pa.string())
        odd = self._ranges((begins, np.where(plain, -1, sizes)))
        return pc.if_else(pa.array(plain), texts, _by_bytes(odd, messages.properties_text))

    def _content_texts(self) -> pa.Array:
        """Return the key and text of messages that have one; else nothing."""
        begins, sizes = self.content
        texts = self.whole & (self.kind == _KINDS["text"])
        cursor = _Cursor(self.data, begins, begins + np.where(texts, sizes, 0), texts)
        found = self._utf16(cursor.text_or_none())
        named = pc.binary_join_element_wise(
            ',"text":', found, "", null_handling="replace", null_replacement="null"
        )
        return pc.if_else(pa.array(cursor.whole), named, "")

    def _utf16(self, found: Ranges) -> pa.Array:
        """Return texts as JSON."""
        ranges = byte_ranges(self.data, *found).cast(pa.binary())
        ends, data = contents(ranges)
        units = data[ends[0] : ends[-1]].view("<u2")
        if (units < _ASCII).all():
            valid = (
                None
                if not ranges.null_count
                else np.packbits(np.asarray(ranges.is_valid()), bitorder="little")
            )
            offsets = ((ends - ends[0]) // _UNIT).astype(np.int32)
            texts = joined_bytes(pa.string(), offsets, units.astype(np.uint8), valid)
            if not pc.any(pc.match_substring_regex(texts, IN_JSON)).as_py():
                return pc.binary_join_element_wise('"', texts, '"', "")
        return _by_bytes(ranges, lambda one: json.dumps(messages.decoded(one)))

    def _uuids(self) -> pa.Array:
        digits = hex_texts(self._ranges(self.user).cast(pa.binary())).cast(pa.string())
        cuts = (0, 8, 12, 16, 20, 32)
        parts = [pc.utf8_slice_codeunits(digits, begin, end) for begin, end in pairwise(cuts)]
        dashed = pc.binary_join_element_wise(*parts, "-")
        return pc.binary_join_element_wise('"', dashed, '"', "")


@kernel
def find_ends(data: Bytes, begins: Any, ends: Any, sizes: Any, after: Any) -> None:
    """Find where properties end, which have ``ends`` at most; -1 where they do not end there."""
    for row in range(len(begins)):
        after[row] = _end_of(data, int(begins[row]), int(ends[row]), sizes)


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
def put_properties(
    data: Bytes, begins: Any, sizes: Any, keys: Any, plain: Any, out: Any, offsets: Any
) -> None:
    """Write what `messages.properties_text` makes of properties, one after the other.

    ``offsets`` gets where each text begins, and the last one ends; ``plain`` has those that are to
    be written, and loses those that are not: with floats, halves of characters, characters that
    JSON has other names for, two properties of one name, or more than ``keys`` has room for.
    """
    to = 0
    for row in range(len(begins)):
        offsets[row] = to
        end = _put_properties(data, int(begins[row]), sizes, keys, out, to) if plain[row] else -1
        plain[row] = end >= 0
        to = max(to, end)
    offsets[len(begins)] = to


@kernel
def _put_properties(data: Bytes, at: Number, sizes: Any, keys: Any, out: Any, to: Number) -> Number:
    """Return where the text ends, -1 if it is not to be written. The properties are whole."""
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
        to = _put_quote(out, to)
        for place in range(at + 4, at + 4 + be_int32(data, at)):
            to = _put_hex(int(data[place]), 2, out, to)
        return _put_quote(out, to)
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
    return _put_number(value, out, to)


@kernel
def _put_number(value: Number, out: Any, to: Number) -> Number:
    if value < 0:
        out[to] = 45  # minus
        to += 1
    # Counted below 0, as the least number has no counterpart above it.
    rest, end = value if value < 0 else -value, to
    while rest != 0 or end == to:
        out[end] = 48 - rest % -10
        rest = -(rest // -10)
        end += 1
    for place in range((end - to) // 2):
        out[to + place], out[end - 1 - place] = out[end - 1 - place], out[to + place]
    return end


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
    return _put_hex(unit, 4, out, to + 2)


@kernel
def _put_hex(value: Number, digits: Number, out: Any, to: Number) -> Number:
    for place in range(digits):
        digit = value >> 4 * (digits - 1 - place) & 15
        out[to + place] = digit + (48 if digit < 10 else 87)
    return to + digits


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


def _by_bytes(ranges: pa.Array, text: Callable[[bytes], str | None]) -> pa.Array:
    """Return the text of each value, made once of those that are equal; null for null."""
    values = ranges.cast(pa.binary()).dictionary_encode()
    texts = map(text, values.dictionary.to_pylist())
    return pa.array(texts, pa.string(), size=len(values.dictionary)).take(values.indices)


def _kind_text(kind: int) -> str:
    return f',"type":{json.dumps(messages.BODY_KINDS.get(kind, str(kind)))}'


def _durable_text(durable: int) -> str:
    return f',"durable":{json.dumps(bool(durable))}'


def _moments(milliseconds: Any) -> pa.Array:
    """Return `messages.moment` of each as JSON; second by second, as there are fewer of them."""
    seconds, rest = np.divmod(milliseconds, 1000)
    rest[milliseconds <= 0] = -1
    return pc.binary_join_element_wise('"', texts_of(seconds, _second), texts_of(rest, _rest), "")


def _second(number: int) -> str | None:
    """Return a second, by the middle of it: the first of all moments means that there is none."""
    text = messages.moment(number * 1000 + 500)
    return None if text is None else text.partition(".")[0]


def _rest(milliseconds: int) -> str | None:
    return None if milliseconds < 0 else f'.{milliseconds:03}000"' if milliseconds else '"'
