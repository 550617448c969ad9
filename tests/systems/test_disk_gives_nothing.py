"""What the disk does not give back is an error in every live log and store, and never left out.

In: a log that holds one acknowledged item. Out: with the n-th read failing, once or from then on,
while it is opened or after that, the item is there, or a documented error says why it is not.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pytest

from tallystick.errors import TallystickError
from tallystick.storage.files import FileSystem
from tallystick.testing import READS, Fault, FaultyFileSystem, MemoryFileSystem
from tests.fuzz.openers import OPENERS, Opener

EVERY = [
    pytest.param(opener, id=f"{system}-{opener.__name__}")
    for system, openers in OPENERS.items()
    for opener in openers
]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("while_opening", [False, True], ids=["opened", "opening"])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("opener", EVERY)
def test_a_read_that_fails_leaves_no_item_out(
    opener: Callable[[FileSystem], Opener], lasting: bool, while_opening: bool
) -> None:
    memory = MemoryFileSystem()
    log = opener(memory)
    log.write()
    log.close()
    whole = memory.contents()
    for number in itertools.count(1):
        faulty = FaultyFileSystem(MemoryFileSystem(whole))
        fault = Fault(number, calls=READS, lasting=lasting)
        faulty.fault = fault if while_opening else None
        with contextlib.suppress(TallystickError):
            log = opener(faulty)
            faulty.fault = fault
            with contextlib.suppress(TallystickError):
                assert log.holds(), f"left out where read {number} fails"
            faulty.fault = None
            log.close()
        if not faulty.struck or number > 60:
            break
