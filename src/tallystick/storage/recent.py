"""Of many files the bytes of those read last; of all others again, when they are asked for.

In: what opens a file. Out: a `RecentSource` for each file, whose ``data`` is there when it is
asked for, so that a log of thousands of files takes no more memory than one of a few.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from tallystick.errors import FileShrankError
from tallystick.storage.source import ByteSource, is_remote, logical_name, open_source, read_part

HELD_MAX = 32 << 20
"""Most bytes that are held, if they are of more than `HELD_MIN` files."""
REMOTE_HELD_MAX = 1 << 30
"""The same of files of a URL: to get them again takes long, and may cost money."""
HELD_MIN = 4
"""Files that are held whatever their size: readers go from one to the next and back."""


class RecentSources:
    """Opened files by path; those that were read last are held."""

    def __init__(self, opener: Callable[[str], ByteSource] = open_source) -> None:
        self._opener = opener
        self._held = OrderedDict[str, ByteSource]()
        self._size = 0

    def open(self, path: str) -> RecentSource:
        """Open a file. Raises as the opener does."""
        source = self._source(path)
        return RecentSource(path, source.size, self)

    def data(self, path: str) -> memoryview:
        """Return the bytes of a file. Raises as the opener does."""
        return self._source(path).data

    def held(self, path: str) -> memoryview | None:
        """Return the bytes of a file that is held; None of others."""
        source = self._held.get(path)
        return source.data if source is not None else None

    def close(self) -> None:
        """Release the bytes that are held; views taken from them must be released before."""
        while self._held:
            self._held.popitem()[1].close()
        self._size = 0

    def _source(self, path: str) -> ByteSource:
        # Taken out and put in again: what was asked for last is the last.
        source = self._held.pop(path, None) or self._opened(path)
        self._held[path] = source
        return source

    def _opened(self, path: str) -> ByteSource:
        source = self._opener(path)
        most = REMOTE_HELD_MAX if is_remote(path) else HELD_MAX
        self._size += source.size
        while self._size > most and len(self._held) >= HELD_MIN:
            # Not closed but dropped: records of the file may be held by a caller.
            self._size -= self._held.popitem(last=False)[1].size
        return source


@dataclass(frozen=True, slots=True)
class RecentSource:
    """One file of `RecentSources`: its path, and its size in bytes when it was opened."""

    path: str
    size: int
    _sources: RecentSources = field(repr=False)

    @property
    def name(self) -> str:
        """Return the name without folders and packing suffix."""
        return logical_name(self.path)

    @property
    def data(self) -> memoryview:
        """Return the bytes.

        Raises:
            LogUnreadableError: The file cannot be opened again.
            FileShrankError: It is shorter now.
        """
        data = self._sources.data(self.path)
        self._require(len(data) >= self.size)
        return data if len(data) == self.size else data[: self.size]

    def part(self, begin: int, end: int) -> memoryview:
        """Return some of the bytes: without the others, where the file is not held.

        Raises as ``data`` does.
        """
        held = self._sources.held(self.path) if begin < end else memoryview(b"")
        if held is None:
            part = read_part(self.path, begin, end - begin)
            self._require(len(part) == end - begin)
            return memoryview(part)
        return held[begin:end]

    def _require(self, is_whole: bool) -> None:
        if not is_whole:
            raise FileShrankError(
                "it became shorter while it was read",
                file=self.path,
                advice="Read it again, or read a copy",
            )
