"""The free space of the log's disk, checked at most once per second.

In: a function that returns the free bytes. Out: `BusyError` below the limit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from tallystick.errors import BusyError
from tallystick.printable import logger
from tallystick.storage.files import HeldFolder
from tallystick.storage.local import LocalFileSystem
from tallystick.storage.scheduling import time
from tallystick.systems.cloudtran.live.settings import LogSettings

CHECK_SECONDS = 1.0
"""Seconds for which a check stays valid."""

_log = logger(__name__)


def free_on_disk(folder: str, fs: HeldFolder) -> Callable[[], int]:
    """Return a function for the free bytes of the disk; unlimited on file systems of tests."""
    if not isinstance(fs, LocalFileSystem):
        return lambda: 1 << 62
    return lambda: shutil.disk_usage(fs.through(folder)).free


class DiskSpace:
    """The free space of a log's disk, in files of full size."""

    def __init__(self, folder: str, settings: LogSettings, free_bytes: Callable[[], int]) -> None:
        self._folder = folder
        self._settings = settings
        self._free_bytes = free_bytes
        self._checked = 0.0
        self._busy = False

    def check_again(self) -> None:
        """Check at the next `require`, whenever the last check was."""
        self._checked = 0.0

    def require(self) -> None:
        """Raise below ``disk_space_low_busy_count`` files; log a warning before that.

        Raises:
            BusyError: the disk is nearly full.
        """
        now = time.monotonic()
        if now - self._checked > CHECK_SECONDS:
            self._checked = now
            self._check()
        if self._busy:
            raise BusyError(
                "the disk of the log is nearly full",
                file=self._folder,
                expected=f"space for {self._settings.disk_space_low_busy_count} more files",
                advice="Retry in a second; persisted entries are still written and free files",
            )

    def _check(self) -> None:
        files = self._free_bytes() // self._settings.file_size
        self._busy = files < self._settings.disk_space_low_busy_count
        if files < self._settings.disk_space_low_warning_count:
            _log.warning("%s: space for %d more log files", self._folder, files)
