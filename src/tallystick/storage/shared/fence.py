"""The file system of a leader: nothing is changed once another process leads.

In: a file system, and a check that raises in a leader that was deposed. Out: the same file system,
checked before each change. A process that is stopped between the check and the system call makes
that one call when it wakes; `epochs` says why that does no harm. Here it is done that no file is
ever replaced by a rename.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tallystick.storage.files import Bytes, File, HeldFolder, Lock
from tallystick.storage.shared import kernel

Check = Callable[[str], None]
"""Is called with the name of the change that follows."""


class FencedFile:
    """A file whose changes are checked."""

    def __init__(self, file: File, check: Check) -> None:
        self._file = file
        self._check = check
        self.path = file.path
        self.pread, self.size, self.close = file.pread, file.size, file.close
        self.lock_range = file.lock_range

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write bytes; see `File.pwrite`."""
        self._check("pwrite")
        self._file.pwrite(data, offset)

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        """Write buffers; see `File.pwritev`."""
        self._check("pwritev")
        self._file.pwritev(buffers, offset)

    def datasync(self) -> None:
        """Sync the file; see `File.datasync`."""
        self._check("datasync")
        self._file.datasync()

    def allocate(self, size: int) -> None:
        """Grow the file with zeros; see `File.allocate`."""
        self._check("allocate")
        self._file.allocate(size)

    def truncate(self, size: int) -> None:
        """Set the size; see `File.truncate`."""
        self._check("truncate")
        self._file.truncate(size)


class FencedFileSystem:
    """Files by path, whose changes are checked; the log is locked already."""

    def __init__(self, fs: HeldFolder, check: Check) -> None:
        self._fs = fs
        self._check = check
        self.exists, self.size, self.list = fs.exists, fs.size, fs.list
        self.require_in_place, self.through = fs.require_in_place, fs.through

    def open(self, path: str, *, write: bool = True) -> File:
        """Open a file; see `FileSystem.open`."""
        return FencedFile(self._fs.open(path, write=write), self._check)

    def create(self, path: str) -> File:
        """Make a file; see `FileSystem.create`."""
        self._check("create")
        return FencedFile(self._fs.create(path), self._check)

    def rename(self, source: str, target: str) -> None:
        """Rename a file; raise `FileExistsError` if there is one of the new name."""
        self._check("rename")
        kernel.rename_new(self.through(source), self.through(target))

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._check("remove")
        self._fs.remove(path)

    def mkdir(self, path: str) -> None:
        """Make a folder; see `FileSystem.mkdir`."""
        self._check("mkdir")
        self._fs.mkdir(path)

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        self._check("sync_dir")
        self._fs.sync_dir(path)

    def lock(self, path: str, *, whole: bool = False) -> Lock:
        """Return a lock that does nothing: every process that shares the log has locked it."""
        del path, whole
        return _NoLock()

    def hold(self, folder: str) -> HeldFolder:
        """Return this file system: the process holds the folder."""
        del folder
        return self

    def close(self) -> None:
        """Do nothing: the folder is held until the process leaves the log."""


class _NoLock:
    def release(self) -> None:
        """Do nothing."""
