"""A file system that fails on purpose: at the n-th call, with an error of your choice.

In: any `FileSystem` and a `Fault`. Out: the same file system, until the fault strikes.
`every_fault` counts n = 1, 2, ... until a run ends before its fault was reached.

`FailedSync` has the three ways in which file systems behave after a failed sync, as found by
"Can Applications Recover from fsync Failures?" (USENIX ATC 2020).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tallystick.storage.files import (
    Bytes,
    File,
    FileSystem,
    Lock,
    fill_with_zeros,
    write_all,
)
from tallystick.testing.memory import InPlace, MemoryFileSystem

WRITES = frozenset({"pwrite", "pwritev", "truncate"})
"""Calls that change the bytes of a file."""
SYNCS = frozenset({"datasync", "sync_dir"})
"""Calls that make something durable."""
NAMES = frozenset({"create", "rename", "remove", "mkdir"})
"""Calls that change names in a folder."""
READS = frozenset({"open", "pread"})
"""Calls that read."""
CHANGES = WRITES | SYNCS | NAMES
"""Calls that change what is on the disk."""


class FailedSync(StrEnum):
    """What became of the unsynced bytes of the file whose sync failed."""

    ORDERED = "ext4 ordered, XFS"
    """Marked clean: still read from memory, never written, the next sync succeeds."""
    JOURNALED = "ext4 data"
    """The sync that lost them reports success; the next one reports the failure."""
    REVERTED = "btrfs"
    """Gone from memory too: reads see the old bytes, the next sync succeeds."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Which call fails, and how.

    Args:
        nth: Fail the n-th of the ``calls``, 1 first.
        calls: Names of the calls that count.
        error: The ``errno`` of the `OSError`.
        partial: Share (0 to 1) of its bytes that a failing write writes first.
        lasting: True if all later ones of the ``calls`` fail too.
        sync: What a failing ``datasync`` does to the file; needs a `MemoryFileSystem` below.
    """

    nth: int
    calls: Collection[str] = CHANGES
    error: int = errno.EIO
    partial: float = 0.0
    lasting: bool = False
    sync: FailedSync | None = None


class FaultyFileSystem(InPlace):
    """A file system around ``inner`` that fails as ``fault`` says.

    After a `FailedSync`, opening a file reads what is on the disk, as the real file system of
    `tallystick.storage.local` does.

    Args:
        inner: The file system below.
        fault: What fails; None fails nothing.
        short_writes: True if every write takes several calls, some of them interrupted (EINTR).

    Attributes:
        struck: True once the fault was reached.
    """

    def __init__(
        self, inner: FileSystem, fault: Fault | None = None, *, short_writes: bool = False
    ) -> None:
        self.inner = inner
        self.fault = fault
        self.short_writes = short_writes
        self.struck = False
        self.due_at_next_sync: set[str] = set()
        self._calls = 0
        self._mutex = threading.Lock()

    def strikes(self, call: str) -> bool:
        """Count a call; return True if it is to fail."""
        with self._mutex:
            if self.fault is None or call not in self.fault.calls:
                return False
            self._calls += 1
            past = self._calls - self.fault.nth
            strikes = past == 0 or (past > 0 and self.fault.lasting)
            self.struck = self.struck or strikes
            return strikes

    def failure(self, path: str) -> OSError:
        """Make the error to raise."""
        number = self.fault.error if self.fault else errno.EIO
        return OSError(number, os.strerror(number) + " (injected)", path)

    def _fail_if_due(self, call: str, path: str) -> None:
        if self.strikes(call):
            raise self.failure(path)

    # -- FileSystem -----------------------------------------------------------------------

    def open(self, path: str, *, write: bool = True) -> File:
        """Open a file; see `FileSystem.open`."""
        self._fail_if_due("open", path)
        return FaultyFile(self, self.inner.open(path, write=write))

    def create(self, path: str) -> File:
        """Make a file; see `FileSystem.create`."""
        self._fail_if_due("create", path)
        return FaultyFile(self, self.inner.create(path))

    def exists(self, path: str) -> bool:
        """Return True if there is such a file or folder."""
        return self.inner.exists(path)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return self.inner.size(path)

    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return self.inner.list(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file; see `FileSystem.rename`."""
        self._fail_if_due("rename", source)
        self.inner.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._fail_if_due("remove", path)
        self.inner.remove(path)

    def mkdir(self, path: str) -> None:
        """Make a folder; see `FileSystem.mkdir`."""
        self._fail_if_due("mkdir", path)
        self.inner.mkdir(path)

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        self._fail_if_due("sync_dir", path)
        self.inner.sync_dir(path)

    def lock(self, path: str, *, whole: bool = False) -> Lock:
        """Take a lock file; see `FileSystem.lock`."""
        return self.inner.lock(path, whole=whole)


