"""LZF as loops over bytes that can be compiled: no slices, no objects, no exceptions.

In: a page or its image, and room for the other. Out: how far it went. The same function takes
``bytes`` and a ``bytearray``, or arrays over them. See `lzf` for the format.
"""

from __future__ import annotations

from typing import Any

LITERALS_MAX = 32
DISTANCE_MAX = 8192
LENGTH_MIN = 3
LENGTH_MAX = 264
SLOTS = 1 << 12
"""Places that `pack` remembers at a time."""

WHOLE, TOO_EARLY, LITERALS_OVER, BEFORE_PAGE, REFERENCE_OVER, TOO_LONG = range(6)
"""How `unpack` ended."""

_LONG = 7
_SCATTER, _SCATTER_SHIFT = 2_654_435_761, 20
_PATIENCE_SHIFT = 5
"""Behind 32 bytes without a match every second place is tried, behind 64 every third."""


def pack(page: Any, out: Any, places: Any) -> int:
    """Bytes of an LZF form of ``page`` in ``out``, with a literal at its end; 0 if there is no
    room for it. ``places``: `SLOTS` numbers of four bytes, all 0."""
    last = len(page) - 1
    at = start = done = 0
    while start <= last:
        seen = -1
        if at + LENGTH_MIN <= last:
            three = page[at] << 16 | page[at + 1] << 8 | page[at + 2]
            slot = three * _SCATTER >> _SCATTER_SHIFT & SLOTS - 1
            seen = places[slot] - 1
            places[slot] = at + 1
            if (
                seen < 0
                or at - seen > DISTANCE_MAX
                or page[seen] != page[at]
                or page[seen + 1] != page[at + 1]
                or page[seen + 2] != page[at + 2]
            ):
                at += 1 + (at - start >> _PATIENCE_SHIFT)
                continue
        else:
            at = last + 1
        if done + (at - start) + (at - start) // LITERALS_MAX + 4 > len(out):
            return 0
        while start < at:
            count = min(at - start, LITERALS_MAX)
            out[done] = count - 1
            for place in range(count):
                out[done + 1 + place] = page[start + place]
            start += count
            done += count + 1
        if seen >= 0:
            length, limit = LENGTH_MIN, min(LENGTH_MAX, last - at)
            while length < limit and page[seen + length] == page[at + length]:
                length += 1
            distance = at - seen - 1
            out[done] = min(length - 2, _LONG) << 5 | distance >> 8
            if length - 2 >= _LONG:
                done += 1
                out[done] = length - 2 - _LONG
            out[done + 1] = distance & 0xFF
            done += 2
            at += length
            start = at
    return done


def unpack(source: Any, out: Any, size: int) -> tuple[int, int, int]:
    """Expand into the first ``size`` bytes of ``out``: bytes taken, bytes written, and how it
    ended. What it has written stays."""
    end, room = len(source), len(out)
    at = done = 0
    while done < size:
        if at >= end:
            return at, done, TOO_EARLY
        control = source[at]
        at += 1
        if control < LITERALS_MAX:
            length = control + 1
            if done + length > room:
                return at, done, LITERALS_OVER
            if at + length > end:
                return at, done, TOO_EARLY
            for place in range(length):
                out[done + place] = source[at + place]
            at += length
            done += length
            continue
        length = control >> 5
        if length == _LONG and at < end:
            length += source[at]
            at += 1
        if at >= end:
            return at, done, TOO_EARLY
        length += 2
        distance = ((control & 31) << 8 | source[at]) + 1
        at += 1
        if distance > done:
            return at, done, BEFORE_PAGE
        if done + length >= room:
            return at, done, REFERENCE_OVER
        for place in range(done, done + length):
            out[place] = out[place - distance]
        done += length
    return at, done, WHOLE if done == size else TOO_LONG
