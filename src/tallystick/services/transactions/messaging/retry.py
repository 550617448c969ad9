"""When the repetition of a transaction begins.

In: how often it may be repeated. Out: pauses. Which errors ask for a repetition is said in
`driver_errors`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.arguments import integer, seconds

_DOUBLINGS_MAX = 60
"""More would not fit into a float."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a transaction is repeated.

    Before the n-th repetition passes a random time of at most ``first * 2 ** (n - 1)`` seconds.

    Args:
        times: repetitions at most.
        first: the longest pause before the first, in seconds.
        most: the longest pause of all, in seconds.
    """

    times: int = 3
    first: float = 0.02
    most: float = 2.0

    def __post_init__(self) -> None:
        integer(self.times, "times", 0, sys.maxsize)
        seconds(self.first, "first")
        seconds(self.most, "most")

    def pauses(self) -> Iterator[float]:
        """Yield the seconds to wait before each repetition."""
        for number in range(self.times):
            yield random.uniform(0, doubled(self.first, number, self.most))


def doubled(first: float, times: int, most: float) -> float:
    """Return ``first`` doubled so many times, but at most ``most``."""
    return min(most, first * 2.0 ** min(times, _DOUBLINGS_MAX))
