"""A log that is being written, file by file: the records of a file that will not change any more.

In: a log. Out: of each of its files its life, where its whole records end, and their rows. Only
whole, valid records before the first torn one count, so a record in the making is read once it is
whole. One file is read at a time where its system can tell its records without those of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tallystick.reading.tables import batches_of
from tallystick.records import Outcome
from tallystick.systems.protocol import (
    FileByFile,
    FileLife,
    LogReading,
    LogSource,
    ReadOptions,
    Split,
)
from tallystick.systems.registry import system

if TYPE_CHECKING:
    import pyarrow as pa

_VALID = Outcome.VALID.value

Ends = npt.NDArray[np.int64]


@dataclass
class FollowedLog:
    """A log as it is now.

    Everything raises `TallystickError` and `OSError` where it cannot be read.
    """

    source: LogSource
    options: ReadOptions

    @cached_property
    def _reading(self) -> LogReading:
        return system(self.source.system).read(self.source, self.options)

    @property
    def file_by_file(self) -> bool:
        """True if looking at one file reads that file alone."""
        return isinstance(self._reading, FileByFile)

    @cached_property
    def lives(self) -> Mapping[str, FileLife]:
        """The files of the log; ``size`` ends before a torn record, where one is known."""
        reading = self._reading
        if isinstance(reading, FileByFile):
            return reading.lives()
        return {
            file.path: FileLife(
                file.identity,
                file.generation,
                min([s.offset for s in file.spans if s.outcome is Outcome.TORN] or [file.size]),
            )
            for file in reading.files()
        }

    def ends(self, path: str, begin: int = 0) -> Ends:
        """Return the ends of the records of a file after ``begin``, ascending.

        The end at ``begin`` itself is included, and some ends before it may be.
        """
        size = self.lives[path].size
        ends = [np.empty(0, np.int64)]
        for batch in self.batches(path, begin, size):
            offsets, lengths = (batch.column(name).to_numpy() for name in ("offset", "length"))
            ends.append(offsets + lengths)
        found = np.sort(np.concatenate(ends))
        return found[found <= size]

    def last_ends(self, path: str) -> Ends:
        """Return where the last records of a file end, ascending: at least one, if there is any."""
        ends = self.ends(path, self.lives[path].size)
        return self.ends(path) if self.file_by_file and not len(ends) else ends

    def batches(self, path: str, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the valid records of a file that end after ``begin`` and begin before ``end``.

        Some that end before ``begin`` may be included.
        """
        import pyarrow.compute as pc

        reading, end = self._reading, min(end, self.lives[path].size)
        begin = reading.resume(path, begin) if isinstance(reading, FileByFile) else 0
        for batch in batches_of(reading, "records", Split(path, begin, end), attributes=False):
            ours = pc.equal(batch.column("file"), path)
            yield batch.filter(pc.and_(ours, pc.equal(batch.column("outcome"), _VALID)))
