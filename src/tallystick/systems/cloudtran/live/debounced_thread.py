"""A thread that does something a while after it was asked to, once for many askings."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tallystick.errors import LogClosedError, LogPoisonedError

_log = logging.getLogger(__name__)


class DebouncedThread:
    """Calls ``work`` at the latest ``seconds`` after a `prompt`; ends with the log."""

    def __init__(self, work: Callable[[], None], seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log tender", daemon=True)
        self._thread.start()

    def prompt(self) -> None:
        """There is something to do."""
        self._wanted.set()

    def close(self) -> None:
        """Finish the running call and make no other."""
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
