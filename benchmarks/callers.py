"""Callers for the commit benchmarks: threads that wait for a ticket, tasks that await it.

In: ``submit(caller, count)``, which hands in one commit and returns its ticket. Out: commits per
second, each of them durable before its caller makes the next one.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tallystick.roles import Ticket

Submit = Callable[[int, int], Ticket]


class Waitable(Protocol):
    """What a thread needs of a ticket."""

    def wait(self) -> int: ...


def arguments(doc: str | None, original: str = "original") -> argparse.ArgumentParser:
    """What every commit benchmark asks; ``--ORIGINAL`` measures the original too."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 64])
    parser.add_argument(f"--{original}", action="store_true", help="the original too")
    return parser


def thread_rate(submit: Callable[[int, int], Waitable], callers: int, seconds: float) -> float:
    """Commits per second of so many threads."""
    counts = [0] * callers
    begin = time.perf_counter()
    end = begin + seconds

    def work(caller: int) -> None:
        count = 0
        while time.perf_counter() < end:
            submit(caller, count).wait()
            count += 1
        counts[caller] = count

    threads = [threading.Thread(target=work, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def task_rate(submit: Submit, callers: int, seconds: float) -> float:
    """Commits per second of so many tasks in one event loop."""
    counts = [0] * callers

    async def work(caller: int, end: float) -> None:
        count = 0
        while time.perf_counter() < end:
            await submit(caller, count)
            count += 1
        counts[caller] = count

    async def run() -> float:
        begin = time.perf_counter()
        await asyncio.gather(*(work(caller, begin + seconds) for caller in range(callers)))
        return sum(counts) / (time.perf_counter() - begin)

    return asyncio.run(run())


def table(callers: int, rounds: Sequence[dict[str, float]], originals: Sequence[str]) -> None:
    """Print medians over alternating rounds; ours as multiples of each original."""
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    beside = [name for name in originals if name in medians]
    for name, rate in medians.items():
        line = f"{callers:4} callers  {name:40} {rate:10,.0f}"
        if name.startswith("ours") and not name.endswith("per sync"):
            line += "".join(f"  {rate / medians[one]:6.2f} x {one}" for one in beside)
        print(line, flush=True)
