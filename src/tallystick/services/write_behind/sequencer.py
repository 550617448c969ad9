"""From the log to the lanes: entries go on in the order of their numbers, once durable.

In: entries with their tickets, in order, and word of each that its ticket is done. Out: calls of
``durable(entries)`` in order, and of ``lost(number)`` for what the log refused. Whoever waits for
its own entry brings that word; for those that nobody waits for, a thread does.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tallystick.errors import TallystickError
from tallystick.services.roles import PersistEntry, Ticket


@dataclass(slots=True, eq=False)
class Submitted:
    """An entry on its way to durability."""

    entry: PersistEntry
    ticket: Ticket
    done: bool = False
    lost: bool = False


class Sequencer:
    """Keeps the order; safe for threads. ``durable`` is called by one thread at a time."""

    def __init__(
        self,
        durable: Callable[[Sequence[PersistEntry]], None],
        lost: Callable[[int], None],
    ) -> None:
        self._durable = durable
        self._lost = lost
        self._lock = threading.Lock()
        self._line: deque[Submitted] = deque()
        self._unwatched: queue.SimpleQueue[Submitted | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._watch, name="write-behind line", daemon=True)
        self._thread.start()

    def append(self, entry: PersistEntry, ticket: Ticket) -> Submitted:
        """The next entry; calls come in the order of numbers."""
        one = Submitted(entry, ticket)
        with self._lock:
            self._line.append(one)
        return one

    def wait(self, one: Submitted) -> None:
        """Wait for an entry and let it go on. Raises what its ticket raises."""
        try:
            one.ticket.wait()
        except TallystickError:
            self._settle(one, lost=True)
            raise
        except BaseException:
            self.leave(one)
            raise
        self._settle(one)

    async def wait_async(self, one: Submitted) -> None:
        """`wait` for a task."""
        try:
            await one.ticket
        except TallystickError:
            self._settle(one, lost=True)
            raise
        except BaseException:
            self.leave(one)
            raise
        self._settle(one)

    def leave(self, one: Submitted) -> None:
        """Nobody waits for the entry."""
        self._unwatched.put(one)

    def close(self) -> None:
        """Wait for what nobody waits for, then end."""
        self._unwatched.put(None)
        self._thread.join()

    def _watch(self) -> None:
        while (one := self._unwatched.get()) is not None:
            try:
                one.ticket.wait()
            except TallystickError:
                self._settle(one, lost=True)
            else:
                self._settle(one)

    def _settle(self, one: Submitted, *, lost: bool = False) -> None:
        with self._lock:
            one.done, one.lost = True, lost
            ready = []
            while self._line and self._line[0].done:
                first = self._line.popleft()
                if first.lost:
                    self._lost(first.entry.number)
                else:
                    ready.append(first.entry)
            if ready:
                self._durable(ready)
