"""A process dies at any instruction of a hand-over: the other one goes on, and nothing is lost.

Each instruction of Python (opcode) of the code that touches the shared memory is such a moment: a
child is traced, and kills itself before the n-th one.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.log import SharedTallyLog
from tests.systems.tally.live.shared.kit import check

_SETTINGS = Settings(segment_size=64 << 10, idle_mark_s=None, preallocate=False)
_TRACED = ("storage/shared/mailbox.py", "storage/shared/leader.py", "live/shared/service.py")
_SAMPLE = 24


class _Death:
    """Kills this process before its n-th traced instruction, once it is armed."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.armed = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(_TRACED):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and self.armed:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
        return self


def _in_child(run: Callable[[int, int], None]) -> tuple[int, int, int]:
    """Fork; the child runs with ends of two pipes: to read from, and to write to."""
    from_child, to_parent = os.pipe()
    from_parent, to_child = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(to_child)
            run(from_parent, to_parent)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(to_parent)
    os.close(from_parent)
    return pid, from_child, to_child


def _ended(pid: int, *pipes: int) -> bool:
    """Wait for a child; True if it was killed, False if it reached its end."""
    status = os.waitpid(pid, 0)[1]
    for pipe in pipes:
        os.close(pipe)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0
    return False


def _follower_dies(path: Path, number: int) -> bool:
    """Return False if a follower has made fewer instructions than that during one append."""

    def follow(from_parent: int, _: int) -> None:
        os.read(from_parent, 1)
        log = SharedTallyLog(str(path), settings=_SETTINGS)
        death = _Death(number)
        sys.settrace(death)
        death.armed = True
        log.append_durably(b"follower")
        sys.settrace(None)

    pid, from_child, to_child = _in_child(follow)
    log = SharedTallyLog(str(path), settings=_SETTINGS)
    acknowledged = {b"before": log.append_durably(b"before")}
    os.write(to_child, b"!")
    died = _ended(pid, from_child, to_child)
    acknowledged[b"after"] = log.append_durably(b"after")
    log.close()
    assert check(path, acknowledged) in ((2, 3) if died else (3,))
    return died


def _leader_dies(path: Path, number: int) -> bool:
    """Return False if the leader has made fewer instructions than that during some appends."""

    def lead(from_parent: int, to_parent: int) -> None:
        death = _Death(number)
        threading.settrace(death)
        log = SharedTallyLog(str(path), settings=_SETTINGS)
        threading.settrace(None)
        log.append_durably(b"leader")
        os.write(to_parent, b"!")
        os.read(from_parent, 1)
        death.armed = True
        os.write(to_parent, b"!")
        os.read(from_parent, 1)
        os._exit(0)

    pid, from_child, to_child = _in_child(lead)
    assert os.read(from_child, 1) == b"!"
    log = SharedTallyLog(str(path), settings=_SETTINGS)
    os.write(to_child, b"!")
    os.read(from_child, 1)
    lsns: dict[bytes, int] = {}

    def append(name: bytes) -> None:
        lsns[name] = log.append_durably(name)

    # The second one is a batch of several records.
    append(b"first")
    threads = [threading.Thread(target=append, args=(b"more-%d" % one,)) for one in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with contextlib.suppress(BrokenPipeError):
        os.write(to_child, b"!")
    died = _ended(pid, from_child, to_child)
    append(b"last")
    log.close()
    assert check(path, lsns) == 7
    return died


def _count(run: Callable[[Path, int], bool], folder: Path) -> int:
    """Return a number of instructions that is just not reached any more, by halving."""
    low, high = 0, 1 << 14
    while high - low > 64:
        middle = (low + high) // 2
        if run(folder / f"count-{middle}", middle):
            low = middle
        else:
            high = middle
    return high


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("run", [_follower_dies, _leader_dies])
def test_a_process_that_dies_at_some_instructions_of_a_hand_over_loses_nothing(
    tmp_path: Path, run: Callable[[Path, int], bool]
) -> None:
    count = _count(run, tmp_path)
    assert count > 100
    for number in random.sample(range(count), _SAMPLE):
        print(number, count)  # noqa: T201 - to be run again
        run(tmp_path / f"sample-{number}", number)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("run", [_follower_dies, _leader_dies])
def test_a_process_that_dies_at_any_instruction_of_a_hand_over_loses_nothing(
    tmp_path: Path, run: Callable[[Path, int], bool]
) -> None:
    number = 0
    # The leader looks round a few times more or less: the end is where ten in a row live on.
    while any(run(tmp_path / f"{number}-{more}", number + more) for more in range(10)):
        number += 10
    assert number > 100
