"""One target with its workers: batches go out, come back as held, failed, or unreachable.

In: durable entries in the order of numbers. Out: calls of the target, and of ``held`` for every
batch that it holds. A target that cannot be reached is tried again with growing delays, without
an end. A batch that fails otherwise is taken apart; a transaction that keeps failing by itself
is set aside after some attempts, and only what touches the same keys waits with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from tallystick.roles import PersistEntry
from tallystick.services.write_behind.backlog import Backlog
from tallystick.services.write_behind.metrics import WriteBehindMetrics
from tallystick.services.write_behind.queued_transaction import Work
from tallystick.services.write_behind.schedule import Schedule
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.services.write_behind.targets.target import DOWN_ERRORS, Target, TargetAheadError

REST_SECONDS = 0.01
"""How long a worker that gives way to commits rests before it looks again."""
REST_SECONDS_MAX = 0.25
"""Longest time that it gives way after one batch."""
DOUBLINGS_MAX = 60

_log = logging.getLogger("tallystick.write_behind")


class Lane:
    """The way of transactions to one target; ``held(name, numbers)`` is called by its workers,
    ``broken(error)`` once if one of them cannot go on."""

    def __init__(
        self,
        name: str,
        target: Target,
        settings: WriteBehindSettings,
        backlog: Backlog,
        metrics: WriteBehindMetrics,
        held: Callable[[str, Sequence[int]], None],
        broken: Callable[[BaseException], None],
        *,
        strict: bool = False,
    ) -> None:
        workers = 1 if strict else settings.workers_per_target
        self.name = name
        self.target = target
        self._settings = settings
        self._batch_max = self._limit = min(settings.batch_max, target.batch_max)
        self._backlog = backlog
        self._metrics = metrics
        self._held = held
        self._broken = broken
        self._schedule = Schedule(strict, single=workers == 1)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._out = 0
        self._down_until = 0.0
        self._delay = settings.retry_seconds
        self._last_error = ""
        self._any_stuck = False
        self._threads = [
            threading.Thread(target=self._run, name=f"write-behind {name}", daemon=True)
            for _ in range(workers)
        ]

    def start(self) -> None:
        """Begin to apply."""
        for thread in self._threads:
            thread.start()

    def stop(self, deadline: float) -> bool:
        """Take no further batch; True if no worker is left in the target at ``deadline``."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        started = [thread for thread in self._threads if thread.ident is not None]
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in started)

    def add(self, entries: Sequence[PersistEntry]) -> None:
        """Entries that are durable, with greater numbers than all before."""
        with self._changed:
            self._schedule.add(entries)
            self._tell_stuck()
            self._changed.notify_all()

    def discard(self, number: int) -> None:
        """An operator gave the transaction up."""
        with self._changed:
            self._schedule.discard(number)
            self._look_who_is_stuck()
            self._changed.notify_all()

    def retry(self, number: int) -> bool:
        """Try a transaction that was set aside again; False if it was not."""
        with self._changed:
            found = self._schedule.retry(number)
            self._look_who_is_stuck()
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

    def moves(self, *, patient: bool) -> bool:
        """True while a batch is out, or one could be taken: now, or for somebody who is
        ``patient`` once the target can be reached again."""
        with self._changed:
            if self._stopping.is_set():
                return False
            reachable = patient or self._down_until <= time.monotonic()
            return self._out > 0 or (reachable and self._schedule.has_ready())

    # -- workers -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (batch := self._take()) is not None:
                self._bring(batch)
        except BaseException as error:  # a worker that ends here would stop its target in silence
            self._stopping.set()
            _log.critical("%s gets nothing any more: %r", self.name, error, exc_info=error)
            self._broken(error)

    def _take(self) -> list[Work] | None:
        with self._changed:
            while not self._stopping.is_set():
                now = time.monotonic()
                if self._down_until <= now and (batch := self._schedule.take(self._limit, now)):
                    self._out += 1
                    return batch
                self._changed.wait(self._patience(now))
            return None

    def _patience(self, now: float) -> float | None:
        if self._down_until > now:
            return self._down_until - now
        rest = self._schedule.next_rest()
        return None if rest is None else max(0.0, rest - now)

    def _bring(self, batch: list[Work]) -> None:
        began = time.monotonic()
        arrivals = self._backlog.arrivals
        try:
            self.target.apply([work.entry for work in batch])
        except DOWN_ERRORS as error:
            self._unreachable(batch, error)
        except TargetAheadError:
            self._give_back(batch)
            raise
        except BaseException as error:  # whatever a target raises, sys.exit() too, is about this
            self._failed(batch, error)
        else:
            self._applied(batch)
            self._give_way(time.monotonic() - began, arrivals)

    def _give_way(self, seconds: float, arrivals: int) -> None:
        """After a batch that took so long, leave the machine to commits, if there were any, and
        for as long as they go on coming and limits are far."""
        rest = min(seconds * (1 / self._settings.target_duty - 1), REST_SECONDS_MAX)
        until = time.monotonic() + rest
        while (left := until - time.monotonic()) > 0:
            before, arrivals = arrivals, self._backlog.arrivals
            if arrivals == before or not self._backlog.relaxed:
                return
            self._stopping.wait(min(left, REST_SECONDS))

    def _applied(self, batch: list[Work]) -> None:
        self._metrics.applied(self.name, len(batch))
        # first the mark, then the next transaction on the same key
        self._held(self.name, [work.number for work in batch])
        with self._changed:
            self._out -= 1
            self._delay = self._settings.retry_seconds
            self._limit = min(2 * self._limit, self._batch_max)
            self._schedule.done(batch)
            self._changed.notify_all()

    def _give_back(self, batch: list[Work]) -> None:
        with self._changed:
            self._out -= 1
            self._schedule.put_back(batch)
            self._changed.notify_all()

    def _unreachable(self, batch: list[Work], error: Exception) -> None:
        self._metrics.retried(self.name)
        with self._changed:
            self._out -= 1
            self._schedule.put_back(batch)
            # it may be the size of the batch that drives the target away
            self._limit = max(1, len(batch) // 2)
            self._last_error = repr(error)
            now, delay = time.monotonic(), self._delay
            if self._down_until <= now:  # else another worker has just found out
                self._down_until = now + delay
                self._delay = self._longer(delay)
            self._changed.notify_all()
        _log.warning("%s cannot be reached, next try in %.2f s: %r", self.name, delay, error)

    def _failed(self, batch: list[Work], error: BaseException) -> None:
        self._metrics.retried(self.name)
        with self._changed:
            self._out -= 1
            self._schedule.put_back(batch)
            self._schedule.look_closer()
            waiting = self._schedule.waiting
            works = [waiting[work.number] for work in batch if work.number in waiting]
            for work in works:
                work.alone = True
            if len(batch) == 1 and works:
                self._blame(works[0], error)
            self._tell_stuck()
            self._changed.notify_all()

    def _blame(self, work: Work, error: BaseException) -> None:
        work.attempts += 1
        work.error = repr(error)
        if work.attempts >= self._settings.attempts_max:
            self._schedule.set_aside(work)
            self._metrics.set_aside(self.name)
            _log.error("%s: transaction %d is set aside: %r", self.name, work.number, error)
            return
        delay = self._settings.retry_seconds * 2 ** min(work.attempts - 1, DOUBLINGS_MAX)
        until = time.monotonic() + min(delay, self._settings.retry_seconds_max)
        self._schedule.rest(work, until)

    def _longer(self, delay: float) -> float:
        return min(2 * delay, self._settings.retry_seconds_max)

    # -- what waits for an operator; under the lock ------------------------------------------------

    def _tell_stuck(self) -> None:
        if self._schedule.newly_stuck:
            self._any_stuck = True
            self._backlog.stuck(self.name, self._schedule.newly_stuck)
            self._schedule.newly_stuck.clear()

    def _look_who_is_stuck(self) -> None:
        if self._any_stuck:
            still = self._schedule.stuck_again()
            self._any_stuck = bool(still)
            self._backlog.unstuck(self.name, still)
