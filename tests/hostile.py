"""Values that programs pass by mistake, and what a log may make of them.

* `VALUES`: kinds of values by name; each call makes a new one
* `bytes_in`: the bytes that a value is as a body; None where it can only be refused
* `integer_in`: the integer that a value is; None where it can only be refused
* `REFUSALS`: the errors with which a call may refuse a value
"""

from __future__ import annotations

import array
import asyncio
import collections
import ctypes
import datetime
import decimal
import enum
import fractions
import io
import mmap
import pathlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tallystick.errors import TallystickError
from tallystick.records import Xid


class OwnError(Exception):
    """An error that a value raises by itself."""


REFUSALS = (TypeError, ValueError, KeyError, TallystickError, OwnError)


class Lying(bytes):
    """Bytes that say of themselves that they are others."""

    def __len__(self) -> int:
        return 1 << 40

    def __bytes__(self) -> bytes:
        return b"others"

    def __iter__(self) -> Iterator[int]:
        raise OwnError

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __bool__(self) -> bool:
        raise OwnError


class LyingInteger(int):
    """An integer that says of itself that it is another."""

    def __index__(self) -> int:
        return 1 << 70

    def __int__(self) -> int:
        return -1

    def __lt__(self, other: object) -> bool:
        return True

    __le__ = __gt__ = __ge__ = __lt__

    def __repr__(self) -> str:
        raise OwnError


class LyingText(str):
    """A text that says of itself that it is another."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"others" * 100_000

    def __len__(self) -> int:
        raise OwnError

    def __str__(self) -> str:
        raise OwnError


class Raising:
    """Raises an error of its own wherever it can."""

    def __bytes__(self) -> bytes:
        raise OwnError

    def __index__(self) -> int:
        raise OwnError

    __int__ = __len__ = __index__

    def __str__(self) -> str:
        raise OwnError

    __repr__ = __fspath__ = __str__

    def __iter__(self) -> Iterator[int]:
        raise OwnError

    def __eq__(self, other: object) -> bool:
        raise OwnError

    def __hash__(self) -> int:
        raise OwnError


class Indexed:
    """Stands for an integer."""

    def __init__(self, number: object) -> None:
        self._number = number

    def __index__(self) -> Any:
        return self._number


class Impostor:
    """Says that it is of another class."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._kind


class Number(enum.IntEnum):
    """An integer with a name."""

    SEVEN = 7


def _mapped(content: bytes) -> mmap.mmap:
    mapped = mmap.mmap(-1, len(content))
    mapped[:] = content
    return mapped


def _released() -> memoryview:
    view = memoryview(b"released")
    view.release()
    return view


def _coroutine() -> object:
    async def body() -> bytes:
        return b"awaited"

    made = body()
    made.close()  # or it would warn that nobody has awaited it
    return made


def _raise() -> bytes:
    raise OwnError


def _closed_map() -> mmap.mmap:
    mapped = _mapped(b"closed")
    mapped.close()
    return mapped


def _read_only() -> Any:
    made = np.arange(5, dtype=np.uint8)
    made.setflags(write=False)
    return made


