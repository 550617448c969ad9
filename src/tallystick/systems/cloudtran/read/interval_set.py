"""A set of mostly consecutive numbers, stored as intervals."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class IntervalSet:
    """Numbers added in nearly ascending order; memory grows with the gaps between them."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._ends[index]

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def add(self, number: int) -> None:
        """Add a number."""
        index = bisect_right(self._starts, number) - 1
        if index >= 0 and number < self._ends[index]:
            return
        joins_left = index >= 0 and self._ends[index] == number
        joins_right = index + 1 < len(self._starts) and self._starts[index + 1] == number + 1
        if joins_left and joins_right:
            self._ends[index] = self._ends.pop(index + 1)
            del self._starts[index + 1]
        elif joins_left:
            self._ends[index] = number + 1
        elif joins_right:
            self._starts[index + 1] = number
        else:
            self._starts.insert(index + 1, number)
            self._ends.insert(index + 1, number + 1)

    def add_range(self, numbers: range) -> None:
        """Add consecutive numbers."""
        first = bisect_left(self._ends, numbers.start)
        last = bisect_right(self._starts, numbers.stop)
        start, end = numbers.start, numbers.stop
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def meets(self, numbers: range) -> bool:
        """Return whether one of consecutive numbers is in the set."""
        index = bisect_right(self._ends, numbers.start)
        return index < len(self._starts) and self._starts[index] < numbers.stop

    def ranges(self) -> Iterator[range]:
        """Yield the numbers as ranges, ascending."""
        return map(range, self._starts, self._ends)

    def gaps(self) -> Iterator[range]:
        """Yield the numbers missing between the smallest and the greatest, as ranges."""
        for end, start in zip(self._ends, self._starts[1:], strict=False):
            yield range(end, start)
