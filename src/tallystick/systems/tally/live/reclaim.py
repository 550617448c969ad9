"""Which of the oldest segments go: those that nothing needs, and whose readers agree.

In: the state of a log and the answers of its readers. Out: segments given up in the control
block, then recycled or left to a disposer. A segment that was given up is no part of the log any
more, wherever its file lies: so readers are asked before that, not before the file is touched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tallystick.systems.tally.live.appender import Appender
from tallystick.systems.tally.read.state import LogState


class Reclaiming:
    """Frees segments of one log. ``lock`` guards ``state``."""

    def __init__(self, appender: Appender, state: LogState, lock: threading.Lock) -> None:
        self._appender = appender
        self._state = state
        self._lock = lock
        self._may_go: Callable[[int], bool] | None = None
        self._agreed = 0

    def ask_first(self, may_go: Callable[[int], bool]) -> None:
        """Free no segment from now on that ``may_go(number)`` does not agree to.

        Asked oldest first, up to the first refusal, in the thread of whoever reclaims; what was
        agreed to is not asked again. What it raises, the reclaiming raises, and frees nothing.
        """
        self._may_go = may_go
        self._agreed = 0

    def agreed(self) -> int | None:
        """The first segment that readers want to keep, None if nobody is to be asked. To be
        called before the writer is: the answer may take its time, or fail."""
        if self._may_go is None:
            return None
        number = max(self._appender.control.first_segment, self._agreed)
        while number < self._appender.segment and self._may_go(number):
            number += 1
        self._agreed = number
        return number

    def free(self, checkpoint_lsn: int, *keep_from: int | None) -> list[int]:
        """Free what is not needed below every ``keep_from``, while the writer stands still;
        returns the numbers. Plain records below ``checkpoint_lsn`` are given up before."""
        with self._lock:
            state, appender = self._state, self._appender
            state.advance(min(checkpoint_lsn, appender.next_lsn))
            needed = state.needed_from()
            keep = appender.segment if needed is None else needed
            freed = appender.free_before(
                min([keep, *(one for one in keep_from if one is not None)]),
                checkpoint_lsn=state.checkpoint_lsn,
                next_transaction=state.next_transaction,
                next_key=state.next_key,
            )
            state.forget_before(appender.control.first_segment)
            return freed
