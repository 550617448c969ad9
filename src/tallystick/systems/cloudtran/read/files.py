"""The files of one block log, ordered by the serial in their names.

In: a `LogSource`. Out: its `BlockFile`s.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.storage.source import logical_name
from tallystick.systems.cloudtran.format.file_names import parse_name
from tallystick.systems.protocol import LogSource

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
