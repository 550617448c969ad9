"""Detect the journals in a folder by the content of its files.

In: a `Folder`. Out: one `LogSource` for each extension whose files hold journal headers and
records: the loaders read every file of an extension, whatever its prefix. Names decide only
about files without content: empty, short, or filled and never begun.
"""

from __future__ import annotations

import re

from tallystick.storage.source import logical_name
from tallystick.systems.jboss.applications.object_store import object_stores
from tallystick.systems.jboss.format import layout
from tallystick.systems.jboss.format.file_names import (
    KNOWN_EXTENSIONS,
    extension_of,
    prefix_of,
    without_suffix,
)
from tallystick.systems.jboss.read.generations import FILE_ID_MAX, format_version
from tallystick.systems.jboss.read.scan import STALE, VALID, scan
from tallystick.systems.protocol import HEAD_SIZE, Entry, Folder, LogSource

USER_VERSION_MAX = 1 << 16
"""Upper bound of plausible user versions, positive or negative."""
_REPLICA = re.compile(r"oldreplica\.\d+")
_RETAINED = re.compile(r".+-\d{14}-\d+\.[a-z]+")
"""Name of a copy of a data file: prefix, time, id."""
_COPY = re.compile(r"(?:.+-\d{1,18}\.(?:amq|hq|bindings|jms)|server\.?lock\S*)(?:~|\..+)")
"""Name of a copy that somebody made of a file of a journal beside it; no broker lists it."""
_CANDIDATES = ("g3", "hash", "g2", "g1a", "g1b", "g1c", "g1d")


def detect(folder: Folder) -> list[LogSource]:
    """Return the journals of a folder, and stores of files. Raises `LogUnreadableError`."""
    groups: dict[str, list[Entry]] = {}
    for entry in folder.entries:
        extension = _extension(entry.name)
        if (
            extension and entry.name != layout.CONTROL_FILE
        ):  # a file of records, too, and no data file
            groups.setdefault(extension, []).append(entry)
    journals = {name: group for name, group in groups.items() if _is_journal(name, group)}
    control = [entry for entry in folder.entries if entry.name == layout.CONTROL_FILE]
    found = [
        _source(folder, group, control, alone=len(journals) == 1) for group in journals.values()
    ]
    return found + object_stores(folder)


def put_aside(source: LogSource) -> str:
    """Return what files are that a broker has put aside and never reads again; else nothing."""
    folder = source.path.rstrip("/").rpartition("/")[2]
    count = f"{len(source.files):,} file{'s' if len(source.files) > 1 else ''}"
    if folder == "attic":
        return f"{count} that the broker found damaged at a start, and never reads again"
    if _REPLICA.fullmatch(folder):
        return f"{count} of an earlier life as a backup, which the broker never reads again"
    names = [logical_name(one) for one in source.files]
    if names and all(_RETAINED.fullmatch(name) for name in names):
        return f"{count} kept for replay (journal-retention-directory); no start reads them"
    # Those of a compaction, or of a creation that a full disk ended, are the broker's own.
    if names and all(_COPY.fullmatch(name) and name == without_suffix(name) for name in names):
        return f"{count} whose names no broker lists ({names[0]}): copies, which no start reads"
    return ""


def _extension(name: str) -> str:
    plain = without_suffix(name)
    return extension_of(plain) or plain.rpartition(".")[2] if "." in plain else ""


def _is_journal(extension: str, group: list[Entry]) -> bool:
    if any(looks_like_journal(entry.head) for entry in group):
        return True
    named = [entry for entry in group if prefix_of(entry.name)]
    return extension in KNOWN_EXTENSIONS and any(_is_empty(entry.head) for entry in named)


def _source(folder: Folder, group: list[Entry], control: list[Entry], *, alone: bool) -> LogSource:
    entries = sorted([*group, *control], key=lambda entry: entry.name)
    prefix = next((p for entry in group if (p := prefix_of(entry.name))), "")
    name = "" if alone else f"{prefix}.{_extension(group[0].name)}"
    return LogSource(layout.SYSTEM_NAME, folder.path, tuple(entry.path for entry in entries), name)


def looks_like_journal(head: bytes) -> bool:
    """Return whether a file starts with a header and a record, or with a header and fill."""
    if b"\0" not in head:
        return False  # ids and sizes have a zero byte: text need not be scanned
    # A file of 2008 with the id 1 or 2 begins like one with a format version, so that the rest of
    # the header and the first record decide (format, Generations).
    if format_version(head) is not None and _user_version(head) < USER_VERSION_MAX:
        if not head[layout.FORMAT_HEADER.size :].strip(layout.FILL):
            return len(head) > layout.FORMAT_HEADER.size
        return any(_has_record(head, layout.SHAPES[name]) for name in ("g3", "g2", "hash"))
    return any(_has_record(head, layout.SHAPES[name]) for name in _CANDIDATES)


def _user_version(head: bytes) -> int:
    return abs(int(layout.FORMAT_HEADER.unpack_from(head)[1]))


def _has_record(head: bytes, shape: layout.Shape) -> bool:
    if len(head) < shape.header_size:
        return False
    header = layout.decode_header(shape, head)
    known = 0 <= header.format_version < 256 or shape.hashed
    if not known or not 0 < header.file_id < FILE_ID_MAX:
        return False
    data = memoryview(head)
    end = shape.header_size
    for row in scan(data, shape, header.stamp):
        # One stale record amid other bytes may be chance: it counts where something ends.
        if row.status == VALID or (row.status == STALE and row.offset == end):
            return True
        end = row.offset + row.size
    return _begins_record(head, shape.header_size, header.stamp)


def _begins_record(head: bytes, at: int, stamp: int) -> bool:
    """Return whether a record of this file begins at ``at`` and ends after the head."""
    if len(head) < HEAD_SIZE or at + layout.I4.size >= len(head):
        return False
    found = layout.I4.unpack_from(head, at + 1)[0]
    return found == stamp and layout.EVENT <= head[at] <= layout.ROLLBACK


def _is_empty(head: bytes) -> bool:
    """Return whether a file is empty, shorter than a header, or an id and fill."""
    return len(head) < layout.FORMAT_HEADER.size or not head[layout.I4.size :].strip(layout.FILL)
