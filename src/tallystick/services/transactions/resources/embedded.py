"""What resources that live in this process have in common: our own stores and journals.

In: a store that is open here. Out: the parts of a resource and a branch that need no more than
that. The store belongs to the application and is not closed with the transaction manager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tallystick.errors import LogClosedError, LogPoisonedError
from tallystick.records import Xid
from tallystick.services.transactions.resource import Problem, ResourceUnreachable


class Work(Protocol):
    """A transaction of such a store."""

    def commit(self) -> object: ...

    def rollback(self) -> object: ...


class EmbeddedResource:
    """A store under its unique name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def preflight(self) -> Sequence[Problem]:
        """Always empty: there is nothing to set up."""
        return []

    def close(self) -> None:
        """The store belongs to the application."""


class EmbeddedBranch:
    """One branch: a transaction of the store."""

    def __init__(self, work: Work, xid: Xid) -> None:
        self.xid = xid
        self._work = work
        self._over = False

    def commit(self) -> None:
        self._end(self._work.commit)

    def commit_one_phase(self) -> None:
        self._end(self._work.commit)

    def rollback(self) -> None:
        if not self._over:
            self._end(self._work.rollback)

    def close(self) -> None:
        """The transaction has ended, or is in doubt with its store."""

    def _end(self, end: Callable[[], object]) -> None:
        self._over = True
        with answers():
            end()


@contextmanager
def answers() -> Iterator[None]:
    """A store that failed knows nothing until it is opened again."""
    try:
        yield
    except (LogClosedError, LogPoisonedError, OSError) as error:
        raise ResourceUnreachable(str(error)) from error
