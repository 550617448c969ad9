"""How a live journal is configured; the defaults are those of Artemis.

In: what an application chooses. Out: the shape of its records and the settings of its ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tallystick.errors import LogWriteError
from tallystick.systems.jboss.format.layout import FILE_SIZE_MIN, SHAPES, Shape
from tallystick.systems.jboss.live.files import RingSettings


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How a journal is configured; the defaults are those of Artemis.

    ``pool_files``: keep reclaimed files while there are fewer than this, -1 for always (None:
    -1 in g3, ``min_files`` in g1a). ``delay`` in seconds makes a flush wait for company.
    ``compact_percentage`` and ``compact_min_files`` decide `CircularJournal.needs_compaction`.
    """

    generation: Literal["g1a", "g3"] = "g3"
    checksum: Literal["size", "hash"] = "size"
    prefix: str = "activemq-data"
    extension: str = "amq"
    file_size: int = 10 << 20
    min_files: int = 2
    pool_files: int | None = None
    user_version: int = 0
    alignment: int = 1
    delay: float = 0.0
    compact_percentage: int = 30
    compact_min_files: int = 10

    def shape(self) -> Shape:
        """The shape of the records. Raises `LogWriteError` for what no generation has."""
        if self.checksum == "hash" and self.generation != "g3":
            raise LogWriteError("a calculated hash is written in generation g3 only")
        return SHAPES["hash" if self.checksum == "hash" else self.generation]

    def ring(self) -> RingSettings:
        """The part that the files are made by. Raises `LogWriteError` for impossible sizes."""
        if self.file_size < FILE_SIZE_MIN or self.file_size % self.alignment:
            raise LogWriteError(
                "an impossible size of journal files",
                expected=f"at least {FILE_SIZE_MIN} and whole blocks of {self.alignment}",
                found=str(self.file_size),
            )
        default = self.min_files if self.generation == "g1a" else -1
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
