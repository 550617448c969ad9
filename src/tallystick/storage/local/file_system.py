"""The files of the operating system: `LOCAL`.

In: what `tallystick.storage.files` asks for. Out: files, names, locks, and folders that are held by
their descriptors.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Final

from tallystick.errors import LogWriteError
from tallystick.posix import O_DIRECTORY, drop_cached, fcntl
from tallystick.storage.files import File, FileSystem, Lock, read_file, write_whole
from tallystick.storage.local.descriptors import (
    BY_NUMBER,
    FILE_MODE,
    FOLDER,
    Folder,
    Place,
    name_path,
)
from tallystick.storage.local.file import AppendedFile, LocalFile
from tallystick.storage.local.lock_file import FileLock

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF)
FOLDER_MODE = 0o700
"""Permissions of folders that are made."""


class LocalFileSystem:
    """The operating system's files.

    Args:
        file_mode: Permissions of files that are made, less what the umask takes.
        folder_mode: The same for folders. ``LocalFileSystem(0o660, 0o770)`` lets a group in, as
            the original of a historic format may need that runs as another user.
    """

    def __init__(self, file_mode: int = FILE_MODE, folder_mode: int = FOLDER_MODE) -> None:
        self.file_mode = file_mode
        self.folder_mode = folder_mode
        self._folder: Folder | None = None

    def open(self, path: str, *, write: bool = True) -> File:
        """Open a file; see `FileSystem.open`."""
        file = LocalFile(path, os.O_RDWR if write else os.O_RDONLY, at=self._at(path))
        # After a failed sync the cache may hold bytes, marked clean, that never reached the disk.
        # Recovery must read what the disk has.
        drop_cached(file.fd)
        return file

    def create(self, path: str) -> File:
        """Make a file; see `FileSystem.create`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        return LocalFile(path, flags, self.file_mode, at=self._at(path))

    def open_to_append(self, path: str) -> LocalFile:
        """Open or make a file to whose end all processes write, whatever offset they give."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        return AppendedFile(path, flags, self.file_mode, at=self._at(path))

    @contextlib.contextmanager
    def locked_file(self, path: str) -> Iterator[File]:
        """Open as `open_to_append`, with the lock of the file that has the name for the block.

        Whoever has it may replace the file: those who wait for it go on with the new one. A link
        becomes a file, with the content of what it names, to which nothing is written.
        """
        while True:
            try:
                opened = self.open_to_append(path)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                write_whole(self, path, [read_file(self, path)])
                continue
            with contextlib.closing(opened) as file:
                fcntl.flock(file.fd, fcntl.LOCK_EX)
                try:
                    named = self._status(path)
                    if named is not None and os.path.samestat(named, os.fstat(file.fd)):
                        yield file
                        return
                finally:
                    fcntl.flock(file.fd, fcntl.LOCK_UN)  # a child forked meanwhile has it, too

    def exists(self, path: str) -> bool:
        """Return True if there is such a file or folder."""
        return self._status(path) is not None

    def _status(self, path: str) -> os.stat_result | None:
        name, folder = self._at(path)
        try:
            return os.stat(name, dir_fd=folder)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            name_path(error, path)
            raise

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        name, folder = self._at(path)
        try:
            return os.stat(name, dir_fd=folder).st_size
        except OSError as error:
            name_path(error, path)
            raise

    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        try:
            if self._at(path)[1] is None:
                return sorted(os.listdir(path))  # noqa: PTH208 - names are wanted, not paths
            with self._opened(path) as folder:
                return sorted(os.listdir(folder))  # noqa: PTH208
        except FileNotFoundError:
            return []
        except OSError as error:
            name_path(error, path)
            raise

    def rename(self, source: str, target: str) -> None:
        """Rename a file; see `FileSystem.rename`."""
        (old, old_folder), (new, new_folder) = self._at(source), self._at(target)
        try:
            os.replace(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)
        except OSError as error:
            name_path(error, source)
            error.filename2 = target
            raise

    def remove(self, path: str) -> None:
        """Remove a file."""
        name, folder = self._at(path)
        try:
            os.unlink(name, dir_fd=folder)
        except OSError as error:
            name_path(error, path)
            raise

    def mkdir(self, path: str) -> None:
        """Make a folder; see `FileSystem.mkdir`."""
        parent = str(Path(path).parent)
        found = self._status(path)
        if found is not None and stat.S_ISDIR(found.st_mode):
            # Whoever made it may have been killed before its name was durable.
            with contextlib.suppress(PermissionError):
                self.sync_dir(parent)
            return
        self.mkdir(parent)
        name, folder = self._at(path)
        try:
            os.mkdir(name, self.folder_mode, dir_fd=folder)
        except FileExistsError:
            found = self._status(path)
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise
        except OSError as error:
            name_path(error, path)
            raise
        self.sync_dir(parent)

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable; nothing where a folder cannot be opened (Windows)."""
        name, held = self._at(path)
        if held is not None and name == ".":
            os.fsync(held)  # there may be no other descriptor to be had
        elif O_DIRECTORY:
            with self._opened(path) as folder:
                os.fsync(folder)

    def lock(self, path: str, *, whole: bool = False) -> Lock:
        """Take a lock file; see `FileSystem.lock`."""
        return FileLock(path, self.file_mode, self._at(path), whole=whole)

    @contextlib.contextmanager
    def locked_folder(self, path: str) -> Iterator[None]:
        """Wait for the lock of a folder itself, and have it for the length of the block."""
        with self._opened(path) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(folder, fcntl.LOCK_UN)  # a child forked meanwhile has it open, too

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        name, folder = self._at(path)
        try:
            fd = os.open(name, FOLDER, dir_fd=folder)
        except OSError as error:
            name_path(error, path)
            raise
        try:
            yield fd
        finally:
            os.close(fd)

    # -- a folder that is held ------------------------------------------------------------------

    def hold(self, folder: str) -> LocalFileSystem:
        """Open a folder; see `FileSystem.hold`."""
        held = copy(self)
        held._folder = Folder(folder, FOLDER, at=self._at(folder))
        return held

    def _at(self, path: str) -> Place:
        """Return how system calls reach a path."""
        held = self._folder
        if held is not None and path.startswith(held.path):
            name = path[len(held.path) :]
            if not name or name.startswith("/"):
                return name.lstrip("/") or ".", held.fd
        return path, None

    def require_in_place(self) -> None:
        """Check that the path leads to the folder; see `Placed.require_in_place`."""
        if self._folder is None:
            return
        try:
            found = Path(self._folder.path).stat()
        except OSError:
            found = None
        held = os.fstat(self._folder.fd)
        if held.st_nlink == 0:
            raise LogWriteError(
                "the folder of this log was deleted while it was open, and its files with it",
                file=self._folder.path,
                advice="Restore a copy and open that: what was written since then is lost, "
                "acknowledged or not",
            )
        if found is None or not os.path.samestat(found, held):
            raise LogWriteError(
                "the folder of this log was moved: its path leads to "
                + ("no folder" if found is None else "another one"),
                file=self._folder.path,
                advice="Close the log and open it again by the path that the folder has now, or "
                "move the folder back; nothing is lost",
            )

    def through(self, path: str) -> str:
        """Return a path by the folder's descriptor; see `HeldFolder.through`."""
        name, folder = self._at(path)
        if folder is None or not BY_NUMBER.exists():
            return path
        return posixpath.join(BY_NUMBER, str(folder), "" if name == "." else name).rstrip("/")

    def close(self) -> None:
        """Close the descriptor of the folder that is held."""
        if self._folder is not None:
            self._folder.close()


LOCAL: Final = LocalFileSystem()
"""The file system of this machine; what it makes is its owner's alone."""


def open_to_append(fs: FileSystem, path: str) -> File:
    """Open or make a file; on the real file system, one that other processes append to, too."""
    if isinstance(fs, LocalFileSystem):
        return fs.open_to_append(path)
    return fs.open(path) if fs.exists(path) else fs.create(path)


@contextlib.contextmanager
def locked_to_append(fs: FileSystem, path: str) -> Iterator[File]:
    """Open or make a file, as its only user; see `LocalFileSystem.locked_file`.

    Another file system than the real one is that of one process, whose threads take turns.
    """
    if isinstance(fs, LocalFileSystem):
        with fs.locked_file(path) as file:
            yield file
    else:
        with contextlib.closing(open_to_append(fs, path)) as file:
            yield file
