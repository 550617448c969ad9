"""Manage the files of a live journal: the current one, full ones, free ones.

In: a folder on a `FileSystem`. Out: the current file to write to, and the next one whenever it is
full. So that a crash loses nothing, these are synced in this order: the full file before the next
one is begun, a new id before the first record under it, the reuse of an older file before that of
a younger one.

The decisions are those of the original with all background work done: the full file joins the data
files, one more file is opened ahead, then files are reclaimed.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tallystick.storage.files import File, HeldFolder
from tallystick.storage.fork import Uncopied
from tallystick.systems.jboss.format.file_names import TEMPORARY, number_of
from tallystick.systems.jboss.format.layout import (
    FILE_ID_MASK,
    FILL_J,
    FILL_ZERO,
    Shape,
    encode_header,
)
from tallystick.systems.jboss.read.generations import FILE_ID_MAX
from tallystick.systems.jboss.read.reclaim_counts import FileCounts, reclaimable

FILL_PIECE = 1 << 20
"""Bytes of one write while a new file is filled."""


@dataclass(frozen=True, slots=True)
class RingSettings:
    """The settings of the files, as in `tallystick.systems.jboss.live.settings`."""

    shape: Shape
    prefix: str
    extension: str
    file_size: int
    min_files: int
    pool_files: int
    user_version: int
    alignment: int

    @property
    def data_at(self) -> int:
        """Offset of the first record of a file."""
        return self.rounded(self.shape.header_size)

    @property
    def fill(self) -> int:
        """Byte that new files are filled with."""
        return FILL_ZERO if self.shape.compact else FILL_J

    def rounded(self, size: int) -> int:
        """Return ``size`` rounded up to whole blocks."""
        return -(-size // self.alignment) * self.alignment

    def whole_blocks(self, size: int) -> int:
        """Return how many bytes fit into ``size`` when they are padded to whole blocks."""
        return size // self.alignment * self.alignment

    def name(self, number: int) -> str:
        """Return the name of the file with that number."""
        return f"{self.prefix}-{number}.{self.extension}"


@dataclass(eq=False, slots=True)
class RingFile:
    """One file; ``position`` is the offset of the next record, in bytes."""

    name: str
    file_id: int
    position: int
    counts: FileCounts = field(init=False)
    handle: File | None = None

    def __post_init__(self) -> None:
        self.counts = FileCounts(self.file_id)

    @property
    def stamp(self) -> int:
        """The file id as its records carry it."""
        return self.file_id & FILE_ID_MASK


class Ring(Uncopied):
    """The files of one live journal. Not safe for several threads: its owner has to lock.

    ``data`` are the full files with records, in order of ids, ``free`` the files without records,
    ``opened`` those to use next, and ``last_id`` is the highest id that was used.
    """

    def __init__(self, fs: HeldFolder, folder: str, settings: RingSettings) -> None:
        self.fs = fs
        self.folder = folder
        self.settings = settings
        self.data: list[RingFile] = []
        self.free: deque[RingFile] = deque()
        self.opened: deque[RingFile] = deque()
        self.last_id = 0
        self._current: RingFile | None = None

    @property
    def current(self) -> RingFile:
        """The file that records are appended to."""
        assert self._current is not None, "the ring was not begun"
        return self._current

    def path(self, name: str) -> str:
        """Return the path of the file of that name."""
        return posixpath.join(self.folder, name)

    # -- begin and end --------------------------------------------------------------------

    def begin(
        self, data: Iterable[RingFile], free: Iterable[RingFile], *, continues: bool = True
    ) -> None:
        """Adopt the files that a load found.

        Args:
            data: files with records, in order of ids.
            free: the other ones.
            continues: append to the last data file instead of a free one.
        """
        self.data = list(data)
        known = max((file.file_id for file in self.data), default=0)
        for file in free:
            # From HornetQ 2.2 on a free file gets a new id at every load; before, it keeps its
            # own, which only has to be higher than those of the files with records.
            if self.settings.shape.compact or file.file_id <= known:
                self._renew(file)
            self.free.append(file)
        while len(self.data) + len(self.free) < self.settings.min_files:
            self.free.append(self.create())
        self._current = self.data.pop() if self.data and continues else self._next_free()
        self._open(self._current)
        self._open_ahead()

    def close(self) -> None:
        """Close the open files."""
        every = [*self.data, *self.free, *self.opened, self._current]
        for file in every:
            if file is not None and file.handle is not None:
                file.handle.close()
                file.handle = None

    # -- append ---------------------------------------------------------------------------

    def remaining(self) -> int:
        """Return the bytes that fit after the last record of the current file."""
        return self.settings.file_size - self.current.position

    def advance(self) -> None:
        """Begin the next file; the current one is made durable first."""
        old = self.current
        # Durable before the next file is begun: a damaged record in an older file is then damage,
        # and not a torn write.
        self.sync()
        if old.handle is not None:
            old.handle.close()
            old.handle = None
        self._current = self.opened.popleft() if self.opened else self._next_free()
        self._open(self._current)
        self.data.append(old)
        # The file after it is not needed yet: if the disk is full, the next call raises.
        with contextlib.suppress(OSError):
            self._open_ahead()
        self.reclaim()

    def sync(self) -> None:
        """Make the current file durable."""
        if self.current.handle is not None:
            self.current.handle.datasync()

    def write(self, data: bytes) -> None:
        """Write at the current position, padded to whole blocks."""
        current = self.current
        assert current.handle is not None, "the current file is open"
        padded = data.ljust(self.settings.rounded(len(data)), b"\0")
        current.handle.pwrite(padded, current.position)
        current.position += len(padded)

    def reclaim(self) -> None:
        """Reuse, or delete, every data file that may go, oldest first.

        Only data files are considered, so everything that frees one is durable already.
        """
        files = [file.counts for file in self.data]
        going = {one.key for one in reclaimable(files)}
        for file in list(self.data):
            if file.file_id in going:
                self._release(file)

    def _release(self, file: RingFile) -> None:
        self.data.remove(file)
        pool = self.settings.pool_files
        files = len(self.free) + len(self.data) + 1 + len(self.opened)
        if pool < 0 or files < pool:
            # Before it is offered for reuse: the header has the new id before any record under it.
            self._renew(file)
            self.free.append(file)
            return
        self.delete(file.name)

    def delete(self, name: str) -> None:
        """Remove a file durably."""
        self.fs.remove(self.path(name))
        self.fs.sync_dir(self.folder)

    # -- files ----------------------------------------------------------------------------

    def next_id(self) -> int:
        """Return a file id that was never used."""
        self.last_id += 1
        return self.last_id

    def create(self) -> RingFile:
        """Create a file, filled and with its header, durable before it gets its name."""
        number = self.next_id()
        name = self.settings.name(number)
        self.create_as(name, number)
        return RingFile(name, number, self.settings.data_at)

    def create_as(self, name: str, file_id: int) -> None:
        """Create a durable file with a header under ``name``."""
        temporary = self.path(name + TEMPORARY)
        if self.fs.exists(temporary):
            self.fs.remove(temporary)
        handle = self.fs.create(temporary)
        try:
            self._fill(handle)
            handle.pwrite(self._header(file_id), 0)
            handle.datasync()
        finally:
            handle.close()
        # Whole before it gets its name: HornetQ and Artemis refuse to start with a file without a
        # header.
        self.fs.rename(temporary, self.path(name))
        self.fs.sync_dir(self.folder)

    def _fill(self, handle: File) -> None:
        size = self.settings.file_size
        # Allocated bytes read as zeros, so that nothing has to be written.
        if self.settings.fill == FILL_ZERO:
            handle.allocate(size)
            return
        piece = bytes([self.settings.fill]) * min(FILL_PIECE, size)
        for offset in range(0, size, len(piece)):
            handle.pwrite(piece[: size - offset], offset)

    def _header(self, file_id: int) -> bytes:
        header = encode_header(self.settings.shape, file_id, self.settings.user_version)
        return header + bytes(self.settings.data_at - len(header))

    def _renew(self, file: RingFile) -> None:
        """Give a file without live records a new id, durably."""
        file.file_id = self.next_id()
        file.position = self.settings.data_at
        file.counts = FileCounts(file.file_id)
        handle = file.handle or self.fs.open(self.path(file.name))
        try:
            handle.pwrite(self._header(file.file_id), 0)
            handle.datasync()
        finally:
            handle.close()
            file.handle = None

    def _open(self, file: RingFile) -> None:
        if file.handle is None:
            file.handle = self.fs.open(self.path(file.name))

    def _next_free(self) -> RingFile:
        return self.free.popleft() if self.free else self.create()

    def _open_ahead(self) -> None:
        file = self._next_free()
        self._open(file)
        self.opened.append(file)

    def continue_after(self, names: Iterable[str], ids: Iterable[int]) -> None:
        """Continue after the highest id and the highest number in a name that may be an id."""
        named = (number for name in names if (number := number_of(name)) < FILE_ID_MAX)
        self.last_id = max([0, *ids, *named])
