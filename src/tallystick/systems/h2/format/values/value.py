"""Values of rows: their type bytes, and what they are once they are read.

A value is one type byte and data; `decoding` reads them, `rows` writes those that we write.
Source: the PageLog description, section a.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallystick.systems.h2.format.numbers import Bytes
from tallystick.systems.h2.format.values.datetime import Zone

# Type bytes, in the order of the engine's own numbers; ranges are given by their first code.
NULL = 0
BYTE = 2
SHORT = 3
INT = 4
LONG = 5
DECIMAL = 6
DOUBLE = 7
FLOAT = 8
TIME = 9
DATE = 10
TIMESTAMP = 11
BYTES = 12
STRING = 13
STRING_IGNORECASE = 14
BLOB = 15
CLOB = 16
ARRAY = 17
RESULT_SET = 18
JAVA_OBJECT = 19
UUID = 20
STRING_FIXED = 21
GEOMETRY = 22
TIMESTAMP_TZ = 24
ENUM = 25
INTERVAL = 26
ROW = 27
INT_0_15 = 32
LONG_0_7 = 48
DECIMAL_0 = 56
DECIMAL_1 = 57
DECIMAL_SMALL_0 = 58
DECIMAL_SMALL = 59
DOUBLE_0 = 60
DOUBLE_1 = 61
FLOAT_0 = 62
FLOAT_1 = 63
BOOLEAN_FALSE = 64
BOOLEAN_TRUE = 65
INT_NEGATIVE = 66
LONG_NEGATIVE = 67
STRING_0_31 = 68
BYTES_0_31 = 100
LOCAL_TIME = 132
LOCAL_DATE = 133
LOCAL_TIMESTAMP = 134
CUSTOM = 135
JSON = 136
TIMESTAMP_TZ_SECONDS = 137
TIME_TZ = 138


@dataclass(frozen=True, slots=True)
class Value:
    """A value other than NULL: the engine's name of its type, and its text (a list for ARRAY and
    ROW). Binary is lower-case hex."""

    type: str
    text: str | tuple[Value | None, ...]

    def to_json(self) -> dict[str, Any]:
        """``{"t": type, "v": text}``, nested for arrays."""
        if isinstance(self.text, str):
            return {"t": self.type, "v": self.text}
        return {"t": self.type, "v": [json_of(item) for item in self.text]}


def json_of(value: Value | None) -> dict[str, Any] | None:
    """A value's JSON form; None for NULL."""
    return None if value is None else value.to_json()


class FileCorruptedError(Exception):
    """What the engine calls "file corrupted" (a type byte that no release knows): it ends the
    scan of the log quietly."""


class EngineFailureError(Exception):
    """What the engine fails at with a general error, and does not open the database: a negative
    or absurd length, a custom type whose plug-in is missing."""


Decoded = tuple[Value | None, int]
"""A value, None for NULL, and the place behind it."""
Decoder = Callable[[Bytes, int, Zone, int], Decoded]
"""Of bytes, the place behind the type byte, the time zone, and how many arrays stand around it."""
