"""A process that is killed before its n-th step: a write, a sync, a rename, an SQL statement.

In: work for a forked child. Out: what it reported before it was killed, and whether it was.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from tallystick.storage.local import LOCAL
from tallystick.testing import FaultyFileSystem

NAMES = frozenset(("os.rename", "os.remove", "os.mkdir", "os.link"))
WRITES = frozenset(("pwrite", "pwritev", "datasync", "sync_dir"))


class Steps(FaultyFileSystem):
    """The local file system of a process that dies before its ``nth`` step.

    Names are counted by an audit hook, so those of disposers count too.
    """

    def __init__(self, nth: int, report: int) -> None:
        super().__init__(LOCAL)
        self._left = nth
        self._report = report
        sys.addaudithook(lambda event, _: self.step() if event in NAMES else None)

    def strikes(self, call: str) -> bool:
        if call in WRITES:
            self.step()
        return False

    def step(self) -> None:
        """Count a step; the process may end here."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(self, text: str) -> None:
        """Report a line that survives a kill."""
        os.write(self._report, f"{text}\n".encode())


def run_until_step(nth: int, work: Callable[[Steps], object]) -> tuple[list[str], bool]:
    """Run ``work`` in a child that is killed before its ``nth`` step.

    Returns the lines it reported, and whether it was killed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            work(Steps(nth, writing))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        printed = pipe.read().split()
    status = os.waitpid(child, 0)[1]
    killed = os.WIFSIGNALED(status)
    assert killed or os.waitstatus_to_exitcode(status) == 0
    return printed, killed
