"""The files of a live log: made, opened, cut, removed, and the control file with its mirror.

In: a folder and a file system. Out: files that are on the disk, header and all, before a name
points to them: the engine does not boot from a log file that exists and is empty.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from tallystick.errors import CorruptLogError
from tallystick.storage.files import File, FileSystem, Lock, read_source
from tallystick.systems.derby.format.crypto import ENCRYPTED, LogCipher
from tallystick.systems.derby.format.layout import (
    CONTROL_NAMES,
    Control,
    encode_control,
    encode_header,
)
from tallystick.systems.derby.read.detect import file_number
from tallystick.systems.derby.read.files import ControlBytes, LogBytes, LogFiles

LOCK_NAME = "tallystick.lck"
ENGINE_LOCK_NAME = "dbex.lck"
_FRESH_SUFFIX = ".new"


class LogFolder:
    """A ``log`` folder; owns it while it is open."""

    def __init__(self, path: str, fs: FileSystem) -> None:
        self.path = path
        self.fs = fs
        fs.mkdir(path)
        self._lock = fs.lock(self._join(LOCK_NAME))
        try:
            self._engine = self._refuse_engine()
            self._remove_fresh()
        except BaseException:
            self._lock.release()
            raise

    def _join(self, name: str) -> str:
        return posixpath.join(self.path, name)

    def log_path(self, number: int) -> str:
        """The path of log file ``number``."""
        return self._join(f"log{number}.dat")

    def _refuse_engine(self) -> tuple[File, Lock] | None:
        """Hold what the engine locks while the database is booted, if it is there."""
        path = posixpath.join(posixpath.dirname(self.path), ENGINE_LOCK_NAME)
        if not self.fs.exists(path):
            return None
        file = self.fs.open(path)
        return file, file.lock_range(0, 1)

    def _remove_fresh(self) -> None:
        for name in self.fs.list(self.path):
            if name.endswith(_FRESH_SUFFIX):
                self.fs.remove(self._join(name))

    def read(self, cipher: LogCipher | None = None) -> LogFiles:
        """All files as they stand."""
        files, controls = {}, []
        for name in self.fs.list(self.path):
            number = file_number(name)
            if number is not None or name in CONTROL_NAMES:
                source = read_source(self.fs, self._join(name))
                if number is not None:
                    files[number] = LogBytes(number, source.path, name, source.data)
                else:
                    controls.append(ControlBytes(name, source.path, source.data))
        properties: Mapping[str, str] = {ENCRYPTED: "true"} if cipher else {}
        return LogFiles(dict(sorted(files.items())), tuple(controls), properties, cipher)

    def create(self, number: int, previous: int, size: int) -> File:
        """A new log file of ``size`` zeros behind its header, durable, name and all."""
        fresh = self.log_path(number) + _FRESH_SUFFIX
        file = self.fs.create(fresh)
        file.pwrite(encode_header(number, previous), 0)
        file.allocate(size)
        file.datasync()
        file.close()
        self.fs.rename(fresh, self.log_path(number))
        self.fs.sync_dir(self.path)
        return self.open(number)

    def open(self, number: int) -> File:
        """An existing log file."""
        return self.fs.open(self.log_path(number))

    def remove(self, numbers: list[int]) -> None:
        """Remove log files, the oldest first, so that what is left is always a chain."""
        for number in sorted(numbers):
            self.fs.remove(self.log_path(number))
            self.fs.sync_dir(self.path)

    def remove_behind(self, last: int) -> None:
        """Remove what lies behind the file that the log ends in, the newest first."""
        for name in reversed(self.fs.list(self.path)):
            number = file_number(name)
            if number is not None and number > last:
                self.fs.remove(self._join(name))
        self.fs.sync_dir(self.path)

    def zero_from(self, number: int, position: int) -> None:
        """Overwrite a file with zeros from here to its end, durably, if anything is there."""
        file = self.open(number)
        try:
            left = file.size() - position
            if left > 0 and any(file.pread(left, position)):
                file.pwrite(bytes(left), position)
                file.datasync()
        finally:
            file.close()

    def write_control(self, control: Control) -> None:
        """The control file, synced, and then its mirror."""
        content = encode_control(control)
        for name in CONTROL_NAMES:
            path = self._join(name)
            made = not self.fs.exists(path)
            file = self.fs.create(path) if made else self.fs.open(path)
            try:
                file.pwrite(content, 0)
                file.datasync()
            finally:
                file.close()
            if made:
                self.fs.sync_dir(self.path)

    def close(self) -> None:
        """Give the folder back."""
        if self._engine is not None:
            file, lock = self._engine
            lock.release()
            file.close()
        self._lock.release()


def corrupt(path: str, found: str) -> CorruptLogError:
    """The refusal to write on in a damaged log."""
    return CorruptLogError(
        "acknowledged records are damaged or cannot be reached",
        file=path,
        found=found,
        advice="Look at it with tallystick explain; copy the folder before anything else",
    )
