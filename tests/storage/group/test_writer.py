"""`storage.group`: groups, order, limits, faults and forks, for threads."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tallystick.errors import (
    LogClosedError,
    LogFullError,
    LogPoisonedError,
    LogWriteError,
    TallystickError,
)
from tallystick.roles import Ticket
from tallystick.storage.group.writer import GroupWriter
from tests.interrupts import bytecodes_of, handlers, interrupted
from tests.storage.disks import SlowDisk

HANGS_AFTER = 20.0
"""Seconds after which a waiter counts as hanging."""


def _writer(disk: SlowDisk, **options: Any) -> GroupWriter[int]:
    return GroupWriter(disk.write, disk.sync, **options)


def _submit_and_wait(writer: GroupWriter[int], item: int) -> int:
    return writer.submit(item, 8, sync=item % 3 != 0).wait()


def _commit(writer: GroupWriter[int], item: int) -> int:
    return writer.commit(item, 8)


WAYS = pytest.mark.parametrize("way", [_submit_and_wait, _commit])
"""To make an item durable, with a group or, for a lone caller, without."""

Way = Callable[[GroupWriter[int], int], int]


def _run_threads(count: int, work: Callable[[int], object]) -> None:
    threads = [
        threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_AFTER)
        assert not thread.is_alive(), "a waiter hangs"


def test_a_ticket_is_the_roles_ticket() -> None:
    ticket: Ticket = _writer(SlowDisk()).submit(1)
    assert isinstance(ticket, Ticket)


@pytest.mark.long
@WAYS
@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGALRM)])
def test_an_interrupted_wait_lets_the_next_caller_through(
    way: Way, numbers: tuple[signal.Signals, ...]
) -> None:
    """The second signal arrives as the wait that the first one has ended cleans up."""
    writer = _writer(SlowDisk())

    def call() -> None:
        way(writer, 3)

    with handlers():
        for point in range(bytecodes_of(call)):
            interrupted(call, point, *map(int, numbers))
            _run_threads(1, partial(way, writer))


@WAYS
def test_a_lone_caller_writes_and_syncs_in_its_own_thread(way: Way) -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    assert [way(writer, item) for item in range(5)] == [0, 1, 2, 3, 4]
    assert disk.durable == [0, 1, 2, 3, 4]
    assert set(disk.threads) == {threading.current_thread()}
    assert (writer.counters.groups, writer.counters.records, writer.counters.fsyncs) == (5, 5, 5)


def test_items_submitted_before_the_first_wait_share_one_group() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    tickets = [writer.submit(item) for item in range(100)]
    assert tickets[99].wait() == 99
    assert all(ticket.done() for ticket in tickets)
    assert [ticket.wait() for ticket in tickets] == list(range(100))
    assert (len(disk.groups), disk.synced, writer.counters.fsyncs) == (1, 1, 1)


def test_threads_share_syncs_and_each_gets_its_own_number() -> None:
    disk = SlowDisk(seconds=0.002)
    writer = _writer(disk)
    numbers: list[int] = []
    start = threading.Barrier(32)

    def work(number: int) -> None:
        start.wait()
        for step in range(20):
            item = number * 1000 + step
            lsn = writer.submit(item).wait()
            assert item in disk.durable, "acknowledged before it was durable"
            assert disk.items[lsn] == item
            numbers.append(lsn)

    _run_threads(32, work)
    assert sorted(numbers) == list(range(640))
    assert writer.counters.fsyncs < 640 / 8


def test_the_order_of_each_thread_is_kept() -> None:
    disk = SlowDisk()
    writer = _writer(disk, group_bytes=64)

    def work(number: int) -> None:
        for step in range(200):
            writer.submit(number * 1000 + step, 8, sync=step % 7 == 0)

    _run_threads(8, work)
    writer.flush()
    for number in range(8):
        mine = [item for item in disk.durable if item // 1000 == number]
        assert mine == [number * 1000 + step for step in range(200)]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([40, 40, 40], [[0, 1], [2]]),
        ([100, 1], [[0], [1]]),
        ([1, 500, 1], [[0], [1], [2]]),
        ([500, 500], [[0], [1]]),
        ([0, 0, 100, 0], [[0, 1, 2, 3]]),
    ],
)
def test_groups_are_cut_at_their_limit(sizes: list[int], groups: list[list[int]]) -> None:
    disk = SlowDisk()
    writer = _writer(disk, group_bytes=100)
    for item, size in enumerate(sizes):
        writer.submit(item, size)
    writer.flush()
    assert disk.groups == groups
    assert writer.counters.fsyncs == 1
    assert writer.counters.bytes == sum(sizes)


@pytest.mark.parametrize(("sync", "fsyncs"), [(False, 0), (True, 9)])
def test_a_caller_that_never_waits_has_to_help_writing(sync: bool, fsyncs: int) -> None:
    disk = SlowDisk()
    writer = _writer(disk, group_bytes=10, pending_bytes=90)
    tickets = [writer.submit(item, 10, sync=sync) for item in range(100)]
    assert 80 < len(disk.items) < 100
    assert writer.counters.fsyncs == fsyncs
    assert tickets[0].wait() == 0
    assert writer.counters.fsyncs == fsyncs + (not sync)


def test_flush_of_nothing_touches_nothing() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    writer.flush()
    writer.submit(1).wait()
    writer.flush()
    assert disk.calls == 2


def _poll(ticket: Ticket) -> None:
    deadline = time.monotonic() + HANGS_AFTER
    while not ticket.done():
        assert time.monotonic() < deadline, "nobody flushes"
        time.sleep(0.001)


def test_start_flush_alone_makes_it_durable() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    writer.submit(1, sync=False)
    ticket = writer.submit(2, sync=False)
    ticket.start_flush()
    _poll(ticket)
    assert disk.durable == [1, 2]
    writer.close()


def test_polling_done_has_no_effect() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    threads = set(threading.enumerate())
    ticket = writer.submit(1)
    time.sleep(0.01)
    assert not ticket.done()
    assert disk.calls == 0
    writer.submit(2).wait()
    assert ticket.done()
    ticket.start_flush()
    assert set(threading.enumerate()) <= threads, "there is nothing to flush"


def test_one_start_flush_is_enough_while_another_flush_runs() -> None:
    disk = SlowDisk(seconds=0.02)
    writer = _writer(disk)
    for item in range(0, 20, 2):
        leader = threading.Thread(target=writer.submit(item).wait)
        leader.start()
        while len(disk.groups) <= item:
            time.sleep(0.0005)
        ticket = writer.submit(item + 1)
        ticket.start_flush()
        _poll(ticket)
        leader.join()
    assert disk.durable == list(range(20))
    writer.close()


@pytest.fixture(params=["can be started", "cannot be started"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With threads for what flushes, and without."""

    def refuse(_: threading.Thread) -> None:
        raise BlockingIOError(errno.EAGAIN, "no thread can be started")

    if request.param == "cannot be started":
        monkeypatch.setattr("tallystick.storage.group.tasks.start_thread", refuse)


