"""Read files from the disk at a limited rate, and do not fill the page cache with them.

In: a rate, and a block that reads by `tallystick.storage.source`. Out: the same reading, at that
rate, from the disk and not from the cache: of a file that is opened first all bytes are. What was
read leaves the cache again. A file that is larger than the free memory is read twice by that, the
second time as fast as its reader goes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from tallystick.posix import O_PLAIN, drop_cached, pread
from tallystick.storage.scheduling import time

PIECE: Final = 256 << 10
"""Bytes that are read at once."""


class Pace:
    """A limit on the rate of reading, without bursts.

    Args:
        bytes_per_s: the limit; 0 for none.
        sleep: waits for so many seconds; None for the system's.
        clock: returns seconds, from any moment on; None for the system's.

    Attributes:
        total: bytes that were read so far.
    """

    def __init__(
        self,
        bytes_per_s: float = 0,
        *,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.total = 0
        self._rate = bytes_per_s
        self._sleep, self._clock = sleep or time.sleep, clock or time.monotonic
        self._due = self._clock()
        self._read: dict[str, tuple[int, int, int] | None] = {}

    def read_through(self, path: str, descriptor: int) -> None:
        """Read every byte of an open file from the disk, into the cache.

        A file that is opened again, and has not changed, was read.

        Raises:
            OSError: the disk cannot read some of them.
        """
        found, offset = os.fstat(descriptor), 0
        state = found.st_ino, found.st_size, found.st_mtime_ns
        if self._read.get(path) == state:
            return
        self.from_disk(path, descriptor)
        while piece := pread(descriptor, PIECE, offset):
            offset += len(piece)
            self._wait(len(piece))
        self._read[path] = state

    def from_disk(self, path: str, descriptor: int, size: int = 0) -> None:
        """Have the next ``size`` bytes that are read of an open file come from the disk."""
        self._read[path] = None
        drop_cached(descriptor)
        self._wait(size)

    def _wait(self, size: int) -> None:
        self.total += size
        if self._rate:
            now = self._clock()
            self._due = max(self._due, now) + size / self._rate
            self._sleep(self._due - now)

    def leave(self) -> None:
        """Drop what was read from the cache; what others have mapped stays."""
        while self._read:
            path = self._read.popitem()[0].removeprefix("file://")
            try:
                descriptor = os.open(path, os.O_RDONLY | O_PLAIN)
            except OSError:
                continue  # it was recycled or removed meanwhile
            try:
                drop_cached(descriptor)
            finally:
                os.close(descriptor)


_PACE: ContextVar[Pace | None] = ContextVar("_PACE", default=None)


@contextmanager
def paced(pace: Pace) -> Iterator[None]:
    """Read all local files that this thread opens inside the block at this pace."""
    token = _PACE.set(pace)
    try:
        yield
    finally:
        _PACE.reset(token)
        pace.leave()


def read_through(path: str, descriptor: int) -> None:
    """Read an open file at the pace of the block that this is called in; outside do nothing."""
    pace = _PACE.get()
    if pace is not None:
        pace.read_through(path, descriptor)


def from_disk(path: str, descriptor: int, size: int) -> None:
    """Have ``size`` bytes read from the disk at the pace of the block that this is called in."""
    pace = _PACE.get()
    if pace is not None:
        pace.from_disk(path, descriptor, size)
