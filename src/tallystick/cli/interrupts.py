"""Signals that end a command: one that has begun to write removes what it made."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let signals during the block end the process as an exception does: it cleans up."""
    before = {one: signal.signal(one, _end) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


@contextmanager
def always_interrupted() -> Iterator[None]:
    """Let Ctrl-C during the block be `KeyboardInterrupt`, whatever a library makes of it.

    One of another language ends with an error of its own, or says that what it called failed.
    """
    python_has_it = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not python_has_it or threading.current_thread() is not threading.main_thread():
        yield  # who has another handler, or none, is told in another way
        return
    came = list[int]()

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception as error:
        if came:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt
