"""Signals that end a command: one that has begun to write removes what it made."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_PAUSE_S = 0.1
"""Between two requests to end."""


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
def always_interrupted(interrupt: Callable[[], object]) -> Iterator[None]:
    """Let Ctrl-C during the block be `KeyboardInterrupt`, whatever a library makes of it.

    One of another language ends with an error of its own, or says that what it called failed; or
    forgets it, where it came as the work began: ``interrupt`` asks it to end, until it does.
    """
    python_has_it = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not python_has_it or threading.current_thread() is not threading.main_thread():
        yield  # who has another handler, or none, is told in another way
        return
    ended, asking = threading.Event(), list[threading.Thread]()

    def ask() -> None:
        while not ended.wait(_PAUSE_S):
            interrupt()

    def note(number: int, frame: FrameType | None) -> None:
        if not asking:
            asking.append(threading.Thread(target=ask, daemon=True))
            asking[0].start()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception as error:
        if asking:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ended.set()
        for one in asking:
            one.join()
    if asking:
        raise KeyboardInterrupt
