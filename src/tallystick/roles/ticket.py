"""What every role promises durability with.

In: a write that is on its way. Out: a thread or a task that goes on once it is durable.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, runtime_checkable


@runtime_checkable
class Ticket(Protocol):
    """A promise of durability, to be waited for by a thread or awaited by a task."""

    def wait(self, timeout: float | None = None) -> int:
        """Block until durable; returns the log sequence number of the record. Raises
        `LogPoisonedError` if it will never be, `TimeoutError` after ``timeout`` seconds."""
        ...

    def done(self) -> bool:
        """True once `wait` would return or raise at once."""
        ...

    def __await__(self) -> Generator[object, None, int]: ...
