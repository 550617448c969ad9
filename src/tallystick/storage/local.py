"""The real file system: `LOCAL`.

In: what `tallystick.storage.files` asks for. Out: system calls, each chosen for what it
promises: ``fdatasync`` on Linux, ``F_FULLFSYNC`` on macOS, ``fsync`` elsewhere.

A forked child inherits descriptors, and with them the power to write into its parent's log and
to keep its locks alive. So the child closes its copies before it does anything else; what it
calls on them afterwards raises `LogClosedError`.

What is made is its owner's alone, unless a setting says otherwise. What is written to, made or
locked is never reached through a symbolic link, and a lock file that is not ours stays as it is.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import posixpath
import shutil
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from tallystick.errors import LogClosedError, LogLockedError, LogWriteError
from tallystick.posix import (
    O_DIRECTORY,
    O_NOFOLLOW,
    O_NONBLOCK,
    O_PLAIN,
    fcntl,
    links_and_size,
    pread,
)
from tallystick.storage.files import (
    VECTOR_MAX,
    Bytes,
    File,
    FileSystem,
    Lock,
    fill_with_zeros,
    read_file,
    write_all,
    write_whole,
)
from tallystick.storage.fork import Uncopied, forked_error, register_in_child
from tallystick.storage.signals import starts_unchecked, uninterrupted

UNFINISHED = ".converting"
"""Suffix of a converted log's folder until all of its files are there."""
_CLOSED = -1
_FORKED = -2
_FOLDER = os.O_RDONLY | O_DIRECTORY | O_PLAIN
_BY_NUMBER = Path("/proc/self/fd")
"""Where Linux has the open descriptors of a process as paths."""
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF)
FILE_MODE = 0o600
"""Permissions of files that are made: the owner's alone."""
FOLDER_MODE = 0o700
"""Permissions of folders that are made."""
_OWNER_MAX = 20
"""Most bytes that a lock file of ours holds: a process id as text."""
_Place: TypeAlias = tuple[str, int | None]
"""A path, and the descriptor of the folder from which it leads; None for the working directory."""
_REFUSED = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


_marks = itertools.count(1 << 30)
_STANDARD_MAX = 2
"""The last of the standard descriptors."""


