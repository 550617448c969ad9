"""A set of mostly consecutive numbers, stored as intervals.

In: numbers. Out: whether one is there, and the gaps between them. Memory grows with the gaps.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

_NUMBERS = "Q"
"""Unsigned, of 64 bits: a list takes five times as much memory."""


class IntervalSet:
    """Numbers of 64 bits added in nearly ascending order; memory grows with the gaps between."""

    __slots__ = ("_lasts", "_starts")

    def __init__(self) -> None:
        self._starts = array(_NUMBERS)
        self._lasts = array(_NUMBERS)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number <= self._lasts[index]

    def __len__(self) -> int:
        return sum(self._lasts) - sum(self._starts) + len(self._starts)

    def add(self, number: int) -> None:
        """Add a number."""
        self.add_range(range(number, number + 1))

    def add_range(self, numbers: range) -> None:
        """Add consecutive numbers."""
        start, last = numbers.start, numbers.stop - 1
        first = bisect_left(self._lasts, start - 1)
        stop = bisect_right(self._starts, last + 1)
        if first < stop:
            start, last = min(start, self._starts[first]), max(last, self._lasts[stop - 1])
        self._starts[first:stop] = array(_NUMBERS, (start,))
        self._lasts[first:stop] = array(_NUMBERS, (last,))

    def meets(self, numbers: range) -> bool:
        """Return whether one of consecutive numbers is in the set."""
        index = bisect_left(self._lasts, numbers.start)
        return index < len(self._starts) and self._starts[index] < numbers.stop

    def ranges(self) -> Iterator[range]:
        """Yield the numbers as ranges, ascending."""
        for start, last in zip(self._starts, self._lasts, strict=True):
            yield range(start, last + 1)

    def gaps(self) -> Iterator[range]:
        """Yield the numbers missing between the smallest and the greatest, as ranges."""
        for last, start in zip(self._lasts, self._starts[1:], strict=False):
            yield range(last + 1, start)
