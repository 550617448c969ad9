"""A transaction on its way to one target, and the queue of those that touch one key.

In: an entry. Out: what the schedule knows of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tallystick.roles import PersistEntry

Key = tuple[str, bytes]
EVERYTHING: frozenset[Key] = frozenset({("", b"")})


@dataclass(eq=False)
class Work:
    """One transaction on its way to one target, with its operations for that target.

    Every commit makes one, most of which never differ from the defaults: so these stand in the
    class, and not in slots.
    """

    entry: PersistEntry
    keys: frozenset[Key] = field(default=frozenset(), init=False)
    """Empty while it is in no queue."""
    behind: int = field(default=0, init=False)
    """Queues in which a work that is not taken stands before it."""
    attempts: int = field(default=0, init=False)
    error: str = field(default="", init=False)
    alone: bool = field(default=False, init=False)
    """To be tried in a batch of its own."""
    aside: bool = field(default=False, init=False)
    """Set aside: it and its keys wait for an operator."""
    stuck: bool = field(default=False, init=False)
    """It is set aside, or stands behind one that is."""
    resting: bool = field(default=False, init=False)
    """Waits out a delay."""
    taken: bool = field(default=False, init=False)
    gone: bool = field(default=False, init=False)
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
