"""Recognise H2 page store files by their first bytes.

In: the files of a folder. Out: a log for each page store file.
"""

from __future__ import annotations

from tallystick.errors import LogUnreadableError
from tallystick.systems.h2.format.layout import (
    MAGIC,
    STATIC_HEADER,
    SYSTEM_NAME,
    valid_page_size,
)
from tallystick.systems.protocol import Entry, Folder, LogSource

SUFFIX = ".h2.db"
OTHERS = (".temp.db", ".lob.db", ".data.db", ".index.db", ".log.db", ".trace.db", ".part")
"""Ends of names of files that begin as a page store does and are none: what a sort left, large
objects, databases of H2 1.0 and 1.1, and parts of a database after the first one."""


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
    if entry.name.endswith(SUFFIX):
        return len(head) < STATIC_HEADER.size or MAGIC in _magics(head)
    if entry.name.endswith(OTHERS) or len(head) < STATIC_HEADER.size:
        return False
    magics = _magics(head)
    if magics[0] == magics[1]:  # every file of H2 has both, a page store a page size after them
        return magics[0] == MAGIC and valid_page_size(STATIC_HEADER.unpack_from(head)[3])
    return MAGIC in magics


def _magics(head: bytes) -> tuple[bytes, bytes]:
    outer, _, inner, *_ = STATIC_HEADER.unpack_from(head)
    return outer, inner
