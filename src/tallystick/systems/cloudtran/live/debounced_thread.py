"""A background thread that runs work at most once per interval, after requests (debounce).

In: requests from any thread. Out: calls of one function, until it fails or the thread is closed.
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.errors import LogClosedError, LogPoisonedError
from tallystick.printable import logger
from tallystick.storage.fork import Uncopied
from tallystick.storage.opening import start_thread
from tallystick.storage.scheduling import threading

_log = logger(__name__)


class DebouncedThread(Uncopied):
    """Background thread that runs ``work`` at most once per ``seconds``, after requests (debounce).

    The log starts it when it opens, calls `prompt` when something is written that no caller waits
    for, and closes it before its last flush. The thread ends by itself when ``work`` raises
    `LogPoisonedError` or `LogClosedError`.
    """

    def __init__(self, work: Callable[[], None], seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log flush", daemon=True)
        start_thread(self._thread)

    def prompt(self) -> None:
        """Request a call of ``work`` within ``seconds``."""
        if not self._wanted.is_set():  # costs a tenth of `set`, and is so most of the time
            self._wanted.set()

    def close(self) -> None:
        """Wait for the running call and make no other."""
        self._closing.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._closing.wait(self._seconds):
                return
            self._wanted.clear()
            if self._closing.is_set():  # what was cleared may have been the call of `close`
                return
            try:
                self._work()
            except (LogPoisonedError, LogClosedError) as error:
                _log.error("the log has stopped: %s", error)
                return
