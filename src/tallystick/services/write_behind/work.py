"""A transaction on its way to one target, and the queue of those that touch one key.

In: an entry. Out: what the schedule knows of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tallystick.services.roles import PersistEntry

Key = tuple[str, bytes]
EVERYTHING: frozenset[Key] = frozenset({("", b"")})


@dataclass(slots=True, eq=False)
class Work:
    """One transaction on its way to one target, with its operations for that target."""

    entry: PersistEntry
    keys: frozenset[Key] = frozenset()
    """Empty while it is in no queue."""
    behind: int = 0
    """Queues in which a work that is not taken stands before it."""
    attempts: int = 0
    error: str = ""
    alone: bool = False
    """To be tried in a batch of its own."""
    aside: bool = False
    """Set aside: it and its keys wait for an operator."""
    stuck: bool = False
    """It is set aside, or stands behind one that is."""
    resting: bool = False
    """Waits out a delay."""
    taken: bool = False
    gone: bool = False
    """Done or discarded."""

    @property
    def number(self) -> int:
        return self.entry.number

    def __lt__(self, other: Work) -> bool:
        return self.entry.number < other.entry.number


@dataclass(slots=True)
class Queue:
    """The works on one key, in order; the first ``taken`` of them are out in a batch."""

    works: deque[Work] = field(default_factory=deque)
    taken: int = 0


def keys_of(entry: PersistEntry) -> frozenset[Key]:
    """The keys that the entry's operations touch."""
    return frozenset((one.collection, one.key) for one in entry.operations)
