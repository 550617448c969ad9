"""The files of a live log: created, opened, cut, removed, and the control file with its mirror.

In: a folder and a file system. Out: log files that are durable, with their header, before they
get their name: the engine does not boot if a log file exists and is empty.
"""

from __future__ import annotations

import posixpath
from dataclasses import replace

from tallystick.errors import CorruptLogError
from tallystick.storage.files import File, FileSystem, Lock, absolute, read_source, write_whole
from tallystick.storage.opening import lock_log
from tallystick.systems.derby.engine.recovery import PREALLOCATED, SWITCH_INTERVAL
from tallystick.systems.derby.format.crypto import ENCRYPTED, LogCipher
from tallystick.systems.derby.format.layout import (
    CONTROL_NAMES,
    SYSTEM_NAME,
    Control,
    encode_control,
    encode_header,
)
from tallystick.systems.derby.read.files import LogFiles, file_number, is_log_name
from tallystick.systems.folders import require_own

LOCK_NAME = "tallystick.lck"
ENGINE_LOCK_NAME = "dbex.lck"
_FRESH_SUFFIX = ".new"


class LogFolder:
    """A ``log`` folder; holds its lock until it is closed."""

    def __init__(self, path: str, fs: FileSystem) -> None:
        self.path = path = absolute(path)
        require_own(path, fs, SYSTEM_NAME)
        fs.mkdir(path)
        self._lock = lock_log(fs, self._join(LOCK_NAME))
        self.fs = self._lock.fs
        try:
            self._engine = self._refuse_engine()
            self._remove_fresh()
        except BaseException:
            self._lock.release()
            raise

    def _join(self, name: str) -> str:
        return posixpath.join(self.path, name)

    def log_path(self, number: int) -> str:
        """Return the path of log file ``number``."""
        return self._join(f"log{number}.dat")

    def _refuse_engine(self) -> tuple[File, Lock] | None:
        """Lock the file that the engine locks while the database is booted, if it exists."""
        path = posixpath.join(posixpath.dirname(self.path), ENGINE_LOCK_NAME)
        if not self.fs.exists(path):
            return None
        file = self.fs.open(path)
        return file, file.lock_range(0, 1)

    def _remove_fresh(self) -> None:
        for name in self.fs.list(self.path):
            if name.endswith(_FRESH_SUFFIX):
                self.fs.remove(self._join(name))

    def read(self, cipher: LogCipher | None = None, interval: int = PREALLOCATED) -> LogFiles:
        """Read all files; none is preallocated to more than ``interval`` or an earlier one."""
        names = filter(is_log_name, self.fs.list(self.path))
        files = LogFiles.sorted_by_name(read_source(self.fs, self._join(name)) for name in names)
        full = [files.files[number].size for number in list(files.files)[:-1]]
        properties = {SWITCH_INTERVAL: str(min([interval, *full]))}
        properties |= {ENCRYPTED: "true"} if cipher else {}
        return replace(files, properties=properties, cipher=cipher)

    def names(self) -> dict[int, str]:
        """Return the names of the log files by number, ascending."""
        found = {file_number(name): name for name in self.fs.list(self.path)}
        return {number: found[number] for number in sorted(filter(None, found))}

    def create(self, number: int, previous: int, size: int) -> File:
        """Create a log file of ``size`` bytes, zeros after its header; its name is durable too."""
        # Durable before it has its name: the engine does not boot with a log file that is empty.
        content = encode_header(number, previous)
        write_whole(self.fs, self.log_path(number), [content], size=size)
        return self.open(number)

    def open(self, number: int) -> File:
        """Open an existing log file."""
        return self.fs.open(self.log_path(number))

    def remove(self, numbers: list[int]) -> None:
        """Remove log files, the oldest first, so that the rest is always a chain."""
        for number in sorted(numbers):
            self.fs.remove(self.log_path(number))
            self.fs.sync_dir(self.path)

    def remove_after(self, last: int) -> None:
        """Remove the log files after number ``last``, the newest first."""
        # The newest first: after a crash in between what is left is still a chain.
        for number, name in reversed(self.names().items()):
            if number > last:
                self.fs.remove(self._join(name))
        self.fs.sync_dir(self.path)

    def clear_from(self, number: int, position: int, interval: int) -> None:
        """Overwrite a file durably with zeros from ``position`` on, unless all are zero.

        A file that reaches beyond the preallocated size is cut there instead: four zeros, left at
        its end by what is written next, would be its end marker.
        """
        file = self.open(number)
        try:
            left = file.size() - position
            if left > 0 and position + left > interval:
                file.truncate(max(position, interval))
                left = interval - position
                file.datasync()
            if left > 0 and any(file.pread(left, position)):
                file.pwrite(bytes(left), position)
                file.datasync()
        finally:
            file.close()

    def write_control(self, control: Control) -> None:
        """Write the control file durably, then its mirror."""
        content = encode_control(control)
        # One after the other, so that one of both is whole at any time.
        for name in CONTROL_NAMES:
            path = self._join(name)
            if not self.fs.exists(path):
                write_whole(self.fs, path, [content])  # with one of zeros the engine does not boot
                continue
            file = self.fs.open(path)
            try:
                file.pwrite(content, 0)
                file.datasync()
            finally:
                file.close()

    def close(self) -> None:
        """Release the locks."""
        if self._engine is not None:
            file, lock = self._engine
            lock.release()
            file.close()
        self._lock.release()


def corrupt(path: str, found: str) -> CorruptLogError:
    """Return the error that refuses to continue a damaged log."""
    return CorruptLogError(
        "acknowledged records are damaged or cannot be reached",
        file=path,
        found=found,
        advice="Look at it with tallystick explain; copy the folder before anything else",
    )
