"""Descriptors of files and folders that end with the process that opened them.

In: a path, perhaps from a folder that is open. Out: a descriptor that a forked child closes before
it does anything else, and that is known again if other code has closed it by its number.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TypeAlias

from tallystick.errors import LogClosedError
from tallystick.posix import O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_PLAIN, fcntl
from tallystick.storage.fork import Uncopied, forked_error, register_in_child

_CLOSED = -1
_FORKED = -2
FOLDER = os.O_RDONLY | O_DIRECTORY | O_PLAIN
"""How a folder is opened."""
BY_NUMBER = Path("/proc/self/fd")
"""Where Linux has the open descriptors of a process as paths."""
FILE_MODE = 0o600
"""Permissions of files that are made: the owner's alone."""
Place: TypeAlias = tuple[str, int | None]
"""A path, and the descriptor of the folder from which it leads; None for the working directory."""
_marks = itertools.count(1 << 30)
"""Positions, each for one descriptor, that no read or write of ours leaves a file at."""
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


def name_path(error: OSError, path: str) -> None:
    """Have an error name the path that was asked for.

    The system call had a name in the folder that is held, or a path by the folder's number.
    """
    by_number = path.startswith(f"{BY_NUMBER}/")
    error.filename = os.path.realpath(path) if by_number else path


class Descriptor(Uncopied):
    """A descriptor that is closed in forked children, and raises when used there.

    Other code of the process may close it by its number, as daemons do with all that they find
    open, and the next file that is opened gets that number. So each descriptor is set to a position
    of its own, which no call here changes, and is known by it.
    """

    __slots__ = ("__weakref__", "_fd", "_opener", "mark", "path")

    def __init__(
        self, path: str, flags: int, mode: int = FILE_MODE, *, at: Place | None = None
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
            name_path(error, path)
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


class KnownByNumber(Descriptor):
    """A descriptor that is known by the number of its file in the file system."""

    __slots__ = ()

    def _new_mark(self, fd: int) -> int:
        return self._mark_of(fd)

    def _mark_of(self, fd: int) -> int:
        found = os.fstat(fd)
        return found.st_dev << 64 | found.st_ino


class Folder(KnownByNumber):
    """The descriptor of a folder, whose position not every file system keeps."""

    __slots__ = ()
