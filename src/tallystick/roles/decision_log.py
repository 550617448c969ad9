"""The role of a two-phase-commit coordinator's log.

In: decisions to commit, and how they ended. Out: what is still to be committed, what ended
heuristically.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tallystick.records import State
from tallystick.roles.ticket import Ticket


class DecisionOutcome(StrEnum):
    """How a global transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    HEURISTIC = "heuristic"


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision to commit that is not closed: the names still to be committed.

    ``time`` is in milliseconds of the log's clock, None where it has none.
    """

    gtrid: bytes
    resources: frozenset[str]
    time: int | None = None


class DecisionLog(Protocol):
    """A two-phase-commit coordinator's log. Presumed abort: only `decide` is forced."""

    def note(self, state: State, gtrid: bytes, resources: Collection[str]) -> None:
        """Record a status that decides nothing; a log that keeps no such notes ignores it."""
        ...

    def decide(self, gtrid: bytes, resources: Collection[str]) -> Ticket:
        """Record the decision to commit; decisions of concurrent callers share a group."""
        ...

    def finish(self, gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
        """Record, without forcing, that these resources have ended so."""
        ...

    def open_decisions(self) -> Mapping[bytes, Decision]:
        """Decisions not closed for all of their resources, by gtrid."""
        ...

    def heuristics(self) -> Mapping[bytes, frozenset[str]]:
        """Heuristic outcomes that no operator has settled yet, by gtrid."""
        ...

    def settle(self, gtrid: bytes) -> Ticket:
        """Record durably that an operator has dealt with a heuristic outcome."""
        ...

    def close(self) -> None: ...
