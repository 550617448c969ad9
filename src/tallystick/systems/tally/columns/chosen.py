"""The changes that one part of a native log commits, with as little of the rest as they need.

In: a split. Out: batches of the `CHANGES` schema in commit order. What a transaction wrote before
the split is looked for backwards, by the indexes that end the sealed segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.records import Record
from tallystick.systems.protocol import Split, Stretch
from tallystick.systems.tally.columns.changes import change_batches
from tallystick.systems.tally.columns.splits import SplitWalk, stretches_in
from tallystick.systems.tally.read.changes import lacking
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.files import Catalog, FileAccess
from tallystick.systems.tally.read.records import require_key, step_records
from tallystick.systems.tally.read.scan import Step
from tallystick.systems.tally.read.state import Incomplete
from tallystick.systems.tally.runs.pieces import Runs, chunk_of


@dataclass
class ChosenChanges:
    """The changes that a split commits."""

    catalog: Catalog
    access: FileAccess
    key: bytes | None
    split: Split
    _first_lsn: int = 0
    _begins: dict[str, list[int]] = field(default_factory=dict)

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes in batches of at most ``rows`` rows, up to the first damage.

        Raises:
            LogSealedError: a group is encrypted, and the key was not given.
        """
        parts, incomplete = self._needed()
        found = change_batches(self.catalog.folder, self._steps(parts), self.key, incomplete, rows)
        for batch in found:
            own = batch.filter(pc.greater_equal(batch["commit_sequence"], self._first_lsn))
            if own.num_rows:
                yield own

    def _needed(self) -> tuple[list[Split], Incomplete]:
        """Return the parts that are to be read, and the transactions that are whole nowhere."""
        parts, open_ = [self.split], self._open([self.split])
        more = 1
        while open_:
            oldest = min(number for segments in open_.values() for number in segments)
            if not (before := self._before(parts[0], oldest, more)):
                break
            # Twice as much each time: few bytes where little is missing, few passes else.
            parts, more = [*before, *parts], 2 * more
            open_ = self._open(parts)
        return parts, {lsn: (number, "") for number, lsn in open_}

    def _open(self, parts: Sequence[Split]) -> dict[tuple[int, int], list[int]]:
        """Return transactions that the split ends and these parts do not hold whole.

        By number and LSN of the ending, with the segments where records are missing; those that
        were given up may miss them.
        """
        there = {file.header.number for file in self.catalog.live if file.header is not None}
        found = {}
        for ending, segments in lacking(self._records(parts)):
            lsn = ending.sequence or 0
            if lsn >= self._first_lsn and (left := [one for one in segments if one in there]):
                found[ending.transaction or 0, lsn] = left
        return found

    def _records(self, parts: Sequence[Split]) -> Iterator[Record]:
        """Yield the records of all transactions that no chunk has whole."""
        for step in self._steps(parts):
            if not self._first_lsn:
                self._first_lsn = step.place.lsn
            chunk = chunk_of(step.place)
            if chunk is None:
                yield from step_records(step, self.key)
            else:
                work = chunk.sorted(step.view.header.number, ())
                yield from work.other_records(step.file.path)

    def _steps(self, parts: Sequence[Split]) -> Iterator[Step]:
        for part in parts:
            walk = SplitWalk(self.catalog, self.access, part)
            for step in walk.steps(Runs(part.end - part.begin, self.key)):
                if step.place.case is Case.CORRUPT:
                    return
                require_key(step, self.key)
                yield step

    def _before(self, first: Split, oldest: int, count: int) -> list[Split]:
        """Return at most ``count`` stretches before a part, not before the segment ``oldest``."""
        found = list[Split]()
        here = next((one for one in self.catalog.live if one.path == first.file), None)
        last = 0 if here is None or here.header is None else here.header.number
        for file in reversed(self.catalog.live):
            if file.header is None or not oldest <= file.header.number <= last:
                continue
            end = first.begin if file is here else file.header.size
            begins = [one for one in self._begins_of(file.path, file.header.size) if one < end]
            if begins := begins[-count:]:
                found.insert(0, Split(file.path, begins[0], end))
            if not (count := count - len(begins)):
                break
        return found

    def _begins_of(self, path: str, size: int) -> list[int]:
        if path not in self._begins:
            whole = Stretch(Split(path, 0, size))
            found = stretches_in(self.catalog, self.access, whole)
            self._begins[path] = [one.split.begin for one in found]
        return self._begins[path]