def _moved(fd: int) -> int:
    """Return a descriptor in the place of one that has a standard number; the null device gets it.

    A service may start without standard descriptors. What a library then writes to the standard
    output or error goes to whichever file has its number.
    """
    try:
        moved = int(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STANDARD_MAX + 1))
    finally:
        os.close(fd)
    # All of them at once: mapping a file makes another descriptor of it, by the lowest free number.
    while (null := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_MAX:
        pass
    os.close(null)
    return moved


def _name(error: OSError, path: str) -> None:
    """Have an error name the path that was asked for.

    The system call had a name in the folder that is held, or a path by the folder's number.
    """
    by_number = path.startswith(f"{_BY_NUMBER}/")
    error.filename = os.path.realpath(path) if by_number else path


class _Descriptor(Uncopied):
    """A descriptor that is closed in forked children, and raises when used there.

    Other code of the process may close it by its number, as daemons do with all that they find
    open, and the next file that is opened gets that number. So it is known by its position, which
    nothing here uses: each has one of its own.
    """

    __slots__ = ("__weakref__", "_fd", "_opener", "mark", "path")

    def __init__(
        self, path: str, flags: int, mode: int = FILE_MODE, *, at: _Place | None = None
    ) -> None:
        self.path = path
        name, folder = at or (path, None)
        self._fd = _CLOSED
        self._opener = id(self)
        if flags & os.O_RDWR:
            flags |= O_NOFOLLOW
        try:
            # Without O_NONBLOCK a pipe that somebody planted would be waited for.
            fd = os.open(name, flags | O_PLAIN | O_NONBLOCK, mode, dir_fd=folder)
        except OSError as error:
            _name(error, path)
            raise
        if fd <= _STANDARD_MAX:
            fd = _moved(fd)
        try:
            self.mark = self._new_mark(fd)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        register_in_child(self)

    def _new_mark(self, fd: int) -> int:
        """Return what `_mark_of` returns for this descriptor alone."""
        return os.lseek(fd, next(_marks), os.SEEK_SET)

    def _mark_of(self, fd: int) -> int:
        return os.lseek(fd, 0, os.SEEK_CUR)

    @property
    def fd(self) -> int:
        """Return the open descriptor, or raise `LogClosedError`."""
        fd = self._fd
        if not self._is_ours(fd):
            raise self._unusable()
        return fd

    def _is_ours(self, fd: int) -> bool:
        try:
            return fd >= 0 and self._mark_of(fd) == self.mark
        except OSError:
            return False

    def _unusable(self) -> LogClosedError:
        if self._fd == _FORKED:
            return forked_error(self.path)
        if self._fd == _CLOSED:
            return LogClosedError("the file is closed", file=self.path)
        return LogClosedError(
            "other code of this process has closed the file by its descriptor",
            file=self.path,
            advice="Open the log after what closes descriptors, such as os.closerange of a daemon",
        )

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        self._shut(_CLOSED)

    def forked(self) -> None:
        """Close the child's copy, which leaves the parent's locks alone."""
        self._shut(_FORKED)

    def _shut(self, mark: int) -> None:
        fd, self._fd = self._fd, min(self._fd, mark)
        if self._is_ours(fd):
            os.close(fd)

    def __del__(self) -> None:
        # What was made without its `__init__`, of another one's slots say, has opened nothing.
        if getattr(self, "_opener", None) == id(self):
            self.close()


class _Folder(_Descriptor):
    """The descriptor of a folder, whose position not every file system keeps: its number does."""

    __slots__ = ()

    def _new_mark(self, fd: int) -> int:
        return self._mark_of(fd)

    def _mark_of(self, fd: int) -> int:
        found = os.fstat(fd)
        return found.st_dev << 64 | found.st_ino


class LocalFile(_Descriptor):
    """A file of the operating system."""

    __slots__ = ("_least",)

    def __init__(
        self, path: str, flags: int, mode: int = FILE_MODE, *, at: _Place | None = None
    ) -> None:
        super().__init__(path, flags, mode, at=at)
        self._least = self.size()
        """The size that it has at least, unless another program has cut it."""

    def pread(self, size: int, offset: int) -> bytes:
        """Read bytes; see `File.pread`."""
        fd = self.fd
        data = pread(fd, size, offset)
        while len(data) < size and (more := pread(fd, size - len(data), offset + len(data))):
            data += more
        return data

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write bytes; see `File.pwrite`."""
        # The plain case first: this is the hot path of a log with one caller.
        written = os.pwrite(self.fd, data, offset)
        if offset + written > self._least:
            self._least = offset + written
        if type(data) is not bytes or written != len(data):
            rest = memoryview(data).cast("B")[written:]
            write_all(self._write_some, rest, offset + written)

    def _write_some(self, data: Bytes, offset: int) -> int:
        written = os.pwrite(self.fd, data, offset)
        self._least = max(self._least, offset + written)
        return written

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        """Write buffers; see `File.pwritev`."""
        for start in range(0, len(buffers), VECTOR_MAX):
            some = buffers[start : start + VECTOR_MAX]
            total = sum(memoryview(buffer).nbytes for buffer in some)
            written = os.pwritev(self.fd, some, offset)
            self._least = max(self._least, offset + written)
            if written != total:
                write_all(self._write_some, b"".join(some)[written:], offset + written)
            offset += total

    def datasync(self) -> None:
        """Sync the file; see `File.datasync`."""
        fd = self.fd
        _datasync(fd)
        links, size = links_and_size(fd)
        if links == 0:
            self._refuse_removed(fd)
        if size < self._least:
            raise OSError(errno.ENODATA, "another program has cut the file", self.path)

    def _refuse_removed(self, fd: int) -> None:
        """Raise `FileNotFoundError`, unless the file system counts no links."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), Path(self.path).stat()):
                return
        raise FileNotFoundError(errno.ENOENT, "the file was deleted while it was open", self.path)

    def allocate(self, size: int) -> None:
        """Grow the file with zeros; see `File.allocate`."""
        fill_with_zeros(self, size)

    def truncate(self, size: int) -> None:
        """Set the size; see `File.truncate`."""
        self._least = min(self._least, size)  # first, as another thread may sync the file
        os.ftruncate(self.fd, size)
        self._least = size

    def size(self) -> int:
        """Return the size in bytes."""
        return os.fstat(self.fd).st_size

    def lock_range(self, offset: int, length: int) -> Lock:
        """Lock bytes; see `File.lock_range`."""
        try:
            _lock_bytes(self.fd, fcntl.F_WRLCK, offset, length)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            raise LogLockedError(
                "another process or object has locked this file",
                file=self.path,
                offset=offset,
                advice="Close the other owner first",
            ) from error
        return _RangeLock(self, offset, length)


if sys.platform == "linux":

    def _datasync(fd: int) -> None:
        os.fdatasync(fd)

    def _lock_bytes(fd: int, kind: int, offset: int, length: int) -> None:
        # Locks of the open file, not of the process: closing another descriptor of the same
        # file (a reader in this process) must not drop them. POSIX locks conflict with them.
        request = struct.pack("hhqqi4x", kind, os.SEEK_SET, offset, length, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)

else:

    def _datasync(fd: int) -> None:
        if hasattr(fcntl, "F_FULLFSYNC"):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)

    def _lock_bytes(fd: int, kind: int, offset: int, length: int) -> None:
        operation = fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB
        fcntl.lockf(fd, operation, length, offset, os.SEEK_SET)


