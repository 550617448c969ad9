"""Values as a query shows them.

In: a decoded value, the type of its column as the catalogue states it, and what reads large
objects. Out: a text, bytes as hex digits; for what cannot be had, an object that says what is
known of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tallystick.systems.h2.format.values.geometry import geometry_text
from tallystick.systems.h2.format.values.java_text import whole_number
from tallystick.systems.h2.format.values.types import STORED_OBJECT, Value
from tallystick.systems.protocol import LOST

Shown = str | dict[str, str] | None
Contents = Callable[[int, int], bytes | None]
"""Returns the bytes of a large object by its id, and by the offset in the stream of a record that
names it, as an id may be given again; None where the bytes cannot be had."""

_INLINE = "inline:"
_ENUM = re.compile(r"ENUM\s*\(")
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_BRACKETS_SINCE = 198
"""The release from which on arrays are shown in brackets, before in parentheses."""
_ALWAYS_FRACTION = 196
"""The last release that shows a fraction of a second also where there is none."""
_SECONDS = len("00:00:00")


def is_enum(declared: str) -> bool:
    """Return True for the type of a column whose values are labels, stored by number."""
    return _ENUM.match(declared) is not None


@dataclass(frozen=True, slots=True)
class Presentation:
    """Shows values of one database.

    Attributes:
        contents: reads large objects.
        build: the number of the engine's release that made the database.
    """

    contents: Contents
    build: int = 0

    def shown(self, value: Value | None, position: int, declared: str = "") -> Shown:
        """Return a value as a query shows it.

        Args:
            value: the value.
            position: the offset in the stream of the record that it is from.
            declared: the type of its column, as far as it is known.
        """
        if value is None:
            return None
        if not isinstance(value.text, str):
            first, last = "[]" if self.build >= _BRACKETS_SINCE else "()"
            if value.type == "ROW":
                first, last = "ROW (", ")"
            items = (self._item(item, position) for item in value.text)
            return f"{first}{', '.join('null' if one is None else str(one) for one in items)}{last}"
        match value.type:
            case "BLOB" | "CLOB":
                return self._large(value.type, value.text, position)
            case "JSON":
                return bytes.fromhex(value.text).decode("utf-8", "replace")
            case "TIMESTAMP WITH TIME ZONE":
                return self._moment(value.text)
            case "GEOMETRY":
                return geometry_text(bytes.fromhex(value.text)) or {LOST: value.text}
            case "INTEGER" if is_enum(declared):
                return _label(declared, value.text)
        return value.text

    def _item(self, value: Value | None, position: int) -> Shown:
        is_moment = value is not None and value.type == "TIMESTAMP"
        shown = self.shown(value, position)
        return self._moment(shown) if is_moment and isinstance(shown, str) else shown

    def _moment(self, text: str) -> str:
        """Return a moment that is shown as text, with a fraction where its release has one."""
        if not 0 < self.build <= _ALWAYS_FRACTION or "." in text:
            return text
        date, _, time = text.partition(" ")
        return f"{date} {time[:_SECONDS]}.0{time[_SECONDS:]}"

    def _large(self, kind: str, text: str, position: int) -> Shown:
        stored = STORED_OBJECT.fullmatch(text)
        if stored is not None:
            data = self.contents(int(stored[1]), position)
        else:
            data = bytes.fromhex(text[len(_INLINE) :]) if text.startswith(_INLINE) else None
        if data is None:
            return {LOST: text}
        shown = data.hex() if kind == "BLOB" else data.decode("utf-8", "replace")
        # A text is as long as it has UTF-16 units: letters above U+FFFF have two.
        size = len(data) if kind == "BLOB" else len(shown) + sum(one > "\uffff" for one in shown)
        return shown if stored is None or size == int(stored[2]) else {LOST: text}


def _label(declared: str, text: str) -> Shown:
    labels, number = _labels(declared), whole_number(text)
    known = number is not None and 0 <= number < len(labels)
    return labels[number] if known and number is not None else {LOST: text}


@lru_cache(maxsize=256)
def _labels(declared: str) -> tuple[str, ...]:
    return tuple(one.replace("''", "'") for one in _LABEL.findall(declared))
