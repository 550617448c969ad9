"""Read one journal: files, records, transactions, changes, findings and both verdicts.

In: a `LogSource` and options. Out: a `JournalReading`, which never writes a byte.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Self

from tallystick.errors import UnsupportedFormatError
from tallystick.records import (
    Answer,
    Change,
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
from tallystick.storage.source import logical_name
from tallystick.systems.decisions import decision_rows
from tallystick.systems.jboss.applications.coordinated import EXTENSION, coordinated
from tallystick.systems.jboss.applications.imports import NOTE, Waiting, write_import
from tallystick.systems.jboss.applications.needs import (
    LISTED,
    REFERENCES,
    Known,
    UserTypes,
    waiting,
)
from tallystick.systems.jboss.applications.object_store import ObjectStoreReading
from tallystick.systems.jboss.applications.paging import paged_messages
from tallystick.systems.jboss.applications.places import BINDINGS, folder_of, is_bindings
from tallystick.systems.jboss.applications.surroundings import MESSAGE_EXTENSIONS, surroundings_of
from tallystick.systems.jboss.applications.tables import (
    COLLECTIONS,
    bindings_beside,
    collection_changes,
    collection_rows,
    queue_names,
)
from tallystick.systems.jboss.columns.splits import splits
from tallystick.systems.jboss.engine.loader import (
    EngineLoad,
    configured_size,
    load,
    load_in_runs,
    refusal,
    require_numbers,
)
from tallystick.systems.jboss.engine.reclaim import redundancy
from tallystick.systems.jboss.engine.report import engine_report
from tallystick.systems.jboss.format.file_names import NEWER, OLDER, extension_of
from tallystick.systems.jboss.format.layout import (
    CONTROL_FILE,
    Contents,
    Item,
    RecordType,
    contents_of,
)
from tallystick.systems.jboss.format.messages import ids_given
from tallystick.systems.jboss.format.object_files import object_file
from tallystick.systems.jboss.read.analysis import Analysis, analyse
from tallystick.systems.jboss.read.changes import (
    FileRecords,
    RecordsOf,
    changes,
    changes_between,
    changes_between_of_all,
    place_of,
    read_records,
    read_valid_records,
    require_joined,
    rows_of,
)
from tallystick.systems.jboss.read.classify import read_files
from tallystick.systems.jboss.read.file_facts import KnownFile
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles, open_files
from tallystick.systems.jboss.read.generations import GENERATIONS
from tallystick.systems.jboss.read.records import records_of
from tallystick.systems.jboss.read.spans import Lives, log_file, whole_file
from tallystick.systems.jboss.read.transactions import transactions
from tallystick.systems.jboss.verdict.answer import IDS_MISSING
from tallystick.systems.jboss.verdict.broker import BrokerJournal
from tallystick.systems.jboss.verdict.differences import Evidence
from tallystick.systems.jboss.verdict.findings import findings
from tallystick.systems.jboss.verdict.missing import FileOrder
from tallystick.systems.jboss.verdict.strict import judgement, verdict
from tallystick.systems.protocol import (
    ClosedSplit,
    Collection,
    FileLife,
    LogSource,
    Missing,
    Reached,
    Reading,
    ReadOptions,
    Split,
)
from tallystick.systems.rests import require
from tallystick.systems.runs import RunCount, pay_here
from tallystick.systems.surroundings import joined, judged_whole, names_beside

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.systems.jboss.columns.transactions import TransactionColumns
    from tallystick.systems.jboss.runs.analysis import AnalysisInRuns
    from tallystick.systems.protocol import Fitting, Longs

KEPT_MAX = 1 << 24
"""Bytes of a journal of which all ended transactions are kept, for the verdict and the table."""


def _records_of(one_by_one: RecordsOf, journal: JournalFiles, file: JournalFile) -> FileRecords:
    """Read one file for a step of a stream, where it is short or damaged by ``one_by_one``."""
    if not pay_here(file.size):
        return one_by_one(journal, file)
    from tallystick.systems.jboss.runs.records import plain_records

    return plain_records(journal, file, one_by_one)


def reading_of(source: LogSource, options: ReadOptions) -> JournalReading | ObjectStoreReading:
    """Return the reading of a journal, or of a store of Narayana that is no journal."""
    if not source.files or object_file(source.files[0]) is not None:
        return ObjectStoreReading(source, options)
    return JournalReading(source, options)


class JournalReading(Reading):
    """A `LogReading` of one circular journal.

    Settings: ``file_size`` and ``user_version`` as the journal was configured, ``generation`` to
    overrule what the bytes say; without them the reader takes what most files agree with.

    Everything but ``records``, ``changes`` and ``batches`` keeps the ids of the journal's live
    records in memory; the loader's list, which is made when it is asked for, the records.
    """

    clock = Clock.NONE

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        self.source = source
        self._options = options
        self._beside: dict[str, JournalReading] = {}

    @property
    def _this(self) -> JournalReading:
        """The reading for its own parts, weakly: a cycle would keep its files open for longer."""
        this: JournalReading = weakref.proxy(self)
        return this

    @cached_property
    def journal(self) -> JournalFiles:
        """The files, with the generation that the settings or the bytes state."""
        journal = open_files(self.source)
        if name := self._options.settings.get("generation"):
            if name not in GENERATIONS:
                raise UnsupportedFormatError(
                    "the setting generation does not fit", expected=", ".join(GENERATIONS)
                )
            journal.choose(GENERATIONS[name])
        return journal

    @property
    def format(self) -> str:
        """The generation, by name and title."""
        generation = self.journal.generation
        return f"{generation.name} ({generation.title})"

    @property
    def _size(self) -> int:
        return sum(file.size for file in self.journal.files)

    @cached_property
    def _engine(self) -> EngineLoad:
        """What a load lists."""
        journal, settings = self.journal, self._options.settings
        if (found := self._loaded_in_runs) is not None:
            return load_in_runs(journal, settings, found)
        return load(journal.files, journal.generation, settings)

    @cached_property
    def _every_end(self) -> Analysis:
        """The analysis with all transactions, record by record."""
        return analyse(self.journal, every=True).analysis

    @cached_property
    def _in_runs(self) -> AnalysisInRuns | None:
        """The analysis without those that ended as they should; None of short journals."""
        if not pay_here(self._size):
            return None
        from tallystick.systems.jboss.runs.analysis import analyse_in_runs

        return analyse_in_runs(self.journal, self._kept_types)

    @property
    def _loaded_in_runs(self) -> AnalysisInRuns | None:
        """The analysis in runs; None where there is none, or a load does not see its records."""
        found = self._in_runs
        return found if found is not None and found.loaded_alike else None

    @property
    def _kept_types(self) -> UserTypes:
        """The user types of which the analysis keeps records: what the answer asks for."""
        return frozenset() if self._options.log_only else LISTED | REFERENCES

    @cached_property
    def _sees_every_record(self) -> bool:
        """Whether a load sees all whole records; False of short journals."""
        if not pay_here(self._size):
            return False
        from tallystick.systems.jboss.runs.analysis import sees_every_record

        return sees_every_record(self.journal)

    @cached_property
    def _evidence(self) -> Evidence:
        return replace(self._journal_evidence, coordinated=self._coordinated)

    @cached_property
    def _coordinated(self) -> list[Transaction]:
        """The transactions whose states Narayana keeps here."""
        if self._extension != EXTENSION:
            return []
        analysis, log = self._journal_evidence.analysis, self.source.path

        def path_of(item: Item) -> str:
            number = item.record_id or 0
            orders = [analysis.live.get(number, 0), *analysis.updates.get(number, ())]
            found: KnownFile = analysis.readings[orders[-1]]
            return found.file.path

        return list(coordinated(log, self._listed(), path_of))

    @cached_property
    def _journal_evidence(self) -> Evidence:
        log, journal, settings = self.source.path, self.journal, self._options.settings
        if (found := self._in_runs) is None:
            short = self._size < KEPT_MAX
            analysis = self._every_end if short else analyse(journal, every=False).analysis
            return Evidence.of(log, journal, analysis, self._engine)
        analysis = found.analyser.analysis
        if not found.loaded_alike:
            return Evidence.of(log, journal, analysis, self._engine)
        return Evidence(log, journal, analysis, refusal(journal, settings, found.analyser.replay))

    @property
    def run_count(self) -> RunCount:
        """How many records were read in runs."""
        found = self._in_runs
        return RunCount() if found is None else found.count

    @cached_property
    def _findings(self) -> list[Finding]:
        beside = names_beside(self.source.path) if self._extension == OLDER else ()
        newer = any(extension_of(logical_name(name)) == NEWER for name in beside)
        return list(findings(self._evidence, beside_newer=newer))

    def files(self) -> Sequence[LogFile]:
        """Return the data files by ascending id, then the files that a load would not read."""
        analysis, refused = self._evidence.analysis, self._evidence.error
        checked = zip(analysis.readings, redundancy(analysis, refused), strict=True)
        files = [log_file(reading, order, *may) for order, (reading, may) in enumerate(checked)]
        for file in self.journal.files:
            if file.header is None:
                role, why = "journal file", "shorter than a header"
                outcome = Outcome.UNUSED
                files.append(whole_file(file.path, file.size, role, len(files), outcome, why))
        for path, role in self.journal.leftovers.items():
            size = len(self.journal.sources.data(path))
            why = "a load carries it out, renames it or deletes it"
            outcome = Outcome.VALID if path.endswith(CONTROL_FILE) else Outcome.STALE
            files.append(whole_file(path, size, role, len(files), outcome, why))
        return files

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Yield the records by file id and offset; with ``salvage`` stale and dropped ones too."""
        for reading in read_files(self.journal):
            yield from records_of(reading, salvage=salvage)

    def chosen_records(self, fitting: Fitting) -> Iterator[Record]:
        """Yield those of ``records()`` that fit by their columns, and what follows damage."""
        if not pay_here(self._size):
            return self.records()
        from tallystick.systems.jboss.columns.batches import chosen_records

        return chosen_records(self.journal, self.source.path, fitting)

    def transactions(self) -> Iterable[Transaction]:
        """Yield the transactions by their ends, then the open ones."""
        if (found := self._in_columns()) is None:
            return chain(transactions(self.source.path, self._every_end), self._coordinated)
        from tallystick.arrow.schemas import BATCH_ROWS, transactions_of

        return chain(transactions_of(found.batches(BATCH_ROWS)), self._coordinated)

    def transaction_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of ``transactions()`` as batches of the `TRANSACTIONS` schema."""
        from tallystick.arrow.schemas import batches_of_transactions

        if (found := self._in_columns()) is None:
            return super().transaction_batches(rows)
        own = batches_of_transactions(self._coordinated, self.clock.value, rows)
        return chain(found.batches(rows), own)

    def _in_columns(self) -> TransactionColumns | None:
        """Return the transactions of a large journal; None of a short or odd one."""
        require_numbers(self._options.settings)
        if not pay_here(self._size):
            return None
        from tallystick.systems.jboss.columns.transactions import transactions_in_columns

        log = self.source.path
        return transactions_in_columns(self.journal, log, lambda: self._evidence.analysis)

    def changes(self) -> Iterator[Change]:
        """Yield the committed changes in the order of the loader's callbacks."""
        size = configured_size(self.journal.files, self._options.settings)
        return changes(self.journal, self.source.path, size)

    def change_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of ``changes()`` as batches of the `CHANGES` schema."""
        if self.journal.generation.shape.pairs or not pay_here(self._size):
            return super().change_batches(rows)
        from tallystick.systems.jboss.columns.changes import change_batches

        return change_batches(self.journal, self.source.path, rows)

    def lives(self) -> Mapping[str, FileLife]:
        """Return the life of every file; it is read when it is asked for."""
        return Lives(self.journal)

    def number(self, path: str) -> int | None:
        """Return the id in the header of a file."""
        return self._order.ids.get(path)

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Return which file ids are missing before a file, unless what is there explains them."""
        return self._order.missing(path, reached)

    def stated_end(self) -> int:
        """Return 0: a journal notes nothing of its end."""
        return 0

    def missing_at_end(self, stated: int, place: int | None) -> Missing | None:
        """Return what is missing of a file that was cut after the last record."""
        del stated
        return self._order.missing_at_end(place)

    @cached_property
    def _order(self) -> FileOrder:
        this = self._this
        return FileOrder(self.journal, lambda: this._evidence, lambda: this.files())

    def places(self, file: str, ends: Longs, sequences: Longs) -> Longs:
        """Return file id << 32 | end of each record.

        Raises:
            CorruptLogError: the id does not fit.
        """
        del sequences
        files = {one.path: one for one in self.journal.files}
        return ends | place_of(files[file], 0)

    def changes_between(self, after: int | None, until: int) -> Iterator[Change]:
        """Yield what records after the place ``after`` commit, up to ``until``.

        Only files with a share in that are read. Of generations before HornetQ 2.0 it is the whole
        journal: their loader applies elements in files that a commit does not list, too.

        Raises:
            LogUnreadableError: some of these records may be gone, and are not to be skipped.
            CorruptLogError: the same, of damage.
        """
        journal, log, skips = self.journal, self.source.path, self._options.skip_lost
        if journal.generation.shape.pairs:
            size = configured_size(journal.files, self._options.settings)
            return changes_between_of_all(journal, log, size, after, until, skip_lost=skips)
        records_of = partial(_records_of, read_valid_records if skips else read_records)
        return changes_between(journal, log, after, until, records_of, skip_lost=skips)

    @cached_property
    def _extension(self) -> str:
        return next((e for one in self.source.files if (e := extension_of(logical_name(one)))), "")

    def collections(self) -> Sequence[Collection]:
        """Return what Artemis or Narayana keeps in such a journal; nothing of other journals."""
        return COLLECTIONS.get(self._extension, ())

    def changes_of(
        self, collection: str, after: int | None = None, until: int | None = None
    ) -> Iterator[Change]:
        """Yield the changes of a collection; the whole journal is read for it.

        Raises:
            LogUnreadableError: with ``until``, as ``changes_between`` does.
            CorruptLogError: the same, of damage anywhere in the journal.
        """
        if collection not in {one.name for one in self.collections()}:
            return
        if until is not None and not self._options.skip_lost:
            require_joined(self.journal, after, until, partial(_records_of, read_records))
        for one in collection_changes(collection, self.changes(), self._queue_names):
            place = one.commit_sequence
            if until is None or (place <= until and (after is None or place > after)):
                yield one

    def fated_changes(self) -> Iterator[Row]:
        """Yield the changes of all transactions as these end, then those that do not end.

        Of a journal of Narayana also, at last, the decisions by resource. Memory grows with open
        transactions, and with the ids of live records of collections.
        """
        size = configured_size(self.journal.files, self._options.settings)
        found = rows_of(self.journal, self.source.path, size)
        kept = collection_rows(self.collections(), found, self._queue_names)
        return chain(kept, decision_rows(self._coordinated, ()))

    def fated_batches(self, rows: int) -> Iterator[pa.RecordBatch] | None:
        """Return all of `fated_changes` in the same order.

        Messages are not decoded: see `decoded`. None of short and odd journals, and of those that
        hold what other applications keep.
        """
        known = self.holds_messages or not self.collections()
        if not known or not self._sees_every_record:
            return None
        from tallystick.systems.jboss.columns.changes import fated_batches
        from tallystick.systems.jboss.columns.messages import message_batches

        raw = fated_batches(self.journal, self.source.path, rows)
        return message_batches(raw, self._queue_names, rows) if self.collections() else raw

    def decoded(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return rows that `fated_batches` gave with all that they have in ``values``."""
        from tallystick.systems.jboss.columns.messages import decoded

        return decoded(batch) if "names" in batch.schema.names else [batch]

    @property
    def holds_messages(self) -> bool:
        """Whether it is a journal of messages."""
        return self._extension in MESSAGE_EXTENSIONS

    def write_import(self, out: IO[bytes]) -> tuple[Counter[str], Counter[str], str]:
        """Write what ``artemis data imp`` sends to a broker; memory grows with what waits."""
        size = configured_size(self.journal.files, self._options.settings)
        waiting = Waiting()
        prepared = {
            str(one.transaction)
            for one in self.transactions()
            if one.evidence_type == RecordType.PREPARE.name
        }
        waiting.take(rows_of(self.journal, self.source.path, size), prepared)
        queues, addresses = (
            {one.key: one.values for one in self._bound(name)} for name in ("queues", "addresses")
        )
        brought, left = write_import(
            out,
            waiting,
            {key: one for key, one in queues.items() if one is not None},
            [one for one in addresses.values() if one is not None],
            folder_of("large-messages", self.source.path),
            paged_messages(folder_of("paging", self.source.path), waiting.left),
        )
        return brought, left, NOTE

    def rows_before(self, collection: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield nothing: a journal holds all that is live."""
        del collection
        return iter(())

    def _queue_names(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for folder, files in bindings_beside(self.source.path):
            source = LogSource(self.source.system, folder, tuple(files))
            found |= queue_names(JournalReading(source, self._options).changes())
        return found

    @cached_property
    def _around(self) -> Surroundings:
        facts = self._facts
        known = Known(
            self._listed_contents,
            self._waiting,
            self._contents_in_doubt,
            facts.queues,
            facts.dropped,
            facts.foreign,
            facts.is_older,
            facts.never_took,
            facts.never_added,
            lambda: facts.finished,
        )
        return surroundings_of(self.source.path, self._extension, known)

    @cached_property
    def _facts(self) -> BrokerJournal:
        this = self._this
        return BrokerJournal(
            self._extension,
            is_there=bool(self.source.files),
            records=lambda: this.records(),
            changes=lambda: this.changes(),
            evidence=lambda: this._evidence,
            bindings=lambda folder: this._bindings(folder)._facts,
        )

    def _bound(self, collection: str) -> Iterator[Change]:
        found = self._bindings(folder_of(BINDINGS, self.source.path))
        return found.changes_of(collection) if found.source.files else iter(())

    def _bindings(self, folder: str) -> JournalReading:
        """Return the reading of the bindings in a folder; it is made once."""
        if folder not in self._beside:
            names = filter(is_bindings, sorted(names_beside(folder)))
            source = LogSource(
                self.source.system, folder, tuple(f"{folder}/{name}" for name in names)
            )
            self._beside[folder] = JournalReading(source, self._options)
        return self._beside[folder]

    def _listed(self) -> Iterable[Item]:
        """Return the records that a load lists."""
        if (found := self._loaded_in_runs) is not None:
            from tallystick.systems.jboss.runs.analysis import listed

            return listed(self.journal, found.analyser.analysis.live)[0]
        return self._engine.live

    def _listed_contents(self, user_types: UserTypes) -> Iterable[Contents]:
        """Return the contents of the records of these user types that a load lists."""
        if (found := self._loaded_in_runs) is not None:
            return found.listed.contents(self.journal.ordered(), user_types)
        return (contents_of(one) for one in self._engine.live if one.user_type in user_types)

    def _waiting(self, large: Set[int]) -> tuple[Counter[int], Set[int]]:
        """Return how many messages wait for each queue, and which of the large ones for any."""
        if (found := self._loaded_in_runs) is not None:
            return found.listed.waiting(large)
        return waiting(self._listed_contents(REFERENCES), large)

    def _contents_in_doubt(self) -> Iterator[Contents]:
        """Yield the contents of the records that prepared transactions add."""
        found = self._loaded_in_runs
        prepared = self._engine.prepared if found is None else found.analyser.replay.in_doubt()
        return (contents_of(placed.item) for one in prepared for placed in one.records)

    def findings(self) -> Sequence[Finding]:
        """Return the findings: differences, damage, files, transactions."""
        return self._findings

    def verdict(self) -> Verdict:
        """Return the engine's and the strict verdict."""
        engine = Deferred(lambda: engine_report(self._engine))
        found = verdict(self._evidence, self._findings, self.format, engine, self._own)
        if self._options.log_only:
            return found
        return judged_whole(found, self._around, self._decided)

    @cached_property
    def judgement(self) -> Judgement:
        """The answer about the broker, or about a journal alone."""
        return self._own if self._options.log_only else joined(self._decided, self._around)

    @cached_property
    def _own(self) -> Judgement:
        return judgement(self._evidence, self._findings)

    @cached_property
    def _decided(self) -> Judgement:
        """The answer about the journal, with the ids that the broker gave by its bindings."""
        if self._own.reason != IDS_MISSING:
            return self._own
        given = None
        for one in self._around.parts:
            if one.part == BINDINGS and one.there and one.answer is Answer.SAFE:
                given = ids_given(self._bindings(one.path)._facts.id_notes)
        return judgement(replace(self._evidence, given=given), self._findings)

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records as Arrow batches in which ``attributes`` is null.

        A split is scanned from the start of its file: no record can be found from the middle.
        """
        from tallystick.systems.jboss.columns.batches import batches

        return batches(self.journal, self.source.path, split, rows)

    def close_split(self, split: Split, rows: int) -> ClosedSplit:
        """Return the transactions and changes that begin and end in a split."""
        from tallystick.systems.jboss.columns.closing import ClosingSplit

        closing = ClosingSplit(self.journal, self.source.path, split, rows, self._kept_types)
        return ClosedSplit(closing.batches(), closing.rest)

    def close_rests(
        self, rests: Sequence[bytes], rows: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the transactions and changes that no split closed alone.

        Raises:
            NotClosedInPartsError: the whole journal has to be read.
        """
        from tallystick.arrow.schemas import batches_of_transactions
        from tallystick.systems.jboss.columns.closing import batches_of_rests

        yield from batches_of_rests(self.journal, self.source.path, rests, rows)
        for batch in batches_of_transactions(self._coordinated, self.clock.value, rows):
            yield "transactions", batch

    def knowing(self, rests: Sequence[bytes]) -> Self:
        """Return the journal as a reading that takes from splits what its records leave.

        Raises:
            NotClosedInPartsError: the whole journal has to be read.
        """
        from tallystick.systems.jboss.columns.closing import known_parts
        from tallystick.systems.jboss.runs.analysis import analyse_in_runs

        parts = known_parts(rests)
        known = type(self)(self.source, self._options)
        found = analyse_in_runs(known.journal, self._kept_types, parts)
        require(found is not None and found.loaded_alike, "a load does not see the same records")
        known._in_runs = found
        return known

    def splits(self, target_bytes: int) -> Sequence[Split]:
        """Return parts of the data files of about ``target_bytes``."""
        return splits(self.journal, target_bytes)
