"""Recognise H2 page store files by their first bytes.

In: the files of a folder. Out: a log for each page store file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container

from tallystick.errors import LogUnreadableError
from tallystick.systems.h2.format.layout import (
    MAGIC,
    STATIC_HEADER,
    SYSTEM_NAME,
    valid_page_size,
)
from tallystick.systems.jdbc_urls import split_url
from tallystick.systems.protocol import Entry, Folder, LogSource

SUFFIX = ".h2.db"
MV_SUFFIX = ".mv.db"
"""Ends of the names of a page store, and of H2's other store, that of 1.4 by default."""
PART = re.compile(r"(.*\.h2\.db)\.([1-9]\d{0,8})\.part", re.IGNORECASE)
"""Name of a part after the first one of a database that was opened with ``split:``."""
_OLD = "of a database of H2 1.0 or 1.1, another format: not read"
_OTHERS = {
    ".data.db": _OLD,
    ".index.db": _OLD,
    ".log.db": _OLD,
    ".lob.db": "a large object of an H2 database",
    ".temp.db": "a temporary file of H2, which its next start removes",
}
"""Ends of names of files that begin as a page store does and are none, and what they are."""
_MV_MAGIC = b"H:2,"
_RESOURCES = b"\0\5\x16\7"
"""Begins what macOS puts beside a file, under its name with ``._`` before it."""

_URL = re.compile(
    r"jdbc:h2:(?:(?:file|nio|nioMapped|async|raf|retry|split(?::\d+)?):)*(.*)",
    re.IGNORECASE,
)
"""A URL of a database in files, after the ways of H2 to reach them."""
_ELSEWHERE = re.compile(r"\w\w+:")
"""Begins what is in memory, on a server or in an archive; one letter is a drive."""


def detect(folder: Folder) -> list[LogSource]:
    """Return a log for each page store file of the folder, with its parts where it was split."""
    parts = _parts(folder)
    names = {entry.name for entry in folder.entries}
    found = [
        (one.name, [one.path])
        for one in folder.entries
        if not PART.fullmatch(one.name) and _recognised(one, names)
    ]
    named = {name for name, _ in found}
    found += [(name, []) for name in parts if name not in named]
    several = len(found) > 1
    return [
        LogSource(
            SYSTEM_NAME,
            folder.path,
            (*first, *(path for _, path in sorted(parts.get(name, ())))),
            name if several else "",
        )
        for name, first in found
    ]


def path_in(url: str) -> str | None:
    """Return the path that a URL of JDBC names; empty if none here, None of another system."""
    found = _URL.match(split_url(url)[0])
    if found is None:
        return None
    return "" if _ELSEWHERE.match(found[1]) else os.path.expanduser(found[1])  # noqa: PTH111


def password_in(url: str) -> str | None:
    """Return the file password that a URL of JDBC gives; None without one, or of another system.

    Where a cipher is named, the password has it before the user's, and a space between them.
    """
    address, named = split_url(url)
    if _URL.match(address) is None or "cipher" not in named:
        return None
    return named.get("password", "").partition(" ")[0] or None


def other_file(name: str, head: bytes) -> str:
    """Return what a file that is no log is to H2; empty where it is nothing."""
    if name.endswith(MV_SUFFIX) and head.startswith(_MV_MAGIC):
        return "a database of H2's other store (MVStore): not read"
    if not head.startswith(MAGIC):
        return ""
    return next((what for end, what in _OTHERS.items() if name.endswith(end)), "")


def _parts(folder: Folder) -> dict[str, list[tuple[int, str]]]:
    """Return numbers and paths of the parts after the first one, by the name of that one."""
    parts: dict[str, list[tuple[int, str]]] = {}
    for entry in folder.entries:
        if (place := PART.fullmatch(entry.name)) and not _is_resources(entry):
            parts.setdefault(place[1], []).append((int(place[2]), entry.path))
    return parts


def _is_resources(entry: Entry) -> bool:
    """Return whether a file is what macOS puts beside another one."""
    try:
        return entry.name.startswith("._") and entry.head.startswith(_RESOURCES)
    except LogUnreadableError:
        return False


def _recognised(entry: Entry, names: Container[str]) -> bool:
    """Return whether a file is a page store; ``names`` are those of all files of its folder."""
    try:
        head = entry.head
    except LogUnreadableError:
        return False
    if not head and entry.name.removesuffix(SUFFIX) + MV_SUFFIX in names:
        return False  # the engine opens the file of its other store, and makes nothing of this one
    if entry.name.endswith(SUFFIX):  # the engine opens it, or refuses to, whatever it begins with
        return not head.startswith(_RESOURCES)
    if entry.name.endswith(tuple(_OTHERS)) or len(head) < STATIC_HEADER.size:
        return False
    magics = _magics(head)
    if magics[0] == magics[1]:  # every file of H2 has both, a page store a page size after them
        return magics[0] == MAGIC and valid_page_size(STATIC_HEADER.unpack_from(head)[3])
    return MAGIC in magics


def _magics(head: bytes) -> tuple[bytes, bytes]:
    """Return the text that a file begins with, and the one after the salt."""
    outer, _, inner, *_ = STATIC_HEADER.unpack_from(head)
    return outer, inner
