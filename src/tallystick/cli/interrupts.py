"""Signals that end a command which has begun to write: it removes what it made."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


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
