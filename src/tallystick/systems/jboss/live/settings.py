"""Configure a live journal; the defaults are those of Artemis.

In: what an application chooses. Out: the shape of its records and the settings of its ring.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final, Literal

from tallystick.arguments import choice, integer, seconds
from tallystick.errors import LogWriteError
from tallystick.systems.jboss.format.layout import (
    FILE_SIZE_MAX,
    FILE_SIZE_MIN,
    SHAPES,
    Shape,
)
from tallystick.systems.jboss.live.files import RingSettings

_PREFIX, _EXTENSION = "activemq-data", "amq"
_INTEGERS: Final = (
    ("file_size", 0), ("min_files", 0), ("user_version", -(1 << 31)), ("alignment", 1),
    ("compact_percentage", 0), ("compact_min_files", 0),
)  # fmt: skip
"""Integers among the settings, and the least value of each."""


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The configuration of a journal; the defaults are those of Artemis.

    Attributes:
        generation: which original reads the files: ``g1a`` is JBoss Messaging of August 2008,
            ``g1b`` that of September, ``g1c`` its betas, ``g1d`` HornetQ 2.0, ``g2`` HornetQ 2.1,
            ``g3`` later ones and Artemis.
        checksum: ``size`` as the original, or ``hash``: records end with a CRC-32, and only
            Tallystick reads them (``g3`` only).
        prefix: start of file names.
        extension: end of file names, without the dot.
        file_size: size of every file, in bytes, less than 2 GiB: for the original it is an int.
        min_files: files that exist at least.
        pool_files: reclaimed files are kept while there are fewer files than this, -1 for always;
            None: -1 in g3, ``min_files`` before.
        user_version: number of the application in every file header.
        alignment: every write begins at a multiple of this, in bytes.
        delay: seconds that a flush waits for further records.
        compact_percentage: `CircularJournal.needs_compaction` if live bytes are less than this
            part of the files, in percent,
        compact_min_files: and there are more full files than this.

    Raises:
        TypeError: a value is of a wrong type.
        ValueError: a value is out of its range.
    """

    generation: Literal["g1a", "g1b", "g1c", "g1d", "g2", "g3"] = "g3"
    checksum: Literal["size", "hash"] = "size"
    prefix: str = _PREFIX
    extension: str = _EXTENSION
    file_size: int = 10 << 20
    min_files: int = 2
    pool_files: int | None = None
    user_version: int = 0
    alignment: int = 1
    delay: float = 0.0
    compact_percentage: int = 30
    compact_min_files: int = 10

    def __post_init__(self) -> None:
        choice(self.generation, "generation", [one for one in SHAPES if one != "hash"])
        choice(self.checksum, "checksum", ["size", "hash"])
        for name, least in _INTEGERS:
            integer(getattr(self, name), name, least, sys.maxsize)
        if self.pool_files is not None:
            integer(self.pool_files, "pool_files", -1, sys.maxsize)
        seconds(self.delay, "delay")
        for name, value in (("prefix", self.prefix), ("extension", self.extension)):
            if not isinstance(value, str):  # not `text`: a file of another program has any name
                raise TypeError(f"{name} is of type {type(value).__name__}; expected a text (str)")

    @property
    def usual_names(self) -> str | None:
        """The pattern of the file names; None if they are not those of Artemis."""
        usual = (self.prefix, self.extension) == (_PREFIX, _EXTENSION)
        return f"{_PREFIX}-*.{_EXTENSION}" if usual else None

    def shape(self) -> Shape:
        """Return the shape of the records. Raises `LogWriteError` if no generation has it."""
        if self.checksum == "hash" and self.generation != "g3":
            raise LogWriteError("a calculated hash is written in generation g3 only")
        return SHAPES["hash" if self.checksum == "hash" else self.generation]

    def ring(self) -> RingSettings:
        """Return the settings of the files. Raises `LogWriteError` for impossible sizes."""
        possible = FILE_SIZE_MIN <= self.file_size <= FILE_SIZE_MAX
        if not possible or self.file_size % self.alignment:
            raise LogWriteError(
                "an impossible size of journal files",
                expected=f"{FILE_SIZE_MIN} to {FILE_SIZE_MAX} and whole blocks of {self.alignment}",
                found=str(self.file_size),
            )
        default = -1 if self.generation == "g3" else self.min_files
        return RingSettings(
            self.shape(),
            self.prefix,
            self.extension,
            self.file_size,
            max(2, self.min_files),
            default if self.pool_files is None else self.pool_files,
            self.user_version,
            self.alignment,
        )
