"""The role of a two-phase-commit coordinator's log.

In: decisions to commit, and how they ended. Out: the decisions that are still open, and the
heuristic outcomes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from tallystick.records import State
from tallystick.roles.ticket import Ticket


class DecisionOutcome(StrEnum):
    """How a global transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    HEURISTIC = "heuristic"


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision to commit that is not closed.

    ``resources`` are the names still to be committed; ``time`` is in milliseconds of the log's
    clock, None where it has none.
    """

    gtrid: bytes
    resources: frozenset[str]
    time: int | None = None


class DecisionLog(Protocol):
    """A two-phase-commit coordinator's log. Presumed abort: only `decide` is forced."""

    def note(self, state: State, gtrid: bytes, resources: Collection[str]) -> None:
        """Record a status that decides nothing, without forcing; a log may ignore it.

        Args:
            state: The status of the global transaction.
            gtrid: Its global id, at most 64 bytes.
            resources: The names of its resources.
        """
        ...

    def decide(self, gtrid: bytes, resources: Collection[str]) -> Ticket:
        """Record the decision to commit; decisions of concurrent callers share a group.

        Args:
            gtrid: Global id, at most 64 bytes.
            resources: The names of the resources to commit.

        Returns:
            The promise that the decision is durable.
        """
        ...

    def finish(self, gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
        """Record, without forcing, that these resources have ended with this outcome."""
        ...

    def open_decisions(self) -> Mapping[bytes, Decision]:
        """Return the decisions not closed for all of their resources, by gtrid."""
        ...

    def heuristics(self) -> Mapping[bytes, frozenset[str]]:
        """Return, by gtrid, the resources whose heuristic outcome is not settled."""
        ...

    def settle(self, gtrid: bytes) -> Ticket:
        """Record that an operator has dealt with a heuristic outcome."""
        ...

    def close(self) -> None:
        """Make everything durable and release the log."""
        ...


@runtime_checkable
class SharedDecisionLog(DecisionLog, Protocol):
    """A decision log that several processes write, each with a number of its own.

    `open_decisions` and `heuristics` know of every decision of a process of which `lives_since`
    said before that it does not live.
    """

    @property
    def member(self) -> int:
        """Return the number of this process, below 256; that of a dead process is used again."""
        ...

    @property
    def since_ms(self) -> int:
        """Return when this process opened the log, in milliseconds since 1970."""
        ...

    def lives_since(self, member: int) -> int | None:
        """Return when the process of this number opened the log; None if it does not live."""
        ...
