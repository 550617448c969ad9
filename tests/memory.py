"""Where files are in memory: for what depends on no disk, as syncs cost nothing there."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOM = 8 << 30
"""Bytes that are free there before what makes files of hundreds of megabytes goes there."""


def memory(room: int = 0) -> str | None:
    """Return a folder whose files are in memory, for ``dir=`` of `tempfile`.

    None, which is the usual folder, where there is none, or no more free bytes than ``room``.
    """
    place = Path("/dev/shm")
    return str(place) if place.is_dir() and shutil.disk_usage(place).free > room else None
