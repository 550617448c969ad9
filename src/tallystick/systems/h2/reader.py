"""One H2 page store file as a `LogReading`.

In: the source and the reader's options. Out: files, records, transactions, changes, findings,
both verdicts and Arrow batches. The file is opened with the first call that needs its bytes, and
never written. Memory: one record, open transactions, and the undo map (16 bytes a page).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.records import (
    Change,
    Clock,
    Fate,
    Finding,
    Judgement,
    LogFile,
    Outcome,
    Record,
    Row,
    Severity,
    Surroundings,
    Transaction,
    Verdict,
)
from tallystick.storage.source import ByteSource
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.h2.codes import CODES
from tallystick.systems.h2.engine.large_objects import LargeObjects
from tallystick.systems.h2.engine.opening import EngineResult, judge
from tallystick.systems.h2.engine.tables import StoreError, Tables, UndonePages
from tallystick.systems.h2.format.catalogue import collections
from tallystick.systems.h2.format.entries import INCOMPLETE, Entry
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.values.shown import Presentation, Shown
from tallystick.systems.h2.read.changes import by_column, lost_row, rows_of
from tallystick.systems.h2.read.files import OpenedFile, open_bytes, open_file
from tallystick.systems.h2.read.records import batches_of_entries, record_of
from tallystick.systems.h2.read.salvage import salvaged
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.spans import spans_of
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.surroundings import numbered, surroundings_of
from tallystick.systems.h2.read.transactions import (
    LoggedTransaction,
    hand_commits,
    transactions_of,
)
from tallystick.systems.h2.runs.pieces import LogPieces
from tallystick.systems.h2.verdict.findings import findings_of
from tallystick.systems.h2.verdict.losses import dropped_with, missing_rows
from tallystick.systems.h2.verdict.strict import judgement, unreadable_verdict, verdict_of
from tallystick.systems.protocol import (
    Collection,
    LogSealedError,
    LogSource,
    Reading,
    ReadOptions,
    Split,
)
from tallystick.systems.runs import RunCount
from tallystick.systems.surroundings import joined, judged_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.systems.h2.columns.changes import ChangeColumns
    from tallystick.systems.protocol import Fitting


class H2Reading(Reading):
    """A `LogReading` of one page store file."""

    clock = Clock.NONE

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        self.source = source
        self._options = options
        self._path, _ = numbered(source)
        self._finding = FindingBuilder(SYSTEM_NAME, source.path, CODES, self._path)

    @property
    def format(self) -> str:
        """``pagestore`` and the two version numbers of the header."""
        pages = None if isinstance(self._opened, Finding) else self._opened.pages
        if pages is None:
            return "pagestore"
        return f"pagestore {pages.static.write_version}/{pages.static.read_version}"

    @cached_property
    def _bytes(self) -> ByteSource | Finding:
        """The bytes of the database; the finding why they cannot be read."""
        try:
            return open_bytes(self.source, self._options)
        except LogUnreadableError as error:
            return self._finding.unreadable(error)

    @cached_property
    def _opened(self) -> OpenedFile | Finding:
        """Headers and log; the finding why there are none."""
        source = self._bytes
        return source if isinstance(source, Finding) else open_file(source, self._options)

    @cached_property
    def _result(self) -> EngineResult | Finding:
        """What the engine does with the file; the finding why nothing is known of it."""
        opened = self._opened
        return opened if isinstance(opened, Finding) else judge(opened, self._log)

    @cached_property
    def _log(self) -> LogPieces | None:
        """The log; None where it cannot be followed."""
        opened = self._opened
        if isinstance(opened, Finding) or opened.stream is None:
            return None
        return LogPieces(opened.stream, opened.zone)

    def _require_password(self) -> None:
        """Check that the pages can be read. Raises `LogSealedError`."""
        opened = self._opened
        if not isinstance(opened, Finding) and opened.encrypted:
            raise LogSealedError(
                f"{opened.why_encrypted}, so no row of it can be read",
                file=self._path,
                advice=f"Give the {'right ' * opened.password_given}file password "
                "(--boot-password; in Spark bootPassword)",
            )

    @property
    def run_count(self) -> RunCount:
        """How many records were read in runs to judge the log."""
        digest = None if isinstance(self._result, Finding) else self._result.digest
        return RunCount() if digest is None else digest.count

    def files(self) -> Sequence[LogFile]:
        """Return the one file, tiled by spans of pages."""
        opened = self._opened
        if isinstance(opened, Finding):
            return [LogFile(self._path, 0, "database", 0, why="it could not be read")]
        return [
            LogFile(
                self._path,
                opened.size,
                "database",
                0,
                generation=opened.header.log_key if opened.header else None,
                redundant=False,
                why="the log is part of the database file",
                spans=spans_of(opened),
            )
        ]

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Yield every record in log order; with ``salvage`` also those outside the log.

        Raises:
            LogSealedError: the file is encrypted, and its password is not known.
        """
        self._require_password()
        result = self._result
        if isinstance(result, Finding):
            return
        if result.file.stream is not None:
            yield from _decided_records(result, result.file.stream)
        if salvage:
            yield from _salvaged_records(result.file)

    def chosen_records(self, fitting: Fitting) -> Iterator[Record]:
        """Yield those of ``records()`` that fit by their columns, and what is odd."""
        result, log = self._result, self._log
        if isinstance(result, Finding) or log is None or not log.in_runs:
            yield from self.records()
            return
        from tallystick.systems.h2.columns.batches import chosen_entries

        for entry in chosen_entries(log, self.source.path, fitting):
            yield record_of(entry, log.stream, result.decisions(entry))

    def transactions(self) -> Iterable[Transaction]:
        """Yield transactions in the order in which they end, open ones last.

        Raises:
            LogSealedError: as ``records`` does.
        """
        self._require_password()
        log = self._log
        if log is not None:
            for number, one in enumerate(logged_transactions(log), 1):
                yield one.to_transaction(number, log.stream, self.source.path)

    def transaction_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of `transactions` as batches of at most ``rows`` rows, in nearly that order."""
        log = self._log
        if log is None or not log.in_runs:
            return super().transaction_batches(rows)
        from tallystick.systems.h2.columns.transactions import TransactionColumns

        return TransactionColumns(log, self.source.path, hand_commits_of(log)).batches(rows)

    def changes(self) -> Iterable[Change]:
        """Yield committed changes in commit order.

        Raises:
            LogSealedError: as ``records`` does.
        """
        self._require_password()
        result = self._result
        if not isinstance(result, Finding) and result.file.stream is not None:
            rows = self._rows(result, result.file.stream, set(), [Fate.COMMITTED])
            yield from (row.change for row in rows)

    def fated_changes(self) -> Iterator[Row]:
        """Yield the changes of all transactions as these end, then those that do not end.

        A running engine writes a rollback as changes that are committed; lost are those rows of
        dropped commits that the tables do not have. Memory grows with these and with open ones.

        Raises:
            LogSealedError: as ``records`` does.
        """
        self._require_password()
        result = self._result
        if isinstance(result, Finding) or result.file.stream is None:
            return
        lost, elsewhere = self._lost(result, self._presentation(result, result.file.stream))
        yield from self._rows(result, result.file.stream, lost, [*Fate])
        yield from elsewhere

    def _rows(
        self,
        result: EngineResult,
        stream: LogStream,
        lost: set[int],
        fates: Sequence[Fate],
    ) -> Iterator[Row]:
        tables, shown = result.opening.tables, self._presentation(result, stream)
        entries = Scan(stream, tables.zone(result.file.zone)).entries()
        return rows_of(entries, stream, tables, shown, self.source.path, lost, fates)

    def _lost(self, result: EngineResult, shown: Presentation) -> tuple[set[int], list[Row]]:
        """Return the changes that a restart drops and the tables do not have.

        Returns:
            The offsets in the stream of those that stand in the log, and those that do not.
        """
        losses = [one.code for one in self.findings() if one.severity is Severity.LOSS]
        found = [missing_rows(result, dropped_with(result, code)) for code in losses]
        dropped, stream = [*chain.from_iterable(found)], result.file.stream
        tables, log = result.opening.tables, self.source.path
        elsewhere = (one for one in dropped if one[1] is not stream)
        rows = [lost_row(entry, part, tables, shown, log) for entry, part in elsewhere]
        return {entry.start for entry, part in dropped if part is stream}, rows

    def fated_batches(self, rows: int) -> Iterator[pa.RecordBatch] | None:
        """Return all of `fated_changes` in the same order, as batches.

        None of a short log, and of one with an added row that is read one by one.
        """
        result = self._result
        log = None if isinstance(result, Finding) else result.columnar_log()
        if log is None or isinstance(result, Finding):
            return None
        from tallystick.arrow.schemas import batches_of_fated

        lost, elsewhere = self._lost(result, self._presentation(result, log.stream))
        rest = batches_of_fated(elsewhere, self.clock.value, rows)
        return chain(self._columns(result, log, lost).batches(rows), rest)

    def _columns(
        self, result: EngineResult, log: LogPieces, lost: set[int] | None
    ) -> ChangeColumns:
        """Return what makes batches of changes; ``lost``: None for the committed ones only."""
        from tallystick.systems.h2.columns.changes import ChangeColumns

        shown = self._presentation(result, log.stream)
        return ChangeColumns(log, result.opening.tables, self.source.path, shown, lost)

    def _presentation(
        self, result: EngineResult, stream: LogStream, tables: Tables | None = None
    ) -> Presentation:
        """Return what shows values of the database, large objects included."""
        tables = tables or _tables_before(result, stream)

        def added(table: int) -> Iterator[Entry]:
            return iter(()) if self._log is None else self._log.added_to(table)

        known = result.opening.tables
        objects = LargeObjects(tables, known.names, added, stream)
        return Presentation(objects.content, known.build)

    def change_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of `changes` in the same order, as batches of at most ``rows`` rows."""
        result = self._result
        log = None if isinstance(result, Finding) else result.columnar_log()
        if log is None or isinstance(result, Finding):
            return super().change_batches(rows)
        return self._columns(result, log, None).batches(rows)

    def collections(self) -> Sequence[Collection]:
        """Return the tables of the database with their columns, from its own catalogue."""
        result = self._result
        if isinstance(result, Finding):
            return ()
        return collections(result.opening.tables.names)

    def rows_before(self, collection: str) -> Iterator[tuple[str, dict[str, Shown]]]:
        """Yield key and values of the rows that a table has where the log begins.

        Raises:
            CorruptLogError: a page of the table is damaged.
        """
        result = self._result
        if isinstance(result, Finding) or result.file.stream is None:
            return
        stream, lives = result.file.stream, result.opening.tables
        tables = _tables_before(result, stream)
        shown = self._presentation(result, stream, tables)
        for number, table in lives.names.items():
            row = tables.meta.get(number)
            if table.name != collection or row is None or not row.root or lives.births.get(number):
                continue
            try:
                for key, values in tables.rows(row.root):
                    yield str(key), by_column(values, table, shown, 0)
            except StoreError as error:
                raise CorruptLogError(
                    f"rows from before the log cannot be read: {error.text}", file=self._path,
                    advice="Read with beforeImages=log",
                ) from error  # fmt: skip

    def findings(self) -> Sequence[Finding]:
        """Return every finding, the file's own first."""
        return self._findings

    @cached_property
    def _findings(self) -> list[Finding]:
        result = self._result
        return [result] if isinstance(result, Finding) else list(findings_of(result, self._finding))

    def verdict(self) -> Verdict:
        """Return both judgements."""
        result, around = self._result, self._around
        if isinstance(result, Finding):
            found = unreadable_verdict(self.source.path, self.format, result)
        else:
            found = verdict_of(result, self.source.path, self.format, self.findings())
        return found if around is None else judged_whole(found, around)

    @cached_property
    def judgement(self) -> Judgement:
        """The answer about the database."""
        result, around = self._result, self._around
        if isinstance(result, Finding):
            return self.verdict().judgement
        own = judgement(result, self.findings())
        return own if around is None else joined(own, around)

    @cached_property
    def _around(self) -> Surroundings | None:
        """What the engine opens besides the first file; None if it opens nothing else."""
        result = self._result
        if self._options.log_only:
            return None
        if isinstance(result, Finding) or result.redo is None:
            return surroundings_of(self.source, ())
        lobs = result.redo.lob_files()
        if tables := result.opening.tables.of_lob_files:
            lobs |= result.redo.lob_files_of(result.redone(tables))
        return surroundings_of(self.source, lobs, self._options.boot_password)

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records as Arrow batches, those of a split by itself.

        Raises:
            LogSealedError: as ``records`` does.
        """
        self._require_password()
        log, path = self._log, self.source.path
        if log is None:
            return
        if not log.in_runs:
            yield from batches_of_entries(log.entries(()), log.stream, path, split, rows)
            return
        from tallystick.systems.h2.columns.batches import record_batches_of

        yield from record_batches_of(log, path, split, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:  # noqa: ARG002 - see below
        """Return one split: a record can only be found from the beginning of the log.

        Raises:
            LogSealedError: as ``records`` does.
        """
        self._require_password()
        opened = self._opened
        if isinstance(opened, Finding) or opened.stream is None:
            return []
        return [Split(self._path, 0, opened.size)]


def _tables_before(result: EngineResult, stream: LogStream) -> Tables:
    """Return the tables as they are where the log begins; none if the engine cannot read them."""
    zone = result.opening.tables.zone(result.file.zone)
    tables = Tables(UndonePages(stream.pages, stream, result.recovery), zone)
    with suppress(StoreError):
        tables.open_meta()
    return tables


def logged_transactions(log: LogPieces) -> Iterator[LoggedTransaction]:
    """Return the transactions of a log."""
    by_hand = hand_commits_of(log)
    if not log.in_runs:
        return transactions_of(log.entries(()), keep_rows=False, by_hand=by_hand)
    from tallystick.systems.h2.runs.transactions import transactions_in_runs

    return transactions_in_runs(log, by_hand)


def hand_commits_of(log: LogPieces) -> Callable[[], frozenset[int]]:
    """Return a function that finds the `hand_commits` of a log, once."""
    return cache(lambda: hand_commits(log.entries(())))


def _decided_records(result: EngineResult, stream: LogStream) -> Iterator[Record]:
    for entry in Scan(stream, result.file.zone).entries():
        yield record_of(entry, stream, result.decisions(entry))


def _salvaged_records(opened: OpenedFile) -> Iterator[Record]:
    if opened.pages is None or opened.encrypted:
        return
    parts = salvaged(opened.pages, opened.stream, opened.zone)
    found = ((one, part, run) for part, run in parts for one in Scan(part, opened.zone).entries())
    for entry, part, run in found:
        if entry.type == INCOMPLETE:
            continue
        record = record_of(entry, part)
        if record.outcome is Outcome.VALID:
            on_damage = opened.stream is not None and opened.stream.is_damaged(
                record.attributes["page"]
            )
            record.outcome = Outcome.CORRUPT if on_damage else run.outcome
        record.attributes |= {"salvaged": True, "why": run.why}
        yield record
