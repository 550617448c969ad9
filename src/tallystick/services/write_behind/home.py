"""The directory of a write-behind service: its log and its identity.

In: a path, and which system the log stands on. Out: an open `PersistLog`, and an id that targets
know the log by. The identity file holds the id and the system, a line each; it is written once
and never changed. One with an id alone is from before systems were noted, and any will do.
"""

from __future__ import annotations

import posixpath
import uuid

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.services.roles import PersistLog
from tallystick.storage.files import FileSystem, read_file, write_whole
from tallystick.systems.opening import open_persist_log

LOG_FOLDER = "log"
IDENTITY_FILE = "identity"
IDENTITY_SIZE_MAX = 36


def open_log(folder: str, system: str, fs: FileSystem) -> PersistLog:
    """Open or create the log of the service. Raises `UnsupportedFormatError` for a system that
    has no persist log, or is not that of the log which is there."""
    noted = noted_system(folder, fs)
    if noted not in (None, system):
        raise UnsupportedFormatError(
            "the service has a log of another system", file=folder, expected=noted, found=system
        )
    return open_persist_log(posixpath.join(folder, LOG_FOLDER), system, fs)


def noted_system(folder: str, fs: FileSystem) -> str | None:
    """The system of the log in ``folder``, if that is noted."""
    _, *more = _read(folder, fs) or [""]
    return more[0] if more else None


def read_identity(folder: str, fs: FileSystem, system: str | None) -> str:
    """The id of the service in ``folder``; made and kept, durably, if there is none.

    To be called by the owner of the log only. ``system`` is what its log stands on, if known.
    """
    if found := _read(folder, fs):
        return found[0]
    identity = str(uuid.uuid4())
    lines = [identity] if system is None else [identity, system]
    path = posixpath.join(folder, IDENTITY_FILE)
    write_whole(fs, path, ["".join(f"{line}\n" for line in lines).encode("ascii")])
    return identity


def _read(folder: str, fs: FileSystem) -> list[str]:
    path = posixpath.join(folder, IDENTITY_FILE)
    if not fs.exists(path):
        return []
    found = read_file(fs, path).decode("ascii", "replace").split()
    if not 1 <= len(found) <= 2 or len(found[0]) > IDENTITY_SIZE_MAX:
        raise CorruptLogError(
            "the identity of the service is damaged",
            file=path,
            expected="an id, and the name of a system",
            found=f"{len(found)} words",
            advice="Restore it: without it targets do not know what they hold",
        )
    return found
