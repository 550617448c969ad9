"""Reading one Derby log: files, records, transactions, changes, findings and both verdicts.

In: a `LogSource` and options (boot password, external key, ``settings``: encryptionAlgorithm,
derby_version). Out: everything that a `LogReading` offers. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

from tallystick.errors import TallystickError
from tallystick.records import (
    Answer,
    Change,
    Clock,
    Finding,
    Judgement,
    LogFile,
    Outcome,
    Part,
    Record,
    Row,
    Span,
    Surroundings,
    Transaction,
    Verdict,
)
from tallystick.storage.source import logical_name
from tallystick.storage.zeros import last_nonzero_end
from tallystick.systems.derby.engine.analysis import LogAnalysis, analyse
from tallystick.systems.derby.engine.flushed_pages import (
    first_file,
    flushed_pages,
    rows_written,
)
from tallystick.systems.derby.engine.forward_scan import ENDS_IN_ZEROS
from tallystick.systems.derby.engine.recovery import (
    VERSION_SETTING,
    reach_from,
    reach_of,
    recover,
    recovery_begins,
)
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.engine.rows_after import RowsAfter
from tallystick.systems.derby.format.layout import (
    HEADER_SIZE,
    Control,
    decode_header,
    instant_text,
    make_instant,
    split_instant,
)
from tallystick.systems.derby.read.catalogue import Catalogue
from tallystick.systems.derby.read.changes import (
    Pending,
    committed,
    committed_between,
    joined_ranges,
)
from tallystick.systems.derby.read.files import (
    LogBytes,
    LogFiles,
    OpenedLog,
    file_number,
    has_header,
    previous_end,
)
from tallystick.systems.derby.read.following import OpenAt, part_between
from tallystick.systems.derby.read.names import KNOWN, Names, Rows
from tallystick.systems.derby.read.records import record_of
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange, run_range, spans_of
from tallystick.systems.derby.read.surroundings import (
    bound_by,
    looked_for,
    started_by,
    surroundings_of,
)
from tallystick.systems.derby.read.tables import (
    Database,
    Numbers,
    RowFeed,
    names_of_files,
)
from tallystick.systems.derby.runs.pieces import ranges_between, runs_of
from tallystick.systems.derby.verdict.answer import unacknowledged_from
from tallystick.systems.derby.verdict.findings import find_all
from tallystick.systems.derby.verdict.pages import Containers
from tallystick.systems.derby.verdict.strict import judgement, verdict
from tallystick.systems.protocol import (
    ClosedSplit,
    Collection,
    LogSealedError,
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
from tallystick.systems.surroundings import ALONE, FILE_NAMES, joined, judged_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.systems.derby.columns.splits import ColumnReader
    from tallystick.systems.derby.runs.chunk import Runs
    from tallystick.systems.protocol import Fitting, Longs

STRETCH = 1 << 20
"""Bytes of a part of a file that is read for some LSNs."""
KEPT_FROM = 1 << 20
"""Bytes of a log from which on transactions that have ended are not kept for later questions."""


def _open_at(runs: Runs) -> OpenAt:
    from tallystick.systems.derby.runs.changes import open_at

    return partial(open_at, runs)


def _records(ranges: Iterable[ByteRange], *, salvage: bool = False) -> Iterator[Record]:
    for one in ranges:
        if one.envelope is not None:
            salvaged = one.salvaged or one.outcome is Outcome.STALE
            if salvage or not salvaged:
                yield record_of(one, salvaged=salvaged)


def _lsns(file: LogBytes, split: Split) -> tuple[int, int]:
    return make_instant(file.number, split.begin), make_instant(file.number, split.end)


def _stretch(file: LogBytes, split: Split) -> Stretch:
    return Stretch(split, _lsns(file, split), (0, None))


class DerbyReading(Reading):
    """Reading of one log; its files are opened at first use and stay open."""

    clock = Clock.NONE

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        self.source = source
        self._options = options

    @property
    def format(self) -> str:
        """The store version in the control file, and whether the log is encrypted."""
        contents = (control.content_or_error() for control in self.log.controls)
        known = [one for one in contents if isinstance(one, Control)]
        name = known[0].version if known else "unknown version"
        return f"{name}, encrypted" if self.log.encrypted else name

    @cached_property
    def _opened(self) -> OpenedLog:
        return OpenedLog(self.source, self._options)

    @property
    def log(self) -> LogFiles:
        """The opened files."""
        return self._opened.files

    @cached_property
    def _used(self) -> int:
        """Bytes of the log files without the zeros at their ends."""
        files = self.log.files.values()
        return sum(last_nonzero_end(one.data, 0, one.size) for one in files)

    @cached_property
    def _runs(self) -> Runs | None:
        """The runs of plain records, if the log is long enough for that to pay."""
        return runs_of(self.log, self._used)

    @cached_property
    def recovery(self) -> Recovery:
        """What a boot would do."""
        return recover(self.log, self._options.settings, self._runs)

    @cached_property
    def scan(self) -> LogScan:
        """The scan of all bytes."""
        return LogScan(self.log, reach_of(self.log, self.recovery, self._runs))

    @cached_property
    def _analysis(self) -> LogAnalysis:
        return self._analysed(keep_all=self._used < KEPT_FROM)

    def _analysed(self, *, keep_all: bool) -> LogAnalysis:
        found = self.recovery
        checkpoint = found.checkpoint, found.checkpointing
        # Where the whole log is dropped, every end record in it counts.
        runs = None if found.new_log else self._runs
        analysis = analyse(self.scan, found.redo_mark, checkpoint, runs, keep_all=keep_all)
        if found.may_boot and (begin := unacknowledged_from(self.log, found)) is not None:
            analysis.forgive_from(begin)
        return analysis

    @property
    def run_count(self) -> RunCount:
        """How many records a verdict read in runs."""
        return self._analysis.run_count

    def files(self) -> Sequence[LogFile]:
        """Return the log files by number, then the control files."""
        logs = [self._log_file(file, order) for order, file in enumerate(self.log.files.values())]
        return [*logs, *self._control_files(len(logs))]

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Yield every record in log order.

        Args:
            salvage: also yield records after damage and those of stale files.
        """
        yield from _records(self.scan.ranges(), salvage=salvage)

    def stretches(self, of: Stretch | None = None) -> Sequence[Stretch]:
        """Return the files, whose numbers are the upper halves of LSNs; or parts of one of them."""
        files = self.log.files.values()
        if of is None:
            return [_stretch(file, Split(file.path, 0, file.size)) for file in files]
        (file,) = (one for one in files if one.path == of.split.file)
        return [_stretch(file, one) for one in self._columns.parts(file, STRETCH)]

    def records_of(self, split: Split) -> Iterator[Record]:
        """Yield the records of a part of a file, of which what is before is walked through."""
        (file,) = (one for one in self.log.files.values() if one.path == split.file)
        yield from _records(ranges_between(self.scan, self._runs, *_lsns(file, split)))

    def chosen_records(self, fitting: Fitting) -> Iterator[Record]:
        """Yield those of ``records()`` that fit by their columns, and what is odd."""
        if self._runs is None:
            return self.records()
        from tallystick.systems.derby.columns.batches import chosen_ranges

        return _records(chosen_ranges(self._runs, self.scan, self.source.path, fitting))

    def _require_key(self, log: LogFiles | None = None) -> None:
        """Check that the bodies of records can be read. Raises `LogSealedError`."""
        log = log or self.log
        if log.sealed:
            raise LogSealedError(
                f"the log is encrypted, and {log.why_sealed}: the key is not known, so no row of "
                "it can be read",
                file=self.source.path,
                advice=f"Give the {'right ' * log.key_given}boot password (--boot-password; in "
                "Spark bootPassword) or the external key (--encryption-key; encryptionKey)",
            )

    def transactions(self) -> Iterable[Transaction]:
        """Yield the transactions in order of first records; memory grows with their number.

        Raises:
            LogSealedError: the log is encrypted, and its key is not known.
        """
        self._require_key()
        found = self._analysis.transactions
        if not found.keep_all:
            found = self._analysed(keep_all=True).transactions
        for one in found.kept.values():
            yield one.transaction(self.source.path)

    def transaction_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the transactions in batches; memory grows with their number."""
        if self._runs is not None:
            from tallystick.systems.derby.columns.transactions import plain_transactions

            found = plain_transactions(self._runs, self.source.path)
            if found is not None:
                return found.batches(rows)
        return super().transaction_batches(rows)

    def changes(self) -> Iterable[Change]:
        """Return committed changes of table rows; memory grows with open transactions.

        Raises:
            LogSealedError: the log is encrypted, and its key is not known.
        """
        self._require_key()
        return committed(self._believed(), self.source.path, self._names())

    def _believed(self) -> Iterator[ByteRange]:
        return (one for one in self.scan.ranges() if one.is_believed)

    def change_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield committed changes in batches; memory grows with open transactions."""
        if self._runs is None:
            return super().change_batches(rows)
        from tallystick.systems.derby.columns.changes import change_batches

        return change_batches(self._runs, self.scan, self.source.path, self._names(), rows)

    damage_ends_log = True

    def number(self, path: str) -> int | None:
        """Return the number of a log file, which its name has."""
        return file_number(logical_name(path))

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Return what is missing before a log file: its header tells where the one before ended."""
        number = self.number(path) or 0
        if reached is None:
            whole = number == max(self.log.files) or has_header(self.log.files[number])
            found = f"bytes that are none in log file {number}"
            return None if whole else Missing("a header", found, ends_log=True)
        if reached.place is None:
            joined, expected = number <= reached.number + 1, f"log file {reached.number + 1}"
        else:
            ended = previous_end(self.log.files[number])
            joined = ended <= reached.place
            if ended < reached.place and not reached.there:  # of another log: it ended before
                read = f"log file {reached.number} with the log up to {instant_text(reached.place)}"
                return Missing(read, f"one that ended at {instant_text(ended)}", certain=False)
            expected = f"the log from {instant_text(reached.place)} on"
        ends = number > min(self.log.files)
        return None if joined else Missing(expected, f"log file {number}", ends_log=ends)

    def places(self, file: str, ends: Longs, sequences: Longs) -> Longs:
        """Return the instants at which records end."""
        del file
        return (sequences >> 32 << 32) | ends

    def changes_between(self, after: int | None, until: int) -> Iterator[Change]:
        """Yield what records that end after ``after`` commit, up to the instant ``until``.

        Reads these and what their transactions began with: see `read.following`.

        Raises:
            LogUnreadableError: some of what is needed was given up, or the key is not known.
            CorruptLogError: some of it is damaged.
        """
        name, found = self.source.path, None if after is None else self._part(after, until)
        whole_after = None if self._options.skip_lost else after
        if after is None or found is None:
            self._require_key()
            names = self._names()
            yield from committed_between(self.scan, name, names, after, until, whole_after)
        else:
            names, (pending, ranges) = self._names(after), found
            for change in committed(ranges, name, names, whole_after, pending):
                if change.commit_sequence >= after:
                    yield change
        KNOWN.keep(name, until, names.catalogue)

    def _part(self, after: int, until: int) -> tuple[Pending, Iterator[ByteRange]] | None:
        """Return what is open at an instant, and what follows; None if only all files tell it."""
        found = (file_number(logical_name(path)) for path in self.source.files)
        numbers = {number for number in found if number is not None}
        part = part_between(numbers, self._some_files, after, until)
        if part is None:
            return None
        self._require_key(part.log)
        runs = runs_of(part.log, part.size)
        scan = LogScan(part.log, reach_from(part.log, part.begin, runs))
        if not scan.reaches(until):
            return None
        pending, place = part.opened(None if runs is None else _open_at(runs))
        return pending, part.ranges(scan, place, lambda: self._require_whole(after, until))

    def _require_whole(self, after: int, until: int) -> None:
        """Look at all files; raises as `changes_between` does."""
        for _ in joined_ranges(self.scan, after, until):
            pass

    def _some_files(self, numbers: Container[int]) -> LogFiles:
        """Return some of the log files; only these are read, if nothing is opened yet."""
        if "_opened" in self.__dict__:
            files = {one: file for one, file in self.log.files.items() if one in numbers}
            return replace(self.log, files=files)
        paths = [one for one in self.source.files if file_number(logical_name(one)) in numbers]
        return OpenedLog(replace(self.source, files=tuple(paths)), self._options).files

    def _names(self, after: int | None = None) -> Names:
        """Return the names of tables where the log begins, or after the commits up to an instant.

        A process that has read up to there remembers them.
        """
        name = self.source.path
        known = None if after is None else KNOWN.get(name, after)
        if known is not None:
            return Names(known, self._rows_of)
        try:
            return self._database.names(after or 0)
        except TallystickError:  # a page of the catalogue is damaged, or is being written
            return Names(Catalogue({}), self._rows_of)

    def _rows_of(self, container: int, commit: int) -> Rows:
        return self._database.rows_of(container, commit)

    @cached_property
    def _database(self) -> Database:
        return Database(self._believed_on, self.source.path)

    def collections(self) -> Sequence[Collection]:
        """Return the tables of users, by the database's catalogue in the log and beside it."""
        found = self._database.collections()
        bound = bound_by(self.log)
        return [replace(one, bound=bound) for one in found] if bound else found

    def changes_of(
        self, collection: str, after: int | None = None, until: int | None = None
    ) -> Iterator[Change]:
        """Yield committed changes of a table, with plain values by name of column.

        Raises:
            LogUnreadableError: with ``until``, as ``changes_between`` does; the key is not known.
            CorruptLogError: also where a page of the database is damaged.
        """
        self._require_key()
        ranges = self._believed_on if until is None else partial(self._joined_on, after, until)
        for change in self._database.changes(collection, ranges, after):
            if after is None or change.commit_sequence >= after:
                yield change

    def fated_changes(self) -> Iterator[Row]:
        """Yield the changes of all transactions as these end, then those that do not end.

        Memory grows with open transactions.

        Raises:
            LogSealedError: the log is encrypted, and its key is not known.
        """
        self._require_key()
        feed = self._row_feed()
        for one in self.scan.ranges():
            if one.outcome is Outcome.VALID:
                yield from feed.take(one)
        yield from feed.rest()

    def fated_batches(self, rows: int) -> Iterator[pa.RecordBatch] | None:
        """Return all of `fated_changes` in the same order; None of short and encrypted logs."""
        if self._runs is None:
            return None
        from tallystick.systems.derby.columns.fates import fated_batches

        return fated_batches(self._runs, self.scan, self.source.path, self._row_feed(), rows)

    def _row_feed(self) -> RowFeed:
        lost = self._analysis.lost_commits(whole_log=self.recovery.new_log)
        return self._database.row_feed({one.place for one in lost})

    def _ranges_on(self, containers: Numbers, commits: Numbers) -> Iterator[ByteRange]:
        """Return at least the ranges that tell of changes of containers, and of commits."""
        if self._runs is None:
            return self.scan.ranges()
        from tallystick.systems.derby.runs.changes import ranges_on

        return ranges_on(self._runs, self.scan, containers, commits)

    def _believed_on(self, containers: Numbers, commits: Numbers) -> Iterator[ByteRange]:
        return (one for one in self._ranges_on(containers, commits) if one.is_believed)

    def _joined_on(
        self, after: int | None, until: int, containers: Numbers, commits: Numbers
    ) -> Iterator[ByteRange]:
        return joined_ranges(self.scan, after, until, self._ranges_on(containers, commits))

    def rows_before(self, collection: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield key and values of the rows that a table has where the log begins."""
        return self._database.rows_before(collection)

    def findings(self) -> Sequence[Finding]:
        """Return the findings: files that cannot be read first."""
        found = find_all(self.log, self.source.path, self._analysis, self.recovery)
        return [*self._opened.problems, *found]

    def verdict(self) -> Verdict:
        """Return both judgements and their differences."""
        found = verdict(
            self.source.path,
            self.format,
            self.scan,
            self._analysis,
            self.recovery,
            self.findings(),
            self._own,
            self._runs,
        )
        if self._options.log_only:
            return found
        return judged_whole(found, self._around, self._decided)

    @cached_property
    def judgement(self) -> Judgement:
        """The answer about the database, or about a log alone."""
        return self._own if self._options.log_only else joined(self._decided, self._around)

    @cached_property
    def _around(self) -> Surroundings:
        around = surroundings_of(self.source, self.log)
        renamed = any(one.part == FILE_NAMES for one in around.parts)
        read = around.reads_log and around.kind != ALONE and not renamed
        if not read or not self.recovery.may_boot:
            return around
        parts = [*around.parts, *self._containers(around.path)]
        if self.recovery.end_reason == ENDS_IN_ZEROS:
            parts += looked_for(self.source.path, split_instant(self.recovery.stop)[0] + 1)
        return replace(around, parts=tuple(parts))

    def _containers(self, database: str) -> Iterator[Part]:
        flushed = flushed_pages(self.scan, self.recovery, self._runs)
        cut = unacknowledged_from(self.log, self.recovery) is not None
        log = self.log
        written = partial(rows_written, self.scan, self.recovery, self._runs)
        first = first_file(self.scan, self.recovery)
        containers = Containers(
            database,
            cut=cut,
            sealed=log.sealed,
            why_sealed="what was given opens none" if log.key_given else "no key was given",
            cipher=log.cipher,
            written=written,
            followed=partial(RowsAfter, log, self.recovery, first),
        )
        return containers.parts(self.recovery, flushed)

    @cached_property
    def _decided(self) -> Judgement:
        """The answer about the log, without what the pages of the database have decided."""
        found = self.recovery
        if self._around.kind == ALONE:
            return self._own
        if not found.gaps_decide:
            return self._presumed(self._own)
        booted = replace(found, boots=True, depends="", reason="")
        decided = judgement(self.scan, self._analysis, booted, self.findings(), self._runs)
        return self._presumed(decided)

    def _presumed(self, one: Judgement) -> Judgement:
        """Return a safe answer with the engines that it is for: no file tells which will start."""
        found = started_by(self.log)
        if one.answer is not Answer.SAFE or not found or VERSION_SETTING in self._options.settings:
            return one
        text = f"Derby {found[0]} or newer starts the database; older engines refuse it (XSLAN)."
        return replace(one, text=f"{one.text} {text}")

    @cached_property
    def _own(self) -> Judgement:
        return judgement(self.scan, self._analysis, self.recovery, self.findings(), self._runs)

    @cached_property
    def _columns(self) -> ColumnReader:
        from tallystick.systems.derby.columns.splits import ColumnReader

        return ColumnReader(self.log, self.source.path, lambda: self.scan)

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of the split, or all, as Arrow batches of at most ``rows`` rows."""
        return self._columns.batches(split, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        """Return parts of log files of about ``target_bytes``, each from the start of a group."""
        return self._columns.splits(target_bytes)

    def close_split(self, split: Split, rows: int) -> ClosedSplit:
        """Return the transactions and changes that begin and end in a split."""
        if self._runs is None:
            return ClosedSplit(iter(()), lambda: None)
        from tallystick.systems.derby.columns.closing import ClosingSplit

        begins = recovery_begins(self.log, self._options.settings)
        closing = ClosingSplit(
            self._runs, self.source.path, self._names_of_files(), split, rows, begins
        )
        return ClosedSplit(closing.batches(), closing.rest)

    def close_rests(
        self, rests: Sequence[bytes], rows: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the transactions and changes that no split closed alone.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        from tallystick.systems.derby.columns.closing import Rest, join

        found = [unpacked(one, Rest.built) for one in rests]
        return join(self.log, self.source.path, self._names_of_files(), found, rows)

    def knowing(self, rests: Sequence[bytes]) -> Self:
        """Return the log as a reading that takes from splits what their records tell.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        from tallystick.systems.derby.columns.closing import Rest, known_of

        found = [unpacked(one, Rest.built) for one in rests]
        known = type(self)(self.source, self._options)
        told = known_of(known.log, self._options.settings, found)
        known._runs, known.recovery, known._analysis = told
        return known

    def _names_of_files(self) -> Names:
        """Return the names of tables, if the log changes none."""
        return Names(names_of_files(self.source.path), self._rows_of)

    def _log_file(self, file: LogBytes, order: int) -> LogFile:
        undo_file = self.recovery.undo_mark >> 32
        previous = decode_header(file.data).previous if file.size >= HEADER_SIZE else None
        redundant = file.number < undo_file if undo_file else None
        return LogFile(
            file.path,
            file.size,
            "log file",
            order,
            identity=file.number,
            generation=previous,
            redundant=redundant,
            why=f"recovery starts at {instant_text(self.recovery.start)}",
            spans=tuple(spans_of(self._summed_ranges(file.number))),
        )

    def _summed_ranges(self, number: int) -> Iterator[ByteRange]:
        """Yield the ranges of a file, the run of plain records that it begins with as one."""
        scan = self.scan.file(number)
        yield scan.header()
        position = HEADER_SIZE
        if self._runs is not None:
            position = self._runs.end(scan.file, HEADER_SIZE, scan.believed_until())
            yield run_range(scan.file, position)
        yield from scan.rest(position)

    def _control_files(self, order: int) -> list[LogFile]:
        found = []
        for place, control in enumerate(self.log.controls):
            content = control.content_or_error()
            problem = "" if isinstance(content, Control) else content
            outcome = Outcome.CORRUPT if problem else Outcome.VALID
            size = len(control.data)
            spans = (Span(0, size, outcome, "control file", problem),) if size else ()
            found.append(LogFile(control.path, size, "control file", order + place, spans=spans))
        return found
