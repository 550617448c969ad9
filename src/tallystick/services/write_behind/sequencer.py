"""From the log to the lanes: entries go on in the order of their numbers, once durable.

In: entries with their tickets, in order. Out: calls of ``durable(entries)`` in order, and of
``lost(number)`` for what the log refused. A thread of its own waits for the tickets, so an entry
goes on whether or not its committer still waits, is interrupted or cancelled. It takes many at
once, a few milliseconds after they came: by then most are durable, and it waits for few.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from tallystick.errors import TallystickError
from tallystick.services.roles import PersistEntry, Ticket

GATHER_SECONDS = 0.003
"""How long entries stand in the line before they go on together."""

_log = logging.getLogger("tallystick.write_behind")


class Sequencer:
    """Keeps the order. ``durable`` and ``lost`` are called by its thread, ``broken`` once if
    that thread cannot go on."""

    def __init__(
        self,
        durable: Callable[[Sequence[PersistEntry]], None],
        lost: Callable[[int], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        self._durable = durable
        self._lost = lost
        self._broken = broken
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
                count = len(self._line)
                if not self._closing:
                    time.sleep(GATHER_SECONDS)
                    self._hand_over(count)
            self._hand_over(len(self._line))
        except BaseException as error:  # a thread that ends here would stop everything in silence
            _log.critical("write-behind has stopped: %r", error, exc_info=error)
            self._broken(error)

    def _hand_over(self, count: int) -> None:
        ready = []
        for _ in range(count):
            entry, ticket = self._line.popleft()
            try:
                ticket.wait()
            except TallystickError:
                self._lost(entry.number)
            else:
                ready.append(entry)
        if ready:
            self._durable(ready)
