"""The mark of an idle log: noted once nothing was written for a while.

In: an open log. Out: now and then a call of its ``mark``, from a thread that never keeps it alive.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING

from tallystick.errors import TallystickError

if TYPE_CHECKING:
    from tallystick.systems.tally.live.log import TallyLog


class IdleMark:
    """A thread that writes a mark once nothing was written for a while."""

    def __init__(self, log: TallyLog, seconds: float | None) -> None:
        self._stopped = threading.Event()
        if seconds is not None:
            thread = threading.Thread(
                target=_watch,
                args=(weakref.ref(log), self._stopped, seconds),
                name="tally-mark",
                daemon=True,
            )
            thread.start()

    def stop(self) -> None:
        self._stopped.set()


def _watch(reference: weakref.ref[TallyLog], stopped: threading.Event, seconds: float) -> None:
    seen = -1
    while not stopped.wait(seconds):
        log = reference()
        if log is None:
            return
        if log.next_lsn != seen:
            seen = log.next_lsn
            continue
        with contextlib.suppress(TallystickError):  # whoever writes next will get the error
            log.mark()
            seen = log.next_lsn
        del log
