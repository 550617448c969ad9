"""Recovery in the background: now and then, and soon after something was left to it.

In: a function that recovers and an interval. Out: calls of it from one daemon thread. What
could not be reached is tried again after a second, then after twice as long each time,
up to the interval; a failed log ends the attempts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tallystick.errors import LogClosedError, LogPoisonedError, TallystickError
from tallystick.services.transactions.recovery import RecoveryReport

_log = logging.getLogger("tallystick.transactions")
_FIRST_RETRY_S = 1.0


class BackgroundRecovery:
    """The thread; it is started by the first need of it."""

    def __init__(self, recover: Callable[[], RecoveryReport], interval: float | None) -> None:
        self._recover = recover
        self._interval = interval
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        if interval is not None:
            self._thread = threading.Thread(
                target=self._run, args=(interval,), name="tallystick-recovery", daemon=True
            )
            self._thread.start()

    def wake(self) -> None:
        """Something was left to recovery: look soon."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; waits for a recovery that is running."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self, interval: float) -> None:
        delay = interval
        while True:
            woken = self._wake.wait(delay)
            self._wake.clear()
            if self._stopped:
                return
            clean = self._attempt()
            if clean is None:
                return
            delay = interval if clean else self._next_delay(delay, interval, woken=woken)

    def _next_delay(self, delay: float, interval: float, *, woken: bool) -> float:
        return min(interval, _FIRST_RETRY_S if woken else max(_FIRST_RETRY_S, delay * 2))

    def _attempt(self) -> bool | None:
        """True if nothing is left, None if there is no point in trying again."""
        try:
            return self._recover().clean
        except (LogPoisonedError, LogClosedError) as error:
            _log.critical("recovery has to wait until the log is reopened: %s", error)
            return None
        except TallystickError:
            _log.exception("recovery failed; it is tried again")
            return False