@pytest.mark.usefixtures("threads")
def test_what_is_asked_for_during_a_flush_is_done_after_it() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    disk.free.clear()
    leader = _flushing(disk, writer)
    ticket = writer.submit(2)
    ticket.start_flush()
    disk.free.set()
    leader.join()
    _poll(ticket)
    assert disk.durable == [1, 2]
    writer.close()


@pytest.mark.usefixtures("threads")
def test_start_flush_inside_an_exclusive_block_takes_effect_after_it() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    with writer.exclusive():
        ticket = writer.submit(1)
        ticket.start_flush()
        time.sleep(0.01)
        assert disk.calls == 0
    _poll(ticket)
    assert disk.durable == [1]
    writer.close()


def _flushing(disk: SlowDisk, writer: GroupWriter[int]) -> threading.Thread:
    """Have a thread of its own flush the first item; return it once it is at that."""
    leader = threading.Thread(target=writer.submit(1).wait)
    leader.start()
    while not disk.groups:
        time.sleep(0.001)
    return leader


def test_a_wait_that_times_out_loses_nothing() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    disk.free.clear()
    leader = _flushing(disk, writer)
    ticket = writer.submit(2)
    with pytest.raises(TimeoutError):
        ticket.wait(timeout=0.01)
    disk.free.set()
    leader.join()
    _poll(ticket)
    assert disk.durable == [1, 2]
    assert ticket.wait() == 1
    writer.close()


