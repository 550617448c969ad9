"""Maps from row keys in little memory: keys of a table mostly follow each other.

In: keys and what is known of them. Out: the same, for a bit or two (`KeyStates`) or 20 bytes
(`Numbers`) each where keys are near each other, and some 200 bytes where none is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

_WORD = 256
"""Keys in one integer."""
_SLOTS = 16
"""Keys in one array."""
_NONE = -(1 << 63)


class KeyStates:
    """Which keys are there, and which are known not to be.

    Keys that are near each other share a word, an integer of two bits for each of `_WORD` keys: the
    lower half says which are there, the upper half of which it is known.
    """

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

    def each(self, keys: Any) -> Any:
        """Return of each of ascending keys whether it is there: 1 or 0; -1 if it is not known."""
        import numpy as np

        found = np.full(len(keys), -1, np.int8)
        for place, begin, end in _by_word(keys):
            if place in self._words:
                at = keys[begin:end] & (_WORD - 1)
                bits = _bits(self._words[place])
                found[begin:end] = np.where(bits[at + _WORD], bits[at], -1)
        return found

    def set_each(self, keys: Any, present: Any) -> None:
        """Note of each of ascending keys, all different, whether it is there."""
        import numpy as np

        for place, begin, end in _by_word(keys):
            bits = _bits(self._words.get(place, 0))
            at = keys[begin:end] & (_WORD - 1)
            bits[at], bits[at + _WORD] = present[begin:end], 1
            packed = np.packbits(bits, bitorder="little")
            self._words[place] = int.from_bytes(packed.tobytes(), "little")


def _by_word(keys: Any) -> Iterator[tuple[int, int, int]]:
    """Yield the place of a word, and the range of the ascending keys that are in it."""
    import numpy as np

    places = keys // _WORD
    # One less than the first in front, so that the first key begins a word, too.
    begins = np.flatnonzero(np.diff(places, prepend=places[:1] - 1))
    ends = np.append(begins[1:], len(keys))[: len(begins)]
    return zip(places[begins].tolist(), begins.tolist(), ends.tolist(), strict=True)


def _bits(word: int) -> Any:
    """Return the bits of a word as an array, the lowest first."""
    import numpy as np

    raw = np.frombuffer(word.to_bytes(_WORD // 4, "little"), np.uint8)
    return np.unpackbits(raw, bitorder="little")


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
