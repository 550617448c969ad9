"""Recognise a log folder of Derby by the content of its files.

In: the entries of one folder. Out: at most one `LogSource`.
"""

from __future__ import annotations

from tallystick.systems.derby.format.layout import (
    HEADER_SIZE,
    LOG_FILE,
    OBSOLETE_VERSION,
    SYSTEM_NAME,
    make_instant,
)
from tallystick.systems.derby.read.files import file_number, is_log_name
from tallystick.systems.protocol import Entry, Folder, LogSource, readable_entries

_NOTICE = "README_DO_NOT_TOUCH_FILES.txt"
_SIGNATURE = LOG_FILE.to_bytes(4) + OBSOLETE_VERSION.to_bytes(4)


def detect(folder: Folder) -> list[LogSource]:
    """Return the folder's log if at least one of its files has Derby's signature."""
    entries = list(readable_entries(folder.entries))
    named = [entry for entry in entries if is_log_name(entry.name)]
    if not any(_signed(entry) for entry in named):
        return []
    files = [entry.path for entry in entries if is_log_name(entry.name) or entry.name == _NOTICE]
    return [LogSource(SYSTEM_NAME, folder.path, tuple(files))]


def _signed(entry: Entry) -> bool:
    """Format id and version; the engine never checks the version, so one may be damaged."""
    head = entry.head
    if len(head) < len(_SIGNATURE):
        return False
    if head.startswith(_SIGNATURE):
        return True
    number = file_number(entry.name)
    if number is None:
        return head[4:8] == _SIGNATURE[4:] and len(head) < HEADER_SIZE * 4
    first = int.from_bytes(head[28:36])
    return head[8:16] == number.to_bytes(8) or first == make_instant(number, HEADER_SIZE)
