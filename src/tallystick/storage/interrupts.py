"""Ctrl-C must not tear a flush that other callers wait for.

In: a block of work. Out: the same block, with SIGINT held back to its end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeAlias

_Handler: TypeAlias = Callable[[int, FrameType | None], object]

_main_thread = threading.main_thread()


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Run the block; a SIGINT that arrives meanwhile is delivered behind it.

    Only the main thread runs signal handlers, so elsewhere this does nothing, nor where the
    handler was not installed by Python.
    """
    handler = signal.getsignal(signal.SIGINT) if _in_main_thread() else None
    if not callable(handler):
        yield
        return
    caught: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _number, frame: caught.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if caught:
            handler(signal.SIGINT, caught[0])


def _in_main_thread() -> bool:
    return threading.current_thread() is _main_thread
