"""What a log acknowledges after a kill survives a power cut, though the killed process left files
and names that nobody had synced.
"""

from __future__ import annotations

import random

import pytest

from tallystick.errors import TallystickError
from tallystick.testing import MemoryFileSystem
from tallystick.testing.simulate.disk import survivor
from tallystick.testing.states import disk_states
from tests.systems.live_logs import LIVE

FIRST, SECOND = range(1, 4), 77
POINTS_MAX = 400
STATES = 12


class _Kill(BaseException):
    """Ends the process."""


class _KilledFileSystem(MemoryFileSystem):
    """Ends the process at one of its changes."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def apply(self, call: str, *arguments: object) -> None:
        if self.left <= 0:
            raise _Kill
        self.left -= 1
        super().apply(call, *arguments)


def _killed(name: str, point: int) -> tuple[MemoryFileSystem, set[int]]:
    fs = _KilledFileSystem(point)
    acknowledged: set[int] = set()
    try:
        log = LIVE[name](fs, "/log")
        for number in FIRST:
            log.put(number)
            acknowledged.add(number)
        log.close()
    except (_Kill, TallystickError):
        pass
    ended = fs.left > 0
    fs.left = 0
    return survivor(fs, None), set() if ended else acknowledged | {0}


@pytest.mark.parametrize("name", LIVE)
def test_what_is_acknowledged_after_a_kill_survives_a_power_cut(name: str) -> None:
    for point in range(POINTS_MAX):
        memory, acknowledged = _killed(name, point)
        if not acknowledged:
            break
        log = LIVE[name](memory, "/log")
        log.put(SECOND)
        for state in disk_states(memory.disk, STATES, random.Random(point)):
            cut = MemoryFileSystem(state.contents(memory.disk))
            after = LIVE[name](cut, "/log")
            missing = (acknowledged | {SECOND}) - {0} - after.numbers()
            assert not missing, f"killed after {point} changes: {missing} lost; {state.describe()}"
            after.close()
        memory.disk = MemoryFileSystem().disk  # nothing more of the log reaches the disk
    assert point > 5
