"""Rates measured by turns: threads that stay, and several kinds of work one after the other.

Whatever disturbs the machine then disturbs all of them, so that their ratios hold where the
figures themselves do not.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping

Work = Callable[[], None]

TURNS = 10
SECONDS = 0.6


class Crew:
    """Threads that stay for the whole run and do the same work again and again, in turns."""

    def __init__(self, size: int) -> None:
        self._gate = threading.Barrier(size + 1)
        self._counts = [0] * size
        self._work: Work | None = None
        self._end = 0.0
        for index in range(size):
            threading.Thread(target=self._live, args=(index,), daemon=True).start()

    def rate(self, work: Work, seconds: float = SECONDS) -> float:
        """Calls of ``work`` per second."""
        self._counts[:] = [0] * len(self._counts)
        began = time.perf_counter()
        self._work, self._end = work, began + seconds
        self._gate.wait()
        self._gate.wait()
        return sum(self._counts) / (time.perf_counter() - began)

    def dismiss(self) -> None:
        self._work = None
        self._gate.wait()

    def _live(self, index: int) -> None:
        while self._gate.wait() >= 0 and (work := self._work) is not None:
            try:
                while time.perf_counter() < self._end:
                    work()
                    self._counts[index] += 1
            except BaseException:
                self._gate.abort()  # the measuring thread gets the error
                raise
            self._gate.wait()


def in_turns(rates: Mapping[str, Callable[[], float]], turns: int = TURNS) -> None:
    """Measure each by turns, in an order that changes; print medians, and the first beside each
    of the others as the median of the ratios, turn by turn."""
    for measure in rates.values():
        measure()  # connections, caches, first segments
    found: dict[str, list[float]] = {name: [] for name in rates}
    for _ in range(turns):
        for name in random.sample(list(rates), len(rates)):
            found[name].append(rates[name]())
    first, *others = found
    print(f"  {first}: {statistics.median(found[first]):,.0f}/s")
    for name in others:
        pairs = zip(found[first], found[name], strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        print(f"  {name}: {statistics.median(found[name]):,.0f}/s; ratio {ratio:.2f}")
