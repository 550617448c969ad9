"""Recognise folders that hold a native log, by the magic bytes of its files."""

from __future__ import annotations

from tallystick.systems.protocol import Folder, LogSource
from tallystick.systems.tally.format.headers import CONTROL_MAGIC, SEGMENT_MAGIC
from tallystick.systems.tally.format.layout import COPY_OFFSET, SYSTEM_NAME
from tallystick.systems.tally.read.files import is_member


def detect(folder: Folder) -> list[LogSource]:
    """Return one log if a file of the folder has the magic bytes, else none."""
    members = [entry for entry in folder.entries if is_member(entry.name)]
    if not any(_has_magic(entry.head) for entry in members):
        return []
    return [LogSource(SYSTEM_NAME, folder.path, tuple(entry.path for entry in members))]


def _has_magic(head: bytes) -> bool:
    return any(
        head[place : place + 8] in (CONTROL_MAGIC, SEGMENT_MAGIC) for place in (0, COPY_OFFSET)
    )
