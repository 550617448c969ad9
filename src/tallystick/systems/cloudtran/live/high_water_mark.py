"""A side file that keeps numbers from being used twice after all log files are gone.

``<base>.mark`` is one line of text: greatest serial, sequence and transaction number so far,
and the CRC-32 of the text before it. It is replaced as a whole, durably.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from tallystick.errors import CorruptLogError
from tallystick.storage.crc import crc32
from tallystick.storage.files import FileSystem, read_file

_FORM = "serial {} sequence {} number {} "


@dataclass(frozen=True, slots=True)
class HighWaterMark:
    """The greatest numbers that have been used."""

    serial: int = 0
    sequence: int = 0
    number: int = 0


def mark_path(folder: str, base: str) -> str:
    """Return the path of a log's mark."""
    return posixpath.join(folder, f"{base}.mark")


def read_mark(fs: FileSystem, folder: str, base: str) -> HighWaterMark:
    """Return the mark, all zero if there is none.

    Raises:
        CorruptLogError: the mark is damaged.
    """
    path = mark_path(folder, base)
    if not fs.exists(path):
        return HighWaterMark()
    text = read_file(fs, path)
    words = text.split()
    if len(words) != 7 or f"{crc32(text[: text.rindex(words[-1])]):08x}".encode() != words[-1]:
        raise CorruptLogError(
            "the mark of used numbers is damaged",
            file=path,
            advice="If log files are left beside it, remove it: their numbers are greater",
        )
    return HighWaterMark(int(words[1]), int(words[3]), int(words[5]))


def write_mark(fs: FileSystem, folder: str, base: str, mark: HighWaterMark) -> None:
    """Replace the mark; durable on return."""
    path = mark_path(folder, base)
    text = _FORM.format(mark.serial, mark.sequence, mark.number).encode()
    fresh = f"{path}.new"
    if fs.exists(fresh):
        fs.remove(fresh)
    file = fs.create(fresh)
    try:
        file.pwrite(text + f"{crc32(text):08x}\n".encode(), 0)
        file.datasync()
    finally:
        file.close()
    fs.rename(fresh, path)
    fs.sync_dir(folder)
