"""How far a job of Spark is: how many of its tasks have ended.

In: a session that is about to run one. Out: calls with that number, from a thread of its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.5
"""Seconds between two looks."""


@contextlib.contextmanager
def watched(spark: SparkSession, tasks: int, tell: Callable[[int, int], None]) -> Iterator[None]:
    """Tell during the block how many of its tasks have ended, and how many there are.

    Engines without Java tell nobody: there it is not called.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None:
        yield
        return
    tracker, stopped = context.statusTracker(), threading.Event()

    def look() -> None:
        from py4j.protocol import Py4JError

        with contextlib.suppress(Py4JError, OSError):  # the session ends
            while not stopped.wait(LOOK_S):
                found = map(tracker.getStageInfo, tracker.getActiveStageIds())
                tell(min(tasks, sum(one.numCompletedTasks for one in found if one)), tasks)

    thread = threading.Thread(target=look, name="tallystick-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
