"""The seam between everything that writes and the disk: small enough to be faked.

In: paths and byte ranges. Out: bytes, and durability where it was asked for. A live log takes
``fs: FileSystem = LOCAL`` (`tallystick.storage.local`), so that the recording, faulty and
in-memory file systems of `tallystick.testing` can take the place of the real one.

What is promised, and by which call:

* `File.datasync` makes the bytes and the size of a file durable, not its name.
* `FileSystem.sync_dir` makes the names in a folder durable: creates, renames, removals.
* Nothing else is durable, and unsynced writes may reach the disk in any order and in parts.

A path leads to another folder once a folder is renamed, or a symbolic link or the working directory
changed. So whoever opens a log calls `FileSystem.hold`, and goes on with what that returns.

Every call raises `OSError` if the operating system fails it; locks raise `LogLockedError`.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from tallystick.arguments import a_path
from tallystick.errors import LogUnreadableError
from tallystick.storage.source import ByteSource, unreadable

Bytes: TypeAlias = bytes | bytearray | memoryview

ZERO_PIECE = 1 << 20
"""Most bytes per write when a file is filled with zeros."""
SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
VECTOR_MAX = 1024
"""Most buffers per vectored write: IOV_MAX of Linux and macOS."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Lock(Protocol):
    """An exclusive lock; it ends with its owner, however the owner ends."""

    def release(self) -> None:
        """Release the lock; a second call, or one in a forked child, does nothing."""
        ...


class File(Protocol):
    """One open file. Offsets and sizes are in bytes; there is no current position."""

    @property
    def path(self) -> str:
        """Return the path that the file was opened with."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Read bytes at an offset.

        Args:
            size: Bytes to read.
            offset: Byte offset in the file.

        Returns:
            The bytes; fewer than ``size`` only at the end of the file.
        """
        ...

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write all of ``data`` at a byte offset, however many system calls it takes."""
        ...

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        """Write all buffers, one after the other, from a byte offset on."""
        ...

    def datasync(self) -> None:
        """Make what was written, and the size, durable.

        After a failure the state of the unsynced bytes is unknown: a second call may succeed
        without having saved them, so never repeat it.
        """
        ...

    def allocate(self, size: int) -> None:
        """Grow the file to ``size`` bytes with written zeros; a larger file stays as it is.

        Zeros rather than holes, so that later writes change no metadata. Not synced.
        """
        ...

    def truncate(self, size: int) -> None:
        """Set the size in bytes: cut the file, or grow it with a hole. Not synced."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def lock_range(self, offset: int, length: int) -> Lock:
        """Lock a range of bytes exclusively; POSIX record locks of other programs conflict with it.

        Raises:
            LogLockedError: The range, or a part of it, is locked already.
        """
        ...

    def close(self) -> None:
        """Close without syncing; a second call does nothing."""
        ...


@runtime_checkable
class FileSystem(Protocol):
    """Files by path."""

    def open(self, path: str, *, write: bool = True) -> File:
        """Open an existing file.

        Reads come from the disk rather than from a cache that a failed sync may have left wrong.

        Raises:
            FileNotFoundError: There is no such file.
        """
        ...

    def create(self, path: str) -> File:
        """Make a new, empty file and open it for reading and writing.

        Raises:
            FileExistsError: There is a file of that name.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return True if there is a file or folder at ``path``."""
        ...

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; no names if there is no such folder."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file a new name, replacing the file that has it. Not synced."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file. Not synced."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a folder and its missing parents, durably; fine if it exists."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        ...

    def lock(self, path: str, *, whole: bool = False) -> Lock:
        """Take the lock file at ``path``, which is made if missing and never removed.

        Args:
            path: The lock file.
            whole: Whether it stands for all that is in its folder, which is held: then the folder
                itself is locked, too, so that nobody gets the lock who has deleted the file.

        Raises:
            LogLockedError: It has an owner, in this process or another; names its process id.
        """
        ...

    def hold(self, folder: str) -> HeldFolder:
        """Open a folder, for files that must stay in it wherever it is moved.

        Args:
            folder: An absolute path; the folder exists.
        """
        ...


@runtime_checkable
class Placed(Protocol):
    """A folder, or a log in one, that was opened by a path."""

    def require_in_place(self) -> None:
        """Check that the path still leads to the folder.

        Raises:
            LogWriteError: It leads to another folder, or to none.
        """
        ...


class HeldFolder(FileSystem, Placed, Protocol):
    """Files by path, of which those in one folder are reached through its descriptor.

    Their paths begin with that which the folder was opened by, wherever it is now. So nothing is
    ever made in a folder that took its place; but whoever looks for a new log file does so by path,
    and before one is made, `require_in_place` is called.
    """

    def through(self, path: str) -> str:
        """Return a path to a file in the folder that leads there wherever the folder is.

        For system calls that take no descriptor of a folder; ``path`` itself where there is none.
        """
        ...

    def close(self) -> None:
        """Close the folder's descriptor; a second call does nothing."""
        ...


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path that leads to the same place from any working directory.

    Raises:
        TypeError: it is no path.
        ValueError: it is empty, as a setting is that nobody has set; or a URL, which would become
            a folder of such a name.
        LogUnreadableError: it is relative, and the working directory was removed.
    """
    place = a_path(path)
    if not place:
        raise ValueError('a path is empty; name a folder, or "." for the current one')
    if _URL.match(place):
        raise ValueError(
            f"{place} is a URL; what is written is in a folder of this machine: name its path"
        )
    try:
        return str(Path(place).absolute())
    except FileNotFoundError as error:
        raise LogUnreadableError(
            "the working directory was removed: nothing is beside it",
            file=place,
            advice="Name an absolute path",
        ) from error


def file_system(value: object, name: str = "fs") -> FileSystem:
    """Return a file system.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, FileSystem):
        return value
    raise TypeError(
        f"{name} is of type {type(value).__name__}; expected a file system, such as "
        "tallystick.storage.local.LOCAL, or one of tallystick.testing"
    )


def read_file(fs: FileSystem, path: str) -> bytes:
    """Read the whole content of a file."""
    file = fs.open(path, write=False)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_whole(fs: FileSystem, path: str, pieces: Iterable[bytes], *, size: int = 0) -> None:
    """Make a file that is there whole and durable, or not at all; replace an older one.

    Args:
        fs: The file system.
        path: The file. A file of this name with ``.new`` after it is made first.
        pieces: The content.
        size: Least size in bytes; the rest is zeros.
    """
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
    """Read the whole content of a file in the form that readers take.

    Raises:
        LogUnreadableError: the disk does not give it back, or the file cannot be opened.
    """
    try:
        return ByteSource(path, memoryview(read_file(fs, path)))
    except OSError as error:
        raise unreadable(path, error) from error


def write_all(write_some: Callable[[Bytes, int], int], data: Bytes, offset: int) -> None:
    """Call ``write_some(rest, offset)``, which returns how much it wrote, until all is written.

    Interrupted calls (EINTR) are repeated; one that writes nothing raises `OSError`.
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
