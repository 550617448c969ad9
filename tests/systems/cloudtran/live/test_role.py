"""The block log fulfils the contract of persist logs."""

from __future__ import annotations

from tallystick.roles import PersistLog
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.cloudtran.live.role import CloudtranPersistLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tests.roles.contract_persist_log import PersistLogContract


class TestCloudtranPersistLog(PersistLogContract):
    """See `PersistLogContract`."""

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> PersistLog:
        settings = LogSettings(disk_block_size=512, file_size_mb=1)
        return CloudtranPersistLog(folder, settings=settings, fs=fs)
