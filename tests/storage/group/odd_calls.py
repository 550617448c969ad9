"""Calls of the compiled core with whatever comes to mind: ``python -m ...odd_calls SEED``.

Prints how many raised `TypeError`; ends by a signal if the core breaks.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from typing import Any

from tallystick.core import CORE
from tallystick.storage.group.writer import GroupWriter
from tests.storage.disks import SlowDisk

LASTING = {"acquire", "wait_for_woken"}
"""What would block the one thread of this process."""


class _Odd:
    """An object that fails wherever it is asked for something."""

    def __len__(self) -> int:
        raise ValueError("odd")

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise KeyError("odd")


def _odd_values(rng: random.Random, disk: SlowDisk) -> list[Any]:
    other: Any = GroupWriter(disk.write, disk.sync)._queue
    ticket = other.submit(1, 1, True)
    return [
        None, True, -1, 0, 1, 1 << 62, 1 << 70, -(1 << 70), 1.5, float("nan"), "text", "", b"",
        b"x" * 300,
        bytearray(9), (), [], [1], {}, _Odd(), object, ValueError("odd"), ValueError, ticket,
        iter(ticket.__await__()), other.unfinished()[0], other, other.submit, rng.randbytes(128),
    ]  # fmt: skip


def call_oddly(seed: int) -> int:
    """Make 1,200 calls; return how many raised `TypeError`."""
    rng = random.Random(seed)
    disk = SlowDisk()
    refused = 0
    for _ in range(40):
        values = _odd_values(rng, disk)
        queue: Any = GroupWriter(disk.write, disk.sync)._queue
        ticket = queue.submit(2, 2, True)
        targets = [CORE, queue, ticket, queue.unfinished()[0], ticket.__await__()]
        for _ in range(30):
            target = rng.choice(targets)
            names = [one for one in dir(target) if one[:2] != "__" and one not in LASTING]
            call = getattr(target, rng.choice(names), None)
            given = rng.choices(values, k=rng.randrange(12 if target is CORE else 4))
            named = rng.choice(
                [{}, {}, {"timeout": 0}, {"msg": rng.choice(values)}, {"context": 1}]
            )
            if not callable(call):
                continue
            try:
                call(*given, **named)
            except Exception as error:
                refused += isinstance(error, TypeError)
    return refused


if __name__ == "__main__":
    count = call_oddly(int(sys.argv[1]))
    gc.collect()
    fresh = SlowDisk()
    writer: GroupWriter[int] = GroupWriter(fresh.write, fresh.sync)
    assert writer.commit(1, 0) >= 0, "the core still works"
    sys.stdout.write(str(count))
    sys.stdout.flush()
    os._exit(0)  # threads that were started for the calls wait for ever
