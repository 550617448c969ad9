"""The workers of a service: threads that apply batches to targets.

In: durable entries in the order of numbers. Out: calls of each target with the entries for it, and
of ``applied`` for every batch that it has applied. A target that cannot be reached is tried again
without end, with growing delays. The transactions of a batch that fails otherwise are tried one by
one; one that keeps failing is set aside, and only transactions on the same keys wait with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tallystick.callables import require_done
from tallystick.errors import TallystickError
from tallystick.printable import logger
from tallystick.roles import PersistEntry
from tallystick.services.driver_errors import is_down, is_of_driver
from tallystick.services.write_behind.backlog import Backlog
from tallystick.services.write_behind.metrics import WriteBehindMetrics
from tallystick.services.write_behind.schedule import QueuedTransaction, Schedule
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.services.write_behind.targets.adapters import AsyncTarget, CallableTarget, target_of
from tallystick.services.write_behind.targets.contact import Contacts
from tallystick.services.write_behind.targets.target import (
    DOWN_ERRORS,
    CountingTarget,
    KnownByToken,
    PartlyAppliedError,
    Target,
    TargetAheadError,
)
from tallystick.storage.fork import Uncopied
from tallystick.storage.opening import start_thread
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import uninterrupted

PAUSE_SECONDS = 0.01
"""Time between two checks of a pausing worker whether callers still commit."""
PAUSE_SECONDS_MAX = 0.25
"""Longest pause after one batch."""
DOUBLINGS_MAX = 60

_log = logger("tallystick.write_behind")


class TargetQueue(Uncopied):
    """The transactions for one target, and the threads that apply them.

    The threads call ``applied(name, numbers)``, and ``broken(error)`` once if one cannot go on.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        settings: WriteBehindSettings,
        backlog: Backlog,
        metrics: WriteBehindMetrics,
        applied: Callable[[str, Sequence[int]], None],
        broken: Callable[[BaseException], None],
        *,
        strict: bool = False,
    ) -> None:
        workers = 1 if strict else settings.workers_per_target
        self.name = name
        self.target = target
        self._settings = settings
        self._batch_max = self._limit = min(settings.batch_max, target.batch_max)
        self._one_by_one = isinstance(target, CallableTarget)
        if self._one_by_one:
            self._limit = 1  # until it is known how long a call takes
        self._backlog = backlog
        self._metrics = metrics
        self._on_applied = applied
        self._on_broken = broken
        self._schedule = Schedule(strict, single=workers == 1)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._running = 0
        self._down_until = 0.0
        self._delay = settings.retry_seconds
        self._last_error = ""
        self._any_stuck = False
        self.note_refusal: Callable[[], object] = bool
        """Keeps, durably, that the target and the log do not belong together."""
        self._threads = [
            threading.Thread(target=self._run, name=f"write-behind {name}", daemon=True)
            for _ in range(workers)
        ]

    def threads(self) -> Iterable[threading.Thread | None]:
        """Return the threads in which the target is called."""
        own = self.target.thread if isinstance(self.target, AsyncTarget) else None
        return (*self._threads, own)

    def start(self) -> None:
        """Start the threads that were not started yet."""
        for thread in self._threads:
            if thread.ident is None:
                start_thread(thread)

    def stop(self, deadline: float) -> None:
        """Take no further batch, and wait until ``deadline`` for the running ones."""
        self._stopping.set()
        with uninterrupted, self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:  # it was started
                thread.join(max(0.0, deadline - time.monotonic()))

    def add(self, entries: Sequence[PersistEntry]) -> None:
        """Add durable entries, with greater numbers than all before."""
        with uninterrupted, self._changed:
            self._schedule.add(entries)
            self._report_stuck()
            self._changed.notify_all()

    def discard(self, number: int) -> None:
        """Remove a transaction that an operator has discarded."""
        with uninterrupted, self._changed:
            self._schedule.discard(number)
            self._recheck_stuck()
            self._changed.notify_all()

    def retry(self, number: int) -> bool:
        """Try a transaction that was set aside again; return False if it was not."""
        with uninterrupted, self._changed:
            found = self._schedule.retry(number)
            self._recheck_stuck()
            self._changed.notify_all()
        return found

    def condition_of(self, number: int) -> tuple[str, int, str]:
        """Return ``queued``, ``retrying`` or ``set aside``, failed attempts, and the last error."""
        with uninterrupted, self._changed:
            one = self._schedule.waiting.get(number)
            if one is None:
                return "queued", 0, ""
            if one.aside:
                return "set aside", one.attempts, one.error
            down = self._down_until > time.monotonic()
            state = "retrying" if one.attempts or down else "queued"
            return state, one.attempts, one.error or (self._last_error if down else "")

    def progresses(self, *, wait_for_target: bool) -> bool:
        """Return True while a batch is being applied, or one can be taken.

        With ``wait_for_target``, also if one can be taken once the target is reachable again.
        """
        with uninterrupted, self._changed:
            if self._stopping.is_set():
                return False
            reachable = wait_for_target or self._down_until <= time.monotonic()
            return self._running > 0 or (reachable and self._schedule.has_ready())

    # -- threads -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (batch := self._take()) is not None:
                self._apply(batch)
        except BaseException as error:  # otherwise the target would stop without a message
            why = None if isinstance(error, TargetAheadError) else error  # it says all by itself
            _log.critical("%s gets nothing any more: %r", self.name, error, exc_info=why)
            self._on_broken(error)  # before: who sees it stopped knows why
            self._stopping.set()

    def _take(self) -> list[PersistEntry] | None:
        with self._changed:
            while not self._stopping.is_set():
                now = time.monotonic()
                if self._down_until <= now and (batch := self._schedule.take(self._limit, now)):
                    self._running += 1
                    return batch
                self._changed.wait(self._wait_seconds(now))
            return None

    def _wait_seconds(self, now: float) -> float | None:
        if self._down_until > now:
            return self._down_until - now
        delay_end = self._schedule.next_delay_end()
        return None if delay_end is None else max(0.0, delay_end - now)

    def _apply(self, batch: list[PersistEntry]) -> None:
        began, arrivals = time.monotonic(), self._backlog.arrivals
        try:
            count, error = self._call(batch)
            if count:
                self._mark_applied(batch[:count], whole=count == len(batch))
            if count < len(batch):
                self._not_applied(batch[count:], error, first=self._one_by_one)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()
        if error is None:
            self._pause(time.monotonic() - began, arrivals)

    def _call(self, batch: list[PersistEntry]) -> tuple[int, BaseException | None]:
        """Return how many of the batch the target has applied, and the error for the next one."""
        try:
            apply: Callable[[Sequence[PersistEntry]], object] = self.target.apply
            require_done(apply(batch), "apply of a target")
        except PartlyAppliedError as partly:
            return partly.count, partly.__cause__
        except BaseException as error:  # whatever a target raises, sys.exit() too, is its failure
            return 0, error
        return len(batch), None

    def _not_applied(
        self, rest: list[PersistEntry], error: BaseException | None, *, first: bool
    ) -> None:
        """Put back what was not applied; with ``first`` the error is that of the first one."""
        if isinstance(error, Exception) and _is_down(error):
            self._unreachable(rest, error)
            return
        if error is None or isinstance(error, TargetAheadError):
            self._put_back(rest)
            if error is not None:
                with contextlib.suppress(TallystickError, OSError):  # then the next batch finds it
                    self.note_refusal()
                raise error
            return
        if first and rest[1:]:
            self._put_back(rest[1:])
        self._failed(rest[:1] if first else rest, error)

    def _pause(self, seconds: float, arrivals: int) -> None:
        """Leave the processor to commits after a batch that took ``seconds``.

        The pause ends when no commit has arrived, or when half of a limit is used.
        """
        pause = min(seconds * (1 / self._settings.target_duty - 1), PAUSE_SECONDS_MAX)
        until = time.monotonic() + pause
        while (left := until - time.monotonic()) > 0:
            before, arrivals = arrivals, self._backlog.arrivals
            if arrivals == before or not self._backlog.below_half:
                return
            self._stopping.wait(min(left, PAUSE_SECONDS))

    def _mark_applied(self, batch: list[PersistEntry], *, whole: bool) -> None:
        self._metrics.applied(self.name, len(batch))
        # the mark comes before the next transaction on the same key
        self._on_applied(self.name, [one.number for one in batch])
        with self._changed:
            self._delay = self._settings.retry_seconds
            self._limit = min(2 * self._limit, self._batch_max) if whole else len(batch)
            self._schedule.done(batch)
            self._changed.notify_all()

    def _put_back(self, batch: list[PersistEntry]) -> None:
        with self._changed:
            self._schedule.put_back(batch)
            self._changed.notify_all()

    def _unreachable(self, batch: list[PersistEntry], error: Exception) -> None:
        self._metrics.retried(self.name)
        with self._changed:
            self._schedule.put_back(batch)
            # the batch may be too large for the target
            self._limit = max(1, len(batch) // 2)
            self._last_error = repr(error)
            now, delay = time.monotonic(), self._delay
            if self._down_until <= now:  # otherwise another thread has just set it
                self._down_until = now + delay
                self._delay = self._longer(delay)
            self._changed.notify_all()
        _log.warning("%s cannot be reached, next try in %.2f s: %r", self.name, delay, error)

    def _failed(self, batch: list[PersistEntry], error: BaseException) -> None:
        self._metrics.retried(self.name)
        with self._changed:
            self._schedule.put_back(batch)
            self._schedule.use_queues()
            waiting = self._schedule.waiting
            found = [waiting[one.number] for one in batch if one.number in waiting]
            for one in found:
                one.alone = True
            if len(batch) == 1 and found:
                self._blame(found[0], error)
            self._report_stuck()
            self._changed.notify_all()

    def _blame(self, one: QueuedTransaction, error: BaseException) -> None:
        one.attempts += 1
        one.error = repr(error)
        if one.attempts >= self._settings.attempts_max:
            self._schedule.set_aside(one)
            self._metrics.set_aside(self.name)
            _log.error("%s: transaction %d is set aside: %r", self.name, one.number, error)
            return
        delay = self._settings.retry_seconds * 2 ** min(one.attempts - 1, DOUBLINGS_MAX)
        until = time.monotonic() + min(delay, self._settings.retry_seconds_max)
        self._schedule.delay(one, until)

    def _longer(self, delay: float) -> float:
        return min(2 * delay, self._settings.retry_seconds_max)

    # -- transactions that wait for an operator; under the lock ------------------------------------

    def _report_stuck(self) -> None:
        if self._schedule.newly_stuck:
            self._any_stuck = True
            self._backlog.stuck(self.name, self._schedule.newly_stuck)
            self._schedule.newly_stuck.clear()

    def _recheck_stuck(self) -> None:
        if self._any_stuck:
            still = self._schedule.find_stuck()
            self._any_stuck = bool(still)
            self._backlog.unstuck(self.name, still)


class Workers(Mapping[str, TargetQueue], Uncopied):
    """The queues of all targets by name, opened, started, stopped and closed together.

    Raises `TypeError` for what cannot be a target, `ValueError` for two targets that keep their
    numbers in one place.
    """

    def __init__(
        self,
        targets: Mapping[str, Any],
        settings: WriteBehindSettings,
        backlog: Backlog,
        metrics: WriteBehindMetrics,
        applied: Callable[[str, Sequence[int]], None],
        broken: Callable[[BaseException], None],
        *,
        strict: bool,
    ) -> None:
        made = {name: target_of(thing) for name, thing in targets.items()}
        _require_distinct_places(made)
        self._backlog = backlog
        self._handing_over = threading.Lock()
        self._started = False
        self._opened: list[Target] = []
        self._queues = {
            name: TargetQueue(
                name, target, settings, backlog, metrics, applied, broken, strict=strict
            )
            for name, target in made.items()
        }

    def __getitem__(self, name: str) -> TargetQueue:
        return self._queues[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)

    def open(self, identity: str, last_number: int, contacts: Contacts) -> None:
        """Open all targets, or none."""
        self._contacts = contacts
        try:
            for name, queue in self.items():
                target = queue.target
                queue.note_refusal = partial(contacts.refused, name)
                if isinstance(target, CountingTarget):
                    target.given(last_number)
                if isinstance(target, KnownByToken) and target.place is not None:
                    waits = partial(self._backlog.waits, name)
                    target.known(contacts.opened(name, last_number, waits))
                target.open(identity)
                self._opened.append(target)
        except BaseException:
            self.close()
            raise

    def require_not_refused(self) -> None:
        """Ask the targets again that an earlier opening has refused, before commits are taken.

        Raises:
            TargetAheadError: One is refused again, or cannot be asked.
        """
        for name, queue in self.items():
            if self._contacts.of(name).refused:
                try:
                    queue.target.apply([])
                except TargetAheadError:
                    raise
                except Exception as error:
                    raise TargetAheadError(
                        f"the target {name!r} and the log did not belong together, and it cannot "
                        f"be asked again: {error!r}",
                        advice="Start the service again once the target can be reached; what is "
                        "pending is kept",
                    ) from error
                self._contacts.cleared(name)

    def start(self) -> None:
        """Start to apply; a second call does nothing, unless the first one has failed.

        Raises:
            OSError: no other thread can be started.
        """
        with uninterrupted:
            for queue in self.values():
                queue.start()
            self._started = True

    def hand_over(self, entries: Sequence[PersistEntry]) -> None:
        """Add durable entries, with greater numbers than all before, to the queues they are for."""
        with self._handing_over:
            for name, queue in self.items():
                own = self._backlog.waiting_for(name, entries)
                if own:
                    queue.add([_part_for(one, name) for one in own])

    def discard(self, number: int) -> None:
        """Remove a transaction that an operator has discarded, handed over or not."""
        with self._handing_over:
            self._backlog.forget(number)
            for queue in self.values():
                queue.discard(number)

    def progresses(self, *, wait_for_target: bool) -> bool:
        """Return True while a queue makes progress; see `TargetQueue.progresses`."""
        return self._started and any(
            one.progresses(wait_for_target=wait_for_target) for one in self.values()
        )

    def threads(self) -> Iterator[threading.Thread | None]:
        """Yield the threads in which targets are called."""
        for queue in self.values():
            yield from queue.threads()

    def stop(self, deadline: float) -> None:
        """Wait until the deadline for running batches; take no others."""
        for queue in self.values():
            queue.stop(deadline)

    def close(self) -> None:
        """Close the targets that were opened, whatever one of them raises."""
        opened, self._opened = self._opened, []
        with contextlib.ExitStack() as steps:  # the last one that is added is the first
            for target in reversed(opened):
                steps.callback(target.close)


def _is_down(error: Exception) -> bool:
    """Return True if a target says so, or a driver that a function uses."""
    return isinstance(error, DOWN_ERRORS) or (is_of_driver(error) and is_down(error))


def _require_distinct_places(targets: Mapping[str, Target]) -> None:
    """Refuse targets with one table of numbers: each would skip transactions of the other."""
    places: dict[Hashable, str] = {}
    for name, target in targets.items():
        place = target.place if isinstance(target, CountingTarget) else None
        if place is not None and (other := places.setdefault(place, name)) != name:
            raise ValueError(
                f"{other} and {name} are one database and keep their numbers in one table: give "
                "one of them a table of its own, by SqlTarget(engine, applied_table=...)"
            )


def _part_for(entry: PersistEntry, name: str) -> PersistEntry:
    """Return the entry with the operations for one target."""
    for one in entry.operations:
        if one.target is not None and one.target != name:
            own = tuple(one for one in entry.operations if one.target in (None, name))
            return entry._replace(operations=own)
    return entry
