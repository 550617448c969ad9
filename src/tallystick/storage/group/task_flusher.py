"""A thread that leads flushes for asyncio tasks, started and woken only when tasks wait.

In: a callable that flushes. Out: the same callable, run once for any number of wake-ups.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable


class Flusher:
    """Runs ``flush`` in a daemon thread of its own, as long as it returns True."""

    def __init__(self, flush: Callable[[], bool], name: str) -> None:
        self._flush = flush
        self._name = name
        self._starting = threading.Lock()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Have ``flush`` called, soon; the first call starts the thread."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
        self.ring()

    def ring(self) -> None:
        """Have ``flush`` called if the thread was ever started."""
        with contextlib.suppress(RuntimeError):
            self._bell.release()

    def join(self) -> None:
        """Return when the thread has ended, which is when ``flush`` returned False."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self.ring()
            self._thread.join()

    def _run(self) -> None:
        self._bell.acquire()
        while self._flush():
            self._bell.acquire()


def in_event_loop() -> bool:
    """True if the caller runs in an event loop, which must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
