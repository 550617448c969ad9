"""An event loop in virtual time, which runs in a participant of the simulation.

In: tasks, timers, calls of other participants. Out: the same as of asyncio's loop, without files
and sockets. Tasks that are ready run in an order that the decisions say; callbacks that are no
tasks keep theirs, as asyncio promises.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit

from tallystick.testing.simulate.primitives import Thread
from tallystick.testing.simulate.scheduler import Participant, current


class SimulatedLoop(asyncio.BaseEventLoop):
    """A loop of one participant. `asyncio.run` makes one in a simulation."""

    _ready: Any
    _scheduled: Any
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.waiters: list[Participant] = []

    def __del__(self) -> None:
        """Say nothing of loops that a crash has left open."""

    def time(self) -> float:
        """Return virtual seconds."""
        return current().clock_ns / 1e9

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in a participant of its own, whatever the executor."""
        del executor
        future = self.create_future()

        def work() -> None:
            try:
                result, error = func(*args), None
            except Exception as caught:
                result, error = None, caught
            if not self.is_closed():
                self.call_soon_threadsafe(finish, result, error)

        def finish(result: Any, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        Thread(target=work, name="executor", daemon=True).start()
        return future

    def create_task(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        """Make a task; that a crash ends it is no reason for a warning."""
        task: asyncio.Task[Any] = super().create_task(*args, **options)
        vars_of: Any = task
        vars_of._log_destroy_pending = False
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell an exception that nobody has caught; the end of a participant is none."""
        error = context.get("exception")
        if isinstance(error, GreenletExit):
            if "handle" in context:
                raise error
            return  # told by a finalizer, when it is over
        super().call_exception_handler(context)

    def _write_to_self(self) -> None:
        current().wake(self)

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no files to wait for."""

    def _run_once(self) -> None:
        scheduler = current()
        self._drop_cancelled()
        if not self._ready and not self._stopping:
            due = round(self._scheduled[0]._when * 1e9) if self._scheduled else None
            scheduler.point("loop")
            if not self._ready:  # another may have called meanwhile
                scheduler.block(self, due)
        now = scheduler.clock_ns
        while self._scheduled and round(self._scheduled[0]._when * 1e9) <= now:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            self._ready.append(timer)
        for _ in range(len(self._ready)):
            if not self._ready:
                break
            handle = self._take()
            if not handle._cancelled:
                handle._run()
                scheduler.point("task")

    def _drop_cancelled(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False

    def _take(self) -> Any:
        """Return the next handle: one of the tasks before the first callback that is none."""
        tasks = 0
        for handle in self._ready:
            if not isinstance(getattr(handle._callback, "__self__", None), asyncio.Task):
                break
            tasks += 1
        if tasks > 1 and (place := current().reorder(tasks)):
            handle = self._ready[place]
            del self._ready[place]
            return handle
        return self._ready.popleft()


class SimulatedPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes simulated loops, one for each participant that asks."""

    def get_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the participant that runs."""
        me = current().running
        if me is None or me.loop is None:
            raise RuntimeError("there is no current event loop")
        return me.loop

    def set_event_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Set the loop of the participant that runs."""
        me = current().running
        if me is not None:
            me.loop = loop

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Make a loop."""
        return SimulatedLoop()
