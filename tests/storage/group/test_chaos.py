"""Seeded chaos: threads and tasks that wait, time out, cancel, flush, lock and fail at random.

A failure names its seed; ``pytest tests/storage/group/test_chaos.py -k "[17]"`` runs it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tallystick.errors import LogPoisonedError
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.group.writer import GroupWriter
from tests.storage.disks import SlowDisk

HANGS_AFTER = 20.0


@contextlib.contextmanager
def _switching_threads_every(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Chaos:
    """One run: a disk and a writer with random properties, and its users."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.seed = seed
        self.disk = SlowDisk(rng.choice([0, 0, 0.0003]))
        if rng.random() < 0.4:
            self.disk.fail_at = rng.randrange(1, 60)
        self.writer: GroupWriter[int] = GroupWriter(
            self.disk.write,
            self.disk.sync,
            group_bytes=rng.choice([10, 50, 1 << 20]),
            pending_bytes=rng.choice([20, 100, 1 << 22]),
            delay=rng.choice([0, 0, 0.0002]),
            siblings=2,
        )
        self.acknowledged: list[int] = []
        self.started: list[GroupTicket[int]] = []

    def run(self) -> None:
        rng = self.rng
        workers = [(self._thread, base) for base in range(rng.randrange(1, 12))]
        workers += [(self._loop, base) for base in range(50, 50 + rng.randrange(3))]
        threads = [threading.Thread(target=work, args=[n], daemon=True) for work, n in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANGS_AFTER)
            assert not thread.is_alive(), f"a waiter hangs, seed {self.seed}"
        deadline = time.monotonic() + HANGS_AFTER
        while not all(ticket.done() for ticket in self.started):
            assert time.monotonic() < deadline, f"a started flush is lost, seed {self.seed}"
            time.sleep(0.0005)
        with contextlib.suppress(LogPoisonedError):
            self.writer.close()

    def _thread(self, base: int) -> None:
        rng = random.Random(f"{self.seed}/{base}")
        with contextlib.suppress(LogPoisonedError):
            for step in range(15):
                self._step(rng, base * 100 + step)

    def _step(self, rng: random.Random, item: int) -> None:
        if rng.random() < 0.3:
            self.writer.commit(item, 8)
            self.acknowledged.append(item)
            return
        ticket = self.writer.submit(item, 8, sync=rng.random() < 0.8)
        what = rng.choice(["wait"] * 6 + ["time out", "flush", "exclusive", "start", "forget"])
        if what == "wait":
            ticket.wait()
            self.acknowledged.append(item)
        elif what == "time out":
            with contextlib.suppress(TimeoutError):
                ticket.wait(timeout=rng.choice([0, 0.00001, 0.0005]))
            self.started.append(ticket)
        elif what == "flush":
            self.writer.flush()
        elif what == "exclusive":
            with self.writer.exclusive():
                self.writer.submit(item + 50, 8)
        elif what == "start":
            ticket.start_flush()
            self.started.append(ticket)

    def _loop(self, base: int) -> None:
        rng = random.Random(f"{self.seed}/{base}")

        async def task(item: int) -> None:
            with contextlib.suppress(LogPoisonedError, TimeoutError):
                if rng.random() < 0.2:
                    await asyncio.wait_for(self._awaited(item), 0.0003)
                else:
                    await self.writer.submit(item, 8)
                    self.acknowledged.append(item)

        async def tasks() -> None:
            for _ in range(3):
                await asyncio.gather(*[task(base * 100 + number) for number in range(10)])

        asyncio.run(tasks())

    async def _awaited(self, item: int) -> int:
        return await self.writer.submit(item, 8)


def _check(seed: int) -> None:
    chaos = Chaos(seed)
    with _switching_threads_every(chaos.rng.choice([1e-6, 1e-5, 5e-3])):
        chaos.run()
    disk = chaos.disk
    assert set(chaos.acknowledged) <= set(disk.durable), f"seed {seed}"
    if not chaos.writer.poisoned:
        assert disk.items == disk.durable, f"seed {seed}"
    assert chaos.writer._queue.pending == 0, f"seed {seed}: waiters miscounted"


@pytest.mark.parametrize("seed", range(100))
def test_no_waiter_hangs_and_only_durable_items_are_acknowledged(seed: int) -> None:
    _check(seed)


@pytest.mark.soak
def test_long_chaos() -> None:
    for seed in range(100, 20_000):
        _check(seed)
