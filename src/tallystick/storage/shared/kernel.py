"""System calls of Linux that Python has no function for: futexes, and a rename that never replaces.

In: addresses in shared memory, paths. Out: threads of other processes sleep and wake. Without
futexes (another kernel, or processor) `wait` sleeps for moments, and its callers look again.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from pathlib import Path
from typing import Final

from tallystick.storage.scheduling import time

_CALLS: Final = {"x86_64": (202, 316), "aarch64": (98, 276)}
"""Numbers of futex and renameat2 by processor."""
_FUTEX, _RENAMEAT2 = _CALLS.get(platform.machine() if sys.platform == "linux" else "", (0, 0))
_WAIT, _WAKE = 0, 1
_NO_REPLACE: Final = 1
_AT_CWD: Final = -100
_MOMENT_S: Final = 0.0005
_EVERYONE: Final = 1 << 30

_libc = ctypes.CDLL(None, use_errno=True)


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
