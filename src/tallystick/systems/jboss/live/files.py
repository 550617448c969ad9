"""The files of a live journal: created, opened ahead, current, data, free, used again.

In: a folder on a `FileSystem`. Out: the current file to write to, and the next one whenever it is
full. Everything that a crash could turn into a loss is synced in this order: the old file before
the next one is begun, a new id before the first record under it, an older file's end of life before
a younger one's.

The decisions are those of section 4.1 of the format, as in the original with all background work
done: the full file joins the data files, one more file is opened ahead, then files are reclaimed.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tallystick.storage.files import File, FileSystem
from tallystick.systems.jboss.format.file_names import number_of
from tallystick.systems.jboss.format.layout import FILL_J, FILL_ZERO, Shape, encode_header
from tallystick.systems.jboss.live.reclaim import Account, Books

FILL_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class RingSettings:
    """How the files are made. ``pool_files``: keep a reclaimed file while there are fewer than
    these, -1 for always; ``alignment``: bytes of a block that every write begins on."""

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
        return FILL_J if self.shape.header_size == 4 else FILL_ZERO

    def rounded(self, size: int) -> int:
        """``size`` rounded up to whole blocks."""
        return -(-size // self.alignment) * self.alignment

    def whole_blocks(self, room: int) -> int:
        """As many bytes as fit into ``room`` when they are padded to whole blocks."""
        return room // self.alignment * self.alignment

    def name(self, number: int) -> str:
        """The name of the file with that number."""
        return f"{self.prefix}-{number}.{self.extension}"


@dataclass(eq=False, slots=True)
class RingFile:
    """One file: its id, its account, where the next record goes, its handle if it is open."""

    name: str
    file_id: int
    position: int
    account: Account = field(init=False)
    handle: File | None = None

    def __post_init__(self) -> None:
        self.account = Account(self.file_id)

    @property
    def stamp(self) -> int:
        """The file id as records carry it."""
        return self.file_id & 0x7FFFFFFF


class Ring:
    """The files of one live journal. Not safe for several threads: its owner sees to that."""

    def __init__(self, fs: FileSystem, folder: str, settings: RingSettings) -> None:
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
        """The file that is written to."""
        assert self._current is not None, "the ring was not begun"
        return self._current

    def path(self, name: str) -> str:
        return posixpath.join(self.folder, name)

    # -- begin and end --------------------------------------------------------------------

    def begin(
        self, data: Iterable[RingFile], free: Iterable[RingFile], *, continues: bool = True
    ) -> None:
        """Take over the files that a load found, in order of their ids.

        The last data file is written on unless ``continues`` is false.
        """
        self.data = list(data)
        known = max((file.file_id for file in self.data), default=0)
        for file in free:
            # From HornetQ 2.2 on a free file gets a new id at every load; before, it keeps its
            # own, which must only be higher than those of the files with records.
            if self.settings.shape.header_size != 4 or file.file_id <= known:
                self._renew(file)
            self.free.append(file)
        while len(self.data) + len(self.free) < self.settings.min_files:
            self.free.append(self.create())
        self._current = self.data.pop() if self.data and continues else self._next_free()
        self._open(self._current)
        self._open_ahead()

    def close(self) -> None:
        """Close what is open."""
        every = [*self.data, *self.free, *self.opened, self._current]
        for file in every:
            if file is not None and file.handle is not None:
                file.handle.close()
                file.handle = None

    # -- forward --------------------------------------------------------------------------

    def room(self) -> int:
        """Bytes that fit behind the last record of the current file."""
        return self.settings.file_size - self.current.position

    def move(self, books: Books) -> None:
        """Go on to the next file; the current one is made durable first."""
        old = self.current
        self.sync()
        if old.handle is not None:
            old.handle.close()
            old.handle = None
        self._current = self.opened.popleft() if self.opened else self._next_free()
        self._open(self._current)
        self.data.append(old)
        # The file ahead is not needed yet; if there is no room for it, the next move will say so.
        with contextlib.suppress(OSError):
            self._open_ahead()
        self.reclaim(books)

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

    def reclaim(self, books: Books) -> None:
        """Use again, or delete, every data file that may go, oldest first.

        Only data files count, so everything that frees one is durable already.
        """
        accounts = [file.account for file in self.data]
        going = {account.key for account in books.reclaimable(accounts)}
        for file in list(self.data):
            if file.file_id in going:
                self._let_go(file)

    def _let_go(self, file: RingFile) -> None:
        self.data.remove(file)
        pool = self.settings.pool_files
        files = len(self.free) + len(self.data) + 1 + len(self.opened)
        if pool < 0 or files < pool:
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
        """A file id that was never used."""
        self.last_id += 1
        return self.last_id

    def create(self) -> RingFile:
        """A new file, filled, with its header, durable before it has its name."""
        number = self.next_id()
        name = self.settings.name(number)
        self.create_as(name, number)
        return RingFile(name, number, self.settings.data_at)

    def create_as(self, name: str, file_id: int) -> None:
        """Make a durable file with a header under ``name``."""
        temporary = self.path(name + ".tmp")
        if self.fs.exists(temporary):
            self.fs.remove(temporary)
        handle = self.fs.create(temporary)
        try:
            self._fill(handle)
            handle.pwrite(self._header(file_id), 0)
            handle.datasync()
        finally:
            handle.close()
        self.fs.rename(temporary, self.path(name))
        self.fs.sync_dir(self.folder)

    def _fill(self, handle: File) -> None:
        size = self.settings.file_size
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
        file.account = Account(file.file_id)
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

    def note_names(self, names: Iterable[str], ids: Iterable[int]) -> None:
        """Count new ids from the highest id and the highest number in a name."""
        self.last_id = max([0, *ids, *(number_of(name) for name in names)])
