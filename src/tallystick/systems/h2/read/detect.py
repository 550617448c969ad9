"""Recognise H2 page store files by their first bytes.

In: the files of a folder. Out: a log for each page store file.
"""

from __future__ import annotations

from tallystick.errors import LogUnreadableError
from tallystick.systems.h2.format.layout import (
    INNER_MAGIC_OFFSET,
    MAGIC,
    MAGIC_SIZE,
    STATIC_HEADER,
    SYSTEM_NAME,
)
from tallystick.systems.protocol import Entry, Folder, LogSource

SUFFIX = ".h2.db"


def detect(folder: Folder) -> list[LogSource]:
    """Return a log for each page store file of the folder."""
    found = [entry for entry in folder.entries if _recognised(entry)]
    several = len(found) > 1
    return [
        LogSource(SYSTEM_NAME, folder.path, (entry.path,), entry.name if several else "")
        for entry in found
    ]


def _recognised(entry: Entry) -> bool:
    try:
        head = entry.head
    except LogUnreadableError:
        return False
    if len(head) < STATIC_HEADER.size:
        return entry.name.endswith(SUFFIX)
    inner = head[INNER_MAGIC_OFFSET : INNER_MAGIC_OFFSET + MAGIC_SIZE]
    return MAGIC in (head[:MAGIC_SIZE], inner)
