"""What the processes of the simulated machine share, under the names of `storage.shared.kernel`.

In: calls as of that module. Out: the same results, and a scheduling point in each call and before
each word of shared memory that is read or stored. `KERNEL` stands for the module. The locks of a
process go when it is killed; its words stay. Words are seen by all in the order of the stores, and
bytes between the words are copied in one step: what a processor that reorders stores would show,
or a kill in the middle of a copy, is not simulated.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, Final

from tallystick.storage.shared import kernel
from tallystick.testing.simulate.disk import SimulatedFileSystem
from tallystick.testing.simulate.primitives import Names
from tallystick.testing.simulate.scheduler import Life, Participant, current

_SPACE_BITS: Final = 32
"""Bits of an address below the number of the file."""
Contents = bytearray | mmap.mmap
"""What a file holds; of a mapping, pages that nobody has stored to take no memory."""


class _Sleepers:
    """Those who sleep at an address."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: list[Participant] = []


class _SharedFile:
    """A file that all processes see, with its locks; it may have lost its name."""

    def __init__(self, number: int, data: Contents) -> None:
        self.number = number
        self.data = data
        self.locks: dict[Opening, bool] = {}
        self.byte_locks: dict[int, Opening] = {}

    def resize(self, size: int) -> None:
        """Have it this size, of zeros."""
        assert not self.data, "it was made a moment ago"
        self.data = mmap.mmap(-1, size)

    def others(self, opening: Opening) -> list[bool]:
        """Return, for each other living opening that has it locked, whether it shares the lock."""
        return [shared for one, shared in self.locks.items() if one is not opening and one.lives]


class Opening:
    """One opening of a file by a process: locks belong to it."""

    def __init__(self, path: str, file: _SharedFile, owner: Life | None) -> None:
        self.path = path
        self.file = file
        self._owner = owner
        self._open = True

    @property
    def lives(self) -> bool:
        """True until it is closed, or its process ended."""
        return self._open and (self._owner is None or not self._owner.over)

    def size(self) -> int:
        """Return the size in bytes."""
        return len(self.file.data)

    def pwrite(self, data: bytes, offset: int) -> None:
        """Write bytes."""
        current().point(f"pwrite {self.path}")
        self.file.data[offset : offset + len(data)] = data

    def close(self) -> None:
        """Close it, and so give up its locks."""
        current().point("close")
        self._open = False


class _Words:
    """The words of a mapping: each load and store may be the last step before a switch."""

    def __init__(self, words: memoryview) -> None:
        self.words = words

    def __getitem__(self, place: int | slice) -> Any:
        current().point("load")
        return self.words[place]

    def __setitem__(self, place: int, value: int) -> None:
        current().point("store")
        self.words[place] = value


class Machine:
    """One boot of the simulated machine, or the rest of one that goes on.

    Args:
        fs: its disk, where the files of the log are.
        boot: names the boot.
        left: what files of shared memory hold that an earlier life has left.
    """

    def __init__(self, fs: SimulatedFileSystem, boot: str, left: Mapping[str, Contents]) -> None:
        self.fs = fs
        self.boot = boot.encode()
        self.files: dict[str, _SharedFile] = {}
        self.processes: dict[int, Life] = {}
        self._by_number: dict[int, _SharedFile] = {}
        self._sleepers: dict[int, _Sleepers] = {}
        for path, data in left.items():
            self.make(path, data)

    def make(self, path: str, data: Contents | None = None) -> _SharedFile:
        """Make a file."""
        file = _SharedFile(len(self._by_number) + 1, bytearray() if data is None else data)
        self.files[path] = self._by_number[file.number] = file
        return file

    def word(self, address: int) -> int:
        """Return the 32 bits at an address."""
        data = self._by_number[address >> _SPACE_BITS].data
        offset = address & ((1 << _SPACE_BITS) - 1)
        return int.from_bytes(data[offset : offset + 4], "little")

    def sleepers(self, address: int) -> _Sleepers:
        """Return what wakes those who sleep at an address."""
        return self._sleepers.setdefault(address, _Sleepers())

    def process_id(self, life: Life) -> int:
        """Return the number of a process."""
        for number, one in self.processes.items():
            if one is life:
                return number
        number = 1000 + len(self.processes)
        self.processes[number] = life
        return number

    def left(self) -> dict[str, Contents]:
        """Return what the files hold, for the next life."""
        return {path: file.data for path, file in self.files.items()}


