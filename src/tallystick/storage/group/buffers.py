"""Derby's three buffers, as lists of items: what was submitted and is not acknowledged yet.

In: items, in order. Out: groups to write, oldest first. Every method runs under the lock of the
`tallystick.storage.group.writer.GroupWriter` that owns the buffers.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic

from tallystick.storage.group.ticket import Group, Item

if TYPE_CHECKING:
    from tallystick.storage.group.writer import GroupWriter

_TAKES_NOTHING = 1 << 62
"""Size of the current group of a writer that has ended: nothing fits, and `submit` finds out."""


class Buffers(Generic[Item]):
    """``current`` is being filled, ``dirty`` groups are full, ``unsynced`` ones were taken for
    writing. ``dirty_bytes`` is the size of the dirty ones."""

    __slots__ = ("_writer", "current", "dirty", "dirty_bytes", "unsynced")

    def __init__(self, writer: GroupWriter[Item]) -> None:
        self._writer = writer
        self.current: Group[Item] = Group(writer)
        self.dirty: deque[Group[Item]] = deque()
        self.dirty_bytes = 0
        self.unsynced: list[Group[Item]] = []

    def idle(self) -> bool:
        """True if nothing waits to be acknowledged."""
        return not (self.current.items or self.unsynced or self.dirty or self.current.bytes)

    def switch(self) -> None:
        """Make the current group dirty, unless it is empty, and start a free one."""
        full = self.current
        if full.items:
            self.dirty.append(full)
            self.dirty_bytes += full.bytes
            self.current = Group(self._writer)

    def take(self) -> list[Group[Item]]:
        """Everything that waits to be written; it counts as unsynced from now on."""
        self.switch()
        groups = [*self.dirty]
        self.dirty.clear()
        self.dirty_bytes = 0
        self.unsynced += groups
        return groups

    def take_synced(self) -> list[Group[Item]]:
        """Everything that was taken for writing: a sync has made it durable."""
        groups, self.unsynced = self.unsynced, []
        return groups

    def unfinished(self) -> list[Group[Item]]:
        """All groups that hold items, oldest first."""
        current = [self.current] if self.current.items else []
        return [*self.unsynced, *self.dirty, *current]

    def end(self) -> list[Group[Item]]:
        """Give up everything, and take nothing any more."""
        groups = self.unfinished()
        self.unsynced = []
        self.dirty.clear()
        self.dirty_bytes = 0
        self.current = Group(self._writer)
        self.current.bytes = _TAKES_NOTHING
        return groups
