"""Files of notes as records, findings and a verdict; never writes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyarrow import RecordBatch

from tallystick import records as r
from tallystick.arrow.schemas import record_batches
from tallystick.storage.source import open_source
from tallystick.systems.answers import Ground, Reason, judgement_of, reasons
from tallystick.systems.findings import Code, FindingBuilder, codes
from tallystick.systems.protocol import Folder, LogSource, Reading, ReadOptions, Split
from tests.systems.example.notes import MAGIC, Note, decode

CODES = codes(Code("torn-tail", r.Severity.WARNING, "The last note was not written whole."))
REASONS = reasons(Reason("notes-end", r.Answer.SAFE, "Every note but the last one is whole."))


def detect(folder: Folder) -> list[LogSource]:
    files = [entry for entry in folder.entries if entry.head.startswith(MAGIC)]
    return [LogSource("example", folder.path, (one.path,), one.name) for one in files]


@dataclass
class NotesReading(Reading):
    source: LogSource
    options: ReadOptions
    format = "notes 1"
    clock = r.Clock.NONE

    @cached_property
    def notes(self) -> list[Note]:
        with open_source(self.source.files[0]) as source:
            return decode(bytes(source.data))

    def files(self) -> Sequence[r.LogFile]:
        spans = [r.Span(0, len(MAGIC), r.Outcome.VALID, "file header")]
        spans += [r.Span(n.offset, n.size, n.outcome, "note", n.reason) for n in self.notes]
        size = sum(span.length for span in spans)
        return [r.LogFile(self.source.files[0], size, "notes", 0, spans=tuple(spans))]

    def records(self, *, salvage: bool = False) -> Iterator[r.Record]:
        file, kind = self.source.files[0], r.Kind.ADD
        for n in self.notes:
            yield r.Record("example", file, n.offset, n.size, n.outcome, kind, "note", body=n.body)

    def transactions(self) -> Sequence[r.Transaction]:
        return ()

    def changes(self) -> Sequence[r.Change]:
        return ()

    def findings(self) -> Sequence[r.Finding]:
        finding = FindingBuilder("example", self.source.path, CODES, self.source.files[0])
        return [finding("torn-tail", n.reason, offset=n.offset) for n in self.notes if n.reason]

    def verdict(self) -> r.Verdict:
        strict = {"records": {"valid": len(self.notes) - len(self.findings())}}
        answer = judgement_of(REASONS, CODES, [Ground("notes-end")], self.findings())
        return r.Verdict("example", self.source.path, self.format, {}, strict, (), answer)

    # A file is one split: a note is found from the start of the file only.
    def batches(self, split: Split | None = None, *, rows: int = 9_999) -> Iterator[RecordBatch]:
        yield from record_batches(self.records(), self.source.path, self.clock.value, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        return [Split(self.source.files[0], 0, self.files()[0].size)]