def test_the_delay_applies_only_if_siblings_are_there() -> None:
    disk = SlowDisk()
    writer = _writer(disk, delay=1, siblings=2)
    started = time.monotonic()
    writer.submit(0).wait()
    assert time.monotonic() - started < 1
    tickets = [writer.submit(item) for item in (1, 2)]
    late = threading.Timer(0.05, lambda: writer.submit(3))
    late.start()
    tickets[0].wait()
    assert disk.groups == [[0], [1, 2, 3]]


def test_no_flush_runs_inside_an_exclusive_block() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    with writer.exclusive():
        waiter = threading.Thread(target=writer.submit(1).wait)
        waiter.start()
        time.sleep(0.02)
        assert disk.calls == 0
    waiter.join(HANGS_AFTER)
    assert disk.durable == [1]


def test_waiting_for_oneself_is_an_error_and_no_deadlock() -> None:
    disk = SlowDisk()
    writer = _writer(disk, group_bytes=10, pending_bytes=20)
    with writer.exclusive():
        tickets = [writer.submit(item, 10) for item in range(9)]
        for deadlock in (tickets[0].wait, writer.flush, writer.close, writer.exclusive().__enter__):
            with pytest.raises(LogWriteError, match="a flush cannot wait for itself"):
                deadlock()
    assert tickets[8].wait() == 8
    assert disk.durable == list(range(9))


def test_close_flushes_then_refuses() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    ticket = writer.submit(1)
    writer.close()
    assert disk.durable == [1]
    assert ticket.wait() == 0
    writer.close()
    for refused in (lambda: writer.submit(2), writer.flush):
        with pytest.raises(LogClosedError):
            refused()


# -- failures -----------------------------------------------------------------------------


def test_a_failed_sync_poisons_everyone_present_and_future() -> None:
    disk = SlowDisk()
    writer = _writer(disk, name="/logs/a")
    acknowledged = writer.submit(0)
    acknowledged.wait()
    disk.fail_at = 4
    tickets = [writer.submit(item) for item in (1, 2)]
    for ticket in tickets:
        with pytest.raises(LogPoisonedError, match=r"/logs/a: .*Input/output error"):
            ticket.wait()
        assert ticket.done()
    for refused in (lambda: writer.submit(3), writer.flush):
        with pytest.raises(LogPoisonedError):
            refused()
    calls = disk.calls
    writer.close()
    assert disk.calls == calls, "nothing may be retried after a failed sync"
    assert writer.poisoned
    assert acknowledged.wait() == 0


def test_an_exclusive_block_can_poison_the_writer() -> None:
    disk = SlowDisk()
    writer = _writer(disk, name="/logs/a")
    waiting = writer.submit(1)
    with writer.exclusive():
        error = writer.poison(OSError(5, "Input/output error"))
    assert isinstance(error, LogPoisonedError)
    for refused in (waiting.wait, lambda: writer.submit(2), writer.flush):
        with pytest.raises(LogPoisonedError, match=r"/logs/a: .*Input/output error"):
            refused()
    assert writer.poisoned


