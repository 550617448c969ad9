"""Where threads, locks, conditions and clocks come from: the seam that a simulator drives.

In: nothing. Out: the modules `threading` and `time`. They are the standard library's own, so the
seam costs nothing. Modules that wait, lock or look at a clock write ``from
tallystick.storage.scheduling import threading, time``; `tallystick.testing.simulate` puts
simulated ones in their place for the length of a run, here and in every module that has taken
them. Event loops are replaced by the policy of asyncio.

Name what is used as an attribute when it is used (``threading.Lock()``): a default argument or a
factory that holds ``threading.Lock`` itself is not replaced.
"""

from __future__ import annotations

import gc
import sys
import threading
import time

__all__ = ["living_threads", "simulated", "threading", "time"]

_threading = threading


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
