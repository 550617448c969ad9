"""Recognise folders that hold a native log, by the magic bytes of its files.

In: a folder. Out: its log, and each log whose archived segments lie there.
"""

from __future__ import annotations

from tallystick.systems.protocol import Entry, Folder, LogSource
from tallystick.systems.tally.format.headers import CONTROL_MAGIC, SEGMENT_MAGIC
from tallystick.systems.tally.format.layout import COPY_OFFSET, SYSTEM_NAME, archived_as
from tallystick.systems.tally.read.files import is_member


def detect(folder: Folder) -> list[LogSource]:
    """Return the log of the folder and each log whose archived segments lie there.

    A file of each must have the magic bytes. The name of archived ones is the log's identity.
    """
    members: dict[str, list[Entry]] = {}
    for entry in folder.entries:
        if is_member(entry.name):
            identity, _ = archived_as(entry.name) or ("", "")
            members.setdefault(identity, []).append(entry)
    return [
        LogSource(SYSTEM_NAME, folder.path, tuple(entry.path for entry in entries), identity)
        for identity, entries in members.items()
        if any(_has_magic(entry.head) for entry in entries)
    ]


def _has_magic(head: bytes) -> bool:
    return any(
        head[place : place + 8] in (CONTROL_MAGIC, SEGMENT_MAGIC) for place in (0, COPY_OFFSET)
    )
