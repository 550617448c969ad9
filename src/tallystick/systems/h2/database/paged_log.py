"""A database of the engine as a page store's log and pages in one.

In: the calls of the undo/redo role, and pages of tables. Out: a database, which 1.4.200 opens
(``MV_STORE=FALSE``) whenever we do not: closed in order, or after a crash. Images of pages, of the
free list's too, go into the log before the pages change in place; so recovery, ours or the
engine's, finds the pages as of the oldest section, and redoes what was committed since.

What it finds when it is opened is carried over to a fresh log, and redone in memory under that
log's images: nothing but another recovery is left to do, if this one is cut short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tallystick.errors import LogWriteError
from tallystick.roles import Codec, Pages
from tallystick.storage.files import File, FileSystem, write_whole
from tallystick.storage.local import LOCAL
from tallystick.systems.h2.database import nodes
from tallystick.systems.h2.database.new_database import first_pages
from tallystick.systems.h2.database.redo import Redo
from tallystick.systems.h2.database.space import Space
from tallystick.systems.h2.database.tables import H2Tables, Replacing
from tallystick.systems.h2.engine.recovery import UNDO_STAGE, used_pages
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import PAGE_SIZE_DEFAULT, VariableHeader
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog
from tallystick.systems.h2.live.role import BATCH_PAGES, SessionLog

_PIECE = 1 << 20


class H2PagedLog(SessionLog):
    """Log and pages of the database ``path``, made if there is none."""

    def __init__(self, path: str, *, batch: int = BATCH_PAGES, fs: FileSystem = LOCAL) -> None:
        if fs.exists(path):
            store = PageStoreFile(path, fs=fs)
        else:
            pages = first_pages(PAGE_SIZE_DEFAULT)
            store = PageStoreFile.create(path, first_pages=pages, fs=fs)
        super().__init__(store, PageLog(store, batch=batch))
        self.codec: Codec = nodes.codec(store.page_size)
        try:
            self._begin(self._undo())
        except BaseException:
            store.close()
            raise

    def _undo(self) -> list[int]:
        """Put every image back, durably; the pages of the log that the free list has in use."""
        stream = self._log.open_for_reading()
        if not self._log.recover(UNDO_STAGE):
            self._store.load_free_list()
        self._released = used_pages(stream)
        pages = set(self._released)
        if stream.chain.trunks and self._is_spare(stream.chain.trunks[-1].next):
            pages.add(stream.chain.trunks[-1].next)
        return [page for page in sorted(pages) if self._store.is_used(page)]

    def _is_spare(self, page: int) -> bool:
        """True for the page that the log had set aside for its next trunk."""
        if not layout.META_ROOT < page < self._store.page_count:
            return False
        (kind,) = self._store.file.pread(1, page * self._store.page_size)
        return kind in (layout.EMPTY, layout.STREAM_TRUNK, layout.STREAM_DATA)

    @property
    def file(self) -> File:
        """The database."""
        return self._store.file

    @property
    def section(self) -> int:
        """The section that is being logged."""
        return self._log.section_id

    def open_tables(self, pages: Pages) -> H2Tables:
        """The tables with every committed row. Raises `CorruptLogError` where log and pages
        contradict each other, `UnsupportedFormatError` for changes that only the engine can
        recover: of tables with indexes beside their key."""
        tables = H2Tables(Space(pages, self._store, self._log.undone_pages))
        Redo(tables, self._store, self._released).run(self._log.open_for_reading())
        tables.read_catalogue()
        return tables

    def log_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log changed rows by table and key, in order, as `H2Tables.to_log` has them."""
        number, log = self._session(session), self._log
        for (table, key), row in rows.items():
            if isinstance(row, Replacing):
                log.log_add_or_remove_row(number, table, key, None)
            log.log_add_or_remove_row(number, table, key, row)

    def copy(self, fs: FileSystem, target: Path) -> None:
        """The tables' pages as they are in the file now, in a database without a log. Raises
        `LogWriteError` if there is one already."""
        path = str(target / Path(self._store.path).name)
        if fs.exists(path):
            raise LogWriteError("there is a page store already", file=path)
        fs.mkdir(str(target))
        write_whole(fs, path, self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        size, file = self._store.page_size, self._store.file
        header = layout.encode_variable_header(VariableHeader(0, 0, 0, 0), size)
        yield file.pread(size, 0) + header * len(layout.VARIABLE_HEADER_PAGES)
        place = size * layout.FREE_LIST_ROOT
        while piece := bytearray(file.pread(_PIECE, place)):
            for at in range(0, len(piece), size):
                if piece[at] in (layout.STREAM_TRUNK, layout.STREAM_DATA):
                    piece[at : at + size] = bytes(size)
            yield bytes(piece)
            place += len(piece)

    def finish(self) -> None:
        """Give the log up, unless transactions are prepared; the file ends with its last page."""
        if self._log.is_settled:
            self._log.end()
            self._store.cut()
