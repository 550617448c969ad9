"""The real file system: `LOCAL`.

In: what `tallystick.storage.files` asks for. Out: system calls, each chosen for what it
promises.

A forked child inherits descriptors, and with them the power to write into its parent's log and
to keep its locks alive. So the child closes its copies before it does anything else; what it
calls on them afterwards raises `LogClosedError`.

What is made is its owner's alone, unless a setting says otherwise. What is written to, made or
locked is never reached through a symbolic link, and a lock file that is not ours stays as it is.
"""

from __future__ import annotations

from tallystick.storage.local.descriptors import FILE_MODE
from tallystick.storage.local.file import LocalFile, sync_for_reading
from tallystick.storage.local.file_system import (
    LOCAL,
    LocalFileSystem,
    locked_to_append,
    open_to_append,
)
from tallystick.storage.local.targets import (
    UNFINISHED,
    made_whole,
    naming,
    require_folder,
    write_anew,
)

__all__ = [
    "FILE_MODE",
    "LOCAL",
    "UNFINISHED",
    "LocalFile",
    "LocalFileSystem",
    "locked_to_append",
    "made_whole",
    "naming",
    "open_to_append",
    "require_folder",
    "sync_for_reading",
    "write_anew",
]
