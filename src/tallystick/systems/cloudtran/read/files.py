"""The files of one block log, ordered by the serial in their names, and the mark beside them.

In: a `LogSource`. Out: its `BlockFile`s; the `HighWaterMark`.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from tallystick.errors import LogUnreadableError
from tallystick.storage.source import logical_name, open_source
from tallystick.systems.cloudtran.format.file_names import parse_name
from tallystick.systems.cloudtran.format.high_water_mark import (
    SUFFIX,
    HighWaterMark,
    decode_mark,
)
from tallystick.systems.protocol import LogSource

MARK_SIZE_MAX = 256
ANY_SERIAL = -1
"""Serial of a file whose name has none: that of its first block counts."""


@dataclass(frozen=True, slots=True)
class BlockFile:
    """One file of a log: path, name without folder and packing, serial from the name."""

    path: str
    name: str
    serial: int


def block_files(source: LogSource) -> tuple[BlockFile, ...]:
    """Return the files of a log by serial; one whose name has none is a log of its own."""
    files = [_block_file(path) for path in source.files]
    return tuple(sorted(files, key=lambda file: (file.serial, file.name)))


def _block_file(path: str) -> BlockFile:
    name = logical_name(path)
    parsed = parse_name(name)
    return BlockFile(path, name, ANY_SERIAL if parsed is None else parsed.serial)


def mark_beside(files: tuple[BlockFile, ...]) -> HighWaterMark | None:
    """Return the mark in the folder of a log, all zero if there is none; None if it is damaged."""
    parsed = parse_name(files[0].name) if files else None
    if parsed is None:
        return HighWaterMark()
    path = files[0].path.removesuffix(posixpath.basename(files[0].path)) + parsed.base + SUFFIX
    try:
        with open_source(path) as source:
            return decode_mark(bytes(source.data[:MARK_SIZE_MAX]))
    except LogUnreadableError:
        return HighWaterMark()
