"""Maps files into memory so that a file which another program truncates ends no process.

In: an open descriptor. Out: a read-only `mmap.mmap`. Touching a mapped page that the file no
longer has, or that the disk cannot read, raises the signal SIGBUS, which ends a process. Here a
handler puts a page of zeros in its place, so that the reader goes on, and keeps the file's path;
whoever reads asks `lost_pages` afterwards and says what happened instead of what was read.

The signal is synchronous: it arises at an access to the mapping itself, never inside the memory
allocator or the interpreter's own state, and a thread that holds the interpreter lock may take it
again; so the handler can be a Python function. Signals at other addresses go to the handler that
was there before. Linux on 64-bit machines only; elsewhere files are mapped without it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tallystick.posix import after_fork_in_child
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading

_ADDRESS_OFFSET = 16
"""Where ``siginfo_t`` holds the address of the fault, on 64-bit Linux."""
NEAR = 4 << 20
"""Bytes around a place in a file that stay mapped while it is read."""
_MAP_FIXED = 0x10
_SA_SIGINFO = 4
_SA_NODEFER = 0x40000000
_GUARDED = (
    sys.platform == "linux"
    and ctypes.sizeof(ctypes.c_void_p) == 8
    and hasattr(signal, "SIGBUS")
    and hasattr(mmap, "MAP_ANONYMOUS")
)

_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """``struct sigaction`` of the C library (glibc and musl), 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Buffer(ctypes.Structure):
    """``Py_buffer`` of the C interface; space at the end for what later versions may add."""

    _fields_ = (("address", ctypes.c_void_p), ("rest", ctypes.c_void_p * 15))


def _address(mapped: mmap.mmap) -> int:
    """Return the first address of a mapping."""
    buffer = _Buffer()
    view = ctypes.byref(buffer)
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), view, 0)
    ctypes.pythonapi.PyBuffer_Release(view)
    return int(buffer.address)


@dataclass(slots=True)
class _Range:
    """A mapping: its first address, its size in bytes, its file and a descriptor of it."""

    path: str
    begin: int
    size: int
    descriptor: int

    def is_short(self) -> bool:
        """Return whether the file is shorter than its mapping."""
        return os.fstat(self.descriptor).st_size < self.size


@dataclass(slots=True)
class _Guard(Uncopied):
    """The handler, the ranges that it serves, and the files whose pages it replaced."""

    ranges: dict[int, _Range] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    before: _Action = field(default_factory=_Action)
    lock: threading.Lock = field(default_factory=threading.Lock)
    library: Any = None
    entry: Any = None

    def install(self) -> None:
        """Make this the handler of SIGBUS, unless it is."""
        if self.library is None:
            self.library = ctypes.CDLL(None, use_errno=True)
            self.library.mmap.restype = ctypes.c_void_p
            self.library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3,
                                          ctypes.c_long)  # fmt: skip
            self.entry = _Handler(self.replace_page)
        ours = ctypes.cast(self.entry, ctypes.c_void_p).value
        current = _Action()
        self.library.sigaction(signal.SIGBUS, None, ctypes.byref(current))
        if current.handler != ours:
            self.before = current
            action = _Action(handler=ours, flags=_SA_SIGINFO | _SA_NODEFER)
            self.library.sigaction(signal.SIGBUS, ctypes.byref(action), None)

    def replace_page(self, _signal: int, info: int, _context: int) -> None:
        """Put zeros where the file has no bytes; hand on a signal from elsewhere."""
        address = ctypes.c_uint64.from_address(info + _ADDRESS_OFFSET).value
        for found in list(self.ranges.values()):
            if found.begin <= address < found.begin + found.size and self._fill(found, address):
                self.lost.add(found.path)
                return
        # On return the access is tried again, and raises the signal for the handler before.
        self.library.sigaction(signal.SIGBUS, ctypes.byref(self.before), None)

    def _fill(self, found: _Range, address: int) -> bool:
        """Map zeros from the page of ``address``: to the end if the file ends before it."""
        page = address & ~(mmap.PAGESIZE - 1)
        end = found.begin + found.size
        shrunk = os.fstat(found.descriptor).st_size <= page - found.begin
        size = end - page if shrunk else mmap.PAGESIZE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        placed = self.library.mmap(page, size, mmap.PROT_READ, flags, -1, 0)
        return bool(placed == page)

    def add(self, path: str, mapped: mmap.mmap, descriptor: int) -> None:
        """Serve a mapping until it is released."""
        with self.lock:
            self.install()
            begin = _address(mapped)
            kept = os.dup(descriptor)
            self.ranges[kept] = _Range(path, begin, len(mapped), kept)
        weakref.finalize(mapped, self.remove, kept)

    def look(self) -> None:
        """Note the files that are shorter than their mappings: their last page has no signal."""
        for found in list(self.ranges.values()):
            try:
                is_short = found.is_short()
            except OSError:
                is_short = True
            # Only then was its descriptor not closed, nor that of another file, as it was asked.
            if is_short and self.ranges.get(found.descriptor) is found:
                self.lost.add(found.path)

    def remove(self, kept: int) -> None:
        """Forget a mapping."""
        found = self.ranges.pop(kept, None)
        if found is not None:
            try:
                if found.is_short():
                    self.lost.add(found.path)
            finally:
                os.close(kept)

    def after_fork(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may have held it."""
        self.lock = threading.Lock()


_guard = _Guard()
after_fork_in_child(_guard.after_fork)


def map_file(path: str, descriptor: int, size: int) -> mmap.mmap:
    """Map the first ``size`` bytes of a file, read-only.

    Args:
        path: names the file in `lost_pages`.
        descriptor: open for reading; may be closed afterwards.
        size: in bytes, at most the size of the file, more than 0.

    Raises:
        OSError: It cannot be mapped.
    """
    mapped = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    if _GUARDED:
        _guard.add(path, mapped, descriptor)
    return mapped


def let_go(data: memoryview, place: int, *, backwards: bool = False) -> None:
    """Have the system take pages that a reader has passed out of this process, if they are mapped.

    It then does not count as holding them; touching them again only costs time. To be called at
    least once per `NEAR` bytes.

    Args:
        data: all bytes of a file.
        place: offset that is read next.
        backwards: the reader comes from the end of the file.
    """
    mapped = data.obj
    if isinstance(mapped, mmap.mmap) and len(mapped) == len(data) and hasattr(mapped, "madvise"):
        # The system maps blocks of pages: those near the place would be back at the next touch.
        begin = place + NEAR if backwards else place - 3 * NEAR
        end = min(begin + 2 * NEAR, len(data))
        first = -(-max(begin, 0) // mmap.PAGESIZE) * mmap.PAGESIZE
        if first < end:
            mapped.madvise(mmap.MADV_DONTNEED, first, end - first)


def lost_pages(paths: Iterable[str]) -> list[str]:
    """Return those of the files of which mapped bytes were gone, and forget them."""
    _guard.look()
    found = [path for path in paths if path in _guard.lost]
    _guard.lost.difference_update(found)
    return found
