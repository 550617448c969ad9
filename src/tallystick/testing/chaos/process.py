"""A forked process that does the work of a trial and waits at each step for its parent.

In: a function that reports its steps. Out: their names, and how it ended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NoReturn

from tallystick.errors import RolledBackError, TallystickError
from tallystick.testing.chaos.faults import DO_FILL_DISK, DO_FORK, fill_disk


class Ended(Enum):
    """How the work of a process ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "not known"
    """It was killed, or an error left it open."""
    HUNG = "hung"
    """It was killed as it did not go on."""


class Worker:
    """A process at work.

    Args:
        work: is called there with a function that reports a step.
        limit: seconds without a step after which the process counts as hung.
    """

    def __init__(self, work: Callable[[Callable[[str], None]], object], limit: float) -> None:
        self.ended = Ended.UNKNOWN
        self.error = ""
        self._limit = limit
        from_child, to_parent = os.pipe()
        from_parent, to_child = os.pipe()
        self.pid = fork()
        if self.pid == 0:
            os.close(from_child)
            os.close(to_child)
            _run(work, to_parent, from_parent)
        os.close(to_parent)
        os.close(from_parent)
        self._steps, self._answers = from_child, to_child

    def steps(self) -> Iterator[str]:
        """Yield the name of each step; the process waits until `go_on`. Kills it if it hangs."""
        text = b""
        deadline = time.monotonic() + self._limit
        while True:
            ready, _, _ = select.select([self._steps], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                self.ended = Ended.HUNG
                self.signal(signal.SIGKILL)
                return
            piece = os.read(self._steps, 1 << 16)
            if not piece:
                return
            *lines, text = (text + piece).split(b"\n")
            for line in lines:
                kind, _, rest = line.decode().partition(" ")
                if kind == "step":
                    yield rest
                else:
                    end, _, error = rest.partition(":")
                    self.ended, self.error = Ended(end), error.strip()
            deadline = time.monotonic() + self._limit

    def go_on(self, what: bytes) -> None:
        """Let the process go on after a step."""
        try:
            os.write(self._answers, what)
        except BrokenPipeError:
            return

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait_until_stopped(self) -> None:
        """Wait until SIGSTOP has taken effect."""
        os.waitpid(self.pid, os.WUNTRACED)

    def close(self) -> None:
        """Wait for its end, which is near."""
        os.close(self._answers)
        os.close(self._steps)
        os.waitpid(self.pid, 0)


def succeeds(work: Callable[[], bool], limit: float) -> bool:
    """Return what ``work`` returns in a forked process; False if it fails, or takes too long.

    Args:
        work: what to do there.
        limit: seconds.
    """
    child = fork()
    if child == 0:
        status = 2
        try:
            status = 0 if work() else 1
        except TallystickError:
            status = 1
        except BaseException:
            _print_traceback()
        finally:
            os._exit(status)
    deadline = time.monotonic() + limit
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status) == 0
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False
        time.sleep(0.005)


def fork() -> int:
    """Fork, threads or not: those of this package hold no lock that a child needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class _LeaveChild(BaseException):
    """Ends the child of a fork through all of its ``with`` blocks."""


def _run(
    work: Callable[[Callable[[str], None]], object], to_parent: int, from_parent: int
) -> NoReturn:
    lock, owner = threading.Lock(), os.getpid()

    def step(name: str) -> None:
        with lock:
            if os.getpid() != owner:
                return  # of the child of a fork, which unwinds
            os.write(to_parent, f"step {name}\n".encode())
            answer = os.read(from_parent, 1)
        if answer == DO_FILL_DISK:
            fill_disk()
        elif answer == DO_FORK:
            _fork_and_unwind()

    ended, error = Ended.UNKNOWN, ""
    try:
        work(step)
        ended = Ended.COMMITTED
    except RolledBackError as refusal:
        ended, error = Ended.ROLLED_BACK, str(refusal)
    except TallystickError as problem:
        error = f"{type(problem).__name__}: {problem}"
    except BaseException as problem:
        error = repr(problem)
        if os.getpid() == owner:
            _print_traceback()
    finally:
        if os.getpid() == owner:
            line = " ".join(f"end {ended.value}: {error}".split())
            os.write(to_parent, line.encode()[:4000] + b"\n")
        os._exit(0)


def _fork_and_unwind() -> None:
    """Fork; the child raises, and this process waits until it has ended."""
    child = fork()
    if child == 0:
        raise _LeaveChild
    os.waitpid(child, 0)


def _print_traceback() -> None:
    traceback.print_exc()
    sys.stderr.flush()
