"""Reading a native log: files, records, transactions, and both verdicts. Nothing is written.

In: the files of one log. Out: a `TallyReading`. The engine verdict is what `TallyLog.open`
does: it uses everything up to the end of the log, and refuses if acknowledged data is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tallystick.errors import LogUnreadableError
from tallystick.records import (
    Change,
    Clock,
    Finding,
    LogFile,
    Outcome,
    Record,
    Span,
    Transaction,
    Verdict,
)
from tallystick.systems.protocol import FileLife, LogSource, ReadOptions, Split
from tallystick.systems.tally.columns.splits import group_before, split_steps, splits_of, witnesses
from tallystick.systems.tally.format.headers import SegmentHeader
from tallystick.systems.tally.format.layout import DATA_OFFSET, SYSTEM_NAME, VERSION
from tallystick.systems.tally.read.files import (
    Catalog,
    Life,
    Reach,
    SegmentFile,
    read_catalog,
)
from tallystick.systems.tally.read.scan import Scan, Step
from tallystick.systems.tally.read.spans import cut, doubled_spans, remains, segment_spans
from tallystick.systems.tally.read.state_rebuild import LateLeaper
from tallystick.systems.tally.read.step_records import step_records, work_records
from tallystick.systems.tally.read.transactions import changes_of, ended_first, transactions_of
from tallystick.systems.tally.read.walk import Place, SegmentView
from tallystick.systems.tally.verdict.strict import Judged, judge

if TYPE_CHECKING:
    import pyarrow as pa


class TallyReading:
    """Everything that can be read of one native log."""

    def __init__(
        self, source: LogSource, options: ReadOptions | None = None, reach: Reach | None = None
    ) -> None:
        self._source = source
        self._key = (options or ReadOptions()).encryption_key
        self._reach = reach or Reach()

    @property
    def source(self) -> LogSource:
        return self._source

    @property
    def format(self) -> str:
        return f"tally {VERSION}"

    @property
    def clock(self) -> Clock:
        return Clock.WALL_US

    @cached_property
    def catalog(self) -> Catalog:
        """The files by their heads. Raises `UnsupportedFormatError`."""
        return read_catalog(self._source.path, self._source.files, self._reach)

    # -- files --------------------------------------------------------------------------

    def files(self) -> Sequence[LogFile]:
        places: dict[str, list[Place]] = {}
        for step in Scan(self.catalog, self._reach).steps():
            places.setdefault(step.file.path, []).append(step.place)
        found = [self._control_file()] if self.catalog.control_path else []
        for file in (*self.catalog.segments, *self.catalog.others):
            found.append(self._file(file, places.get(file.path, []), len(found)))
        return found

    def lives(self) -> Mapping[str, FileLife]:
        """Every live segment."""
        return {
            file.path: FileLife(_identity(file.header), file.header.number, file.header.size)
            for file in self.catalog.segments
            if file.header is not None
        }

    def resume(self, path: str, offset: int) -> int:
        """The group that has the byte before ``offset``, if an index names it."""
        return group_before(self.catalog, self._reach, path, offset)

    def _control_file(self) -> LogFile:
        path = self.catalog.control_path
        assert path is not None
        control = self.catalog.control
        with self._reach.open(path) as source:
            size = source.size
        spans = doubled_spans(
            size, "control block", self.catalog.control_damage, whole=control is not None
        )
        rest = cut((Span(DATA_OFFSET, size, Outcome.UNUSED, "fill", "behind the block"),), size)
        return LogFile(
            path, size, "control file", 0,
            generation=control.generation if control else None,
            clock=self.clock,
            redundant=False,
            why="it says which segments there must be",
            spans=(*spans, *rest),
        )  # fmt: skip

    def _file(self, file: SegmentFile, places: list[Place], order: int) -> LogFile:
        try:
            source = self._reach.open(file.path)
        except LogUnreadableError:
            return LogFile(file.path, 0, file.life.value, order)
        with source:
            data = bytes(source.data)
        header = file.header
        if header is None or file.life in (Life.SPARE, Life.FREED, Life.FOREIGN):
            spans = list(remains(data, 0, len(data), 0))
        else:
            used = data[: header.size]
            view = SegmentView(used, header, file.durable_lsn)
            spans = segment_spans(file, view, places)
            spans += remains(data, len(used), len(data), header.number)
        return LogFile(
            file.path, len(data), file.life.value, order,
            identity=_identity(header) if header else None,
            generation=header.number if header else None,
            clock=self.clock,
            redundant=file.life in (Life.FREED, Life.SPARE),
            why=_WHY[file.life],
            spans=tuple(spans),
        )  # fmt: skip

    # -- records ------------------------------------------------------------------------

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        for step in Scan(self.catalog, self._reach).steps():
            if step.behind and not salvage:
                return
            yield from step_records(step, self._key)

    def _work_records(self) -> Iterator[Record]:
        steps = _believed(Scan(self.catalog, self._reach, leap=LateLeaper()).steps())
        return work_records(steps, self._key)

    def transactions(self) -> Iterator[Transaction]:
        """One per transaction, decision and persisting entry; memory grows with their number."""
        yield from transactions_of(self._source.path, self._work_records(), self._incomplete)

    def changes(self) -> Iterator[Change]:
        """Adds, updates, deletes and rows in commit order; memory grows with open transactions."""
        yield from changes_of(self._source.path, self.records(), self._incomplete)

    # -- verdicts -----------------------------------------------------------------------

    @cached_property
    def _judged(self) -> Judged:
        return judge(Scan(self.catalog, self._reach, leap=LateLeaper()), self._key)

    def findings(self) -> Sequence[Finding]:
        return tuple(self._judged.scan.findings)

    def verdict(self) -> Verdict:
        transactions = ended_first(self._source.path, self._work_records(), self._incomplete)
        return Verdict(
            SYSTEM_NAME, self._source.path, self.format,
            self._judged.engine(), self._judged.strict(transactions),
            tuple(self._judged.differences()),
        )  # fmt: skip

    @property
    def _incomplete(self) -> Mapping[int, str]:
        return self._judged.state.incomplete

    # -- batches ------------------------------------------------------------------------

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        from tallystick.systems.tally.columns.batches import step_batches
        from tallystick.systems.tally.read.group_runs import Leaper

        if split is None:
            steps = _believed(Scan(self.catalog, self._reach, leap=Leaper(rows)).steps())
        else:
            steps = split_steps(self.catalog, self._reach, split, Leaper(rows))
        return step_batches(self._source.path, steps, self._key, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        return splits_of(self.catalog, self._reach, target_bytes)

    def needed(self, split: Split) -> Sequence[str]:
        """The control file, the segment and its successor, or more where that is damaged."""
        return self._witnesses.get(split.file, self._source.files)

    @cached_property
    def _witnesses(self) -> Mapping[str, tuple[str, ...]]:
        return witnesses(self.catalog)


def _identity(header: SegmentHeader) -> int:
    return int.from_bytes(header.identity[:7], "big")


_WHY = {
    Life.LIVE: "it holds records from its first to its last LSN",
    Life.FREED: "its number is below the first segment that the log keeps",
    Life.SPARE: "made ahead of need, or waiting to be recycled",
    Life.DAMAGED: "its header is damaged",
    Life.FOREIGN: "it belongs to another log",
}


def _believed(steps: Iterator[Step]) -> Iterator[Step]:
    for step in steps:
        if step.behind:
            return
        yield step
