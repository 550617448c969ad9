"""Faults of a trial: what happens at a step, and how it is mended afterwards.

In: the process at work, which waits at the step. Out: the fault, and what the process is to do.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tallystick.testing.proxy import TcpProxy

GO, DO_FORK, DO_FILL_DISK = b"g", b"f", b"d"
"""What the process does after the step: it goes on, forks first, or has no space any more."""

_WRITES = ("pwrite", "pwritev", "ftruncate", "posix_fallocate")


class Process(Protocol):
    """The process at work."""

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        ...

    def wait_until_stopped(self) -> None:
        """Wait until SIGSTOP has taken effect."""
        ...


class Fault(Protocol):
    """What happens at a step."""

    @property
    def name(self) -> str:
        """The name in reports and on the command line."""
        ...

    def strike(self, process: Process) -> bytes:
        """Let it happen, and return what the process is to do after the step."""
        ...

    def mend(self) -> None:
        """End the fault, so that recovery can succeed."""
        ...


@dataclass(frozen=True, slots=True)
class _OfProcess:
    """A fault of the process: a signal to it, or something that it does itself."""

    name: str
    send: signal.Signals | None
    then: bytes = GO
    pause: float = 0.0

    def strike(self, process: Process) -> bytes:
        """Send the signal; continue a stopped process after the pause."""
        if self.send is not None:
            process.signal(self.send)
        if self.send is signal.SIGSTOP:
            process.wait_until_stopped()
            time.sleep(self.pause)
            process.signal(signal.SIGCONT)
        return self.then

    def mend(self) -> None:
        """Do nothing: the process has ended."""


KILL: Fault = _OfProcess("kill", signal.SIGKILL)
"""The process ends at once."""
STOP: Fault = _OfProcess("stop", signal.SIGSTOP, pause=0.3)
"""The process stands still, and then goes on."""
FORK: Fault = _OfProcess("fork", None, DO_FORK)
"""The process forks; the child ends by an exception, through all of its ``with`` blocks."""
DISK_FULL: Fault = _OfProcess("disk full", None, DO_FILL_DISK)
"""From the step on the process cannot write to files (ENOSPC); databases can."""


@dataclass(frozen=True, slots=True)
class Away:
    """A fault of something else: a server that is killed, a network that is lost.

    Args:
        name: for reports and the command line.
        lose: lets it happen.
        end: ends it.
    """

    name: str
    lose: Callable[[], object]
    end: Callable[[], object]

    def strike(self, process: Process) -> bytes:  # noqa: ARG002 - the process is not concerned
        """Let it happen."""
        self.lose()
        return GO

    def mend(self) -> None:
        """End it."""
        self.end()


def half_open(name: str, proxy: TcpProxy) -> Fault:
    """Lose all packets to and from a database; neither end sees its connections end."""

    def end() -> None:
        proxy.pass_on()
        proxy.cut()

    return Away(f"half-open {name}", proxy.swallow, end)


def cut(name: str, proxy: TcpProxy) -> Fault:
    """Reset the connections to a database, once; new ones can be made at once."""
    return Away(f"cut {name}", proxy.cut, lambda: None)


def refused(name: str, proxy: TcpProxy, command: bytes = b"COMMIT") -> Fault:
    """Let a database answer a command with an error of its own.

    The proxy misspells the command, so that the database refuses it as it would for a better
    reason. The connection must not be encrypted.

    Args:
        name: of the database.
        proxy: between the process and the database.
        command: upper-case letters, as the driver sends it: ``COMMIT`` is in ``COMMIT PREPARED``
            and ``XA COMMIT``, too.
    """
    wrong = command[:-1] + b"Q"
    verb = command.decode("ascii").lower()
    return Away(
        f"refused {verb} {name}",
        lambda: proxy.replace(command, wrong),
        lambda: proxy.replace(b"", b""),
    )


def fill_disk() -> None:
    """Let this process have no space for files any more."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC) + " (injected)")

    for call in _WRITES:
        setattr(os, call, refuse)
