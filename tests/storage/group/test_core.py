"""The compiled core beside its twin; the other tests of this folder run on whichever is in use."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import importlib.util
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tallystick.core import CORE
from tallystick.errors import LogClosedError
from tallystick.storage.group.queue import PureQueue
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.group.writer import GroupWriter
from tests.need import need
from tests.storage.disks import SlowDisk

THREADS = 12


@pytest.fixture
def core() -> Any:
    need("core")
    return CORE


def _names(kind: object) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_both_cores_have_the_same_calls(core: Any) -> None:
    assert _names(PureQueue) | {"stopped"} == _names(core.Queue) | {"request_flush"}
    assert _names(GroupTicket) == _names(core.Ticket)


@pytest.mark.parametrize("pure", [True, False])
def test_the_environment_chooses_the_core(pure: bool) -> None:
    code = "from tallystick.core import CORE; print(CORE is not None)"
    environment = {**os.environ, "TALLYSTICK_PURE": "1" if pure else ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    installed = importlib.util.find_spec("tallystick_fast") is not None
    assert done.stdout.strip() == str(installed and not pure)


def test_a_caller_that_does_something_else_after_its_commit_holds_up_no_other() -> None:
    disk = SlowDisk(seconds=0.01)
    writer: GroupWriter[int] = GroupWriter(disk.write, disk.sync)
    busy = threading.Lock()
    release = threading.Event()
    done: list[float] = []
    for _ in range(3):
        start = threading.Barrier(THREADS)

        def work(number: int, start: threading.Barrier = start) -> None:
            start.wait()
            writer.commit(number, 8)
            if busy.acquire(blocking=False):
                release.wait(20)  # without the interpreter lock, and not in the writer
            done.append(time.monotonic())

        threads = [threading.Thread(target=work, args=[n], daemon=True) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 10
        while len(done) % THREADS != THREADS - 1:
            assert time.monotonic() < deadline, f"{len(done)} callers have returned"
            time.sleep(0.001)
        release.set()
        for thread in threads:
            thread.join(20)
        busy.release()
        release.clear()
    writer.close()


def test_a_writer_that_was_never_closed_is_collected() -> None:
    disk = SlowDisk()
    writer: GroupWriter[int] = GroupWriter(disk.write, disk.sync)
    writer.commit(1, 0)
    ticket = writer.submit(2)
    gone = weakref.ref(writer)
    del writer, ticket
    gc.collect()
    assert gone() is None


def test_the_core_refuses_what_would_break_it(core: Any) -> None:
    for kind in (core.Group, core.Ticket):
        with pytest.raises(TypeError):
            kind()
    with pytest.raises(TypeError):
        core.Queue()
    disk = SlowDisk()
    queue: Any = GroupWriter(disk.write, disk.sync)._queue
    for call in (queue.submit, queue.commit, queue.wait_for, queue.refuse):
        with pytest.raises(TypeError):
            call("one")
    with pytest.raises(TypeError):
        queue.submit(1, "large", True)


def syncs_of_many_threads() -> int:
    """Return the syncs of fifty commits of each of 64 threads."""
    disk = SlowDisk(seconds=0.001)
    writer: GroupWriter[int] = GroupWriter(disk.write, disk.sync)

    def work(number: int) -> None:
        for step in range(50):
            writer.commit(number * 1000 + step, 8)

    threads = [threading.Thread(target=work, args=[n], daemon=True) for n in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a waiter hangs"
    assert writer.counters.records == 64 * 50
    writer.close()
    return writer.counters.fsyncs


def test_many_threads_share_syncs_thirty_to_one() -> None:
    # One of several runs: on a busy machine a leader does not wait for threads that do not run.
    assert any(syncs_of_many_threads() * 30 <= 64 * 50 + 30 * 5 for _ in range(10))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(8))
def test_whatever_the_core_is_given_it_raises_or_goes_on(core: Any, seed: int) -> None:
    assert core is not None
    # In a process of its own, whose allocator looks for what was overwritten.
    environment = {"PYTHONMALLOC": "debug", **os.environ}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.storage.group.odd_calls", str(seed)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10, "calls that raise TypeError"


class _Collecting:
    """Has an action run by the garbage collector, as another thread's statements may run there.

    The collection begins in one of the next allocations of the block; until version 3.11 that is
    inside the function that allocates.
    """

    def __init__(self, allocations: int, action: Callable[[], object]) -> None:
        self._allocations = allocations
        self._action = action
        self._lists: list[list[None]] = []
        self.ran = False

    def _run(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start" and not self.ran:
            self.ran = True
            self._action()

    def __enter__(self) -> _Collecting:
        for _ in range(200):  # the interpreter keeps freed lists, which need no allocation
            self._lists.append([])
        self._thresholds = gc.get_threshold()
        gc.callbacks.append(self._run)
        gc.set_threshold(gc.get_count()[0] + self._allocations)
        return self

    def __exit__(self, *_: object) -> None:
        gc.set_threshold(*self._thresholds)
        gc.callbacks.remove(self._run)


def _queue_of(core: Any, groups: int) -> tuple[Any, Any, Callable[[], None]]:
    """Return a queue, the ticket of its last group, and what finishes all of its groups."""
    disk = SlowDisk()
    queue = core.Queue(GroupWriter(disk.write, disk.sync), 1, 1 << 30, 0, 9, None)
    for number in range(groups):
        ticket = queue.submit(number, 1, True)

    def finish() -> None:
        if queue.try_acquire():
            for group in queue.take():
                group.lsns = [7]
            queue.finish(0.0)
            queue.release()

    return queue, ticket, finish


async def test_a_group_may_be_finished_while_a_task_comes_to_wait_for_it(core: Any) -> None:
    async def wait(allocations: int) -> bool:
        _queue, ticket, finish = _queue_of(core, 1)
        waiting = ticket.__await__()
        with contextlib.suppress(StopIteration), _Collecting(allocations, finish) as collecting:
            next(waiting)
        finish()
        assert ticket.wait() == 7
        return collecting.ran

    ran = [await wait(allocations) for allocations in range(-2, 4)]
    assert any(ran) or sys.version_info >= (3, 12), "it would prove nothing"


def test_groups_may_be_finished_while_they_are_listed(core: Any) -> None:
    ran = []
    for allocations in range(-2, 4):
        queue, _ticket, finish = _queue_of(core, 2000)
        with _Collecting(allocations, finish) as collecting:
            groups = queue.unfinished()
        assert {type(group) for group in groups} <= {core.Group}
        finish()
        assert queue.unfinished() == []
        ran.append(collecting.ran)
    assert any(ran) or sys.version_info >= (3, 12), "it would prove nothing"


async def test_a_message_that_goes_may_ask_for_the_outcome(core: Any) -> None:
    _queue, ticket, finish = _queue_of(core, 1)
    waiting = ticket.__await__()
    next(waiting)
    asked: list[bool] = []

    def cancel(message: object) -> None:
        waiting.add_done_callback(lambda _: None, context=contextvars.copy_context())
        waiting.cancel(msg=message)

    def first() -> weakref.ref[LogClosedError]:
        message = LogClosedError("first")
        cancel(message)
        return weakref.ref(message, ask)

    def ask(_: object) -> None:
        with pytest.raises(asyncio.CancelledError, match="second"):
            waiting.result()
        asked.append(True)

    gone = first()
    cancel("second")
    assert gone() is None
    assert asked == [True]
    finish()


class _Finishing:
    """A number of seconds; asked for it, it finishes the group."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish

    def __float__(self) -> float:
        self._finish()
        return 1.0


def test_a_group_may_be_finished_while_a_time_limit_is_read(core: Any) -> None:
    _queue, ticket, finish = _queue_of(core, 1)
    assert ticket.wait(_Finishing(finish)) == 7


@pytest.mark.parametrize("size", [-1, (1 << 40) + 1, 1 << 62, (1 << 63) - 1, 1 << 70])
def test_the_core_refuses_sizes_whose_sums_could_overflow_and_goes_on(core: Any, size: int) -> None:
    del core
    disk = SlowDisk()
    queue: Any = GroupWriter(disk.write, disk.sync)._queue
    with pytest.raises(OverflowError):
        queue.submit(1, size, True)
    with pytest.raises(OverflowError):
        queue.commit(1, size)
    largest = [queue.submit(number, 1 << 40, True) for number in range(3)]
    assert queue.commit(3, 0) >= 0
    assert [ticket.done() for ticket in largest] == [True] * 3
