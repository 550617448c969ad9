"""An H2 database as log and pages of a page store.

In: the calls of the undo/redo role, and pages of tables. Out: a database that 1.4.200 can open
(``MV_STORE=FALSE``) while the store is not open: after an orderly close or a crash. Images of
pages, those of the free list included, go into the log before the pages change in place. So
recovery, ours or the engine's, restores the pages as of the oldest section and redoes what was
committed since.

Opening carries what the log holds over to a new log, and redoes it in memory under undo images of
that log: if recovery is interrupted, it can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

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

_COPY_BYTES = 1 << 20


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
            self._undo()
            self._begin()
        except BaseException:
            store.close()
            raise

    def _undo(self) -> None:
        """Restore every image, durably."""
        self._released = used_pages(self._log.open_for_reading())
        if not self._log.recover(UNDO_STAGE):
            self._store.load_free_list()

    @property
    def file(self) -> File:
        """The file of the database."""
        return self._store.file

    @property
    def section(self) -> int:
        """The section that is being logged."""
        return self._log.log_section_id

    def open_tables(self, pages: Pages) -> H2Tables:
        """Redo what the log holds, and return the tables with every committed row.

        Raises:
            CorruptLogError: Log and pages contradict each other.
            UnsupportedFormatError: Rows of a table with a secondary index changed: only the engine
                can recover them.
        """
        tables = H2Tables(Space(pages, self._store, self._log.undone_pages))
        Redo(tables, self._store, self._released).run(self._log.open_for_reading())
        tables.read_catalogue()
        return tables

    def log_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log changed rows by table and key, in order, as `H2Tables.to_log` returns them."""
        number, log = self._session(session), self._log
        for (table, key), row in rows.items():
            if isinstance(row, Replacing):
                log.log_add_or_remove_row(number, table, key, None)
            log.log_add_or_remove_row(number, table, key, row)

    def commit_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log rows and commit their session; return when both are durable."""
        self.log_rows(session, rows)
        self.commit(session).wait()

    def copy(self, fs: FileSystem, target: Path) -> None:
        """Copy the tables' pages as they are in the file to a database without a log.

        ``target`` is absent or empty.
        """
        path = str(target / Path(self._store.path).name)
        fs.mkdir(str(target))
        write_whole(fs, path, self._copied())

    def _copied(self) -> Iterator[bytes]:
        """Yield the bytes of the file, with headers that name no log, and its pages as zeros."""
        size, file = self._store.page_size, self._store.file
        header = layout.encode_variable_header(VariableHeader(0, 0, 0, 0), size)
        yield file.pread(size, 0) + header * len(layout.VARIABLE_HEADER_PAGES)
        offset = size * layout.FREE_LIST_ROOT
        while some := bytearray(file.pread(_COPY_BYTES, offset)):
            for at in range(0, len(some), size):
                if some[at] in (layout.STREAM_TRUNK, layout.STREAM_DATA):
                    some[at : at + size] = bytes(size)
            yield bytes(some)
            offset += len(some)

    def finish(self) -> None:
        """Remove the log, unless transactions are prepared, and cut the file at its last page."""
        if self._log.is_settled:
            self._log.end()
            self._store.cut()
