"""Which files of a folder are block logs, by content.

A file is recognised by the signature at its start; or by a first block that is whole under a
signature of its own; or, where the start is damaged, by a log file's name together with the
signature anywhere in it. Files without a word of their own (empty, zeros, torn at once) belong
to the log that their name says.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.storage.source import ByteSource, logical_name
from tallystick.systems.cloudtran.format.file_names import FileName, parse_name
from tallystick.systems.cloudtran.format.layout import (
    BLOCK_SIZES,
    BOTH_HEADERS,
    HEADER_SIZE,
    PROLOGUE_SIZE,
    SIGNATURE,
    SIGNATURE_SIZE,
    SYSTEM_NAME,
    Header,
    parse_header,
)
from tallystick.systems.cloudtran.read.block_order import ANY_SERIAL, Part
from tallystick.systems.cloudtran.read.header_repair import BlockFinder, signature_places
from tallystick.systems.protocol import Entry, Folder, LogSource, group_by, readable_entries

DEFAULT_BASE = "translog"
DEFAULT_EXTENSION = "ctlog"


def detect(folder: Folder) -> list[LogSource]:
    """The block logs of a folder: one per base name and extension."""
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
    foreign = _may_be_foreign(entry.head)
    if not foreign and (parse_name(entry.name) is None or not entry.head):
        return False
    with entry.open() as source:
        if foreign:
            return learned_signature(source.data) is not None
        return next(signature_places(source.data, SIGNATURE), None) is not None


def _may_be_foreign(head: bytes) -> bool:
    """Cheap test of the first bytes: everything in a first header that has a known value."""
    header = parse_header(head, 0)
    return (
        header is not None
        and len(head) >= HEADER_SIZE + PROLOGUE_SIZE
        and header.offset == 0
        and header.crc < 1 << 32
        and header.size >= PROLOGUE_SIZE
        and head[HEADER_SIZE] == 1
    )


def learned_signature(data: memoryview) -> bytes | None:
    """The first 64 bytes, if they head a block whose data fits and that they end as well."""
    header = parse_header(data, 0)
    if header is None or header.offset != 0:
        return None
    finder = BlockFinder(data, header.signature, BLOCK_SIZES[0])
    if finder.verify(0, header.size, header.crc) is None or not _recurs(data, header):
        return None
    return header.signature


def _recurs(data: memoryview, header: Header) -> bool:
    places = [HEADER_SIZE + header.size]
    for size in BLOCK_SIZES:
        places.append(-(-(BOTH_HEADERS + header.size) // size) * size - HEADER_SIZE)
    return any(parse_header(data, place) == header for place in places)


def file_parts(source: LogSource) -> tuple[Part, ...]:
    """The files by serial; one whose name has none is a log of its own."""
    parts = [_part(path) for path in source.files]
    return tuple(sorted(parts, key=lambda part: (part.serial, part.name)))


def _part(path: str) -> Part:
    name = logical_name(path)
    parsed: FileName | None = parse_name(name)
    return Part(path, name, ANY_SERIAL if parsed is None else parsed.serial)


def signature_of(sources: Iterable[ByteSource]) -> bytes | None:
    """The signature that files, or their beginnings, use: ours, or one learned from the first
    that has another; None where nothing tells."""
    for source in sources:
        data = source.data
        if data[:SIGNATURE_SIZE] == SIGNATURE:
            return SIGNATURE
        if _may_be_foreign(bytes(data[: HEADER_SIZE + PROLOGUE_SIZE])):
            learned = learned_signature(data)
            if learned is not None:
                return learned
    return None
