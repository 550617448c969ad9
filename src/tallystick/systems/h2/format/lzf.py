"""LZF as the page log uses it for undo images: bounded expansion, and a compressor.

In: a compressed image and the page size. Out: exactly one page, or what the engine would have
made of a damaged one. A control byte below 32 is followed by that many literals plus one;
any other is a back-reference of length 3 to 264 at distance 1 to 8192.

`pack` and `unpack` are loops without objects and exceptions, so that they can be compiled; they
take ``bytes`` and a ``bytearray``, or arrays over them. `LateKernel` compiles them once there is
enough to do; before, bytes are copied by slices: three times as fast as byte by byte.
Source: docs/formats/h2.md, "Records".
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tallystick.arrow.numba_kernel import compiled_of, has_twin, lazy_kernel, pays

LITERALS_MAX = 32
DISTANCE_MAX = 8192
LENGTH_MIN = 3
LENGTH_MAX = 264
LENGTH_CONTINUED = 7
"""A length of 7 in a control byte is continued in the next byte."""
SLOTS = 1 << 12
"""Offsets that `pack` remembers at a time."""
PACKED_FROM, UNPACKED_FROM = 500, 10_000
"""Images from which on it pays to load the compiler: each takes half a millisecond to pack in plain
Python, a sixteenth of one to expand."""
LOADED_FROM = 50
"""The same where the compiler is loaded already."""

WHOLE, TOO_EARLY, LITERALS_OVER, BEFORE_PAGE, REFERENCE_OVER, TOO_LONG = range(6)
"""How `unpack` ended."""
_REASONS = {
    TOO_EARLY: "the compressed image ends too early",
    LITERALS_OVER: "literals run over the end of the page",
    BEFORE_PAGE: "a back-reference points before the page",
    REFERENCE_OVER: "a back-reference ends at or after the end of the page",
    TOO_LONG: "the image is longer than a page",
}

_SCATTER, _SCATTER_SHIFT = 2_654_435_761, 20
_STRIDE_SHIFT = 5
"""After 32 bytes without a match every second offset is tried, after 64 every third."""


class ExpansionError(Exception):
    """The image does not expand to one page; ``done`` bytes of it were written."""

    def __init__(self, reason: str, done: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.done = done


# -- loops that can be compiled -------------------------------------------------------------


@lazy_kernel
def pack(page: Any, out: Any, places: Any) -> int:
    """Write an LZF form of ``page`` to ``out``, with a literal at its end.

    Args:
        page: the bytes to compress.
        out: the buffer, which limits the size.
        places: `SLOTS` numbers of four bytes, all 0.

    Returns:
        The size in bytes; 0 if ``out`` is too small.
    """
    last = len(page) - 1
    at = start = done = 0
    while start <= last:
        seen = -1
        if at + LENGTH_MIN <= last:
            three = page[at] << 16 | page[at + 1] << 8 | page[at + 2]
            slot = three * _SCATTER >> _SCATTER_SHIFT & SLOTS - 1
            # 0 stands for none, as the buffer comes filled with zeros.
            seen = places[slot] - 1
            places[slot] = at + 1
            if (
                seen < 0
                or at - seen > DISTANCE_MAX
                or page[seen] != page[at]
                or page[seen + 1] != page[at + 1]
                or page[seen + 2] != page[at + 2]
            ):
                # The longer nothing matches, the less is tried: a page that cannot be compressed
                # costs little.
                at += 1 + (at - start >> _STRIDE_SHIFT)
                continue
        else:
            at = last + 1
        # The literals with a control byte for each 32 and for the rest, and a reference of three
        # bytes at most: what follows needs no further test of the space.
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
            # `last` itself stays a literal: the engine refuses a reference that ends at the end of
            # the page.
            length, limit = LENGTH_MIN, min(LENGTH_MAX, last - at)
            while length < limit and page[seen + length] == page[at + length]:
                length += 1
            distance = at - seen - 1
            out[done] = min(length - 2, LENGTH_CONTINUED) << 5 | distance >> 8
            if length - 2 >= LENGTH_CONTINUED:
                done += 1
                out[done] = length - 2 - LENGTH_CONTINUED
            out[done + 1] = distance & 0xFF
            done += 2
            at += length
            start = at
    return done


@lazy_kernel
def unpack(source: Any, out: Any, size: int) -> tuple[int, int, int]:
    """Expand ``source`` into the first ``size`` bytes of ``out``; damaged, as far as that goes.

    The tests are the engine's, whose bounds are those of its buffer, ``out``, not ``size``.

    Returns:
        Bytes taken, bytes written, and how it ended (`WHOLE` and the numbers after it).
    """
    end, capacity = len(source), len(out)
    at = done = 0
    while done < size:
        if at >= end:
            return at, done, TOO_EARLY
        control = source[at]
        at += 1
        if control < LITERALS_MAX:
            length = control + 1
            if done + length > capacity:
                return at, done, LITERALS_OVER
            if at + length > end:
                return at, done, TOO_EARLY
            put(source, at, out, done, length)
            at += length
            done += length
            continue
        length = (control >> 5) + 2
        if length == LENGTH_CONTINUED + 2 and at < end:
            length += source[at]
            at += 1
        if at >= end:
            return at, done, TOO_EARLY
        distance = ((control & 31) << 8 | source[at]) + 1
        at += 1
        if distance > done:
            return at, done, BEFORE_PAGE
        if done + length >= capacity:  # the engine refuses the last byte as well
            return at, done, REFERENCE_OVER
        repeat(out, done, distance, length)
        done += length
    return at, done, WHOLE if done == size else TOO_LONG


def put(source: Any, at: int, out: Any, done: int, length: int) -> None:
    """Copy bytes from ``at`` of ``source`` to ``done`` of ``out``."""
    out[done : done + length] = source[at : at + length]


def repeat(out: Any, done: int, distance: int, length: int) -> None:
    """Copy ``length`` bytes to ``done`` from ``distance`` before it.

    Where ``length`` is larger than ``distance``, bytes that were just copied are copied again.
    """
    seen = out[done - distance : done]
    out[done : done + length] = (seen * (length // distance + 1))[:length]


_KERNELS = "tallystick.systems.h2.format.page_kernels"
has_twin(put, _KERNELS, "put")
has_twin(repeat, _KERNELS, "repeat")


class LateKernel:
    """A loop over buffers that is compiled once it has been called so often that it pays.

    Args:
        loop: what is compiled.
        compiled_from: calls from which on it pays to load the compiler.
    """

    def __init__(self, loop: Callable[..., Any], compiled_from: int) -> None:
        self.loop = loop
        self._from = compiled_from
        self.compiled: Callable[..., Any] | None = None
        """The function for arrays; None as long as the loop is called, with the buffers."""
        self._calls = 0
        self._tried = False

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function if there is one, else the loop."""
        if not self._tried:
            if pays(self._calls, LOADED_FROM, self._from):
                self._tried = True
                self._compile()
            self._calls += 1
        if self.compiled is None:
            return self.loop(*arguments)
        return self.compiled(*map(self._array, arguments))

    def _compile(self) -> None:
        compiled = compiled_of(self.loop)
        # Without numba it is a plain function still: the loop itself is called with the buffers.
        if not isinstance(compiled, FunctionType):
            from numpy import asarray

            self._asarray = asarray
            self.compiled = compiled

    def _array(self, argument: Any) -> Any:
        return argument if isinstance(argument, int) else self._asarray(memoryview(argument))


_pack = LateKernel(pack, PACKED_FROM)
_unpack = LateKernel(unpack, UNPACKED_FROM)


# -- whole pages ----------------------------------------------------------------------------


def compress(page: bytes) -> bytes | None:
    """Return an LZF form of ``page`` that every reader expands: its last byte is a literal.

    Returns:
        None if it would take more than nine tenths of the page.
    """
    out = bytearray(len(page) * 9 // 10)
    size: int = _pack(page, out, array("i", bytes(4 * SLOTS)))
    return bytes(out[:size]) if size else None


def expand_into(source: bytes | memoryview, out: bytearray, size: int) -> int:
    """Expand into the first ``size`` bytes of ``out``, byte for byte as the engine does.

    Like the engine it refuses a back-reference that ends exactly at the end of ``out`` (not of
    ``size``), and leaves what it has written. It never writes more.

    Returns:
        How many bytes of ``source`` that took.

    Raises:
        ExpansionError: the image does not expand to ``size`` bytes.
    """
    at, done, end = _unpack(memoryview(source).toreadonly(), out, size)
    if end != WHOLE:
        raise ExpansionError(_REASONS[end], done)
    return int(at)
