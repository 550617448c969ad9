"""From the log to the lanes: entries go on in the order of their numbers, once durable.

In: entries with their tickets, in order. Out: calls of ``durable(entries)`` in order, and of
``lost(number)`` for what the log refused. A thread of its own waits for the tickets, so an entry
goes on whether or not its committer still waits, is interrupted or cancelled. Every few
milliseconds it takes what is durable. It has the log write only what nobody else waits for: else
it would do so while callers are still coming, and for a few of them at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from tallystick.errors import TallystickError
from tallystick.roles import PersistEntry, Ticket

GATHER_SECONDS = 0.003
"""How long entries stand in the line before a look at which are durable."""
IDLE_MAX = 30
"""Looks that find nothing durable before the first one in the line is waited for, where its
committer waits for it, too."""

_log = logging.getLogger("tallystick.write_behind")


class Sequencer:
    """Keeps the order. ``durable`` and ``lost`` are called by its thread, ``broken`` once if
    that thread cannot go on. It is ``alone`` where no committer waits for the log."""

    def __init__(
        self,
        durable: Callable[[Sequence[PersistEntry]], None],
        lost: Callable[[int], None],
        broken: Callable[[BaseException], None],
        *,
        alone: bool,
    ) -> None:
        self._durable = durable
        self._lost = lost
        self._broken = broken
        self._idle_max = 1 if alone else IDLE_MAX
        self._line: deque[tuple[PersistEntry, Ticket]] = deque()
        self._bell = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="write-behind line", daemon=True)
        self._thread.start()

    def append(self, entry: PersistEntry, ticket: Ticket) -> None:
        """The next entry; calls come in the order of numbers."""
        self._line.append((entry, ticket))
        if not self._bell.is_set():
            self._bell.set()

    def close(self) -> None:
        """Let go on what is in the line, then end."""
        self._closing = True
        self._bell.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._bell.wait()
                self._bell.clear()  # before the look: who comes behind it rings again
                self._follow()
            self._hand_over(len(self._line))
        except BaseException as error:  # a thread that ends here would stop everything in silence
            _log.critical("write-behind has stopped: %r", error, exc_info=error)
            self._broken(error)

    def _follow(self) -> None:
        """Hand on what is durable, now and then, until the line is empty."""
        idle = 0
        while self._line and not self._closing:
            time.sleep(GATHER_SECONDS)
            taken = self._hand_over(1 if idle >= self._idle_max else 0)
            idle = 0 if taken else idle + 1

    def _hand_over(self, least: int) -> int:
        """Hand on what is finished, and the first ``least`` in any case; returns how many."""
        line, ready, count = self._line, [], 0
        while line and (count < least or line[0][1].done()):
            entry, ticket = line.popleft()
            count += 1
            try:
                ticket.wait()
            except TallystickError:
                self._lost(entry.number)
            else:
                ready.append(entry)
        if ready:
            self._durable(ready)
        return count
