"""One file: read, write, sync, lock bytes; each by the system call that promises it.

In: offsets and bytes. Out: what is durable after `LocalFile.datasync`: by ``fdatasync`` on Linux,
``F_FULLFSYNC`` on macOS, ``fsync`` elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from tallystick.errors import LogClosedError, LogLockedError
from tallystick.posix import O_PLAIN, drop_cached, fcntl, links_and_size, pread
from tallystick.storage.files import VECTOR_MAX, Bytes, Lock, fill_with_zeros, write_all
from tallystick.storage.fork import Uncopied
from tallystick.storage.local.descriptors import FILE_MODE, Descriptor, KnownByNumber, Place

REFUSED = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
"""Errors of a lock that another process or object has; all others are of the file system."""


class LocalFile(Descriptor):
    """A file of the operating system."""

    __slots__ = ("_least",)

    def __init__(
        self, path: str, flags: int, mode: int = FILE_MODE, *, at: Place | None = None
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
            if error.errno not in REFUSED:
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


def sync_for_reading(path: str, begin: int, end: int) -> None:
    """Make the bytes that a reader has read durable, through a descriptor that cannot write.

    They leave the cache, so that whoever reads them next has them from the disk.

    Raises:
        OSError: the file is gone, or a sync failed.
    """
    fd = os.open(path.removeprefix("file://"), os.O_RDONLY | O_PLAIN)
    try:
        _datasync(fd)
        drop_cached(fd, begin, end - begin)
    finally:
        os.close(fd)


class AppendedFile(KnownByNumber, LocalFile):
    """A file that other processes append to, too; a line is whole, or the disk is full.

    A write changes its position, and others may look at the descriptor then.
    """

    __slots__ = ()

    def pwrite(self, data: Bytes, offset: int) -> None:  # noqa: ARG002
        """Write bytes to the end of the file, wherever that is."""
        fd = self.fd
        write_all(lambda rest, _: os.write(fd, rest), data, 0)


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
