"""`storage.group` for asyncio tasks: awaits, cancellation, loops that never block."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from tallystick.errors import LogPoisonedError
from tallystick.storage.group.writer import GroupWriter
from tests.storage.disks import SlowDisk

HANGS_AFTER = 20.0


def _writer(disk: SlowDisk, **options: Any) -> GroupWriter[int]:
    return GroupWriter(disk.write, disk.sync, **options)


def syncs_of_a_thousand_tasks() -> int:
    """Return the syncs of three commits of each task, all of which are checked."""
    disk = SlowDisk(seconds=0.001)
    writer = _writer(disk)

    async def work(number: int) -> None:
        for step in range(3):
            item = number * 10 + step
            lsn = await writer.submit(item)
            assert disk.items[lsn] == item
            assert lsn < sum(map(len, disk.groups[: disk.synced]))

    async def run() -> None:
        await asyncio.wait_for(asyncio.gather(*map(work, range(1000))), HANGS_AFTER)

    asyncio.run(run())
    assert sorted(disk.durable) == sorted(n * 10 + s for n in range(1000) for s in range(3))
    writer.close()
    return writer.counters.fsyncs


def test_a_thousand_tasks_share_a_handful_of_syncs() -> None:
    # One of several runs: on a busy machine a leader does not wait for tasks that do not run.
    assert any(syncs_of_a_thousand_tasks() < 30 for _ in range(10))


async def test_the_loop_goes_on_while_a_task_waits() -> None:
    disk, ticked = SlowDisk(), threading.Event()
    waited = list[bool]()
    sync = disk.sync

    def sync_after_ticks() -> None:
        waited.append(ticked.wait(60))
        sync()

    disk.sync = sync_after_ticks  # type: ignore[method-assign]
    writer = _writer(disk)

    async def run() -> None:
        task = asyncio.ensure_future(_awaited(writer, 1))
        for _ in range(10):
            await asyncio.sleep(0.005)
        assert not task.done()
        ticked.set()
        await task

    await run()
    assert waited == [True]
    assert threading.main_thread() not in disk.threads
    writer.close()


async def _awaited(writer: GroupWriter[int], item: int) -> int:
    return await writer.submit(item)


async def test_awaiting_what_is_durable_already_returns_at_once() -> None:
    writer = _writer(SlowDisk())
    ticket = writer.submit(1)
    ticket.wait()

    async def run() -> tuple[int, int]:
        return await ticket, await ticket

    assert await run() == (0, 0)


async def test_a_cancelled_task_does_not_cancel_others() -> None:
    disk = SlowDisk(seconds=0.05)
    writer = _writer(disk)

    async def run() -> list[object]:
        tasks = [asyncio.ensure_future(_awaited(writer, item)) for item in range(5)]
        await asyncio.sleep(0.01)
        tasks[2].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = await run()
    assert isinstance(results.pop(2), asyncio.CancelledError)
    assert results == [0, 1, 3, 4]
    assert disk.durable == [0, 1, 2, 3, 4]
    writer.close()


def test_threads_and_tasks_of_two_loops_share_one_log() -> None:
    disk = SlowDisk(seconds=0.001)
    writer = _writer(disk)

    async def tasks(base: int) -> None:
        for step in range(10):
            await asyncio.gather(*[_awaited(writer, base + step * 20 + n) for n in range(20)])

    def thread(base: int) -> None:
        for step in range(50):
            writer.submit(base + step).wait()

    workers = [
        threading.Thread(target=asyncio.run, args=[tasks(10_000)], daemon=True),
        threading.Thread(target=asyncio.run, args=[tasks(20_000)], daemon=True),
        *[threading.Thread(target=thread, args=[base], daemon=True) for base in (0, 100, 200)],
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(HANGS_AFTER)
        assert not worker.is_alive(), "a waiter hangs"
    assert len(set(disk.durable)) == 2 * 200 + 3 * 50
    writer.close()


@pytest.mark.parametrize("fail_at", range(1, 12))
async def test_no_task_hangs_wherever_a_call_fails(fail_at: int) -> None:
    disk = SlowDisk(seconds=0.0005)
    disk.fail_at = fail_at
    writer = _writer(disk, group_bytes=40)

    async def work(number: int) -> str:
        for step in range(6):
            try:
                lsn = await writer.submit(number * 10 + step, 8)
            except LogPoisonedError:
                return "refused"
            assert lsn < len(disk.durable)
        return "done"

    async def run() -> list[str]:
        return await asyncio.wait_for(asyncio.gather(*map(work, range(20))), HANGS_AFTER)

    outcomes = await run()
    assert writer.poisoned == ("refused" in outcomes)
    writer.close()


async def test_a_task_never_has_to_write_what_is_pending() -> None:
    disk = SlowDisk()
    writer = _writer(disk, group_bytes=10, pending_bytes=20)
    disk.free.clear()

    async def run() -> None:
        tickets = [writer.submit(item, 10) for item in range(50)]
        assert disk.synced == 0
        disk.free.set()
        assert await tickets[-1] == 49

    await run()
    assert threading.main_thread() not in disk.threads
    writer.close()


async def test_a_loop_that_closed_before_its_flush_ended_does_no_harm() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    disk.free.clear()

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_awaited(writer, 1), 0.02)

    await run()
    disk.free.set()
    assert writer.submit(2).wait() == 1
    assert disk.durable == [1, 2]
    writer.close()


async def test_the_flusher_thread_ends_with_the_writer() -> None:
    before = set(threading.enumerate())
    writer = _writer(SlowDisk())
    await _awaited(writer, 1)
    assert len(set(threading.enumerate()) - before) == 1
    writer.close()
    assert set(threading.enumerate()) <= before


# -- what a task waits for, in place of a future ------------------------------------------------


@pytest.mark.parametrize("task", [asyncio.Task, asyncio.tasks._PyTask])  # type: ignore[attr-defined]
async def test_both_kinds_of_task_wait_and_are_cancelled_at_once(task: Any) -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    disk.free.clear()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(lambda loop, coroutine, **_: task(coroutine, loop=loop))
        first = loop.create_task(_awaited(writer, 1))
        second = loop.create_task(_awaited(writer, 2))
        await asyncio.sleep(0.02)
        second.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await second
        disk.free.set()
        assert await first == 0

    await run()
    writer.close()
    assert disk.durable == [1, 2]


def test_a_task_that_ends_the_loop_strands_no_other() -> None:
    disk = SlowDisk(seconds=0.01)
    writer = _writer(disk)
    loop = asyncio.new_event_loop()

    async def leaves() -> None:
        await writer.submit(1)
        raise SystemExit

    async def starts() -> list[asyncio.Task[int]]:
        own = [loop.create_task(_awaited(writer, 10 + number)) for number in range(3)]
        await asyncio.sleep(0)
        return own

    gone = loop.create_task(leaves())
    others = loop.run_until_complete(starts())
    with pytest.raises(SystemExit):
        loop.run_until_complete(gone)
    found = loop.run_until_complete(asyncio.wait_for(asyncio.gather(*others), HANGS_AFTER))
    assert found == [1, 2, 3]
    assert isinstance(gone.exception(), SystemExit)
    loop.close()
    writer.close()


async def test_a_ticket_can_be_given_to_everything_that_takes_awaitables() -> None:
    disk = SlowDisk()
    writer = _writer(disk)

    async def run() -> None:
        found = [*await asyncio.gather(writer.submit(1), writer.submit(2))]
        found.append(await asyncio.wait_for(writer.submit(3), HANGS_AFTER))
        found.append(await asyncio.shield(writer.submit(4)))
        assert found == [0, 1, 2, 3]
        disk.free.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.submit(5), 0.01)
        disk.free.set()

    await run()
    writer.close()
    assert disk.durable == [1, 2, 3, 4, 5]


async def test_each_task_runs_on_in_its_own_context() -> None:
    name: contextvars.ContextVar[int] = contextvars.ContextVar("name")
    writer = _writer(SlowDisk(seconds=0.01))

    async def work(number: int) -> int:
        name.set(number)
        await writer.submit(number)
        assert asyncio.current_task() is not None
        return name.get()

    async def run() -> list[int]:
        return list(await asyncio.gather(*map(work, range(20))))

    assert await run() == list(range(20))
    writer.close()
