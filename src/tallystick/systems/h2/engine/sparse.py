"""Maps from row keys in little memory: keys of a table mostly follow each other.

In: keys and what is known of them. Out: the same, for a bit or two (`KeyStates`) or 20 bytes
(`Numbers`) each where keys are near each other, and some 200 bytes where none is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

_WORD = 256
"""Keys in one integer."""
_SLOTS = 16
"""Keys in one array."""
_NONE = -(1 << 63)


class KeyStates:
    """Which keys are there, and which are known not to be."""

    def __init__(self) -> None:
        self._words: dict[int, int] = {}

    def get(self, key: int) -> bool | None:
        """Return whether the key is there; None if it is not known."""
        place, at = divmod(key, _WORD)
        word = self._words.get(place, 0)
        return bool(word >> at & 1) if word >> at + _WORD & 1 else None

    def set(self, key: int, *, present: bool) -> None:
        """Note whether the key is there."""
        place, at = divmod(key, _WORD)
        word = self._words.get(place, 0) | 1 << at + _WORD
        self._words[place] = word | 1 << at if present else word & ~(1 << at)


class Numbers:
    """A signed 64-bit number for each key."""

    def __init__(self) -> None:
        self._arrays: dict[int, array[int]] = {}

    def get(self, key: int) -> int | None:
        """Return the number of a key; None if it has none."""
        place, at = divmod(key, _SLOTS)
        found = self._arrays.get(place)
        return None if found is None or found[at] == _NONE else found[at]

    def set(self, key: int, number: int) -> None:
        """Give the key a number."""
        place, at = divmod(key, _SLOTS)
        if place not in self._arrays:
            self._arrays[place] = array("q", [_NONE] * _SLOTS)
        self._arrays[place][at] = number

    def discard(self, key: int) -> None:
        """Take the number of a key away, if it has one."""
        place, at = divmod(key, _SLOTS)
        if place in self._arrays:
            self._arrays[place][at] = _NONE

    def clear(self) -> None:
        """Take all numbers away."""
        self._arrays.clear()

    def items(self) -> Iterator[tuple[int, int]]:
        """Yield keys and numbers."""
        for place, found in self._arrays.items():
            for at, number in enumerate(found):
                if number != _NONE:
                    yield place * _SLOTS + at, number
