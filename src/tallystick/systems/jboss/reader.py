"""One journal, read: files, records, transactions, changes, findings and both verdicts.

In: a `LogSource` and options. Out: a `JournalReading`, which never writes a byte.
Settings: ``file_size`` and ``user_version`` as the journal was configured, ``generation`` to
overrule what the bytes say; without them the reader takes what most files agree with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tallystick.records import (
    Change,
    Clock,
    Finding,
    LogFile,
    Outcome,
    Record,
    Transaction,
    Verdict,
)
from tallystick.systems.jboss.engine.loader import load
from tallystick.systems.jboss.engine.reclaim import redundancy
from tallystick.systems.jboss.format.narayana import xid
from tallystick.systems.jboss.read.analysis import analyse, log_file, read_files, whole_file
from tallystick.systems.jboss.read.damaged_records import records_of
from tallystick.systems.jboss.read.files import JournalFiles, open_files
from tallystick.systems.jboss.read.generations import GENERATIONS
from tallystick.systems.jboss.read.records import to_change
from tallystick.systems.jboss.read.replay import Placed, Replay
from tallystick.systems.jboss.read.transactions import Judgement, transactions
from tallystick.systems.jboss.verdict.findings import findings
from tallystick.systems.jboss.verdict.strict import verdict
from tallystick.systems.protocol import LogSource, ReadOptions, Split

if TYPE_CHECKING:
    import pyarrow as pa


class JournalReading:
    """A `LogReading` of one circular journal.

    Everything but ``records``, ``changes`` and ``batches`` keeps the journal's live records in
    memory, as its own loader does.
    """

    clock = Clock.NONE

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        self.source = source
        self._options = options

    @cached_property
    def journal(self) -> JournalFiles:
        """The files with the generation that the bytes, or the settings, tell."""
        journal = open_files(self.source)
        if name := self._options.settings.get("generation"):
            journal.choose(GENERATIONS[name])
        return journal

    @property
    def format(self) -> str:
        generation = self.journal.generation
        return f"{generation.name} ({generation.title})"

    @cached_property
    def _judgement(self) -> Judgement:
        journal = self.journal
        engine = load(journal.files, journal.generation, self._options.settings)
        return Judgement(self.source.path, journal, analyse(journal), engine)

    @cached_property
    def _findings(self) -> list[Finding]:
        return list(findings(self._judgement))

    def files(self) -> Sequence[LogFile]:
        """Data files by ascending id, then what a load would not read."""
        analysis, refused = self._judgement.analysis, self._judgement.engine.error
        judged = zip(analysis.readings, redundancy(analysis, refused), strict=True)
        files = [log_file(reading, order, *may) for order, (reading, may) in enumerate(judged)]
        for file in self.journal.files:
            if file.header is None:
                why = "shorter than a header"
                files.append(
                    whole_file(
                        file.path, file.size, "journal file", len(files), Outcome.UNUSED, why
                    )
                )
        for path, role in self.journal.aside.items():
            size = len(self.journal.sources.data(path))
            why = "a load carries it out, renames it or deletes it"
            outcome = Outcome.VALID if path.endswith(".ctr") else Outcome.STALE
            files.append(whole_file(path, size, role, len(files), outcome, why))
        return files

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Records by file id and offset; with ``salvage`` stale and dropped ones too."""
        for reading in read_files(self.journal):
            yield from records_of(reading, salvage=salvage)

    def transactions(self) -> Iterable[Transaction]:
        return transactions(self._judgement)

    def changes(self) -> Iterator[Change]:
        """Committed changes as the loader's callbacks see them."""
        readings = read_files(self.journal)
        stamps = [file.stamp for file in self.journal.ordered()]
        replay = Replay(self.journal.generation.shape, stamps)
        sequence = 0
        for order, reading in enumerate(readings):
            for one in reading.judged:
                if one.outcome is not Outcome.VALID or one.dropped:
                    continue
                placed = Placed(reading.item(one), order, reading.file.stamp, reading.file.path)
                effects, ended = replay.feed(placed)
                sequence += bool(effects)
                prepared = ended.open.prepared if ended is not None else None
                known = xid(prepared.item.extra or b"") if prepared is not None else None
                for ordinal, effect in enumerate(effects):
                    item, path = effect.placed.item, effect.placed.path
                    gtrid = known.gtrid if known else None
                    yield to_change(item, path, self.source.path, sequence, ordinal, gtrid)

    def findings(self) -> Sequence[Finding]:
        return self._findings

    def verdict(self) -> Verdict:
        return verdict(self._judgement, self._findings, self.format)

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches; ``attributes`` is null in them. A split is walked to from the start of
        its file, as nothing in the format marks a record from the middle."""
        from tallystick.systems.jboss.columns.batches import batches

        return batches(self.journal, self.source.path, split, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        return self.journal.splits(target_bytes)
