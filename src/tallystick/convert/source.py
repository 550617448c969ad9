"""The log that is converted: nobody else has it, and its own code opens a copy of it.

In: the folder of a log, and a reading of it. Out: its lock, and a copy of its files. The files
themselves are only read: opening a log writes to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from tallystick.errors import LogBeingWrittenError, LogLockedError
from tallystick.storage.local import write_anew
from tallystick.storage.opening import opening_log
from tallystick.storage.source import is_remote, logical_name, open_source
from tallystick.systems.protocol import LogReading

_PIECE = 1 << 20
_ADVICE = "Close it there first; convert takes a log that is closed"


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keep the log in a folder locked for the block; one that is remote has no lock.

    Raises:
        LogLockedError: somebody has it open.
        LogUnreadableError: a file cannot be opened.
    """
    with contextlib.ExitStack() as held:
        if not is_remote(folder):
            with opening_log(folder):
                for path in _regular_files(folder):
                    held.enter_context(_locked(path))
        yield


def copy_log(reading: LogReading, copy: Path) -> None:
    """Copy the files of a log, which is locked, to the new folder ``copy``.

    Raises:
        LogBeingWrittenError: it changed meanwhile: by somebody who does not lock it.
        LogUnreadableError: a file cannot be read.
        OSError: the copy cannot be written.
    """
    copy.mkdir()
    folder = reading.source.path
    if is_remote(folder):
        for name in reading.source.files:
            _copy_unpacked(name, copy)
        return
    files = _regular_files(folder)
    before = {path: _stamp(path) for path in files}
    for path in files:
        if logical_name(str(path)) == path.name:
            with write_anew(copy / path.name) as new:
                new.writelines(_pieces(path))
        elif str(path) in reading.source.files:
            _copy_unpacked(str(path), copy)
    after = {path: _stamp(path) for path in _regular_files(folder)}
    if after != before:
        both = {**before, **after}
        changed = next(str(one) for one in both if before.get(one) != after.get(one))
        raise LogBeingWrittenError(
            "the log was written while it was copied", file=changed, advice=_ADVICE
        )


def _regular_files(folder: str) -> list[Path]:
    return [one for one in sorted(Path(folder).iterdir()) if one.is_file()]


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _pieces(path: Path) -> Iterator[bytes]:
    with opening_log(path), path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _copy_unpacked(path: str, copy: Path) -> None:
    with open_source(path) as source, write_anew(copy / logical_name(path)) as file:
        file.write(source.data)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file as an owner of its log does, without a byte written.

    Ours lock a file of their own whole (flock), the originals ranges of their files (fcntl).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _lock_bytes(descriptor)
        except (BlockingIOError, PermissionError) as error:
            raise LogLockedError("the log is open", file=str(path), advice=_ADVICE) from error
        yield
    finally:
        os.close(descriptor)


def _lock_bytes(descriptor: int) -> None:
    """Lock all bytes against writers; closing the file unlocks them."""
    if hasattr(fcntl, "F_OFD_SETLK"):
        request = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
