"""The seam between everything that writes and the disk: small enough to be faked.

In: paths and byte ranges. Out: bytes, and durability where it was asked for. A live log takes
``fs: FileSystem = LOCAL`` (`tallystick.storage.local`), so that the recording, faulty and
in-memory file systems of `tallystick.testing` can stand in for the real one.

What is promised, and by whom:

* `File.datasync` makes the bytes and the size of a file durable, not its name.
* `FileSystem.sync_dir` makes the names in a folder durable: creates, renames, removals.
* Nothing else is durable, and unsynced writes may reach the disk in any order and in parts.

Everything here fails with `OSError`, except locks: `LogLockedError`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from tallystick.storage.source import ByteSource

Bytes: TypeAlias = bytes | bytearray | memoryview

ZERO_PIECE = 1 << 20
"""Bytes per write when a file is filled with zeros."""
VECTOR_MAX = 1024
"""Buffers per vectored write: IOV_MAX of Linux and macOS."""


class Lock(Protocol):
    """An exclusive lock; it ends with its owner, however the owner ends."""

    def release(self) -> None:
        """Give the lock back; a second call, or one in a forked child, does nothing."""
        ...


class File(Protocol):
    """One open file. Offsets and sizes are in bytes; there is no current position."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, offset: int) -> bytes:
        """The bytes at ``offset``: fewer than ``size`` only at the end of the file."""
        ...

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write all of ``data``, however many system calls it takes."""
        ...

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        """Write all buffers one behind the other."""
        ...

    def datasync(self) -> None:
        """Make what was written, and the size, durable. After a failure the state of the
        unsynced bytes is unknown: never call it again to make up for one."""
        ...

    def allocate(self, size: int) -> None:
        """Grow the file to ``size`` with real zeros (no holes, so that later writes change no
        metadata); what is there stays, a larger file is left alone. Not synced."""
        ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def lock_range(self, offset: int, length: int) -> Lock:
        """An exclusive lock on a byte range that other programs' POSIX record locks see.
        Raises `LogLockedError`."""
        ...

    def close(self) -> None:
        """Close without syncing; a second call does nothing."""
        ...


class FileSystem(Protocol):
    """Files by path."""

    def open(self, path: str, *, write: bool = True) -> File:
        """An existing file, to be read from the disk rather than from a cache that a failed
        sync may have left wrong. Raises `FileNotFoundError`."""
        ...

    def create(self, path: str) -> File:
        """A new, empty file, opened for reading and writing. Raises `FileExistsError`."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty if there is no such folder."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file a new name, replacing what has it; durable with `sync_dir`."""
        ...

    def remove(self, path: str) -> None: ...

    def mkdir(self, path: str) -> None:
        """Make a folder and its missing parents, durably; fine if it exists."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        ...

    def lock(self, path: str) -> Lock:
        """Own the lock file at ``path``, made if missing and left behind. Refuses every second
        owner, in this process too. Raises `LogLockedError` with the owner's process id."""
        ...


def read_file(fs: FileSystem, path: str) -> bytes:
    """The whole content of a file."""
    file = fs.open(path, write=False)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_whole(fs: FileSystem, path: str, pieces: Iterable[bytes], *, size: int = 0) -> None:
    """Make a file that is there whole and durable, or not at all; replaces an older one. It is
    filled with zeros up to ``size``."""
    fresh = f"{path}.new"
    if fs.exists(fresh):
        fs.remove(fresh)
    file = fs.create(fresh)
    try:
        place = 0
        for piece in pieces:
            file.pwrite(piece, place)
            place += len(piece)
        file.allocate(size)
        file.datasync()
    except BaseException:
        with suppress(OSError):
            fs.remove(fresh)  # what it took on a full disk is needed there
        raise
    finally:
        file.close()
    fs.rename(fresh, path)
    fs.sync_dir(posixpath.dirname(path))


def read_source(fs: FileSystem, path: str) -> ByteSource:
    """The whole content of a file in the form that readers take."""
    return ByteSource(path, memoryview(read_file(fs, path)))


def write_all(write_some: Callable[[Bytes, int], int], data: Bytes, offset: int) -> None:
    """Call ``write_some(rest, offset)``, which returns how much it wrote, until all is written.

    Interrupted calls (EINTR) are repeated; one that writes nothing is an `OSError`.
    """
    rest = memoryview(data).cast("B")
    while rest:
        try:
            written = write_some(rest, offset)
        except InterruptedError:
            continue
        if written <= 0:
            raise OSError(f"a write of {len(rest)} bytes at offset {offset} wrote nothing")
        rest = rest[written:]
        offset += written


def fill_with_zeros(file: File, size: int) -> None:
    """Grow ``file`` to ``size`` bytes by writing zeros."""
    place = file.size()
    zeros = bytes(min(ZERO_PIECE, max(size - place, 0)))
    while place < size:
        piece = zeros[: size - place]
        file.pwrite(piece, place)
        place += len(piece)
