"""What reading and writing ask of the operating system, and what they do where it is not POSIX.

Reading works everywhere: what Windows lacks is replaced here, or left out. Writing needs file
locks, positioned writes and durable names, and is refused elsewhere by `require`.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

from tallystick.errors import LogWriteError

try:
    fcntl: Any = importlib.import_module("fcntl")
except ImportError:
    fcntl = None


def _flag(name: str) -> int:
    return int(getattr(os, name, 0))


O_DIRECTORY = _flag("O_DIRECTORY")
O_NOFOLLOW = _flag("O_NOFOLLOW")
O_NONBLOCK = _flag("O_NONBLOCK")
O_NOATIME = _flag("O_NOATIME")
O_PLAIN = _flag("O_CLOEXEC") | _flag("O_NOINHERIT") | _flag("O_BINARY")
"""Of every file: no other program inherits it, and its bytes stay as they are."""

_NEEDED = ("pread", "pwrite", "pwritev", "register_at_fork", "O_DIRECTORY", "O_NOFOLLOW")
CAN_WRITE = fcntl is not None and all(hasattr(os, name) for name in _NEEDED)


def require(path: str) -> None:
    """Check that logs can be written here. Raises `LogWriteError`."""
    if not CAN_WRITE:
        raise LogWriteError(
            "writing logs needs an operating system with POSIX files, such as Linux or macOS",
            file=path,
            found=sys.platform,
            advice="Read and explain logs here, and write them there",
        )


def _pread(descriptor: int, size: int, offset: int) -> bytes:
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, offset, os.SEEK_SET)
    try:
        return os.read(descriptor, size)
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)


pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _pread)
"""Read bytes at an offset. Without the system's own call only one thread may use a descriptor."""


def drop_cached(descriptor: int, offset: int = 0, size: int = 0) -> None:
    """Drop the clean pages of a file from the cache; dirty ones stay.

    Args:
        descriptor: the open file.
        offset: where its bytes begin, and
        size: how many they are; 0 means all up to the end.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_DONTNEED)


def after_fork_in_child(call: Callable[[], object]) -> None:
    """Have ``call`` called in every forked child; where nothing forks, do nothing."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


_AT_EMPTY_PATH, _LINKS_AND_SIZE, _STATX_LENGTH = 0x1000, 0x204, 256
_STATX = struct.Struct("=I12xI20xQ")
"""What was told, links, size in bytes: at the beginning of the ``struct statx`` of Linux."""
_statx: Any = None
if sys.platform == "linux":
    try:
        _statx = ctypes.CDLL(None).statx
    except (OSError, AttributeError):  # a C library from before 2018
        _statx = None
    else:
        _statx.argtypes = (
            ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p,
        )  # fmt: skip


def links_and_size(descriptor: int) -> tuple[int, int]:
    """Return how many names an open file has, and its size in bytes. Raises `OSError`.

    Its times are not asked for: where a kernel tells them finely (Linux 6.13), the next write would
    have to write them down, and its sync takes half as long again.
    """
    if _statx is not None:
        found = ctypes.create_string_buffer(_STATX_LENGTH)
        if _statx(descriptor, b"", _AT_EMPTY_PATH, _LINKS_AND_SIZE, found) == 0:
            told, names, size = _STATX.unpack_from(found)
            if told & _LINKS_AND_SIZE == _LINKS_AND_SIZE:
                return names, size
    status = os.fstat(descriptor)
    return status.st_nlink, status.st_size
