"""What the processes of one machine share: memory, sleeps, locks, files beside a log, identities.

In: addresses in shared memory, paths. Out: threads of other processes sleep and wake, and a lock
goes with the process that holds it. Without futexes (another kernel, or processor) `wait` sleeps
for moments, and its callers look again.

This is the seam that a simulator drives, as `tallystick.storage.scheduling` is for threads: name
what is used as an attribute of this module when it is used (``kernel.wait()``).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tallystick.posix import CAN_WRITE, O_NOFOLLOW, fcntl
from tallystick.storage.local import FILE_MODE, LocalFile
from tallystick.storage.scheduling import time

_CALLS: Final = {"x86_64": (202, 316), "aarch64": (98, 276)}
"""Numbers of futex and renameat2 by processor."""
_FUTEX, _RENAMEAT2 = _CALLS.get(platform.machine() if sys.platform == "linux" else "", (0, 0))
_WAIT, _WAKE = 0, 1
_NO_REPLACE: Final = 1
_AT_CWD: Final = -100
_MOMENT_S: Final = 0.0005
_EVERYONE: Final = 1 << 30
_BYTE_LOCK: Final = struct.Struct("hhqqi4x")

_libc: Any = ctypes.CDLL(None, use_errno=True) if CAN_WRITE else None


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def wait(address: int, value: int, seconds: float) -> None:
    """Sleep while the 32 bits at an address of shared memory have a value, at most some seconds.

    It may return early; the caller looks again.
    """
    if not _FUTEX:
        time.sleep(min(_MOMENT_S, seconds))
        return
    whole = int(seconds)
    limit = _Timespec(whole, int((seconds - whole) * 1e9))
    _libc.syscall(
        _FUTEX, ctypes.c_void_p(address), _WAIT, ctypes.c_uint32(value), ctypes.byref(limit), 0, 0
    )


def wake(address: int) -> None:
    """Wake everyone who waits at an address of shared memory."""
    if _FUTEX:
        _libc.syscall(_FUTEX, ctypes.c_void_p(address), _WAKE, _EVERYONE, 0, 0, 0)


def rename_new(source: str, target: str) -> None:
    """Rename a file in one step, unless there is one of the new name.

    Raises:
        FileExistsError: there is.
        OSError: the file system failed, or cannot do it.
    """
    if not _RENAMEAT2:
        if Path(target).exists():
            raise FileExistsError(target)
        Path(source).rename(target)
        return
    old, new = os.fsencode(source), os.fsencode(target)
    if _libc.syscall(_RENAMEAT2, _AT_CWD, old, _AT_CWD, new, _NO_REPLACE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


class Mapping(NamedTuple):
    """A file in the memory of several processes."""

    bytes: mmap.mmap
    words: memoryview
    """Its words of 8 bytes; each is read and stored in one step."""
    address: int


def map_file(path: str, size: int) -> Mapping:
    """Map a file of this size."""
    # The mapping keeps a descriptor of its own, in forked children, too: not of the open file that
    # is locked.
    file = LocalFile(path, os.O_RDWR)
    try:
        mapped = mmap.mmap(file.fd, size)
    finally:
        file.close()
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    return Mapping(mapped, memoryview(mapped).cast("Q"), address)


# -- files beside the log -------------------------------------------------------------------------


def open_file(path: str, flags: int) -> LocalFile:
    """Open a file; flags as of `os.open`."""
    return LocalFile(path, flags)


def allocate(file: LocalFile, size: int) -> None:
    """Allocate the space of a file, so that no store to its mapping fails for want of it."""
    os.posix_fallocate(file.fd, 0, size)


def names(folder: str) -> list[str]:
    """Return the names in a folder."""
    return os.listdir(folder)  # noqa: PTH208 - names are wanted, not paths


def real_path(path: str) -> str:
    """Return where a path leads, for messages: it may go through a descriptor of the folder."""
    return os.path.realpath(path)


def read_file(path: str) -> bytes:
    """Return what a file holds."""
    return Path(path).read_bytes()


def write_anew(path: str, pieces: Iterable[bytes]) -> None:
    """Write a file from its beginning, the owner's alone; nothing is synced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | O_NOFOLLOW, FILE_MODE)
    with open(descriptor, "wb") as file:
        for piece in pieces:
            file.write(piece)


def rename(source: str, target: str) -> None:
    """Rename a file; one of the new name is replaced."""
    Path(source).replace(target)


def remove(path: str) -> None:
    """Remove a file."""
    Path(path).unlink()


# -- locks, which go with the process -------------------------------------------------------------


def try_lock(file: LocalFile, *, shared: bool) -> bool:
    """Lock a file, or change its lock; False if another opening of it has it locked."""
    try:
        fcntl.flock(file.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: LocalFile) -> None:
    """Unlock a file."""
    fcntl.flock(file.fd, fcntl.LOCK_UN)


def try_lock_byte(file: LocalFile, offset: int) -> bool:
    """Lock one byte of a file; False if another opening of it has it locked."""
    request = _BYTE_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
    try:
        fcntl.fcntl(file.fd, fcntl.F_OFD_SETLK, request)
    except BlockingIOError:
        return False
    return True


def is_byte_locked(file: LocalFile, offset: int) -> bool:
    """Return True if another opening of the file has this byte locked."""
    request = _BYTE_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
    answer = fcntl.fcntl(file.fd, fcntl.F_OFD_GETLK, request)
    return bool(_BYTE_LOCK.unpack(answer)[0] != fcntl.F_UNLCK)


# -- identities -----------------------------------------------------------------------------------


def process_id() -> int:
    """Return the number of this process."""
    return os.getpid()


def boot_id() -> bytes:
    """Return what distinguishes this boot of the machine from every other one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return b"unknown"


def start_time(pid: int) -> int:
    """Return when a process began, in ticks since boot; 0 if that cannot be known."""
    fields = _status(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def is_stopped(pid: int, started: int) -> bool:
    """Return True if a process is stopped by a signal or a debugger."""
    fields = _status(pid)
    return len(fields) > 19 and fields[0] in ("T", "t") and int(fields[19]) == started


def _status(pid: int) -> list[str]:
    """Return the fields of the process's status, from its state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