def _distrust_cache(fd: int) -> None:
    # After a failed sync the cache may hold bytes, marked clean, that never reached the disk.
    # Recovery must read what the disk has, so clean pages are dropped (dirty ones are kept).
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def sync_for_reading(path: str, begin: int, end: int) -> None:
    """Make the bytes that a reader has read durable, through a descriptor that cannot write.

    They leave the cache, so that whoever reads them next has them from the disk.

    Raises:
        OSError: the file is gone, or a sync failed.
    """
    fd = os.open(path.removeprefix("file://"), os.O_RDONLY | O_PLAIN)
    try:
        _datasync(fd)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, begin, end - begin, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


class _AppendedFile(LocalFile):
    """A file that other processes append to, too; a line is whole, or the disk is full."""

    __slots__ = ()

    def pwrite(self, data: Bytes, offset: int) -> None:  # noqa: ARG002
        """Write bytes to the end of the file, wherever that is."""
        fd = self.fd
        try:
            write_all(lambda rest, _: os.write(fd, rest), data, 0)
        finally:
            os.lseek(fd, self.mark, os.SEEK_SET)


class _RangeLock(Uncopied):
    """A lock on bytes of an open file; it ends with the file's descriptor at the latest."""

    def __init__(self, file: LocalFile, offset: int, length: int) -> None:
        self._file: LocalFile | None = file
        self._range = (offset, length)

    def release(self) -> None:
        """Unlock the bytes."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(LogClosedError):
                _lock_bytes(file.fd, fcntl.F_UNLCK, *self._range)


class _FileLock(_Descriptor):
    """An exclusive ``flock`` on a lock file that holds its owner's process id as text."""

    __slots__ = ("_locked_folder",)

    def __init__(self, path: str, mode: int, at: _Place, *, whole: bool = False) -> None:
        super().__init__(path, os.O_RDWR | os.O_CREAT, mode, at=at)
        _, self._locked_folder = at if whole else (path, None)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = pread(self.fd, 32, 0).decode("ascii", "replace").strip()
            self.close()
            if error.errno not in _REFUSED:
                raise
            raise LogLockedError(
                "the log is open already",
                file=path,
                found=f"owner process {owner or 'unknown'}",
                advice="Close it there first; the lock of a process that ended is free",
            ) from error
        try:
            self._lock_folder()
            self._sign()
        except BaseException:
            self.close()
            raise

    def _lock_folder(self) -> None:
        """Lock the folder; not on a file system that has locks for files alone (NFS)."""
        if self._locked_folder is None:
            return
        try:
            fcntl.flock(self._locked_folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _REFUSED:
                return
            raise LogLockedError(
                "the log is open already, and its lock file was deleted meanwhile",
                file=self.path,
                advice="Close it in the process that has it; leave the file `lock` where it is",
            ) from error

    def _sign(self) -> None:
        """Write the process id, over one of an earlier owner and over nothing else."""
        held = pread(self.fd, _OWNER_MAX + 1, 0)
        owner = held.strip(b"\0\n")  # zeros: a power cut has kept the size and lost the bytes
        if len(held) > _OWNER_MAX or (owner and not owner.isdigit()):
            raise LogLockedError(
                "the lock file holds something that no lock of ours does",
                file=self.path,
                expected="a process id, or nothing",
                found=f"{os.fstat(self.fd).st_size} bytes, beginning {held[:8].hex()}",
                advice="Find out whose file it is and move it away; it was left as it is",
            )
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Unlock the folder, and close the lock file, which unlocks that."""
        folder, self._locked_folder = self._locked_folder, None
        if folder is not None and self._fd >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_UN)
        self.close()


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
        self._folder: _Folder | None = None

    def open(self, path: str, *, write: bool = True) -> File:
        """Open a file; see `FileSystem.open`."""
        file = LocalFile(path, os.O_RDWR if write else os.O_RDONLY, at=self._at(path))
        _distrust_cache(file.fd)
        return file

    def create(self, path: str) -> File:
        """Make a file; see `FileSystem.create`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        return LocalFile(path, flags, self.file_mode, at=self._at(path))

    def open_to_append(self, path: str) -> LocalFile:
        """Open or make a file to whose end all processes write, whatever offset they give."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        return _AppendedFile(path, flags, self.file_mode, at=self._at(path))

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
            _name(error, path)
            raise

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        name, folder = self._at(path)
        try:
            return os.stat(name, dir_fd=folder).st_size
        except OSError as error:
            _name(error, path)
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
            _name(error, path)
            raise

    def rename(self, source: str, target: str) -> None:
        """Rename a file; see `FileSystem.rename`."""
        (old, old_folder), (new, new_folder) = self._at(source), self._at(target)
        try:
            os.replace(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)
        except OSError as error:
            _name(error, source)
            error.filename2 = target
            raise

    def remove(self, path: str) -> None:
        """Remove a file."""
        name, folder = self._at(path)
        try:
            os.unlink(name, dir_fd=folder)
        except OSError as error:
            _name(error, path)
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
            _name(error, path)
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
        return _FileLock(path, self.file_mode, self._at(path), whole=whole)

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
            fd = os.open(name, _FOLDER, dir_fd=folder)
        except OSError as error:
            _name(error, path)
            raise
        try:
            yield fd
        finally:
            os.close(fd)

    # -- a folder that is held ------------------------------------------------------------------

    def hold(self, folder: str) -> LocalFileSystem:
        """Open a folder; see `FileSystem.hold`."""
        held = copy(self)
        held._folder = _Folder(folder, _FOLDER, at=self._at(folder))
        return held

    def _at(self, path: str) -> _Place:
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
        if folder is None or not _BY_NUMBER.exists():
            return path
        return posixpath.join(_BY_NUMBER, str(folder), "" if name == "." else name).rstrip("/")

    def close(self) -> None:
        """Close the descriptor of the folder that is held."""
        if self._folder is not None:
            self._folder.close()


LOCAL: Final = LocalFileSystem()
"""The file system of this machine; what it makes is its owner's alone."""


def write_anew(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to be written anew, the owner's alone; an older one of the name is removed."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_PLAIN
    return os.fdopen(os.open(path, flags, FILE_MODE), "wb")


@contextlib.contextmanager
def naming(target: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors of the system name ``target``, where they name no file or an unfinished one."""
    try:
        yield
    except OSError as error:
        if str(error.filename or target).startswith(name := os.fspath(target)):
            error.filename = name
        raise


def require_folder(target: Path, what: str) -> None:
    """Require that the folder is there in which a file or a folder is to be made."""
    if not target.parent.is_dir():
        raise LogWriteError(
            f"the folder of the {what} does not exist", file=str(target), advice="Make it first"
        )


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


class made_whole:  # noqa: N801 - used as a function
    """A new folder to convert a log into; at the end, durable, it gets the name ``folder``.

    It is removed if the block fails. What the block writes into files it has to sync itself.

    Args:
        folder: the target, an absolute path; nothing, or an empty folder.

    Raises:
        LogWriteError: there is something, or what makes it was cut short, or still runs.
    """

    def __init__(self, folder: Path) -> None:
        _require_free(folder)
        self._folder = folder
        self._unfinished = folder.with_name(folder.name + UNFINISHED)
        self._parents = [one for one in folder.parents if not one.exists()]
        self._made = False

    def __enter__(self) -> Path:
        try:
            with uninterrupted:
                _make(self._unfinished)
                self._made = True
        except BaseException:
            self._remove()
            raise
        return self._unfinished

    @starts_unchecked
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        with uninterrupted:
            if error is not None:
                self._remove()
                return
            try:
                LOCAL.sync_dir(str(self._unfinished))
                self._unfinished.rename(self._folder)
            except BaseException:
                self._remove()
                raise
            LOCAL.sync_dir(str(self._folder.parent))

    def _remove(self) -> None:
        if self._made:  # who makes it, removes it
            shutil.rmtree(self._unfinished, ignore_errors=True)
            with contextlib.suppress(OSError):  # somebody may have put something there
                for one in self._parents:
                    one.rmdir()


def _make(unfinished: Path) -> None:
    try:
        unfinished.mkdir(FOLDER_MODE, parents=True)
    except FileExistsError:
        raise LogWriteError(
            "what makes this target was cut short, or still runs",
            file=str(unfinished),
            advice="If nothing runs, remove this folder and type the command again",
        ) from None


def _require_free(folder: Path) -> None:
    """Require that a folder can get this name: a new one, that of an empty folder at most."""
    found, advice = "", "Choose another name"
    if folder.exists():
        if not folder.is_dir():
            found = "it is no folder"
        elif any(folder.iterdir()):
            found = "it is not empty"
        elif folder.samefile(os.curdir) or folder.is_mount():
            # A folder that is made elsewhere and renamed would take its place.
            found = "it is the current folder, or a mounted volume"
            advice = "Name a folder in it"
    if found:
        raise LogWriteError(f"the target cannot be made: {found}", file=str(folder), advice=advice)
