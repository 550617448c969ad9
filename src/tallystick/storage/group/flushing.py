"""One flush at a time: writes the groups that wait, syncs once, and tells everyone.

In: groups of items, as `tallystick.storage.group.writer.GroupWriter` collects them. Out: finished
groups, their waiters awake. A failure ends it all: nothing after it is acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic

from tallystick.errors import LogWriteError, TallystickError
from tallystick.storage.group.buffers import Buffers
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.flush_lock import Turn
from tallystick.storage.group.leader_wait import Company
from tallystick.storage.group.task_flusher import Flusher
from tallystick.storage.group.ticket import Group, Item, fresh, poisoned_by


class Flushing(Generic[Item]):
    """What a `GroupWriter` does with its groups; the words are its own."""

    _buffers: Buffers[Item]

    def __init__(
        self,
        write: Callable[[list[Item]], Sequence[int]],
        sync: Callable[[], None],
        name: str,
        delay: float,
        siblings: int,
    ) -> None:
        self.name = name
        self.counters = GroupCounters()
        self._write = write
        self._sync = sync
        self._delay = delay
        self._siblings = siblings
        self._stop: TallystickError | None = None
        self._make_locks()

    def _make_locks(self) -> None:
        self._lock = threading.Lock()  # guards the groups; held for moments only
        self._turn = Turn(self.name)  # held for the length of a flush
        self._company = Company()
        self.flusher = Flusher(self._flush_for_tasks, f"flusher of {self.name}")

    # -- with the turn --------------------------------------------------------------------

    def _lead(self, *, sync: bool) -> None:
        """Flush everything that waits; the caller has the turn."""
        try:
            if sync:
                self._company.wait()
                if self._delay and len(self._buffers.current.items) >= self._siblings:
                    time.sleep(self._delay)
            self._flush(sync)
        except BaseException as error:
            self._poison(error)
        finally:
            self._pass_on()

    def _commit_alone(self, item: Item, size: int) -> int:
        """Write and sync one item; the caller has the turn."""
        started = time.perf_counter()
        written = False
        try:
            lsns = self._written([item])
            written = True
            self.counters.add_group(1, size)
            self.counters.fsyncs += 1
            self._sync()
            return lsns[0]
        except BaseException as error:
            if isinstance(error, LogWriteError) and not written:
                self.counters.refused += 1
                raise
            raise fresh(self._poison(error)) from error
        finally:
            self.counters.add_time(time.perf_counter() - started)
            self._pass_on()

    def _flush(self, sync: bool) -> None:
        with self._lock:
            groups = self._buffers.take()
        if not self._buffers.unsynced:
            return
        started = time.perf_counter()
        for group in groups:
            self._write_group(group)
        if self._buffers.unsynced and (sync or any(group.sync for group in groups)):
            self.counters.fsyncs += 1
            self._sync()
            with self._lock:
                self._company.flushed(time.perf_counter() - started)
                self._finish(self._buffers.take_synced())
        self.counters.add_time(time.perf_counter() - started)

    def _write_group(self, group: Group[Item]) -> None:
        try:
            lsns = self._written(group.items)
        except LogWriteError as error:
            with self._lock:
                self._buffers.unsynced.remove(group)
                self._finish([group], error)
            self.counters.refused += len(group.items)
            return
        group.lsns = lsns
        self.counters.add_group(len(lsns), group.bytes)

    def _written(self, items: list[Item]) -> Sequence[int]:
        """The sequence number of each item, written but not synced."""
        lsns = self._write(items)
        if len(lsns) != len(items):
            raise AssertionError(f"{len(lsns)} sequence numbers for {len(items)} items")
        return lsns

    def _poison(self, error: BaseException) -> TallystickError:
        """What everybody is told from now on; what is no `Exception` is raised again."""
        with self._lock:
            told = self._end(poisoned_by(error, self.name))
        if not isinstance(error, Exception):
            raise error
        return told

    def _pass_on(self) -> None:
        """End the flush and let somebody of the groups formed meanwhile lead the next one."""
        with self._lock:
            self._turn.give_back()
            groups = self._buffers.unfinished()
            for group in groups:
                group.open_gate()
        if self._stop is not None or any(group.tasks for group in groups):
            self.flusher.ring()

    def _flush_for_tasks(self) -> bool:
        if self._turn.try_take():
            self._lead(sync=True)
        return self._stop is None

    # -- under the writer's lock ----------------------------------------------------------

    def _check(self) -> None:
        if self._stop is not None:
            raise fresh(self._stop)

    def _finish(self, groups: list[Group[Item]], error: TallystickError | None = None) -> None:
        self._company.expect([group.waiting for group in groups if group.waiting])
        for group in groups:
            group.error = error
            group.finish()

    def _end(self, cause: TallystickError) -> TallystickError:
        """Fail every group that is not finished, and every later submit, with ``cause``, or with
        what has ended it before."""
        if self._stop is None:
            self._stop = cause
        self._finish(self._buffers.end(), self._stop)
        return self._stop
