"""LZF as the page log uses it for undo images: bounded expansion, and a compressor.

In: a compressed image and the page size. Out: exactly one page, or what the engine would have
made of a damaged one. A control byte below 32 is followed by that many literals plus one;
any other is a back-reference of length 3 to 264 at distance 1 to 8192.
Source: the PageLog description, section a.6.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from tallystick.arrow.numba_kernel import kernel, pays
from tallystick.systems.h2.format import lzf_kernel as loops

LENGTH_MAX = loops.LENGTH_MAX
COMPILED_FROM = 500
"""Images from which on it pays to load the compiler, each half a millisecond in plain Python."""
LOADED_FROM = 50
"""The same where the compiler is loaded already."""

_REASONS = {
    loops.TOO_EARLY: "the compressed image ends too early",
    loops.LITERALS_OVER: "literals run over the end of the page",
    loops.BEFORE_PAGE: "a back-reference points before the page",
    loops.REFERENCE_OVER: "a back-reference ends at or behind the end of the page",
    loops.TOO_LONG: "the image is longer than a page",
}


class ExpansionError(Exception):
    """The image does not expand to one page; ``done`` bytes of it were written."""

    def __init__(self, reason: str, done: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.done = done


class LateKernel:
    """Loops over buffers, which are compiled once there is so much to do that it pays."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        self.plain = plain
        self.compiled: Callable[..., Any] | None = None
        """The function for arrays; None as long as the plain one is called, with the buffers."""
        self._calls = 0
        self._tried = False

    def __call__(self, *arguments: Any) -> Any:
        if not self._tried:
            if pays(self._calls, LOADED_FROM, COMPILED_FROM):
                self._tried = True
                self._compile()
            self._calls += 1
        if self.compiled is None:
            return self.plain(*arguments)
        return self.compiled(*map(self._array, arguments))

    def _compile(self) -> None:
        try:
            compiled = kernel(self.plain)
        except RuntimeError:
            return  # numba refuses where it finds no folder for what it compiles
        if compiled is not self.plain:
            from numpy import asarray

            self._asarray = asarray
            self.compiled = compiled

    def _array(self, argument: Any) -> Any:
        return argument if isinstance(argument, int) else self._asarray(memoryview(argument))


_pack = LateKernel(loops.pack)
_unpack = LateKernel(loops.unpack)


def compress(page: bytes) -> bytes | None:
    """An LZF form of ``page`` that every reader expands: its last byte is always a literal. None
    if it would take more than nine tenths of the page."""
    out = bytearray(len(page) * 9 // 10)
    size: int = _pack(page, out, array("i", bytes(4 * loops.SLOTS)))
    return bytes(out[:size]) if size else None


def expand_into(source: bytes | memoryview, out: bytearray, size: int) -> int:
    """Expand into the first ``size`` bytes of ``out``, byte for byte as the engine does; how many
    bytes of ``source`` that took.

    Like the engine it refuses a back-reference that ends exactly at the end of ``out`` (not of
    ``size``), and leaves what it has written. Raises `ExpansionError`; never writes more.
    """
    at, done, end = _unpack(memoryview(source).toreadonly(), out, size)
    if end != loops.WHOLE:
        raise ExpansionError(_REASONS[end], done)
    return int(at)
