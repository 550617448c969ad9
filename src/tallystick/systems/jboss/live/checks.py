"""The check at the end of each record, changed in a whole journal: the size, or a CRC-32.

In: the folder of a closed journal of generation ``g3``. Out: a new folder with the same files, in
which every record ends with the other check, and every header says so. Both checks have four
bytes, so that no other byte changes, and the way back gives the first bytes again. With the
hash, damage inside of bodies is found, but only Tallystick reads the journal; with the size the
original does.
"""

from __future__ import annotations

import os
import posixpath
from pathlib import Path
from typing import Literal

from tallystick.errors import CorruptLogError, LogWriteError, UnsupportedFormatError
from tallystick.records import Outcome
from tallystick.storage.files import write_whole
from tallystick.storage.local import LOCAL, made_whole
from tallystick.systems.jboss.format.layout import (
    CHECK_SIZE,
    CONTROL_FILE,
    FORMAT_HEADER,
    SHAPES,
    Shape,
    check_of,
    encode_header,
)
from tallystick.systems.jboss.live.opening import open_journal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.jboss.read.classify import FileReading, read_files
from tallystick.systems.jboss.read.files import JournalFile
from tallystick.systems.jboss.read.spans import never_begun

_WHOLE = (Outcome.VALID, Outcome.STALE)
_DAMAGED = (Outcome.TORN, Outcome.CORRUPT)


def convert_checks(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    checksum: Literal["size", "hash"],
    *,
    extension: str = "amq",
) -> int:
    """Copy a closed journal, with the other check in its records.

    Args:
        source: the folder of the journal, which is only read.
        target: the folder of the new one; must not exist. It gets its name when it is whole.
        checksum: the check of the new journal, as in `JournalSettings`; the old one has the other.
        extension: end of the file names, without the dot.

    Returns:
        The number of records that count in the new journal.

    Raises:
        LogWriteError: the target exists or is being made, or a compaction of the source was cut
            short.
        UnsupportedFormatError: a file has another format, or the check that is asked for already.
        CorruptLogError: a record of the source is damaged or torn.
    """
    old, new = os.fspath(source), Path(target).absolute()
    if new.exists():
        raise LogWriteError("the target exists", file=str(new), advice="Choose another folder")
    shape = SHAPES["g3" if checksum == "size" else "hash"]
    readings = _readings(old, checksum, extension)
    with made_whole(new) as unfinished:
        for reading in readings:
            write_whole(LOCAL, str(unfinished / reading.file.name), [_converted(reading, shape)])
    return sum(reading.belongs(one) for reading in readings for one in reading.ranges)


def _readings(folder: str, checksum: str, extension: str) -> list[FileReading]:
    """Return the files of a sound journal with the check that is not ``checksum``."""
    if LOCAL.exists(posixpath.join(folder, CONTROL_FILE)):
        raise LogWriteError(
            "a compaction was cut short",
            file=folder,
            advice="Open the journal once, which finishes it, and close it",
        )
    settings = JournalSettings(
        checksum="hash" if checksum == "size" else "size", extension=extension
    )
    journal = open_journal(LOCAL, folder, settings.ring())
    for file in journal.files:
        _require_format(file, settings.shape())
    readings = list(read_files(journal))
    for reading in readings:
        for one in reading.ranges:
            if one.outcome in _DAMAGED:
                raise CorruptLogError(
                    f"a record that is not whole: {one.reason}",
                    file=reading.file.path,
                    offset=one.row.offset,
                    advice="Open the journal once, which cuts a torn end, and close it",
                )
    return readings


def _require_format(file: JournalFile, shape: Shape) -> None:
    header = file.header
    if header is None or never_begun(file.head) or header.format_version == shape.format_version:
        return
    raise UnsupportedFormatError(
        "a journal file of another format version",
        file=file.path,
        offset=0,
        expected=str(shape.format_version),
        found=str(header.format_version),
        advice="Journals of generation g3 can be converted, to the check that they do not have",
    )


def _converted(reading: FileReading, shape: Shape) -> bytes:
    """Return the bytes of a file with the checks and the header of ``shape``."""
    content = bytearray(reading.file.data())
    header = reading.file.header
    if header is not None and not never_begun(reading.file.head):
        head = encode_header(shape, header.file_id, header.user_version)
        content[: FORMAT_HEADER.size] = head
    for one in reading.ranges:
        if one.outcome in _WHOLE and reading.whole(one):
            begin, end = one.row.offset, one.row.offset + one.row.size
            content[end - CHECK_SIZE : end] = check_of(
                shape, bytes(content[begin : end - CHECK_SIZE])
            )
    return bytes(content)
