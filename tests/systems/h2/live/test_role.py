"""The H2 page log fulfils the contract of undo/redo logs."""

from __future__ import annotations

from pathlib import Path

from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.h2.live.role import H2UndoRedoLog
from tallystick.testing import MemoryFileSystem
from tests.roles.contract_undo_redo_log import UndoRedoLogContract, recovered


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

    def test_opening_takes_no_longer_after_very_many_transactions(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log._next = 2_000_000_000  # so many transactions later
        log.log_row(3, 16, 1, b"x")
        log.commit(3).wait()
        again = self._reopened(log, tmp_path)
        assert recovered(again).rows == {(16, 1): b"x"}
        again.close()

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> H2UndoRedoLog:
        return H2UndoRedoLog(folder, page_size=self.page_size, batch=12, fs=fs)
