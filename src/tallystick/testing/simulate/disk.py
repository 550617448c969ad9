"""The disk of the simulated machine: every call is a scheduling point, and may fail.

In: file calls of the code under test. Out: the same on a `MemoryFileSystem`; failures, delays and
a full disk where the decisions say so. What a crash leaves of it: `survivor`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from tallystick.storage.files import Bytes, File, Lock, fill_with_zeros
from tallystick.testing.disk import Disk
from tallystick.testing.memory import InPlace, MemoryFileSystem
from tallystick.testing.simulate.decisions import FAULT
from tallystick.testing.simulate.scheduler import Scheduler
from tallystick.testing.states import random_state

_Result = TypeVar("_Result")

_FAIL: Final = ("eio",)
_WRITE_FAULTS: Final = ("eio", "torn", "full", "slow", "slower")
_SYNC_FAULTS: Final = ("ordered", "reverted", "slow", "slower")
_OPEN_FAULTS: Final = ("eio", "limit")
_CREATE_FAULTS: Final = ("eio", "full", "limit", "slow")
_NAME_FAULTS: Final = ("eio", "full", "slow")
_SLOW_NS: Final = {"slow": 1_000_000, "slower": 5_000_000_000}
_LASTING: Final = {"full": errno.ENOSPC, "limit": errno.EMFILE}
"""Faults that last, and their errors: a full disk, and no descriptor left for another file."""
_LASTING_CALLS: Final = 5
"""Calls that meet such a fault, from the first one on."""


class SimulatedFileSystem(InPlace):
    """The file system that one life of the machine sees.

    Args:
        scheduler: asks the decisions.
        memory: what is on the disk.
    """

    def __init__(self, scheduler: Scheduler, memory: MemoryFileSystem) -> None:
        self.memory = memory
        self._scheduler = scheduler
        self._lasting = dict.fromkeys(_LASTING, 0)

    def call(
        self, name: str, path: str, effect: Callable[[], _Result], kinds: Sequence[str] = ()
    ) -> _Result:
        """Do one call, or fail in one of these ways."""
        fault = self.asked(name, path, kinds)
        if fault is not None:
            raise self.failure(fault, path)
        return effect()

    def asked(self, name: str, path: str, kinds: Sequence[str]) -> str | None:
        """Pass a scheduling point; return how the call fails, None if it does not."""
        scheduler = self._scheduler
        scheduler.point(f"{name} {path}")
        if not kinds or scheduler.running is None:
            return None
        for lasting, left in self._lasting.items():
            if left and lasting in kinds:
                self._lasting[lasting] -= 1
                return lasting
        fault = scheduler.decisions.fault(scheduler.running.question(FAULT), kinds)
        if fault in _LASTING:
            self._lasting[fault] = _LASTING_CALLS
        if fault in _SLOW_NS:
            scheduler.sleep(_SLOW_NS[fault])
            return None
        return fault

    def done(self, name: str) -> None:
        """Pass a scheduling point after a call, before its caller knows that it has ended."""
        self._scheduler.point(f"{name} done")

    @staticmethod
    def failure(fault: str, path: str) -> OSError:
        """Make the error of a fault."""
        number = _LASTING.get(fault, errno.EIO)
        return OSError(number, f"{os.strerror(number)} (injected)", path)

    # -- FileSystem -----------------------------------------------------------------------

    def open(self, path: str, *, write: bool = True) -> File:
        """Open a file; see `FileSystem.open`."""
        file = self.call("open", path, lambda: self.memory.open(path, write=write), _OPEN_FAULTS)
        return SimulatedFile(self, file)

    def create(self, path: str) -> File:
        """Make a file; see `FileSystem.create`."""
        file = self.call("create", path, lambda: self.memory.create(path), _CREATE_FAULTS)
        return SimulatedFile(self, file)

    def exists(self, path: str) -> bool:
        """Return True if there is such a file or folder."""
        return self.call("exists", path, lambda: self.memory.exists(path))

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return self.call("size", path, lambda: self.memory.size(path))

    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return self.call("list", path, lambda: self.memory.list(path))

    def rename(self, source: str, target: str) -> None:
        """Rename a file; see `FileSystem.rename`."""
        self.call("rename", source, lambda: self.memory.rename(source, target), _NAME_FAULTS)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.call("remove", path, lambda: self.memory.remove(path), _FAIL)

    def mkdir(self, path: str) -> None:
        """Make a folder; see `FileSystem.mkdir`."""
        self.call("mkdir", path, lambda: self.memory.mkdir(path), _NAME_FAULTS)

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        self.call("sync_dir", path, lambda: self.memory.sync_dir(path), _FAIL)

    def lock(self, path: str, *, whole: bool = False) -> Lock:
        """Take a lock file; see `FileSystem.lock`."""
        return self.call("lock", path, lambda: self.memory.lock(path, whole=whole))


class SimulatedFile:
    """An open file of a `SimulatedFileSystem`."""

    def __init__(self, fs: SimulatedFileSystem, inner: File) -> None:
        self._fs = fs
        self._inner = inner

    @property
    def path(self) -> str:
        """Return the path that the file was opened with."""
        return self._inner.path

    def pread(self, size: int, offset: int) -> bytes:
        """Read bytes; see `File.pread`."""
        return self._fs.call("pread", self.path, lambda: self._inner.pread(size, offset), _FAIL)

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write bytes; see `File.pwrite`."""
        fault = self._fs.asked("pwrite", self.path, _WRITE_FAULTS)
        if fault is None:
            self._inner.pwrite(data, offset)
            self._fs.done("pwrite")
            return
        if fault == "torn":
            self._inner.pwrite(bytes(data)[: len(data) // 2], offset)
        raise self._fs.failure(fault, self.path)

    def pwritev(self, buffers: Sequence[Bytes], offset: int) -> None:
        """Write buffers; see `File.pwritev`."""
        self.pwrite(b"".join(buffers), offset)

    def datasync(self) -> None:
        """Sync the file; see `File.datasync`.

        It fails as `FailedSync` says, but for the file system that reports success first: no
        log can keep what it acknowledges there.
        """
        fault = self._fs.asked("datasync", self.path, _SYNC_FAULTS)
        if fault is None:
            self._inner.datasync()
            self._fs.done("datasync")
            return
        self._fs.memory.lose(self.path, visible=fault != "reverted")
        raise self._fs.failure(fault, self.path)

    def allocate(self, size: int) -> None:
        """Grow the file with zeros; see `File.allocate`."""
        fill_with_zeros(self, size)

    def truncate(self, size: int) -> None:
        """Set the size; see `File.truncate`."""
        self._fs.call("truncate", self.path, lambda: self._inner.truncate(size), _FAIL)

    def size(self) -> int:
        """Return the size in bytes."""
        return self._inner.size()

    def lock_range(self, offset: int, length: int) -> Lock:
        """Lock bytes; see `File.lock_range`."""
        return self._fs.call("lock", self.path, lambda: self._inner.lock_range(offset, length))

    def close(self) -> None:
        """Close the file without syncing."""
        self._inner.close()


def survivor(memory: MemoryFileSystem, seed: int | None) -> MemoryFileSystem:
    """Return the disk as the next life finds it.

    Args:
        memory: the disk of the life that has ended.
        seed: of what a power cut leaves; None if only the process has ended, so that the
            operating system goes on to write what it was given.
    """
    if seed is None:
        return _same_disk(memory.disk)
    state = random_state(memory.disk, random.Random(seed))
    return MemoryFileSystem(state.contents(memory.disk))


def _same_disk(disk: Disk) -> MemoryFileSystem:
    """Return a file system without locks over this disk."""
    memory = MemoryFileSystem()
    memory.disk = disk
    return memory


def digest(memory: MemoryFileSystem) -> bytes:
    """Return a hash of all files, by which equal states of the disk are counted once."""
    state = hashlib.blake2b(digest_size=8)
    for path, content in sorted(memory.contents().items()):
        state.update(b"%d %d " % (len(path), len(content)))
        state.update(path.encode())
        state.update(content)
    return state.digest()
