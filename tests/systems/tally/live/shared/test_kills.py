"""Processes of a shared log are killed and stopped: nothing is lost, nothing written twice."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.systems.tally.live.shared.kit import (
    Worker,
    check,
    is_stopped,
    leader_of,
    wait_for,
    workers,
)

_WORKERS = 3
_THREADS = 3


def _merged(all_of_them: list[Worker]) -> dict[bytes, int]:
    return {body: lsn for one in all_of_them for body, lsn in one.acknowledged().items()}


def _kill_at_random(folder: Path, kills: int, seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - the figures of the run
    random_ = random.Random(seed)
    log = folder / "log"
    with workers(folder) as start:
        everyone: list[Worker] = []

        def begin() -> Worker:
            one = start(_THREADS, 0)
            one.ready()
            one.tell("go")
            everyone.append(one)
            return one

        running = [begin() for _ in range(_WORKERS)]
        for _ in range(kills):
            time.sleep(random_.uniform(0.0, 0.08))
            leader = leader_of(log)
            victim = random_.choice(running)
            if random_.random() < 0.6:
                victim = next((one for one in running if one.pid == leader), victim)
            running.remove(victim)
            victim.kill()
            survivor = random_.choice(running)
            before = survivor.notes.stat().st_size
            wait_for(lambda: survivor.notes.stat().st_size > before)  # noqa: B023 - called here
            running.append(begin())
        for one in running:
            one.end()
        acknowledged = _merged(everyone)
    assert check(log, acknowledged) >= len(acknowledged) > kills


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_fifteen_kills_of_leaders_and_followers_lose_nothing_and_repeat_nothing(
    tmp_path: Path,
) -> None:
    _kill_at_random(tmp_path, 15, seed=random.randrange(1 << 30))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_thousand_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    for part in range(20):
        folder = tmp_path / str(part)
        folder.mkdir()
        _kill_at_random(folder, 50, seed=random.randrange(1 << 30))


@pytest.mark.long
def test_a_leader_that_is_stopped_for_three_seconds_is_replaced_and_writes_nothing_late(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    with workers(tmp_path) as start:
        running = [start(_THREADS, 0) for _ in range(_WORKERS)]
        for one in running:
            one.ready()
            one.tell("go")
        for _ in range(2):
            wait_for(lambda: leader_of(log))
            leader = leader_of(log)
            stopped = next(one for one in running if one.pid == leader)
            os.kill(stopped.pid, signal.SIGSTOP)
            wait_for(lambda: is_stopped(stopped.pid))  # noqa: B023 - called here
            other = next(one for one in running if one is not stopped)
            began, before = time.monotonic(), other.notes.stat().st_size
            wait_for(lambda: other.notes.stat().st_size > before + 200)  # noqa: B023 - likewise
            print(f"others went on after {time.monotonic() - began:.2f} s")  # noqa: T201 - the figures of the run
            time.sleep(max(3.0 - (time.monotonic() - began), 0))
            assert leader_of(log) not in (None, stopped.pid)
            own = stopped.notes.stat().st_size
            os.kill(stopped.pid, signal.SIGCONT)
            wait_for(lambda: stopped.notes.stat().st_size > own + 200)  # noqa: B023 - likewise
        for one in running:
            one.end()
        acknowledged = _merged(running)
    assert check(log, acknowledged) == len(acknowledged)
