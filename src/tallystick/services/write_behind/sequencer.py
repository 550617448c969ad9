"""Entries from the log to the workers, in the order of their numbers, once they are durable.

In: entries with their tickets, in order. Out: calls of ``durable(entries)`` in order, and of
``lost(number)`` for entries that the log refused. A thread waits for the tickets, so an entry is
passed on even if its committer is interrupted or cancelled. Every few milliseconds it takes what is
durable. It starts a write of the log only for entries that no committer waits for: a write that it
started earlier would be small, as callers are still arriving.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tallystick.errors import TallystickError
from tallystick.printable import logger
from tallystick.roles import PersistEntry, Ticket
from tallystick.storage.fork import Uncopied
from tallystick.storage.opening import start_thread
from tallystick.storage.scheduling import threading, time

GATHER_SECONDS = 0.003
"""Time between two checks of which entries are durable."""
IDLE_MAX = 30
"""Checks without a durable entry before the thread waits for the first entry itself, although its
committer waits for it too."""

_log = logger("tallystick.write_behind")


class Sequencer(Uncopied):
    """Pass entries on in order.

    Its thread calls ``durable`` and ``lost``, and ``broken`` once if it cannot go on. It is
    ``alone`` if no committer waits for the log.
    """

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
        self._queue: deque[tuple[PersistEntry, Ticket]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(
            target=self._run, name="write-behind sequencer", daemon=True
        )
        start_thread(self._thread)

    def append(self, entry: PersistEntry, ticket: Ticket) -> None:
        """Add the next entry; calls come in the order of numbers."""
        self._queue.append((entry, ticket))
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Pass on what is in the queue, then end."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.wait()
                self._wake.clear()  # before the check: an entry that is added later sets it again
                self._follow()
            self._hand_over(len(self._queue))
        except BaseException as error:  # otherwise the service would stop without a message
            _log.critical("write-behind has stopped: %r", error, exc_info=error)
            self._broken(error)

    def _follow(self) -> None:
        """Pass on what is durable, at intervals, until the queue is empty."""
        idle = 0
        while self._queue and not self._closing:
            time.sleep(GATHER_SECONDS)
            taken = self._hand_over(1 if idle >= self._idle_max else 0)
            idle = 0 if taken else idle + 1

    def _hand_over(self, least: int) -> int:
        """Pass on finished entries, and at least the first ``least``; return how many."""
        queue, ready, count = self._queue, [], 0
        while queue and (count < least or queue[0][1].done()):
            entry, ticket = queue.popleft()
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
