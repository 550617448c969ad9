"""The interface of a target, and the errors that it raises.

A target is a store that transactions are applied to. `adapters` makes one of an engine or function.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, runtime_checkable

from tallystick.errors import CorruptLogError
from tallystick.roles import PersistEntry
from tallystick.services.write_behind.targets.contact import KnownTarget


class TargetDownError(Exception):
    """Raised by a target that cannot be reached: nothing is wrong with the transactions."""


class PartlyAppliedError(Exception):
    """Raised by a target of functions that has applied the first ``count`` entries of a batch.

    The cause, if there is one, is what the function raised for the next entry.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class TargetAheadError(CorruptLogError):
    """Raised by a target that holds transactions which the log never had, or lacks some.

    The log was lost, or is an old copy, and would use their numbers again; or the target was
    restored. The service stops.
    """


DOWN_ERRORS: tuple[type[Exception], ...] = (TargetDownError, ConnectionError, TimeoutError)
"""Errors that mean that the target cannot be reached."""


@runtime_checkable
class Target(Protocol):
    """A store that transactions are applied to."""

    @property
    def batch_max(self) -> int:
        """Most entries that one call of `apply` can take."""
        ...

    def open(self, log_id: str) -> None:
        """Prepare for `apply`.

        Args:
            log_id: Identifies the log: a store may get transactions of several.
        """
        ...

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        """Apply all of the entries, or none.

        Args:
            entries: In order, with the operations for this target only. The same ones may come
                again after a crash.

        Raises:
            TargetDownError: The store cannot be reached; also `ConnectionError`, `TimeoutError`.
            Exception: Anything else: a transaction is at fault.
        """
        ...

    def settled(self, below: int) -> None:
        """Forget numbers under ``below``: none of them will be applied again."""
        ...

    def close(self) -> None:
        """Release what `open` acquired."""
        ...


@runtime_checkable
class CountingTarget(Target, Protocol):
    """A target that keeps the numbers applied, and so detects that the log has lost some."""

    @property
    def place(self) -> Hashable | None:
        """Where it keeps the numbers, None if it keeps none.

        No two targets of a service may have the same place, for they get the same numbers.
        """
        ...

    def given(self, last_number: int) -> None:
        """Note the greatest number of the log so far. Called before `open`."""
        ...


@runtime_checkable
class KnownByToken(CountingTarget, Protocol):
    """A counting target that holds a token of the opening that applies to it."""

    def known(self, known: KnownTarget) -> None:
        """Note what the service knows of this target. Called before `open`."""
        ...
