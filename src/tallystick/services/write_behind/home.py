"""The directory of a write-behind service: its log and its identity.

In: a path, and which system the log stands on. Out: an open `PersistLog`, and an id that targets
know the log by. The id is written once and never changed.
"""

from __future__ import annotations

import posixpath
import uuid

from tallystick.services.roles import PersistLog
from tallystick.storage.files import FileSystem, read_file, write_whole
from tallystick.systems.opening import open_persist_log

LOG_FOLDER = "log"
IDENTITY_FILE = "identity"


def open_log(folder: str, system: str, fs: FileSystem) -> PersistLog:
    """Open or create the log of the service. Raises `UnsupportedFormatError` for a system that
    has no persist log."""
    return open_persist_log(posixpath.join(folder, LOG_FOLDER), system, fs)


def read_identity(folder: str, fs: FileSystem) -> str:
    """The id of the service in ``folder``; made and kept, durably, if there is none.

    To be called by the owner of the log only.
    """
    path = posixpath.join(folder, IDENTITY_FILE)
    if fs.exists(path):
        return read_file(fs, path).decode("ascii").strip()
    identity = str(uuid.uuid4())
    write_whole(fs, path, [f"{identity}\n".encode("ascii")])
    return identity
