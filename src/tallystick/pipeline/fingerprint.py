"""What shows that a file changed, or is gone, without reading it.

In: a path or URL. Out: its fingerprint: two numbers that differ when its bytes do.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from tallystick.storage.source import OBJECT_VERSIONS, is_remote

ABSENT = (-1, 0)
"""The fingerprint of a file that is not there, or cannot be looked at."""

_VERSIONS = (*OBJECT_VERSIONS, "LastModified", "last_modified", "mtime")


def fingerprint(file: str) -> list[int]:
    """Return size and time of change of a file, or size and version of an object.

    `ABSENT` where it cannot be looked at.
    """
    try:
        return _remote_fingerprint(file) if is_remote(file) else _local_fingerprint(file)
    except OSError:
        return list(ABSENT)


def gone(file: str) -> bool:
    """Return True if it is known that the file is not there: not if it only cannot be looked at."""
    try:
        _ = _remote_fingerprint(file) if is_remote(file) else _local_fingerprint(file)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def gone_of(files: Iterable[str]) -> list[str]:
    """Return which of the files are `gone`; of a remote folder one listing tells which are not."""
    found: list[str] = []
    for folder, group in groupby(files, key=lambda file: file.rpartition("/")[0]):
        listed = _listed(folder) if is_remote(folder) else ()
        found += [file for file in group if file.rpartition("/")[2] not in listed and gone(file)]
    return found


def _listed(folder: str) -> set[str]:
    """Return the names in a remote folder; none where it cannot be listed."""
    filesystem, key = _remote(folder)
    try:
        return {str(path).rpartition("/")[2] for path in filesystem.ls(key, detail=False)}
    except OSError:
        return set()


def forget_listings(file: str) -> None:
    """Look at a remote store anew from now on: this process may remember what was there."""
    if is_remote(file):
        _remote(file)[0].invalidate_cache()


def _local_fingerprint(file: str) -> list[int]:
    status = Path(file.removeprefix("file://")).stat()
    return [status.st_size, status.st_mtime_ns]


def _remote_fingerprint(file: str) -> list[int]:
    """Size and a checksum of the version: an object may be written anew with the same size."""
    filesystem, key = _remote(file)
    info = filesystem.info(key)
    version = next((str(info[name]) for name in _VERSIONS if info.get(name)), "")
    return [int(info["size"] or 0), zlib.crc32(version.encode())]


def _remote(file: str) -> tuple[Any, str]:
    import fsspec

    filesystem, key = fsspec.core.url_to_fs(file)
    return filesystem, key
