"""Find the block logs of a folder, by content.

A file is recognised by the signature at its start; or by a first block that is whole under a
signature of its own; or, where the start is damaged, by a log file's name together with the
signature anywhere in it. Files whose content shows nothing (empty, zeros, torn at once) belong
to the log that their name states.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.systems.cloudtran.format.file_names import parse_name
from tallystick.systems.cloudtran.format.layout import SIGNATURE, SYSTEM_NAME
from tallystick.systems.cloudtran.read.block_format import learned_signature, may_be_foreign
from tallystick.systems.cloudtran.read.header_repair import signature_places
from tallystick.systems.protocol import Entry, Folder, LogSource, group_by, readable_entries

DEFAULT_BASE = "translog"
DEFAULT_EXTENSION = "ctlog"


def detect(folder: Folder) -> list[LogSource]:
    """Return the block logs of a folder: one per base name and extension."""
    entries = list(readable_entries(folder.entries))
    groups = group_by(entries, lambda entry: _group(entry.name))
    logs = [
        _source(folder, name, members)
        for name, members in groups.items()
        if any(map(_is_block_log, members)) or name == _group_name(DEFAULT_BASE, DEFAULT_EXTENSION)
    ]
    if len(logs) == 1:
        return [LogSource(SYSTEM_NAME, logs[0].path, logs[0].files)]
    return logs


def _source(folder: Folder, name: str, members: Iterable[Entry]) -> LogSource:
    return LogSource(SYSTEM_NAME, folder.path, tuple(one.path for one in members), name)


def _group(name: str) -> str:
    parsed = parse_name(name)
    return name if parsed is None else _group_name(parsed.base, parsed.extension)


def _group_name(base: str, extension: str) -> str:
    return f"{base}-*.{extension}"


def _is_block_log(entry: Entry) -> bool:
    if entry.head.startswith(SIGNATURE) or SIGNATURE in entry.head:
        return True
    foreign = may_be_foreign(entry.head)
    if not foreign and (parse_name(entry.name) is None or not entry.head):
        return False
    with entry.open() as source:
        if foreign:
            return learned_signature(source.data) is not None
        return next(signature_places(source.data, SIGNATURE), None) is not None
