"""Shared by the tests of write-behind: a target that records, and one that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tallystick.roles import Operation, OperationCode, PersistEntry, PersistLog
from tallystick.services.write_behind import WriteBehindSettings
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.cloudtran.live.role import CloudtranPersistLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import TallyPersistLog
from tallystick.systems.tally.live.settings import Settings

SYSTEMS = ["tally", "cloudtran"]


def small_log(system: str, folder: str, fs: FileSystem = LOCAL) -> PersistLog:
    """A persist log with small files below the folder of a service."""
    path = f"{folder}/log"
    if system == "cloudtran":
        settings = LogSettings(disk_block_size=512, file_size_mb=1)
        return CloudtranPersistLog(path, settings=settings, fs=fs)
    small = Settings(segment_size=1 << 18, recycle=False, preallocate=False)
    return TallyPersistLog(TallyLog(path, settings=small, fs=fs), fs=fs)


def put(key: bytes, value: bytes = b"", target: str | None = None) -> Operation:
    """An update of one key."""
    return Operation(OperationCode.UPDATE, "t", key, value, target)


def quick(**values: Any) -> WriteBehindSettings:
    """Settings with short delays."""
    defaults: dict[str, Any] = {
        "retry_seconds": 0.001,
        "retry_seconds_max": 0.01,
        "attempts_max": 3,
        "busy_timeout": 0.05,
        "close_timeout": 5.0,
    }
    return WriteBehindSettings(**defaults | values)


def _nothing(_: PersistEntry) -> None:
    """Accept the entry, as a healthy target does."""


class Recorder:
    """A target that records its entries; ``fail`` may raise for one."""

    def __init__(self, batch_max: int = 100) -> None:
        self.batch_max = batch_max
        self.applied: list[PersistEntry] = []
        self.batches: list[int] = []
        self.fail: Callable[[PersistEntry], None] = _nothing
        self.gate = threading.Event()
        self.gate.set()
        self.log_id = ""

    def open(self, log_id: str) -> None:
        self.log_id = log_id

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        assert self.gate.wait(30)
        for entry in entries:
            self.fail(entry)
        self.applied += entries
        self.batches.append(len(entries))

    def settled(self, below: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to close."""

    @property
    def numbers(self) -> list[int]:
        return [entry.number for entry in self.applied]
