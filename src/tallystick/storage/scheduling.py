"""Where threads, locks, conditions and clocks come from: the seam that a simulator drives.

In: nothing. Out: `threading`, the standard library's own, and `time`, which has of the standard
library what the services use. Modules that wait, lock or look at a clock write ``from
tallystick.storage.scheduling import threading, time``; `tallystick.testing.simulate` puts
simulated ones in their place for the length of a run, here and in every module that has taken
them. Event loops are replaced by the policy of asyncio.

Tests of applications freeze and move clocks (freezegun, a mock of ``time.monotonic``). The time of
day is theirs to choose. What measures a time limit goes on: else a wait would never end, and a
clock that is moved would end transactions.

Name what is used as an attribute when it is used (``threading.Lock()``): a default argument or a
factory that holds ``threading.Lock`` itself is not replaced.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import threading
import time as _time
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["living_threads", "simulated", "threading", "time"]

_threading = threading


def _second(module: ModuleType) -> Any:
    """Return a module of C once more, with functions that nobody has replaced."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None, "part of the standard library"
    assert spec.loader is not None, "a module in C"
    second = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(second)
    return second


class Time:
    """Stands for the module `time`: its clocks that measure, which go on, and the time of day."""

    gmtime = staticmethod(_time.gmtime)
    strftime = staticmethod(_time.strftime)

    def __init__(self) -> None:
        own = _second(_time)
        self.monotonic: Callable[[], float] = own.monotonic
        self.monotonic_ns: Callable[[], int] = own.monotonic_ns
        self.perf_counter: Callable[[], float] = own.perf_counter
        self.sleep: Callable[[float], None] = own.sleep

    def time(self) -> float:
        """Return the time of day, in seconds since 1970."""
        return _time.time()

    def time_ns(self) -> int:
        """Return the time of day, in nanoseconds since 1970."""
        return _time.time_ns()


time = Time()


def simulated() -> bool:
    """Return True in a simulation, which cannot look into compiled code that locks."""
    return threading is not _threading


def living_threads() -> set[int]:
    """Return the identifiers of all threads, of those too that Python did not start.

    The interpreter holds a lock meanwhile that a thread needs to start or end. A finalizer that ran
    then could give up the interpreter lock to such a thread: both would wait for ever. So the
    garbage collector is off.
    """
    if simulated():
        return {one.ident for one in threading.enumerate() if one.ident is not None}
    collecting = gc.isenabled()
    gc.disable()
    try:
        return set(sys._current_frames())
    finally:
        if collecting:
            gc.enable()
