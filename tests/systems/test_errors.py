"""What a failing disk raises from any live log is an error of ours, with the file's name."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tallystick import Journal
from tallystick.errors import TallystickError
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing import MemoryFileSystem, every_fault
from tallystick.testing.faults import CHANGES, READS, Fault
from tests.systems.live_logs import LIVE, Live


class Native:
    """A native log: the live log that `LIVE` leaves to its own tests."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.log = Journal(folder, fs=fs, settings=Settings(segment_size=64 << 10))

    def put(self, number: int) -> None:
        self.log.append(b"%d" % number)

    def drop(self, number: int) -> None:
        self.log.delete(number)

    def numbers(self) -> set[int]:
        return {int(one.body or b"") for one in self.log.replay()}

    def close(self) -> None:
        self.log.close()


LOGS: dict[str, Callable[[FileSystem, str], Live]] = {**LIVE, "tally": Native}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("name", LOGS)
def test_every_call_that_fails_raises_our_errors_only(name: str, error: int) -> None:
    """Opening, writing, closing and a second opening, over every call; closing twice is quiet."""

    def fault(nth: int) -> Fault:
        return Fault(nth, CHANGES | READS, error)

    failed = set()
    for fs in every_fault(MemoryFileSystem, fault):
        for step in ("new", "again"):
            log = None
            try:
                log = LOGS[name](fs, "/log")
                log.put(1)
            except TallystickError:
                failed.add(f"write {step}")
            if log is not None:
                try:
                    log.close()
                except TallystickError:
                    failed.add(f"close {step}")
                log.close()
    assert failed >= {"write new", "write again"}
