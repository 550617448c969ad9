"""Read a native log: files, records, transactions, changes and verdict. Nothing is written.

In: the files of one log. Out: a `TallyReading`. The engine verdict is what `TallyLog` does when it
opens the log: it uses everything up to the end of the log, and refuses if acknowledged data is
damaged.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.records import (
    Change,
    Clock,
    Finding,
    Judgement,
    LogFile,
    Outcome,
    Record,
    Row,
    Span,
    Transaction,
    Verdict,
)
from tallystick.storage.source import WrittenEnds
from tallystick.systems.findings import UNREADABLE
from tallystick.systems.protocol import (
    ClosedSplit,
    FileLife,
    LogSource,
    Missing,
    Reached,
    Reading,
    ReadOptions,
    Split,
    Stretch,
)
from tallystick.systems.rests import unpacked
from tallystick.systems.runs import RunCount
from tallystick.systems.tally.columns.splits import (
    SplitWalk,
    durable_near,
    group_before,
    seek,
    segment_stretches,
    splits_of,
    stretches_in,
    witnesses,
)
from tallystick.systems.tally.format.layout import DATA_OFFSET, VERSION, segment_number
from tallystick.systems.tally.read.changes import ChangeFeed, changes_between, placed_rows
from tallystick.systems.tally.read.closing import Rest, closed_rests, require_plain
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.files import (
    Catalog,
    FileAccess,
    FileStatus,
    SegmentFile,
    read_catalog,
)
from tallystick.systems.tally.read.records import require_key, step_records
from tallystick.systems.tally.read.scan import Scan, Step, view_of
from tallystick.systems.tally.read.spans import (
    cut,
    doubled_spans,
    remains,
    segment_spans,
)
from tallystick.systems.tally.read.state import Incomplete
from tallystick.systems.tally.read.walk import ReadRun
from tallystick.systems.tally.runs.known import KnownGroups
from tallystick.systems.tally.runs.pieces import Runs, chunk_of
from tallystick.systems.tally.runs.transactions import transactions_of
from tallystick.systems.tally.verdict.strict import JudgedLog, judge, judge_known, live_ids

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.systems.protocol import Fitting, Longs


class TallyReading(Reading):
    """Everything that can be read of one native log.

    ``access`` reads its files; by default from the local disk.
    """

    format = f"tally {VERSION}"
    clock = Clock.WALL_US

    def __init__(
        self,
        source: LogSource,
        options: ReadOptions | None = None,
        access: FileAccess | None = None,
    ) -> None:
        self.source = source
        self._key = (options or ReadOptions()).encryption_key
        self._access = access or FileAccess(open=WrittenEnds().open)
        self._told: JudgedLog | None = None

    @cached_property
    def catalog(self) -> Catalog:
        """The files by their heads.

        Raises:
            UnsupportedFormatError: a file is of a later format version.
        """
        return read_catalog(self.source.path, self.source.files, self._access)

    def _steps(self, read_run: ReadRun | None = None) -> Iterator[Step]:
        """Yield the places of the log before any damage."""
        for step in Scan(self.catalog, self._access, read_run=read_run).steps():
            if step.after_damage:
                return
            yield step

    # -- files --------------------------------------------------------------------------

    def files(self) -> Sequence[LogFile]:
        """Return the control file, the segments by number, then freed, spare and foreign files."""
        judged = self._found.spans
        found = [self._control_file()] if self.catalog.control_path else []
        for file in (*self.catalog.segments, *self.catalog.others):
            found.append(self._file(file, judged.get(file.path, []), len(found)))
        return found

    def lives(self) -> Mapping[str, FileLife]:
        """Return identity, number and size of every live segment.

        Raises:
            CorruptLogError: without its control block a log has no records.
        """
        if self.catalog.control is None:
            raise CorruptLogError(
                "the control block is missing, or both of its copies are damaged",
                file=self.catalog.control_path or self.source.path,
                advice="Look at the log with `tallystick explain`",
            )
        return {
            file.path: FileLife(
                _identity(file.header.identity), file.header.number, file.header.size, DATA_OFFSET
            )
            for file in self.catalog.segments
            if file.header is not None
        }

    def resume(self, path: str, offset: int) -> int:
        """Return the start of the group that holds the byte before ``offset``.

        0 if the segment has no index.
        """
        return group_before(self.catalog, self._access, path, offset)

    @property
    def log_identity(self) -> int | None:
        """The identity of the log, as `LogFile.identity` has it."""
        found = self.catalog.identity
        return None if found is None else _identity(found)

    damage_ends_log = True

    def number(self, path: str) -> int | None:
        """Return the number of a segment that is in use."""
        return self._numbers.get(path)

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {path: life.generation or 0 for path, life in self.lives().items()}

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Return which records or segments are missing before a segment.

        Raises:
            LogUnreadableError: a segment cannot be read now.
        """
        catalog, number = self.catalog, self._numbers[path]
        self._require_readable(catalog.findings)
        gap = next((one for one in catalog.missing if one < number), None)
        headers = (one.header for one in catalog.segments if one.path == path)
        first = next((one.first_lsn for one in headers if one is not None), 0)
        ends = gap is not None or (path != catalog.segments[0].path and catalog.archive is None)
        found = f"segment {number} that begins with record {first}"
        if reached is None:
            oldest = catalog.segments[0]
            if gap is None and oldest.status is FileStatus.DAMAGED and oldest.path != path:
                gap = self._numbers[oldest.path]  # nothing can be read of it
            if gap is not None:
                return Missing(f"segment {gap}", found, ends_log=ends)
            begin = oldest.header.first_lsn if oldest.header is not None else first
            return Missing(f"record {begin}", found, ends_log=ends) if begin < first else None
        if reached.place is None:
            joined, expected = number <= reached.number + 1, f"segment {reached.number + 1}"
        else:
            joined, expected = first <= reached.place + 1, f"record {reached.place + 1}"
        return None if joined else Missing(expected, found, ends_log=ends)

    def stated_end(self) -> int:
        """Return the highest LSN that was durable when the control block was written."""
        return self.catalog.control.durable_lsn if self.catalog.control is not None else 0

    def missing_at_end(self, stated: int, place: int | None) -> Missing | None:
        """Return which records are missing up to that LSN."""
        self._require_readable(self.catalog.findings)
        last = max(place or 0, *(one.first_lsn - 1 for one in self.catalog.live_headers), 0)
        found = f"the end of the log, whose control block names record {stated}"
        return Missing(f"record {last + 1}", found, ends_log=True) if last < stated else None

    def durable_sequence(self, path: str, end: int) -> int:
        """Return the highest LSN that the control block, a successor or a later group proves."""
        return durable_near(self.catalog, self._access, path, end)

    def _control_file(self) -> LogFile:
        path = self.catalog.control_path
        assert path is not None
        control = self.catalog.control
        with self._access.open(path) as source:
            size = source.size
        spans = doubled_spans(
            size, "control block", self.catalog.control_damage, whole=control is not None
        )
        rest = cut((Span(DATA_OFFSET, size, Outcome.UNUSED, "fill", "after the block"),), size)
        return LogFile(
            path, size, "control file", 0,
            generation=control.generation if control else None,
            clock=self.clock,
            redundant=False,
            why="it says which segments there must be",
            spans=(*spans, *rest),
        )  # fmt: skip

    def _file(self, file: SegmentFile, judged: list[Span], order: int) -> LogFile:
        try:
            source = self._found.scan.access.open(file.path)
        except LogUnreadableError:
            return LogFile(file.path, 0, file.status.value, order)
        with source:
            size, header = source.size, file.header
            if header is None or file.status in _WITHOUT_GROUPS:
                spans = list(remains(source.data, 0, size, 0, source.written))
            else:
                view = view_of(source, header, file.durable_lsn)
                spans = segment_spans(file, view, judged)
                begin = len(view.data)
                spans += remains(source.data, begin, size, header.number, source.written)
                view.data = b""
        return LogFile(
            file.path, size, file.status.value, order,
            identity=_identity(header.identity) if header else None,
            generation=header.number if header else None,
            clock=self.clock,
            redundant=file.status in (FileStatus.FREED, FileStatus.SPARE),
            why=_WHY[file.status],
            spans=tuple(spans),
        )  # fmt: skip

    # -- records ------------------------------------------------------------------------

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Yield every record up to the first damage; with ``salvage`` also those after it."""
        steps = Scan(self.catalog, self._access).steps() if salvage else self._steps()
        yield from self._records_of(steps)

    def _records_of(self, steps: Iterable[Step]) -> Iterator[Record]:
        for step in steps:
            yield from step_records(step, self._key)

    def chosen_records(self, fitting: Fitting) -> Iterator[Record]:
        """Yield those of ``records()`` that fit by their columns, and what is odd."""
        from tallystick.systems.tally.columns.batches import chosen_records, runs_for_choice

        steps = self._steps(runs_for_choice(self._key))
        return chosen_records(self.source.path, steps, self._key, fitting)

    def transactions(self) -> Iterator[Transaction]:
        """Yield one per transaction, decision and persisting entry.

        Memory grows with their number. Groups that hold changes outside of transactions only are
        verified, not decoded.

        Raises:
            LogSealedError: a group is encrypted, and the key was not given.
        """
        steps = self._opened(self._steps(Runs.of(self.catalog, self._key)))
        yield from transactions_of(self.source.path, steps, self._key, self._incomplete)

    def changes(self) -> Iterator[Change]:
        """Yield adds, updates, deletes and rows in commit order.

        Memory grows with open transactions.

        Raises:
            LogSealedError: as ``transactions`` does.
        """
        records = self._records_of(self._opened(self._steps()))
        yield from ChangeFeed(self.source.path, self._incomplete).take(records)

    def _opened(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Yield steps up to a group whose key was not given. Raises `LogSealedError` there."""
        for step in steps:
            require_key(step, self._key)
            yield step

    def fated_changes(self) -> Iterator[Row]:
        """Yield the changes of all transactions as these end, then those that do not end.

        Memory grows with open transactions.
        """
        log = self.source.path
        feed = ChangeFeed(log, self._incomplete)
        records = self._records_of(self._opened(Scan(self.catalog, self._access).steps()))
        for _, row in placed_rows(feed, log, records):
            yield row
        yield from feed.rest()

    def fated_batches(self, rows: int) -> Iterator[pa.RecordBatch] | None:
        """Return all of `fated_changes` in the same order; None of a log without runs."""
        if not self.run_count.in_runs:
            return None
        from tallystick.systems.tally.columns.changes import fated_batches

        steps = self._opened(self._scan().steps())
        return fated_batches(self.source.path, steps, self._key, self._incomplete, rows)

    def places(self, file: str, ends: Longs, sequences: Longs) -> Longs:
        """Return the LSNs of records."""
        del file, ends
        return sequences

    def changes_between(self, after: int | None, until: int) -> Iterator[Change]:
        """Yield what the records with LSNs above ``after``, up to ``until``, commit.

        With None from the first record that is there.

        Raises:
            LogUnreadableError: some of these records were given up, or cannot be read now.
            CorruptLogError: some are damaged.
        """
        self._require_readable(self.catalog.findings)
        firsts = {header.number: header.first_lsn for header in self.catalog.live_headers}
        after = min(firsts.values(), default=1) - 1 if after is None else after
        yield from changes_between(
            self.source.path,
            partial(self._records_from, after),
            lambda number: firsts.get(number, 0),
            after,
            until,
        )

    def _records_from(self, known: int, lsn: int, begun: Collection[int]) -> Iterator[Record]:
        """Yield records from ``lsn`` on, which must be there; nothing may be damaged.

        Those up to ``known`` are left out, but for those of the transactions ``begun`` there: they
        are verified, and decoded in runs at most.
        """
        start = seek(self.catalog, self._access, lsn=lsn)
        if start is None or start[0].header is None or start[0].header.first_lsn > lsn:
            raise LogUnreadableError(
                "records were given up before they were read", file=self.source.path,
                expected=f"record {lsn}",
                advice="Hold segments back until their readers have come past them",
            )  # fmt: skip
        scan = Scan(self.catalog, self._access, start, Runs.of(self.catalog, self._key))
        for step in scan.steps():
            if step.after_damage or step.place.case is Case.CORRUPT:
                raise CorruptLogError(
                    "records are damaged", file=step.file.path, offset=step.place.offset,
                    advice="Look at the log with `tallystick explain`",
                )  # fmt: skip
            require_key(step, self._key)
            header, chunk = step.place.header, chunk_of(step.place)
            if header is not None and header.last_lsn <= known and not begun:
                continue
            if chunk is not None:
                yield from chunk.followed(step.file.path, step.view.header.number, known, begun)
                continue
            for one in step_records(step, self._key):
                if (one.sequence or 0) > known or one.transaction in begun:
                    yield one
        self._require_readable(scan.findings)

    def _require_readable(self, findings: Iterable[Finding]) -> None:
        """Raise `LogUnreadableError` if a segment cannot be read: what it holds is not left out.

        Spare files hold nothing, and a segment that was given up may go at any time.
        """
        control = self.catalog.control
        first = 0 if control is None else control.first_segment
        for one in findings:
            number = segment_number(posixpath.basename(one.file or ""))
            if one.code == UNREADABLE.code and number is not None and number >= first:
                raise LogUnreadableError(one.message, file=one.file, advice=one.advice)

    def change_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of `changes` in the same order, as batches of at most ``rows`` rows."""
        from tallystick.systems.tally.columns.changes import change_batches

        steps = self._opened(self._steps(Runs.of(self.catalog, self._key)))
        return change_batches(self.source.path, steps, self._key, self._incomplete, rows)

    def changes_in(self, split: Split, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes that a part commits; of what is before it little is read."""
        from tallystick.systems.tally.columns.chosen import ChosenChanges

        return ChosenChanges(self.catalog, self._access, self._key, split).batches(rows)

    # -- verdicts -----------------------------------------------------------------------

    @property
    def _found(self) -> JudgedLog:
        """What splits have told, or a pass over the log; without its transactions."""
        return self._judged if self._told is None else self._told

    @cached_property
    def _judged(self) -> JudgedLog:
        return judge(self._scan(), self._key)

    def _scan(self) -> Scan:
        return Scan(self.catalog, self._access, read_run=Runs.of(self.catalog, self._key))

    def findings(self) -> Sequence[Finding]:
        """Return what is wrong with the log, heads of files first."""
        return self._found.findings

    def verdict(self) -> Verdict:
        """Return what recovery does with the log, and what its bytes prove.

        What recovery does, which counts the live records, is found when it is asked for.
        """
        return self._judged.verdict(self.format, lambda: live_ids(self._scan(), self._key))

    @property
    def judgement(self) -> Judgement:
        """The answer; files, findings and the verdict are found with it, in one pass."""
        return self._found.judgement

    @property
    def run_count(self) -> RunCount:
        """How many records were read in runs."""
        return self._judged.run_count

    @property
    def _incomplete(self) -> Incomplete:
        return self._judged.state.incomplete

    # -- batches ------------------------------------------------------------------------

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a split, or all, as batches of at most ``rows`` rows."""
        return self._batches(split, rows, attributes=False)

    def attribute_batches(self, split: Split | None, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield what ``batches`` yields, with the column ``attributes`` filled."""
        return self._batches(split, rows, attributes=True)

    def _batches(
        self, split: Split | None, rows: int, *, attributes: bool
    ) -> Iterator[pa.RecordBatch]:
        from tallystick.systems.tally.columns.batches import runs_for, step_batches

        read_run = runs_for(rows, self._key, attributes=attributes)
        steps = (
            self._steps(read_run)
            if split is None
            else SplitWalk(self.catalog, self._access, split).steps(read_run)
        )
        return step_batches(self.source.path, steps, self._key, rows, attributes=attributes)

    def stretches(self, of: Stretch | None = None) -> Sequence[Stretch]:
        """Return the segments by their heads; or the parts of one by its index."""
        if of is None:
            return segment_stretches(self.catalog, self._access)
        return stretches_in(self.catalog, self._access, of)

    def records_of(self, split: Split) -> Iterator[Record]:
        """Yield the records of a part; of a segment with an index, little more is read."""
        for step in SplitWalk(self.catalog, self._access, split).steps():
            yield from step_records(step, self._key)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        """Return splits of about ``target_bytes`` that together give every record once."""
        return splits_of(self.catalog, self._access, target_bytes)

    def close_split(self, split: Split, rows: int) -> ClosedSplit:
        """Return the transactions and changes that begin and end in a split."""
        from tallystick.systems.tally.columns.closing import ClosingSplit

        closing = ClosingSplit(SplitWalk(self.catalog, self._access, split), self._key, rows)
        return ClosedSplit(closing.batches(), closing.rest)

    def close_rests(
        self, rests: Sequence[bytes], rows: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the transactions and changes that no split closed alone.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        from tallystick.systems.tally.columns.closing import batches_of_closed

        found = [unpacked(one, Rest.built) for one in rests]
        return batches_of_closed(closed_rests(self.catalog, self.source.path, found), rows)

    def knowing(self, rests: Sequence[bytes]) -> Self:
        """Return the log as a reading that takes from splits what their groups hold.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        found = [unpacked(one, Rest.built) for one in rests]
        require_plain(self.catalog, found)
        known = copy(self)
        groups = KnownGroups(self.catalog, self._access, found)
        known._told = judge_known(Scan(self.catalog, groups.access, read_run=groups))
        return known

    def needed(self, split: Split) -> Sequence[str]:
        """Return the control file, the segment and its successor; more where that is damaged."""
        return self._witnesses.get(split.file, self.source.files)

    @cached_property
    def _witnesses(self) -> Mapping[str, tuple[str, ...]]:
        return witnesses(self.catalog)


def _identity(identity: bytes) -> int:
    return int.from_bytes(identity[:7], "big")


_WITHOUT_GROUPS = (FileStatus.SPARE, FileStatus.FREED, FileStatus.FOREIGN)
_WHY = {
    FileStatus.LIVE: "it holds records from its first to its last LSN",
    FileStatus.FREED: "its number is below the first segment that the log keeps",
    FileStatus.SPARE: "made ahead of need, or waiting to be recycled",
    FileStatus.DAMAGED: "its header is damaged",
    FileStatus.FOREIGN: "it belongs to another log",
}
