"""A file system in memory, for fast tests.

In: the calls of `tallystick.storage.files.FileSystem`. Out: what the real one would return, from
a `Disk` model that also knows what a crash would leave.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tallystick.errors import LogClosedError, LogLockedError
from tallystick.storage.files import Bytes, File, Lock, fill_with_zeros
from tallystick.testing.disk import Disk, Inode


class InPlace:
    """A file system in which no folder is ever moved, which so is its own `HeldFolder`."""

    def hold(self, folder: str) -> Self:  # noqa: ARG002
        """Return this file system; see `FileSystem.hold`."""
        return self

    def require_in_place(self) -> None:
        """Do nothing."""

    def through(self, path: str) -> str:
        """Return the path."""
        return path

    def close(self) -> None:
        """Do nothing."""


class MemoryFileSystem(InPlace):
    """Files in memory; may be used by several threads.

    Paths are plain strings with ``/``; folders exist as soon as they are named.

    Args:
        contents: Files that are there, durable, from the start, by path.
    """

    def __init__(self, contents: Mapping[str, bytes | bytearray] | None = None) -> None:
        self.disk = Disk()
        self._mutex = threading.RLock()
        self._folders: set[str] = set()
        self._locks: dict[str, set[tuple[int, int]]] = {}
        for path, content in (contents or {}).items():
            self.disk.create(path, content)
            self.disk.sync_dir(posixpath.dirname(path))

    def apply(self, call: str, *arguments: object) -> None:
        """Change the disk by one call of `Disk`; subclasses see every change here."""
        with self._mutex:
            getattr(self.disk, call)(*arguments)

    # -- FileSystem -----------------------------------------------------------------------

    def open(self, path: str, *, write: bool = True) -> File:
        """Open a file; see `FileSystem.open`."""
        inode = self.disk.inode(path)
        if inode.lost:
            self.apply("evict", inode.number)
        return MemoryFile(self, path, inode, writable=write)

    def create(self, path: str) -> File:
        """Make a file; see `FileSystem.create`."""
        with self._mutex:
            if path in self.disk.names:
                raise FileExistsError(17, "File exists", path)
            self.apply("create", path)
            return MemoryFile(self, path, self.disk.inode(path), writable=True)

    def exists(self, path: str) -> bool:
        """Return True if there is such a file or folder."""
        prefix = path.rstrip("/") + "/"
        if path.rstrip("/") in self._folders:
            return True
        return any(name == path or name.startswith(prefix) for name in list(self.disk.names))

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return len(self.disk.inode(path).data)

    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        prefix = path.rstrip("/") + "/"
        inside = [name[len(prefix) :] for name in list(self.disk.names) if name.startswith(prefix)]
        return sorted({name.split("/")[0] for name in inside})

    def rename(self, source: str, target: str) -> None:
        """Rename a file; see `FileSystem.rename`."""
        self.disk.inode(source)
        self.apply("rename", source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.disk.inode(path)
        self.apply("remove", path)

    def mkdir(self, path: str) -> None:
        """Make a folder; see `FileSystem.mkdir`."""
        self._folders.add(path.rstrip("/"))

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        self.apply("sync_dir", path.rstrip("/") or "/")

    def lock(self, path: str, *, whole: bool = False) -> Lock:
        """Take a lock file; see `FileSystem.lock`."""
        if whole:
            path = posixpath.dirname(path)
        return self.take_lock(path, 0, 1)

    # -- for tests --------------------------------------------------------------------------

    def contents(self) -> dict[str, bytes]:
        """Return all files as reads see them, by path."""
        with self._mutex:
            inodes = self.disk.inodes
            return {path: bytes(inodes[inode].data) for path, inode in self.disk.names.items()}

    def write_to(self, folder: Path) -> None:
        """Copy all files into a real folder, to look at them or to open them by path.

        Args:
            folder: The folder; made if missing.
        """
        for path, content in self.contents().items():
            target = folder / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def lose(self, path: str, *, visible: bool) -> None:
        """Drop what is unsynced in a file, as a failed sync does: it will never reach the disk.

        Args:
            path: The file.
            visible: True if reads see it until the file is opened again.
        """
        number = self.disk.inode(path).number
        self.apply("lose", number, visible)

    def take_lock(self, path: str, offset: int, length: int) -> Lock:
        """Lock a range of bytes of a file.

        Raises:
            LogLockedError: A part of it is locked already.
        """
        wanted = (offset, offset + length)
        with self._mutex:
            held = self._locks.setdefault(path, set())
            if any(wanted[0] < end and begin < wanted[1] for begin, end in held):
                raise LogLockedError(
                    "the log is open already", file=path, advice="Close the other owner first"
                )
            held.add(wanted)
        return _MemoryLock(held, wanted)


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    def __init__(self, fs: MemoryFileSystem, path: str, inode: Inode, *, writable: bool) -> None:
        self.path = path
        self._fs = fs
        self._inode = inode
        self._writable = writable
        self._open = True
        self._locks: list[Lock] = []

    def pread(self, size: int, offset: int) -> bytes:
        """Read bytes; see `File.pread`."""
        self._check()
        return bytes(self._inode.data[offset : offset + size])

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write bytes; see `File.pwrite`."""
        self._check_writable()
        self._fs.apply("write", self._inode.number, bytes(data), offset)

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        """Write buffers; see `File.pwritev`."""
        self.pwrite(b"".join(buffers), offset)

    def datasync(self) -> None:
        """Sync the file; see `File.datasync`."""
        self._check()
        self._fs.apply("sync", self._inode.number)

    def allocate(self, size: int) -> None:
        """Grow the file with zeros; see `File.allocate`."""
        fill_with_zeros(self, size)

    def truncate(self, size: int) -> None:
        """Set the size; see `File.truncate`."""
        self._check_writable()
        self._fs.apply("truncate", self._inode.number, size)

    def size(self) -> int:
        """Return the size in bytes."""
        self._check()
        return len(self._inode.data)

    def lock_range(self, offset: int, length: int) -> Lock:
        """Lock bytes; see `File.lock_range`."""
        self._check()
        lock = self._fs.take_lock(self.path, offset, length)
        self._locks.append(lock)
        return lock

    def close(self) -> None:
        """Close the file without syncing."""
        self._open = False
        while self._locks:
            self._locks.pop().release()

    def _check(self) -> None:
        if not self._open:
            raise LogClosedError("the file is closed", file=self.path)

    def _check_writable(self) -> None:
        self._check()
        if not self._writable:
            raise PermissionError(13, "File is open for reading only", self.path)


class _MemoryLock:
    def __init__(self, held: set[tuple[int, int]], span: tuple[int, int]) -> None:
        self._held = held
        self._span: tuple[int, int] | None = span

    def release(self) -> None:
        """Unlock the bytes; a second call does nothing."""
        if self._span is not None:
            self._held.discard(self._span)
            self._span = None