def _machine(what: str) -> Machine:
    """Pass a scheduling point; return the machine of the participant that runs."""
    scheduler = current()
    scheduler.point(what)
    life = scheduler.running.life if scheduler.running is not None else None
    machine = life.machine if life is not None else None
    if not isinstance(machine, Machine):
        raise RuntimeError("a log is shared within `Simulation.until_crash` only")
    return machine


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _found(machine: Machine, path: str) -> _SharedFile:
    if path not in machine.files:
        raise _missing(path)
    return machine.files[path]


def _wait(address: int, value: int, seconds: float) -> None:
    machine, scheduler = _machine("futex wait"), current()
    if machine.word(address) == value:
        deadline = scheduler.clock_ns + int(seconds * 1e9)
        scheduler.block(machine.sleepers(address), deadline)


def _wake(address: int) -> None:
    machine = _machine("futex wake")
    current().wake(machine.sleepers(address))


def _rename(source: str, target: str) -> None:
    machine = _machine(f"rename {source}")
    file = _found(machine, source)
    del machine.files[source]
    machine.files[target] = file


def _rename_new(source: str, target: str) -> None:
    machine = _machine(f"rename {source}")
    if target in machine.files or machine.fs.memory.exists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    if source in machine.files:
        machine.files[target] = machine.files.pop(source)
    else:
        machine.fs.rename(source, target)


def _map_file(path: str, size: int) -> tuple[Any, _Words, int]:
    file = _found(_machine(f"map {path}"), path)
    assert len(file.data) == size, "its size was looked at before"
    return file.data, _Words(memoryview(file.data).cast("Q")), file.number << _SPACE_BITS


def _open_file(path: str, flags: int) -> Opening:
    machine = _machine(f"open {path}")
    file = machine.files.get(path)
    if file is None:
        if not flags & (os.O_CREAT | os.O_DIRECTORY):
            raise _missing(path)
        file = machine.make(path)
    elif flags & os.O_EXCL:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    running = current().running
    return Opening(path, file, running.life if running is not None else None)


def _allocate(opening: Opening, size: int) -> None:
    _machine("allocate")
    opening.file.resize(size)


def _names(folder: str) -> list[str]:
    files, prefix = _machine(f"list {folder}").files, f"{folder}/"
    return [path.removeprefix(prefix) for path in files if path.startswith(prefix)]


def _read_file(path: str) -> bytes:
    return bytes(_found(_machine(f"read {path}"), path).data)


def _write_anew(path: str, pieces: Iterable[bytes]) -> None:
    machine = _machine(f"write {path}")
    file = machine.make(path)
    for piece in pieces:
        current().point(f"write {path}")
        file.data = bytearray(bytes(file.data) + piece)


def _remove(path: str) -> None:
    machine = _machine(f"remove {path}")
    _found(machine, path)
    del machine.files[path]


def _try_lock(opening: Opening, *, shared: bool) -> bool:
    _machine("flock")
    locks = opening.file.locks
    if locks.pop(opening, None) is not None:
        current().point("flock")  # a lock is changed in two steps
    others = opening.file.others(opening)
    if (others and not shared) or not all(others):
        return False
    locks[opening] = shared
    return True


def _unlock(opening: Opening) -> None:
    _machine("unlock")
    opening.file.locks.pop(opening, None)


def _try_lock_byte(opening: Opening, offset: int) -> bool:
    if _is_byte_locked(opening, offset):
        return False
    opening.file.byte_locks[offset] = opening
    return True


def _is_byte_locked(opening: Opening, offset: int) -> bool:
    _machine("byte lock")
    holder = opening.file.byte_locks.get(offset)
    return holder is not None and holder is not opening and holder.lives


def _process_id() -> int:
    machine, running = _machine("process"), current().running
    assert running is not None, "it has passed a scheduling point"
    assert running.life is not None, "a machine has lives"
    return machine.process_id(running.life)


def _boot_id() -> bytes:
    return _machine("boot").boot


def _start_time(pid: int) -> int:
    return pid


def _is_stopped(pid: int, started: int) -> bool:
    life = _machine("status").processes.get(pid)
    stopped = life is not None and life.frozen_until > current().clock_ns
    return stopped and pid == started


def _real_path(path: str) -> str:
    return path


KERNEL: Final[ModuleType] = Names(
    kernel,
    wait=_wait, wake=_wake, rename=_rename, rename_new=_rename_new, map_file=_map_file,
    open_file=_open_file, allocate=_allocate, names=_names, read_file=_read_file,
    write_anew=_write_anew, remove=_remove, try_lock=_try_lock, unlock=_unlock,
    try_lock_byte=_try_lock_byte, is_byte_locked=_is_byte_locked, process_id=_process_id,
    boot_id=_boot_id, start_time=_start_time, is_stopped=_is_stopped, real_path=_real_path,
)  # fmt: skip
"""Stands for `tallystick.storage.shared.kernel`."""
