"""A model of a disk with a write cache: what reads see, and what a crash may leave.

In: writes, renames, syncs. Out: the visible files, and for each the versions of every sector and
size that may be on the disk. The assumptions, which are those of ``docs/assumptions.md``:

* a sector of `SECTOR` bytes is written whole or not at all;
* between two syncs of a file its sectors, and its size, reach the disk in any order, each in any
  version that it had since the last sync; bytes never written read as zeros;
* a name that was made, changed or removed is durable after its folder was synced; before that
  each change is there or not, on its own; a rename is never seen half done.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tallystick.storage.files import SECTOR, Bytes

_SIZES_MAX = 8
"""Most sizes between an old and a new one that are tried, at sector boundaries."""


class Version(NamedTuple):
    """A sector's content, or the ``size`` of a file, since the write numbered ``clock``."""

    clock: int
    content: bytes
    size: int = 0


@dataclass(slots=True)
class Inode:
    """One file: ``data`` is what reads see; the rest is what the disk may hold.

    ``durable`` is the content as of the last sync. ``sectors`` and ``sizes`` list versions in
    order; the first one is on the disk already. ``lost`` is True while reads see bytes that a
    failed sync has lost.
    """

    number: int
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    sectors: dict[int, list[Version]] = field(default_factory=dict)
    sizes: list[Version] = field(default_factory=lambda: [Version(0, b"", 0)])
    syncs: int = 0
    lost: bool = False

    @classmethod
    def settled(cls, number: int, content: Bytes) -> Inode:
        """Make a file whose content is on the disk."""
        size = [Version(0, b"", len(content))]
        return cls(number, bytearray(content), bytearray(content), sizes=size)

    def write(self, data: Bytes, offset: int, clock: int) -> None:
        """Change the visible bytes, and note the new versions of the sectors they touch."""
        old_size = len(self.data)
        if not data:
            return  # not even the size changes
        if offset > old_size:
            self.data.extend(bytes(offset - old_size))
        self.data[offset : offset + len(data)] = data
        self._note_sectors(min(offset, old_size), offset + len(data), clock)
        self._note_sizes(old_size, clock)

    def truncate(self, size: int, clock: int) -> None:
        """Cut the file, or grow it with zeros."""
        old_size = len(self.data)
        if size > old_size:
            self.data.extend(bytes(size - old_size))
        del self.data[size:]
        self._note_sectors(size, max(old_size, size), clock)
        self._note_sizes(old_size, clock)

    def sync(self) -> None:
        """Put everything visible on the disk."""
        for number, versions in self.sectors.items():
            self._put(self.durable, number, versions[-1].content)
        _resize(self.durable, len(self.data))
        self.syncs += 1
        self._forget()

    def lose(self, clock: int, *, visible: bool) -> None:
        """Drop what is unsynced, as a failed sync does: it will never be written.

        If it stays ``visible``, which it does until `evict`, the size may still become durable;
        else reads see the old bytes.
        """
        self._forget()
        if visible:
            self.lost = True
            self._note_sizes(len(self.durable), clock)
        else:
            self.data[:] = self.durable

    def evict(self) -> None:
        """Have reads see what is on the disk, or will be after the next sync."""
        dirty = {number: versions[-1].content for number, versions in self.sectors.items()}
        self.data[:] = self.content(self.sizes[-1].size, dirty)
        self.lost = False

    def content(self, size: int, versions: dict[int, bytes]) -> bytearray:
        """Return the file with these sectors in place of the durable ones."""
        content = bytearray(self.durable)
        for number, sector in versions.items():
            self._put(content, number, sector)
        _resize(content, size)
        return content

    def _forget(self) -> None:
        self.sectors = {}
        self.sizes = [Version(0, b"", len(self.durable))]

    @staticmethod
    def _put(content: bytearray, number: int, sector: bytes) -> None:
        place = number * SECTOR
        if len(content) < place:
            _resize(content, place)
        content[place : place + SECTOR] = sector

    def _note_sectors(self, begin: int, end: int, clock: int) -> None:
        if self._only_new_zeros(begin, end):
            return
        for number in range(begin // SECTOR, -(-end // SECTOR)):
            new = _sector(self.data, number)
            versions = self.sectors.get(number)
            last = versions[-1].content if versions else _sector(self.durable, number)
            if new != last:
                if versions is None:
                    versions = self.sectors[number] = [Version(0, last)]
                versions.append(Version(clock, new))

    def _only_new_zeros(self, begin: int, end: int) -> bool:
        """Return True if a new file is being filled: its sectors then have one version."""
        new = begin >= len(self.durable) and max(self.sectors, default=-1) < begin // SECTOR
        return new and self.data[begin:end] == bytes(end - begin)

    def _note_sizes(self, old: int, clock: int) -> None:
        new = len(self.data)
        if new == old:
            return
        between = range((old // SECTOR + 1) * SECTOR, new, SECTOR)
        step = max(1, -(-len(between) // _SIZES_MAX))
        self.sizes += [Version(clock, b"", size) for size in [*between[::step], new]]


def _sector(data: bytearray, number: int) -> bytes:
    return bytes(data[number * SECTOR : (number + 1) * SECTOR]).ljust(SECTOR, b"\0")


def _resize(data: bytearray, size: int) -> None:
    if len(data) < size:
        data.extend(bytes(size - len(data)))
    del data[size:]


class NameChange(NamedTuple):
    """The inode lost the name ``old`` (or None) and got the name ``new`` (or None)."""

    inode: int
    old: str | None
    new: str | None
    unsynced: frozenset[str]
    """Folders that have not been synced since."""


Names = dict[str, int]


class Disk:
    """Inodes, visible and durable names, and the changes of names between the two."""

    def __init__(self) -> None:
        self.inodes: dict[int, Inode] = {}
        self.names: Names = {}
        self.durable_names: Names = {}
        self.changes: list[NameChange] = []
        self.clock = 0
        self._numbers = itertools.count(1)

    def inode(self, path: str) -> Inode:
        """Return the file of that name, or raise `FileNotFoundError`."""
        try:
            return self.inodes[self.names[path]]
        except KeyError:
            raise FileNotFoundError(2, "No such file", path) from None

    def create(self, path: str, content: Bytes = b"") -> None:
        """Make a file whose ``content`` is on the disk; its name is not."""
        inode = Inode.settled(next(self._numbers), content)
        self.inodes[inode.number] = inode
        self._change(inode.number, None, path)

    def rename(self, source: str, target: str) -> None:
        """Give a file a new name."""
        self._change(self.inode(source).number, source, target)

    def remove(self, path: str) -> None:
        """Take a file's name away."""
        self._change(self.inode(path).number, path, None)

    def write(self, inode: int, data: Bytes, offset: int) -> None:
        """Write to a file; see `Inode.write`."""
        self.clock += 1
        self.inodes[inode].write(data, offset, self.clock)

    def truncate(self, inode: int, size: int) -> None:
        """Set a file's size; see `Inode.truncate`."""
        self.clock += 1
        self.inodes[inode].truncate(size, self.clock)

    def sync(self, inode: int) -> None:
        """Sync a file; see `Inode.sync`."""
        self.inodes[inode].sync()

    def lose(self, inode: int, visible: bool) -> None:
        """Lose what is unsynced in a file; see `Inode.lose`."""
        self.clock += 1
        self.inodes[inode].lose(self.clock, visible=visible)

    def evict(self, inode: int) -> None:
        """Drop what a failed sync left visible; see `Inode.evict`."""
        self.inodes[inode].evict()

    def sync_dir(self, path: str) -> None:
        """Make changes of names in a folder durable, once their other folder is synced too."""
        changes = [change._replace(unsynced=change.unsynced - {path}) for change in self.changes]
        durable = [change for change in changes if not change.unsynced]
        self.durable_names = applied(self.durable_names, durable)
        self.changes = [change for change in changes if change.unsynced]

    def _change(self, inode: int, old: str | None, new: str | None) -> None:
        folders = frozenset(posixpath.dirname(name) for name in (old, new) if name is not None)
        change = NameChange(inode, old, new, folders)
        self.changes.append(change)
        self.names = applied(self.names, [change])


def applied(names: Names, changes: Sequence[NameChange]) -> Names:
    """Return the names after some changes, in order."""
    names = dict(names)
    for change in changes:
        if change.old is not None and names.get(change.old) == change.inode:
            del names[change.old]
        if change.new is not None:
            names[change.new] = change.inode
    return names
