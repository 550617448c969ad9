"""Opening a log whose files cannot be read just now never harms what they hold."""

from __future__ import annotations

import errno

import pytest

from tallystick.errors import TallystickError
from tallystick.testing import CHANGES, READS, Fault, FaultyFileSystem, MemoryFileSystem
from tests.systems.live_logs import LIVE

NUMBERS = {1, 2, 3, 4, 5}
NTH_MAX = 30


def _written(name: str) -> dict[str, bytes]:
    fs = MemoryFileSystem()
    log = LIVE[name](fs, "/log")
    for number in NUMBERS:
        log.put(number)
    log.close()
    return fs.contents()


def test_a_segment_that_cannot_be_read_is_no_unused_one_without_the_control_block() -> None:
    before = {path: data for path, data in _written("tally").items() if "control" not in path}
    for nth in range(1, 8):
        fs = FaultyFileSystem(MemoryFileSystem(before), Fault(nth, {"pread"}, lasting=True))
        with pytest.raises(TallystickError):
            LIVE["tally"](fs, "/log")
        assert isinstance(fs.inner, MemoryFileSystem)
        assert fs.inner.contents() == before


@pytest.mark.sampled(12)
@pytest.mark.parametrize("error", [errno.EMFILE, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize("name", LIVE)
def test_a_file_that_cannot_be_read_while_opening_keeps_its_records(
    name: str, lasting: bool, error: int
) -> None:
    before = _written(name)
    struck = 0
    for calls in ({"open"}, {"pread"}, READS, READS | CHANGES):
        for nth in range(1, NTH_MAX):
            fs = FaultyFileSystem(
                MemoryFileSystem(before), Fault(nth, calls, error, lasting=lasting)
            )
            try:
                LIVE[name](fs, "/log").close()
            except TallystickError:
                struck += 1
            memory = fs.inner
            assert isinstance(memory, MemoryFileSystem)
            found = LIVE[name](MemoryFileSystem(memory.contents()), "/log")
            assert found.numbers() == NUMBERS, f"{calls}, call {nth}"
            found.close()
    assert struck
