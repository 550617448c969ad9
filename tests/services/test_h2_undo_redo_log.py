"""The H2 page log fulfils the contract of undo/redo logs."""

from __future__ import annotations

from tallystick.services.roles import UndoRedoLog
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.h2.role import H2UndoRedoLog
from tests.services.contract_undo_redo_log import UndoRedoLogContract


class TestH2UndoRedoLog(UndoRedoLogContract):
    """See `UndoRedoLogContract`."""

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> UndoRedoLog:
        return H2UndoRedoLog(folder, page_size=self.page_size, batch=12, fs=fs)
