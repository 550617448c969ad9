"""Geometries as text.

In: extended well-known binary, as the engine stores it. Out: extended well-known text, as the
engine prints it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tallystick.systems.h2.format.values.java_text import number_text

_Z, _M, _SRID = 0x8000_0000, 0x4000_0000, 0x2000_0000
_POINT, _LINE, _POLYGON, _MULTIPOINT, _MULTILINE, _MULTIPOLYGON, _COLLECTION = range(1, 8)
_NAMES = {
    _POINT: "POINT",
    _LINE: "LINESTRING",
    _POLYGON: "POLYGON",
    _MULTIPOINT: "MULTIPOINT",
    _MULTILINE: "MULTILINESTRING",
    _MULTIPOLYGON: "MULTIPOLYGON",
    _COLLECTION: "GEOMETRYCOLLECTION",
}
_NESTING_MAX = 16


def geometry_text(data: bytes) -> str | None:
    """Return the text of a geometry; None where the bytes are none."""
    try:
        return _Reader(data).geometry(_NESTING_MAX)[0]
    except (struct.error, ValueError):
        return None


@dataclass(slots=True)
class _Reader:
    data: bytes
    at: int = 0

    def geometry(self, depth: int) -> tuple[str, str]:
        """Return the next geometry, and its text without the name."""
        if not depth:
            raise ValueError("geometries nested too deeply")
        order = "<" if self._unpacked("B") else ">"
        code = self._unpacked(order + "I")
        srid = f"SRID={self._unpacked(order + 'i')};" if code & _SRID else ""
        # Z and M stand in bits of their own, or in the thousands of the code: 1, 2, or 3 for both.
        thousands, kind = divmod(code & 0xFFFF, 1000)
        dimensions = " " * bool(thousands or code & (_Z | _M))
        dimensions += "Z" * bool(code & _Z or thousands & 1)
        dimensions += "M" * bool(code & _M or thousands & 2)
        size = 2 + len(dimensions.strip())
        if kind not in _NAMES:
            raise ValueError(f"geometry kind {kind}")
        body = self._body(kind, order, size, depth)
        return f"{srid}{_NAMES[kind]}{dimensions} {body}", body

    def _body(self, kind: int, order: str, size: int, depth: int) -> str:
        if kind == _POINT:
            numbers = self._numbers(order, size)
            # An empty point has NaN for its numbers, which differs from itself.
            return "EMPTY" if numbers[0] != numbers[0] else f"({_texts(numbers)})"
        count = self._unpacked(order + "I")
        if kind == _LINE:
            parts = [_texts(self._numbers(order, size)) for _ in range(count)]
        elif kind == _POLYGON:
            parts = [self._body(_LINE, order, size, depth) for _ in range(count)]
        else:
            whole = 0 if kind == _COLLECTION else 1
            parts = [self.geometry(depth - 1)[whole] for _ in range(count)]
        return f"({', '.join(parts)})" if parts else "EMPTY"

    def _numbers(self, order: str, size: int) -> tuple[float, ...]:
        form = struct.Struct(f"{order}{size}d")
        found = form.unpack_from(self.data, self.at)
        self.at += form.size
        return found

    def _unpacked(self, form: str) -> int:
        (found,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(found)


def _texts(numbers: tuple[float, ...]) -> str:
    return " ".join(number_text(one).replace(".0E", "E").removesuffix(".0") for one in numbers)