VALUES: dict[str, Callable[[], Any]] = {
    # of the right type for a body
    "bytes": lambda: b"plain",
    "no bytes": lambda: b"",
    "bytes with NUL": lambda: b"\0a\0",
    "many bytes": lambda: bytes(10_000),
    "too many bytes": lambda: bytes(20 << 20),
    "bytearray": lambda: bytearray(b"array"),
    "memoryview": lambda: memoryview(b"view"),
    "memoryview of a bytearray": lambda: memoryview(bytearray(b"view"))[1:],
    "wide memoryview": lambda: memoryview(array.array("q", [1, 2, 3])),
    "cast memoryview": lambda: memoryview(b"abcdefgh").cast("I"),
    "memoryview of two dimensions": lambda: memoryview(b"abcdef").cast("B", [2, 3]),
    "memoryview with gaps": lambda: memoryview(b"abcdef")[::2],
    "memoryview backwards": lambda: memoryview(b"abcdef")[::-1],
    "memoryview of no bytes": lambda: memoryview(b""),
    "memoryview of no dimension": lambda: memoryview(ctypes.c_int64(7)),
    "released memoryview": _released,
    "array of bytes": lambda: array.array("B", [1, 2]),
    "array of doubles": lambda: array.array("d", [1.5, 2.5]),
    "mmap": lambda: _mapped(b"mapped"),
    "closed mmap": _closed_map,
    "ctypes array": lambda: (ctypes.c_int32 * 3)(1, 2, 3),
    "ctypes objects": lambda: (ctypes.py_object * 2)(),
    "ctypes structure": lambda: ctypes.c_uint16(513),
    "BytesIO": lambda: io.BytesIO(b"stream"),
    "its buffer": lambda: io.BytesIO(b"stream").getbuffer(),
    "bytes that lie": lambda: Lying(b"true"),
    "uint8": lambda: np.arange(5, dtype=np.uint8),
    "read-only uint8": _read_only,
    "int64": lambda: np.arange(3),
    "big-endian int32": lambda: np.arange(3, dtype=">i4"),
    "float32 of two dimensions": lambda: np.ones((2, 3), np.float32),
    "Fortran order": lambda: np.asfortranarray(np.arange(6).reshape(2, 3)),
    "every second": lambda: np.arange(10)[::2],
    "broadcast": lambda: np.broadcast_to(np.arange(3), (2, 3)),
    "no items": lambda: np.zeros((0, 4), np.int64),
    "no dimension": lambda: np.array(5),
    "objects": lambda: np.array([b"a", None], dtype=object),
    "structures": lambda: np.array([(1, 2.0)], dtype="i4,f8"),
    "structures with objects": lambda: np.array([(1, None)], dtype="i4,O"),
    "a field named O": lambda: np.array([(1,)], dtype=[("O", "i4")]),
    "texts": lambda: np.array(["a", "bc"]),
    "times": lambda: np.array(["2026-01-01"], dtype="M8[s]"),
    "booleans": lambda: np.array([True, False]),
    "int64 scalar": lambda: np.int64(12),
    "float64 scalar": lambda: np.float64(12.0),
    "bool scalar": lambda: np.bool_(True),
    # texts
    "text": lambda: "text",
    "no text": lambda: "",
    "number as text": lambda: "3",
    "surrogate": lambda: "a\ud800b",
    "NUL in text": lambda: "a\0b",
    "long text": lambda: "x" * 70_000,
    "other script": lambda: "Zähler 計",
    "text that lies": lambda: LyingText("true"),
    # numbers
    "zero": lambda: 0,
    "negative": lambda: -1,
    "number": lambda: 91,
    "2**31": lambda: 1 << 31,
    "2**63 - 1": lambda: (1 << 63) - 1,
    "2**63": lambda: 1 << 63,
    "-2**63": lambda: -(1 << 63),
    "-2**63 - 1": lambda: -(1 << 63) - 1,
    "2**64": lambda: 1 << 64,
    "10**5000": lambda: 10**5000,
    "300": lambda: 300,
    "True": lambda: True,
    "IntEnum": lambda: Number.SEVEN,
    "integer that lies": lambda: LyingInteger(5),
    "index": lambda: Indexed(33),
    "index of a text": lambda: Indexed("33"),
    "float": lambda: 3.0,
    "not a number": lambda: float("nan"),
    "infinite": lambda: float("inf"),
    "complex": lambda: 1j,
    "Decimal": lambda: decimal.Decimal(3),
    "Fraction": lambda: fractions.Fraction(3),
    # others
    "None": lambda: None,
    "Ellipsis": lambda: ...,
    "object": object,
    "raising": Raising,
    "impostor of bytes": lambda: Impostor(bytes),
    "impostor of int": lambda: Impostor(int),
    "impostor of str": lambda: Impostor(str),
    "list": lambda: [1, 2],
    "list of bytes": lambda: [b"a", bytearray(b"b")],
    "list of texts": lambda: ["a", "b"],
    "tuple": lambda: (b"a", "b", None),
    "dict": lambda: {"a": 1},
    "nested": lambda: {"a": [{"b": {1, 2}}]},
    "set": lambda: {b"a"},
    "range": lambda: range(3),
    "generator": lambda: (one for one in (b"a", b"b")),
    "generator that raises": lambda: (_raise() if one else b"a" for one in (0, 1)),
    "iterator": lambda: iter([b"a"]),
    "deque": lambda: collections.deque([b"a"]),
    "coroutine": _coroutine,
    "function": lambda: len,
    "class": lambda: bytes,
    "module": lambda: asyncio,
    "lock": threading.Lock,
    "UUID": lambda: uuid.UUID(int=5),
    "datetime": lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "path": lambda: pathlib.PurePath("a"),
    "exception": lambda: ValueError("a"),
    "Xid": lambda: Xid(1, b"g" * 64, b"b" * 64),
    "Xid too long": lambda: Xid(1, b"g" * 300, b"b" * 300),
    "Xid of texts": lambda: Xid("1", "g", "b"),  # type: ignore[arg-type]
    "Xid out of range": lambda: Xid(1 << 31, b"g"),
    "Xid of a bytearray": lambda: Xid(5, bytearray(b"g"), memoryview(b"b")),  # type: ignore[arg-type]
}


def bytes_in(value: Any) -> bytes | None:
    """The bytes of a C-contiguous buffer that holds no references; None for anything else."""
    try:
        view = memoryview(value)
    except Exception:
        return None
    if not view.c_contiguous or (isinstance(value, np.ndarray) and value.dtype.hasobject):
        return None
    return None if view.format.endswith("O") else view.tobytes()


def integer_in(value: Any, least: int, greatest: int) -> int | None:
    """The integer that a value is, within a range; None for anything else."""
    if isinstance(value, bool | np.bool_) or not hasattr(type(value), "__index__"):
        return None
    try:
        number = int.__int__(value) if isinstance(value, int) else value.__index__()
    except Exception:
        return None
    return number if isinstance(number, int) and least <= number <= greatest else None
