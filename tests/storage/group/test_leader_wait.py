"""How long a leader waits for the callers that were just acknowledged."""

from __future__ import annotations

import time

from tallystick.storage.group.leader_wait import LeaderWait


def _seconds_waited(leader: LeaderWait) -> float:
    started = time.perf_counter()
    leader.wait()
    return time.perf_counter() - started


def test_leader_does_not_wait_where_no_waiter_was_acknowledged() -> None:
    leader = LeaderWait()
    leader.flushed(10.0)
    leader.expect([[]])
    assert _seconds_waited(leader) < 0.002


def test_the_wait_is_bounded_however_slow_the_disk_is() -> None:
    leader = LeaderWait()
    leader.flushed(10.0)
    leader.expect([[None] * 3])
    assert 0.004 < _seconds_waited(leader) < 1.0


def test_the_last_waiter_that_wakes_ends_the_wait() -> None:
    leader = LeaderWait()
    for _ in range(2):
        leader.flushed(10.0)
        first, second = [None], [None]
        leader.expect([first, second])
        for waiting in (first, second):
            assert leader.pending_count()
            waiting.pop()
            leader.woken(waiting)
        assert _seconds_waited(leader) < 0.003
