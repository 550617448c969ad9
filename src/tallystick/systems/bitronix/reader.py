"""Reading one Bitronix journal: files, records, transactions, findings, both verdicts.

In: a `LogSource` of one or two files. Out: what `LogReading` promises. Nothing is written, and
files are open only while they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tallystick.errors import LogUnreadableError
from tallystick.records import (
    Clock,
    Deferred,
    Finding,
    Judgement,
    LogFile,
    Outcome,
    Record,
    Row,
    Surroundings,
    Transaction,
    Verdict,
)
from tallystick.storage.source import open_source, read_head
from tallystick.systems.bitronix.codes import CODES
from tallystick.systems.bitronix.engine.reached import ReachedRecords, reached_pieces
from tallystick.systems.bitronix.engine.report import engine_verdict
from tallystick.systems.bitronix.format.layout import (
    FORMAT_NAME,
    HEADER_LENGTH,
    RECORD_HEAD,
    SYSTEM_NAME,
    WALL_CLOCK_MIN,
    FileHeader,
)
from tallystick.systems.bitronix.read.detect import part_number
from tallystick.systems.bitronix.read.files import DualFiles, Part
from tallystick.systems.bitronix.read.records import record_of
from tallystick.systems.bitronix.read.spans import Lives, log_file
from tallystick.systems.bitronix.read.splits import find_splits
from tallystick.systems.bitronix.read.surroundings import surroundings_of
from tallystick.systems.bitronix.read.transactions import transactions
from tallystick.systems.bitronix.verdict import strict
from tallystick.systems.bitronix.verdict.differences import doubtful_decisions, lost_decisions
from tallystick.systems.bitronix.verdict.evidence import Evidence
from tallystick.systems.decisions import CoordinatorReading, decision_rows
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.protocol import (
    ClosedSplit,
    FileLife,
    LogSource,
    Missing,
    Reached,
    ReadOptions,
    Split,
)
from tallystick.systems.runs import RunCount, pay_here
from tallystick.systems.surroundings import joined, judged_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.systems.bitronix.verdict.evidence import ReadReached
    from tallystick.systems.protocol import Fitting

_HEAD = HEADER_LENGTH + RECORD_HEAD.size


@dataclass(frozen=True, slots=True)
class _Proved:
    """What one pass over the files has found."""

    evidence: Evidence
    files: list[LogFile]
    findings: list[Finding]


@dataclass
class BitronixReading(CoordinatorReading):
    """One journal.

    Memory grows with the open transactions; in `transactions` with all, and in the engine's part of
    the verdict, once that is asked for, with the records.
    """

    source: LogSource
    options: ReadOptions
    _clock: Clock | None = field(default=None, repr=False)
    _judgement: Judgement | None = field(default=None, repr=False)
    _unread: dict[int, LogUnreadableError] = field(default_factory=dict, repr=False)
    """The files that could not be opened, by number of their part."""
    _proved: _Proved | None = field(default=None, repr=False)

    @property
    def format(self) -> str:
        """The name of the format, which both code lines share."""
        return FORMAT_NAME

    @property
    def clock(self) -> Clock:
        """Since boot (2.1.3, 2.1.4) or since 1970 (3.0 and others), by the size of the times."""
        if self._clock is None:
            times = [time for path in self.source.files for time in _times(path)]
            wall = max(times, default=0) >= WALL_CLOCK_MIN
            self._clock = Clock.WALL_MS if wall else Clock.BOOT_MS
        return self._clock

    def files(self) -> Sequence[LogFile]:
        """Return the earlier part, then the one in use."""
        return self._proved_by_itself().files

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Yield the records that 2.1.4 reaches when it skips damage, and damaged ranges.

        The earlier part comes first. ``salvage`` adds the records that 2.1.4 skips after damage,
        does not count, or has left from an earlier life of the file.
        """
        with self._opened() as pair:
            for part in pair.order():
                spans = part.spans(pair.newest) if salvage else part.counted_spans()
                reached = ReachedRecords(part.data or memoryview(b""))
                for span in spans:
                    record = record_of(part.path or "", span, reached=reached.reaches(span))
                    if record is not None and (salvage or not record.attributes.get("salvaged")):
                        yield record

    def chosen_records(self, fitting: Fitting) -> Iterator[Record]:
        """Yield those of ``records()`` that fit by their columns, and what is odd."""
        with self._opened() as pair:
            if not _go_in_columns(pair):
                yield from self.records()
                return
            from tallystick.systems.bitronix.columns.batches import chosen_records

            for part in pair.order():
                if part.data is not None and part.path is not None:
                    yield from chosen_records(
                        part.data, part.path, self.source.path, self.clock, fitting
                    )

    def transactions(self) -> Iterator[Transaction]:
        """Yield one per gtrid, from both parts. Memory grows with the gtrids of the journal."""
        with self._opened() as pair:
            if not _go_in_columns(pair):
                yield from transactions(pair, self.source.path)
                return
        from tallystick.arrow.schemas import BATCH_ROWS, transactions_of

        yield from transactions_of(self.transaction_batches(BATCH_ROWS))

    def transaction_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of `transactions` in the same order, at most ``rows`` in a batch."""
        with self._opened() as pair:
            if _go_in_columns(pair):
                from tallystick.systems.bitronix.columns.transactions import transaction_batches

                yield from transaction_batches(pair, self.source.path, self.clock, rows)
                return
        yield from super().transaction_batches(rows)

    def fated_changes(self) -> Iterator[Row]:
        """Yield decisions by resource; lost are those to commit that a restart does not know."""
        found = self.verdict().differences
        lost, doubtful = lost_decisions(found), doubtful_decisions(found)
        return decision_rows(self.transactions(), lost, doubtful)

    def lives(self) -> Mapping[str, FileLife]:
        """Return timestamp and size of every file."""
        return Lives(self.source.files)

    def number(self, path: str) -> int | None:
        """Return the timestamp in the header of a file."""
        header = FileHeader.decode(read_head(path, HEADER_LENGTH))
        return None if header is None else header.timestamp

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Return what is missing if the file that was in use was written over since."""
        if reached is None or reached.there:
            return None
        expected = f"the end of the file of {reached.number}"
        return Missing(expected, f"a file of {self.number(path)}", certain=False)

    def findings(self) -> Sequence[Finding]:
        """Return the findings about the files, their order, damage and server ids."""
        return self._proved_by_itself().findings

    def verdict(self) -> Verdict:
        """Return both verdicts; the engine's, which lists the records, is made when asked for."""
        with self._opened() as pair:
            known = self._proved_of(pair)
            engine = Deferred(self._engine_verdict)
            found = strict.verdict(pair, self.source.path, known.evidence, known.findings, engine)
        around = self._around
        return found if around is None else judged_whole(found, around)

    @property
    def judgement(self) -> Judgement:
        """The answer about the journal; files and findings are found with it, in one opening."""
        if self._judgement is None:
            with self._opened() as pair:
                known = self._proved_of(pair)
                _, own = strict.judged(pair, known.evidence, known.findings)
            around = self._around
            self._judgement = own if around is None else joined(own, around)
        return self._judgement

    @property
    def _around(self) -> Surroundings | None:
        """What tells that the manager does not open these files; None where nothing does."""
        return None if self.options.log_only else surroundings_of(self.source)

    @property
    def run_count(self) -> RunCount:
        """How many records were read in runs."""
        return self._proved_by_itself().evidence.run_count

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``records()``, decoded by a compiled kernel; ``attributes`` is null."""
        return self._batches(split, rows, attributes=False)

    def attribute_batches(self, split: Split | None, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield what ``batches`` yields, with the column ``attributes`` filled."""
        return self._batches(split, rows, attributes=True)

    def _batches(
        self, split: Split | None, rows: int, *, attributes: bool
    ) -> Iterator[pa.RecordBatch]:
        from tallystick.systems.bitronix.columns.batches import batches

        log, clock = self.source.path, self.clock
        if split is not None:
            with open_source(split.file) as opened:
                yield from batches(opened.data, split, log, clock, rows, attributes=attributes)
            return
        with self._opened() as pair:
            for part in pair.order():
                if part.data is not None and part.path is not None:
                    whole = Split(part.path, 0, part.size)
                    yield from batches(part.data, whole, log, clock, rows, attributes=attributes)

    # -- parts ---------------------------------------------------------------------------------

    def splits(self, target_bytes: int) -> Sequence[Split]:
        """Return parts of about ``target_bytes`` that begin at records; packed files stay whole."""
        return find_splits(self.source.files, target_bytes)

    def close_split(self, split: Split, rows: int) -> ClosedSplit:
        """Return the transactions that begin and end in a split."""
        from tallystick.systems.bitronix.columns.closing import ClosingSplit

        closing = ClosingSplit(self._opened, split, self.source.path, self.clock, rows)
        return ClosedSplit(closing.batches(), closing.rest)

    def close_rests(
        self, rests: Sequence[bytes], rows: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the transactions that no split closed alone.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        from tallystick.systems.bitronix.columns.transactions import transaction_batches
        from tallystick.systems.bitronix.runs.known import KnownParts

        with self._opened() as pair:
            read = KnownParts.of(rests, pair).pieces
            for batch in transaction_batches(pair, self.source.path, self.clock, rows, read):
                yield "transactions", batch

    def knowing(self, rests: Sequence[bytes]) -> Self:
        """Return the journal as a reading that takes from splits what their records leave.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        from tallystick.systems.bitronix.runs.known import KnownParts

        known = type(self)(self.source, self.options)
        with known._opened() as pair:
            known._prove(pair, KnownParts.of(rests, pair).reached_pieces)
        return known

    # -- opening -------------------------------------------------------------------------------

    @contextmanager
    def _opened(self) -> Iterator[DualFiles]:
        with ExitStack() as stack:
            parts = []
            for number, path in self._numbered():
                data = None
                try:
                    data = None if path is None else stack.enter_context(open_source(path)).data
                except LogUnreadableError as error:  # `findings` reports it
                    self._unread[number] = error
                parts.append(Part(number, path, data))
            yield DualFiles((parts[0], parts[1]))

    def _numbered(self) -> list[tuple[int, str | None]]:
        """Return both part numbers with the path of each, by the names; None for a missing file."""
        paths: list[str | None] = list(self.source.files)
        if len(paths) == 1:
            other = part_number(self.source.files[0]) == 2
            paths = [None, *paths] if other else [*paths, None]
        return list(enumerate(paths, 1))

    def _proved_by_itself(self) -> _Proved:
        if self._proved is not None:
            return self._proved
        with self._opened() as pair:
            return self._proved_of(pair)

    def _proved_of(self, pair: DualFiles) -> _Proved:
        return self._proved or self._prove(pair, reached_pieces)

    def _prove(self, pair: DualFiles, read: ReadReached) -> _Proved:
        build = FindingBuilder(SYSTEM_NAME, self.source.path, CODES)
        evidence = Evidence(pair, build, read)
        files = [
            log_file(part, order, evidence.parts[part.number - 1].spans, self.clock)
            for order, part in enumerate(pair.order())
            if part.data is not None
        ]
        unread = [build.unreadable(one) for _, one in sorted(self._unread.items())]
        self._proved = _Proved(evidence, files, [*unread, *evidence.findings])
        return self._proved

    def _engine_verdict(self) -> dict[str, Any]:
        with self._opened() as pair:
            return engine_verdict(pair.data)


def _go_in_columns(pair: DualFiles) -> bool:
    return pay_here(sum(part.counted_end for part in pair.parts))


def merge_records(readings: Iterable[BitronixReading]) -> Iterator[Record]:
    """Return the records of the pairs of a sharded journal in one order.

    The order is time, sequence number, pair; ``attributes["pair"]`` counts the pairs from 0.
    Memory grows with the journals, whose files have a fixed size: copies that a change of files
    has written stand after younger records, so the files must be sorted.
    """
    records: list[Record] = []
    for number, reading in enumerate(readings):
        for record in reading.records():
            if record.outcome is Outcome.VALID:
                record.attributes["pair"] = number
                records.append(record)
    return iter(sorted(records, key=_merge_key))


def _merge_key(record: Record) -> tuple[int, int, int]:
    return record.time or 0, record.sequence or 0, int(record.attributes["pair"])


def _times(path: str) -> Iterator[int]:
    """Yield the times near the start of a file: in its header and in its first record."""
    try:
        head = read_head(path, _HEAD)
    except LogUnreadableError:
        return
    header = FileHeader.decode(head)
    if header is not None:
        yield header.timestamp
    if header is not None and header.position > HEADER_LENGTH and len(head) == _HEAD:
        yield RECORD_HEAD.unpack_from(head, HEADER_LENGTH)[3]
