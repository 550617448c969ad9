"""The promise of durability that every role gives.

In: a record that was submitted. Out: a thread or a task that goes on once it is durable.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@runtime_checkable
class Ticket(Protocol):
    """The promise that a record is durable, to be waited for by a thread or awaited by a task.

    Who flushes: a record becomes durable when somebody waits for it or for a later record of the
    same log, and at the latest when the log is closed. A caller that only polls `done` calls
    `start_flush` once, before the first poll; a `wait` that times out does so itself.
    """

    def wait(self, timeout: float | None = None) -> int:
        """Block until the record is durable.

        Args:
            timeout: Seconds; None waits without limit.

        Returns:
            The record's log sequence number.

        Raises:
            LogPoisonedError: A write or sync of the log has failed.
            LogWriteError: The log has refused the record, and goes on.
            TimeoutError: The record is not durable in time; it may still become so.
        """
        ...

    def done(self) -> bool:
        """Return True once `wait` would return or raise at once; has no other effect."""
        ...

    def start_flush(self) -> None:
        """Have the log make the record durable in the background; returns at once."""
        ...

    def __await__(self) -> Generator[object, None, int]:
        """Wait like `wait`, without blocking the event loop."""
        ...


@dataclass(frozen=True, slots=True)
class DoneTicket:
    """A ticket that is done at once."""

    sequence: int = 0

    def wait(self, timeout: float | None = None) -> int:  # noqa: ARG002 - there is no wait
        """Return the sequence number at once."""
        return self.sequence

    def done(self) -> bool:
        """Return True."""
        return True

    def start_flush(self) -> None:
        """Do nothing: there is nothing to flush."""

    def __await__(self) -> Generator[object, None, int]:
        yield from ()
        return self.sequence
