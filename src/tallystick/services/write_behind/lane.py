"""One target with its workers: batches go out, come back as held, failed, or unreachable.

In: durable entries in the order of numbers. Out: calls of the target, and of ``held`` for every
entry that it holds. A target that cannot be reached is tried again with growing delays, without
an end. A batch that fails otherwise is taken apart; a transaction that keeps failing by itself
is set aside after some attempts, and only what touches the same keys waits with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from tallystick.services.roles import PersistEntry
from tallystick.services.write_behind.metrics import WriteBehindMetrics
from tallystick.services.write_behind.schedule import Schedule, Work
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.services.write_behind.target import DOWN_ERRORS, Target

_log = logging.getLogger("tallystick.write_behind")


class Lane:
    """The way of transactions to one target; ``held(numbers)`` is called by its workers."""

    def __init__(
        self,
        name: str,
        target: Target,
        settings: WriteBehindSettings,
        held: Callable[[str, Sequence[int]], None],
        metrics: WriteBehindMetrics,
        *,
        strict: bool = False,
    ) -> None:
        self.name = name
        self.target = target
        self._settings = settings
        self._held = held
        self._metrics = metrics
        self._schedule = Schedule(strict)
        self._changed = threading.Condition()
        self._stopping = False
        self._out = 0
        self._down_until = 0.0
        self._delay = settings.retry_seconds
        self._last_error = ""
        self._threads = [
            threading.Thread(target=self._run, name=f"write-behind {name}", daemon=True)
            for _ in range(1 if strict else settings.workers_per_target)
        ]

    def start(self) -> None:
        """Begin to apply."""
        for thread in self._threads:
            thread.start()

    def stop(self, deadline: float) -> bool:
        """Take no further batch; True if no worker is left in the target at ``deadline``."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        started = [thread for thread in self._threads if thread.ident is not None]
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in started)

    def add(self, entries: Sequence[PersistEntry]) -> None:
        """Entries that are durable, with greater numbers than all before."""
        with self._changed:
            for entry in entries:
                self._schedule.add(entry)
            self._changed.notify_all()

    def discard(self, number: int) -> None:
        """An operator gave the transaction up."""
        with self._changed:
            self._schedule.discard(number)
            self._changed.notify_all()

    def retry(self, number: int) -> bool:
        """Try a transaction that was set aside again; False if it was not."""
        with self._changed:
            found = self._schedule.retry(number)
            self._changed.notify_all()
        return found

    def condition_of(self, number: int) -> tuple[str, int, str]:
        """``queued``, ``retrying`` or ``set aside``, failed attempts, and the last error."""
        with self._changed:
            work = self._schedule.waiting.get(number)
            if work is None:
                return "queued", 0, ""
            if work.aside:
                return "set aside", work.attempts, work.error
            down = self._down_until > time.monotonic()
            state = "retrying" if work.attempts or down else "queued"
            return state, work.attempts, work.error or (self._last_error if down else "")

    def set_aside(self) -> list[int]:
        """Numbers of transactions that wait for an operator."""
        with self._changed:
            return [work.number for work in self._schedule.waiting.values() if work.aside]

    def moves(self) -> bool:
        """True while a batch is out, or one could be taken now."""
        with self._changed:
            reachable = self._down_until <= time.monotonic()
            return self._out > 0 or (reachable and self._schedule.has_ready())

    # -- workers -----------------------------------------------------------------------------

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            try:
                self.target.apply([work.entry for work in batch])
            except DOWN_ERRORS as error:
                self._unreachable(batch, error)
            except Exception as error:  # whatever a target raises is about this batch
                self._failed(batch, error)
            else:
                self._applied(batch)

    def _take(self) -> list[Work] | None:
        limit = min(self._settings.batch_max, self.target.batch_max)
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                if self._down_until <= now and (batch := self._schedule.take(limit, now)):
                    self._out += 1
                    return batch
                self._changed.wait(self._patience(now))
            return None

    def _patience(self, now: float) -> float | None:
        if self._down_until > now:
            return self._down_until - now
        rest = self._schedule.next_rest()
        return None if rest is None else max(0.0, rest - now)

    def _applied(self, batch: list[Work]) -> None:
        numbers = [work.number for work in batch]
        self._metrics.applied(self.name, len(batch))
        # first the mark, then the next transaction on the same key
        self._held(self.name, numbers)
        with self._changed:
            self._out -= 1
            self._delay = self._settings.retry_seconds
            self._schedule.done(batch)
            self._changed.notify_all()

    def _unreachable(self, batch: list[Work], error: Exception) -> None:
        self._metrics.retried(self.name)
        with self._changed:
            self._out -= 1
            self._schedule.put_back(batch)
            self._last_error = repr(error)
            self._down_until = time.monotonic() + self._delay
            delay, self._delay = self._delay, self._longer(self._delay)
            self._changed.notify_all()
        _log.warning("%s cannot be reached, next try in %.2f s: %r", self.name, delay, error)

    def _failed(self, batch: list[Work], error: Exception) -> None:
        self._metrics.retried(self.name)
        with self._changed:
            self._out -= 1
            self._schedule.put_back(batch)
            if len(batch) > 1:
                for work in batch:
                    work.alone = True
            else:
                self._blame(batch[0], error)
            self._changed.notify_all()

    def _blame(self, work: Work, error: Exception) -> None:
        if work.gone:
            return
        work.attempts += 1
        work.error = repr(error)
        if work.attempts >= self._settings.attempts_max:
            self._schedule.set_aside(work)
            self._metrics.set_aside(self.name)
            _log.error("%s: transaction %d is set aside: %r", self.name, work.number, error)
            return
        delay = self._settings.retry_seconds * 2 ** (work.attempts - 1)
        until = time.monotonic() + min(delay, self._settings.retry_seconds_max)
        self._schedule.rest(work, until)

    def _longer(self, delay: float) -> float:
        return min(2 * delay, self._settings.retry_seconds_max)