@WAYS
def test_a_failed_sync_is_raised_to_a_lone_caller_and_to_everyone_after_it(way: Way) -> None:
    disk = SlowDisk()
    writer = _writer(disk, name="/logs/a")
    disk.fail_at = 2
    for _ in range(2):
        with pytest.raises(LogPoisonedError, match=r"/logs/a: .*Input/output error") as caught:
            way(writer, 1)
        assert isinstance(caught.value.__cause__, OSError)
    assert writer.poisoned
    assert disk.calls == 2, "nothing may be retried after a failed sync"


@pytest.mark.parametrize(
    ("error", "file", "said"),
    [
        (PermissionError(13, "Permission denied", "seg-2"), "seg-2", "grant permission. Close"),
        (OSError(5, "Input/output error", "seg-2"), "seg-2", "Input/output error; nothing"),
        (OSError(5, "Input/output error"), "log", "Input/output error; nothing"),
        (LogPoisonedError("the leader failed", file="log"), "log", "log: the leader failed"),
    ],
    ids=["refused", "disk", "no-file", "leader"],
)
def test_a_failed_write_names_the_file_and_what_to_do(
    error: Exception, file: str, said: str
) -> None:
    disk = SlowDisk(seconds=0)
    disk.fail_at, disk.error = 1, lambda: error
    writer = _writer(disk)
    with pytest.raises(LogPoisonedError) as caught:
        writer.submit(1, 1).wait()
    assert caught.value.file == file
    assert said in str(caught.value)
    assert "Error(" not in str(caught.value)


@WAYS
@pytest.mark.parametrize("fail_at", range(1, 25))
@pytest.mark.parametrize(
    "error",
    [OSError(5, "EIO"), ValueError("a bug"), LogClosedError("file closed"), SystemExit(3)],
    ids=lambda error: type(error).__name__,
)
def test_no_waiter_hangs_wherever_a_call_fails(
    fail_at: int, error: BaseException, way: Way
) -> None:
    disk = SlowDisk(seconds=0.0005)
    disk.fail_at = fail_at
    disk.error = lambda: error
    writer = _writer(disk, group_bytes=20, pending_bytes=40)
    acknowledged: list[int] = []
    outcomes: list[str] = []

    def work(number: int) -> None:
        for step in range(12):
            item = number * 100 + step
            try:
                way(writer, item)
            except (LogPoisonedError, SystemExit):
                outcomes.append("refused")
                return
            acknowledged.append(item)
        outcomes.append("done")

    _run_threads(8, work)
    assert len(outcomes) == 8
    assert writer.poisoned == ("refused" in outcomes)
    assert set(acknowledged) <= set(disk.durable), "acknowledged without being durable"
    if writer.poisoned:
        assert disk.calls <= fail_at


def test_a_write_that_refuses_its_group_leaves_the_log_usable() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    disk.fail_at = 1
    disk.error = lambda: LogFullError("no space", file="/logs/a", advice="free space")
    tickets = [writer.submit(item) for item in (1, 2)]
    for ticket in tickets:
        with pytest.raises(LogFullError, match=r"/logs/a: no space\. free space"):
            ticket.wait()
    assert writer.submit(3).wait() == 0
    assert disk.durable == [3]


@WAYS
def test_a_lone_caller_that_is_refused_can_go_on(way: Way) -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    disk.fail_at = 1
    disk.error = lambda: LogFullError("no space")
    with pytest.raises(LogFullError, match="no space"):
        way(writer, 1)
    assert writer.counters.refused == 1
    assert way(writer, 2) == 0
    assert disk.durable == [2]


@WAYS
def test_a_sync_cannot_refuse_it_poisons(way: Way) -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    disk.fail_at = 2
    disk.error = lambda: LogFullError("no space")
    for _ in range(2):
        with pytest.raises(LogPoisonedError, match="no space") as caught:
            way(writer, 1)
        assert isinstance(caught.value.__cause__, LogFullError)