class FaultyFile:
    """An open file of a `FaultyFileSystem`."""

    def __init__(self, fs: FaultyFileSystem, inner: File) -> None:
        self._fs = fs
        self._inner = inner
        self._interrupted = False

    @property
    def path(self) -> str:
        """Return the path that the file was opened with."""
        return self._inner.path

    def pread(self, size: int, offset: int) -> bytes:
        """Read bytes; see `File.pread`."""
        if self._fs.strikes("pread"):
            raise self._fs.failure(self.path)
        return self._inner.pread(size, offset)

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write bytes; see `File.pwrite`."""
        self._write("pwrite", data, offset)

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        """Write buffers; see `File.pwritev`."""
        self._write("pwritev", b"".join(buffers), offset)

    def _write(self, call: str, data: Bytes, offset: int) -> None:
        if self._fs.strikes(call):
            if self._fs.fault is not None and self._fs.fault.partial:
                self._inner.pwrite(data[: int(len(data) * self._fs.fault.partial)], offset)
            raise self._fs.failure(self.path)
        if self._fs.short_writes:
            write_all(self._write_some, data, offset)
        else:
            self._inner.pwrite(data, offset)

    def _write_some(self, data: Bytes, offset: int) -> int:
        self._interrupted = not self._interrupted
        if self._interrupted:
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
        count = -(-len(data) // 2)
        self._inner.pwrite(data[:count], offset)
        return count

    def datasync(self) -> None:
        """Sync the file; see `File.datasync`."""
        sync = self._fs.fault.sync if self._fs.fault else None
        if self.path in self._fs.due_at_next_sync:
            self._fs.due_at_next_sync.discard(self.path)
            self._lose(visible=True)
            raise self._fs.failure(self.path)
        if not self._fs.strikes("datasync"):
            self._inner.datasync()
            return
        if sync is not None:
            self._lose(visible=sync is not FailedSync.REVERTED)
        if sync is FailedSync.JOURNALED:
            self._fs.due_at_next_sync.add(self.path)
            return
        raise self._fs.failure(self.path)

    def _lose(self, *, visible: bool) -> None:
        memory = self._fs.inner
        if not isinstance(memory, MemoryFileSystem):
            raise TypeError("a FailedSync needs a MemoryFileSystem below")
        memory.lose(self.path, visible=visible)

    def allocate(self, size: int) -> None:
        """Grow the file with zeros; see `File.allocate`."""
        fill_with_zeros(self, size)

    def truncate(self, size: int) -> None:
        """Set the size; see `File.truncate`."""
        if self._fs.strikes("truncate"):
            raise self._fs.failure(self.path)
        self._inner.truncate(size)

    def size(self) -> int:
        """Return the size in bytes."""
        return self._inner.size()

    def lock_range(self, offset: int, length: int) -> Lock:
        """Lock bytes; see `File.lock_range`."""
        return self._inner.lock_range(offset, length)

    def close(self) -> None:
        """Close the file without syncing."""
        self._inner.close()


def every_fault(
    make: Callable[[], FileSystem], fault: Callable[[int], Fault] = Fault, *, limit: int = 100_000
) -> Iterator[FaultyFileSystem]:
    """Yield a new faulty file system for n = 1, 2, ..., until a fault is not reached.

    Args:
        make: Makes the file system below, new for each n.
        fault: Makes the fault for n.
        limit: Largest n.

    Yields:
        File systems to run the code on. The last is one whose fault the run did not reach.

    Raises:
        AssertionError: Each of ``limit`` runs reached its fault.
    """
    for nth in range(1, limit):
        faulty = FaultyFileSystem(make(), fault(nth))
        yield faulty
        if not faulty.struck:
            return
    raise AssertionError(f"a run of more than {limit} calls")
