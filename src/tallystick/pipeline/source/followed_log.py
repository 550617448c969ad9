"""A log that is being written, file by file: the records of a file that will not change any more.

In: a log. Out: of each of its files its life, where its whole records end, and their rows. Only
whole, valid records before the first torn one count, so a record in the making is read once it is
whole. One file is read at a time where its system can tell its records without those of the others.

A record is handed on once it is proved durable. A log that notes what is durable proves it
(`ProvesDurability`), and what it does not prove waits. Of any other log the reader proves it: it
syncs the file that it has read, through a descriptor that cannot write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tallystick.arrow.schemas import batches_of_changes
from tallystick.pipeline.planning import in_order
from tallystick.pipeline.source.positions import (
    HistoryRewrittenError,
    LogPosition,
    require_unchanged,
)
from tallystick.reading.names import log_name
from tallystick.reading.tables import batches_of, selected
from tallystick.records import Outcome
from tallystick.storage.local import sync_for_reading
from tallystick.storage.source import is_remote
from tallystick.systems.protocol import (
    Catalogued,
    ChangesBetween,
    FileByFile,
    FileLife,
    LogReading,
    LogSource,
    Missing,
    Ordered,
    ProvesDurability,
    Reached,
    ReadOptions,
    Split,
    StatesItsEnd,
    TellsGaps,
    Typed,
)
from tallystick.systems.registry import system

if TYPE_CHECKING:
    import pyarrow as pa

_VALID = Outcome.VALID.value
_PLACES = selected("records", ("file", "offset", "length", "outcome", "sequence"))
"""The columns that tell where records end."""

Ends = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@dataclass
class FollowedLog:
    """A log as it is now.

    Everything raises `TallystickError` and `OSError` where it cannot be read.
    """

    source: LogSource
    options: ReadOptions
    collection: str | None = None
    """The collection whose changes are wanted, in its own columns; None: those of all."""
    held_back: bool = False
    """True if the records whose ends were asked for last are followed by some not yet durable."""
    damaged: int | None = None
    """Where the first damaged record begins among those whose ends were asked for last."""
    _asked: tuple[str, Ends, Ends] = ("", _NONE, _NONE)
    """The file of these records, their ends and their sequence numbers."""

    @cached_property
    def _reading(self) -> LogReading:
        return system(self.source.system).read(self.source, self.options)

    @property
    def _ordered(self) -> Ordered:
        reading = self._reading
        assert isinstance(reading, Ordered)  # what every followable system is
        return reading

    @cached_property
    def order(self) -> list[tuple[int, str]]:
        """Numbers and paths of the files that may hold records, in the order of the log."""
        return in_order(self._ordered, self.source.files)

    @property
    def identity(self) -> int | None:
        """What tells the log from another one at its path; None if nothing does."""
        return self._ordered.log_identity

    @property
    def damage_ends_log(self) -> bool:
        """True if a reading of the whole log gives no record after damage."""
        return self._ordered.damage_ends_log

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Return what is missing before the records of a file, as `Ordered.missing`."""
        return self._ordered.missing(path, reached)

    @property
    def stated_end(self) -> int:
        """The place up to which the log calls its records durable; 0 if it does not say."""
        return self._reading.stated_end() if isinstance(self._reading, StatesItsEnd) else 0

    def missing_at_end(self, stated: int, place: int | None) -> Missing | None:
        """Return what is missing after the last record, as `StatesItsEnd`."""
        reading = self._reading
        return reading.missing_at_end(stated, place) if isinstance(reading, StatesItsEnd) else None

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

    def still_has(self, number: int, path: str) -> bool:
        """Return True if the file, looked at anew, has a number: it was not recycled."""
        return (number, path) in FollowedLog(self.source, self.options).order

    def first(self, path: str) -> int:
        """Return the offset of the first byte that stays as it is while the file lives."""
        life = self.lives[path]
        if life.begin is not None:
            return life.begin
        for batch in self.batches(path, 0, life.size, _PLACES):
            if batch.num_rows:
                return int(min(batch.column("offset").to_pylist()))
        return 0

    def ends(self, path: str, begin: int = 0) -> Ends:
        """Return the ends of the records of a file after ``begin``, ascending.

        The end at ``begin`` itself is included, and some ends before it may be.
        """
        size, self.held_back, self.damaged = self.lives[path].size, False, None
        ends, sequences = self._ends_of(self._undamaged(path, begin, size))
        self._note_gap(path, begin, sequences)
        if isinstance(self._reading, ProvesDurability) and len(ends):
            kept = sequences <= self._reading.durable_sequence(path, int(ends.max()))
            self.held_back = not kept.all()
            ends, sequences = ends[kept], sequences[kept]
        order = np.argsort(ends, kind="stable")
        order = order[ends[order] <= size]
        self._asked = path, ends[order], sequences[order]
        return self._asked[1]

    def _undamaged(self, path: str, begin: int, size: int) -> Iterator[pa.RecordBatch]:
        """Yield the valid records, up to damage that ends the log, and note the first damage."""
        import pyarrow.compute as pc

        for batch in self._batches(path, begin, size, _PLACES):
            corrupt = batch.filter(pc.equal(batch.column("outcome"), Outcome.CORRUPT.value))
            found = [at for at in corrupt.column("offset").to_pylist() if at >= begin]
            if found and self.damaged is None:
                self.damaged = min(found)
            valid = batch.filter(pc.equal(batch.column("outcome"), _VALID))
            if self.damaged is not None and self.damage_ends_log:
                yield valid.filter(pc.less(valid.column("offset"), self.damaged))
                return
            yield valid

    def _note_gap(self, path: str, begin: int, sequences: Ends) -> None:
        """Note damage between the records of a file of which no record is left."""
        if self.damaged is None and isinstance(self._reading, TellsGaps):
            self.damaged = self._reading.damage_between(path, begin, np.sort(sequences))

    @property
    def places(self) -> Ends:
        """The places of these records, in the same order.

        Empty of logs whose changes cannot be followed.
        """
        return self._places(*self._asked)

    def _ends_of(self, records: Iterable[pa.RecordBatch]) -> tuple[Ends, Ends]:
        """Return the ends and the sequence numbers of records; 0 for those without number."""
        found = [np.empty((3, 0), np.int64)]
        for batch in records:
            columns = (batch.column(name).fill_null(0) for name in ("offset", "length", "sequence"))
            found.append(np.stack([column.to_numpy(zero_copy_only=False) for column in columns]))
        offsets, lengths, sequences = np.concatenate(found, 1)
        return offsets + lengths, sequences

    def _places(self, path: str, ends: Ends, sequences: Ends) -> Ends:
        reading = self._reading
        if not len(ends) or not isinstance(reading, ChangesBetween):
            return _NONE
        return reading.places(path, ends, sequences)

    def make_durable(self, path: str, begin: int, end: int) -> None:
        """Sync what was read of a file between two offsets, unless the log itself proves it.

        Raises:
            OSError: that failed, and nothing is proved.
        """
        if begin < end and not is_remote(path) and not isinstance(self._reading, ProvesDurability):
            sync_for_reading(path, begin, end)

    def last_ends(self, path: str) -> Ends:
        """Return where the last records of a file end, ascending: at least one, if there is any."""
        ends = self.ends(path, self.lives[path].size)
        return self.ends(path) if self.file_by_file and not len(ends) else ends

    def changes(self, after: int | None, until: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes that records at places above ``after``, up to ``until``, commit."""
        reading = self._reading
        assert isinstance(reading, ChangesBetween)
        if self.collection is not None and isinstance(reading, Typed):
            found = reading.changes_of(self.collection, after, until)
        else:
            found = reading.changes_between(after, until)
        yield from batches_of_changes(found, reading.clock.value, log=log_name(self.source))

    def rows_before(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield key and values of the collection's rows where the log begins, as it tells them."""
        reading = self._reading
        if self.collection is not None and isinstance(reading, Typed):
            yield from reading.rows_before(self.collection)

    def columns(self) -> tuple[str, ...]:
        """Return the names of the collection's columns, as all its changes have them."""
        reading = self._reading
        found = reading.collections() if isinstance(reading, Catalogued) else ()
        ours = (one.columns for one in found if one.name == self.collection)
        return tuple(column.name for column in next(ours, ()))

    def batches(
        self, path: str, begin: int, end: int, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the valid records of a file that end after ``begin`` and begin before ``end``.

        Some that end before ``begin`` may be included. ``schema`` has ``file`` and ``outcome``.
        """
        import pyarrow.compute as pc

        for batch in self._batches(path, begin, end, schema):
            yield batch.filter(pc.equal(batch.column("outcome"), _VALID))

    def _batches(
        self, path: str, begin: int, end: int, schema: pa.Schema | None
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        reading, end = self._reading, min(end, self.lives[path].size)
        begin = reading.resume(path, begin) if isinstance(reading, FileByFile) else 0
        split = Split(path, begin, end)
        for batch in batches_of(reading, "records", split, schema=schema, attributes=False):
            yield batch.filter(pc.equal(batch.column("file"), path))


def is_file_of(entry: LogPosition, log: FollowedLog, path: str) -> bool:
    """Return whether a file of a log holds what was read of the one that an entry names."""
    if not entry["digests"]:  # as in positions of earlier versions
        return True
    try:
        require_unchanged(path, log.first(path), entry["offset"], entry["digests"])
    except HistoryRewrittenError:
        return False
    return True