def test_a_refused_group_does_not_refuse_its_neighbours() -> None:
    disk = SlowDisk()
    writer = _writer(disk, group_bytes=10)
    disk.fail_at = 2
    disk.error = lambda: LogFullError("no space")
    tickets = [writer.submit(item, 10, sync=False) for item in range(3)]
    with pytest.raises(LogFullError):
        writer.flush()
    assert writer.counters.refused == 1
    assert tickets[2].wait() == 1
    assert tickets[0].wait() == 0
    with pytest.raises(LogFullError):
        tickets[1].wait()
    assert disk.durable == [0, 2]


@WAYS
def test_a_write_that_answers_for_too_few_items_poisons(way: Way) -> None:
    writer: GroupWriter[int] = GroupWriter(lambda _items: [], lambda: None)
    with pytest.raises(LogPoisonedError, match="0 sequence numbers for 1 items"):
        way(writer, 1)
    assert writer.poisoned


def test_errors_of_different_callers_are_different_objects() -> None:
    disk = SlowDisk()
    disk.fail_at = 1
    writer = _writer(disk)
    errors = []
    for ticket in [writer.submit(1), writer.submit(2)]:
        with pytest.raises(TallystickError) as caught:
            ticket.wait()
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert errors[0].__cause__ is errors[1].__cause__


# -- interrupts and forks -------------------------------------------------------------------


def test_ctrl_c_during_a_flush_loses_no_record_of_others() -> None:
    disk = SlowDisk(seconds=0.05)
    writer = _writer(disk)
    others = [writer.submit(item) for item in (1, 2)]
    mine = writer.submit(3)
    timer = threading.Timer(0.02, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        mine.wait()
    timer.join()
    assert [ticket.wait() for ticket in (*others, mine)] == [0, 1, 2]
    assert disk.synced == 1
    assert writer.submit(4).wait() == 3


def test_ctrl_c_during_a_lone_commit_comes_when_it_is_durable() -> None:
    disk = SlowDisk(seconds=0.05)
    writer = _writer(disk)
    timer = threading.Timer(0.02, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        writer.commit(1, 0)
    timer.join()
    assert disk.durable == [1]
    assert writer.commit(2, 0) == 1


def test_ctrl_c_of_a_waiter_leaves_the_flush_to_the_others() -> None:
    disk = SlowDisk(seconds=0.1)
    writer = _writer(disk)
    leader = _flushing(disk, writer)
    mine = writer.submit(2)
    follower = threading.Thread(target=writer.submit(3).wait)
    follower.start()
    timer = threading.Timer(0.02, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        mine.wait()
    for thread in (leader, follower, timer):
        thread.join(HANGS_AFTER)
        assert not thread.is_alive()
    assert disk.durable == [1, 2, 3]


def _in_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_writes_nothing_and_gets_errors() -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    ticket = writer.submit(1)

    def work() -> None:
        for refused in (ticket.wait, lambda: writer.submit(2), writer.flush):
            with pytest.raises(LogClosedError, match="forked"):
                refused()
        writer.close()
        assert disk.calls == 0

    assert _in_child(work) == 0
    assert ticket.wait() == 0


def test_a_fork_in_the_middle_of_a_flush_hangs_neither_side() -> None:
    disk = SlowDisk(seconds=0.1)
    writer = _writer(disk)
    leader = _flushing(disk, writer)
    ticket = writer.submit(2)

    def work() -> None:
        with pytest.raises(LogClosedError, match="forked"):
            ticket.wait()

    assert _in_child(work) == 0
    leader.join(HANGS_AFTER)
    assert ticket.wait() == 1


@pytest.mark.parametrize("limit", [float("inf"), 1e300])
def test_a_time_limit_may_be_longer_than_the_system_waits(limit: float) -> None:
    disk = SlowDisk()
    writer = _writer(disk)
    disk.free.clear()
    leader = _flushing(disk, writer)
    ticket = writer.submit(2)
    threading.Timer(0.02, disk.free.set).start()
    assert ticket.wait(limit) == 1
    leader.join()
    writer.close()
