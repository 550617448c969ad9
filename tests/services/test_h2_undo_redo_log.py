"""The H2 page log fulfils the contract of undo/redo logs."""

from __future__ import annotations

from tallystick.services.roles import UndoRedoLog
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.h2.role import H2UndoRedoLog
from tallystick.testing import MemoryFileSystem
from tests.services.contract_undo_redo_log import UndoRedoLogContract


class TestH2UndoRedoLog(UndoRedoLogContract):
    """See `UndoRedoLogContract`."""

    def test_rows_logged_together_are_the_same_bytes(self) -> None:
        rows: dict[tuple[int, int], bytes | None] = {(16, 1): b"x" * 600, (17, 2): None}
        one, together = MemoryFileSystem(), MemoryFileSystem()
        for fs in (one, together):
            log = self.open_log("/log", fs)
            if fs is one:
                for (table, key), row in rows.items():
                    log.log_row(3, table, key, row)
            else:
                log.log_rows(3, rows)
            log.commit(3).wait()
            log.close()
        assert one.contents() == together.contents()

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> UndoRedoLog:
        return H2UndoRedoLog(folder, page_size=self.page_size, batch=12, fs=fs)
