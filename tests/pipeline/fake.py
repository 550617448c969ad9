"""A log system of a few lines of text, to test packages that must not know a real one.

A log is a folder with files that begin with the line ``FAKE``. Each further line is a record:
``STATE KEY [GTRID BQUAL]``, with ids in hex; a line ``broken`` is damage, ``refuse`` an
error in the middle of reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tallystick.arrow.schemas import record_batches
from tallystick.errors import CorruptLogError
from tallystick.records import (
    Answer,
    AtStake,
    Change,
    Clock,
    Difference,
    Finding,
    Kind,
    LogFile,
    Outcome,
    Record,
    Severity,
    Span,
    State,
    Transaction,
    Verdict,
)
from tallystick.storage.source import open_source
from tallystick.systems.answers import Ground, Reason, judgement_of, reasons
from tallystick.systems.findings import Code, codes
from tallystick.systems.protocol import (
    Folder,
    LogSource,
    Missing,
    Reached,
    Reading,
    ReadOptions,
    Split,
    System,
)

if TYPE_CHECKING:
    import pyarrow as pa

MARK = b"FAKE\n"

REASONS = reasons(
    Reason("skipped", Answer.LOSES, "Broken lines are skipped."),
    Reason("ended", Answer.SAFE, "Every line is whole."),
)
_KINDS = {"committed": Kind.COMMIT, "prepared": Kind.PREPARE, "active": Kind.BEGIN}


def detect(folder: Folder) -> list[LogSource]:
    """Return one log with all files of the folder that begin with the mark."""
    files = tuple(entry.path for entry in folder.entries if entry.head.startswith(MARK))
    return [LogSource("fake", folder.path, files)] if files else []


@dataclass
class FakeReading(Reading):
    """One folder of the fake system."""

    source: LogSource
    options: ReadOptions
    format: str = "1"
    clock: Clock = Clock.WALL_MS

    def number(self, path: str) -> int:
        """A file is named by its number."""
        return int(Path(path).name.partition(".")[0])

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Files may go at any time."""

    def files(self) -> Sequence[LogFile]:
        found = []
        for order, path in enumerate(self.source.files):
            spans = tuple(self._spans(path))
            found.append(LogFile(path, spans[-1].end, "log file", order, spans=spans))
        return found

    def _spans(self, path: str) -> Iterator[Span]:
        yield Span(0, len(MARK), Outcome.VALID, "file header")
        for record in self._records_of(path):
            reason = "" if record.outcome is Outcome.VALID else "the line says so"
            yield Span(record.offset, record.length, record.outcome, "record", reason)

    def _records_of(self, path: str) -> Iterator[Record]:
        with open_source(path) as source:
            lines = bytes(source.data).splitlines(keepends=True)
        offset = len(MARK)
        for number, line in enumerate(lines[1:]):
            yield self._record(path, offset, number, line)
            offset += len(line)

    def _record(self, path: str, offset: int, number: int, line: bytes) -> Record:
        words = line.decode().split()
        if words[0] == "refuse":
            raise CorruptLogError("the line refuses", file=path, offset=offset)
        outcome = Outcome.CORRUPT if words[0] == "broken" else Outcome.VALID
        record = Record("fake", path, offset, len(line), outcome, Kind.UNKNOWN, words[0])
        record.sequence = number
        record.time = 1_000 + number
        if outcome is Outcome.VALID:
            record.kind = _KINDS[words[0]]
            record.transaction = int(words[1])
            record.body = line
            if len(words) > 2:
                record.format_id = 7
                record.gtrid, record.bqual = map(bytes.fromhex, words[2:4])
        return record

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        for path in self.source.files:
            for record in self._records_of(path):
                if salvage and record.outcome is Outcome.CORRUPT:
                    record.attributes["salvaged"] = True
                yield record

    def transactions(self) -> Iterable[Transaction]:
        last = {record.transaction: record for record in self.records() if record.transaction}
        for number, record in last.items():
            yield Transaction(
                "fake",
                self.source.path,
                str(number),
                State(record.type),
                transaction=number,
                format_id=record.format_id,
                gtrid=record.gtrid,
                bqual=record.bqual,
                last_time=record.time,
                records=1,
                evidence=(record.file, record.offset),
                evidence_type=record.type,
            )

    def changes(self) -> Iterable[Change]:
        for record in self.records():
            if record.kind is Kind.COMMIT:
                yield Change(
                    "fake",
                    self.source.path,
                    record.sequence or 0,
                    0,
                    Kind.UPDATE,
                    "lines",
                    str(record.transaction),
                    record.file,
                    record.offset,
                    time=record.time,
                    after=record.body,
                )

    def findings(self) -> Sequence[Finding]:
        return [
            Finding(
                "broken-line",
                Severity.DAMAGE,
                "fake",
                self.source.path,
                "a line is broken",
                file=record.file,
                offset=record.offset,
                length=record.length,
                expected="a state",
                found="broken",
                advice="Mend the line",
                bytes_at_risk=record.length,
            )
            for record in self.records()
            if record.outcome is Outcome.CORRUPT
        ]

    def verdict(self) -> Verdict:
        broken = self.findings()
        states: dict[str, int] = {}
        for transaction in self.transactions():
            states[transaction.state.value] = states.get(transaction.state.value, 0) + 1
        strict = {
            "records": {"valid": sum(states.values()), "corrupt": len(broken)},
            "transactions": states,
            "in_doubt": states.get("prepared", 0),
            "lost": [{"offset": one.offset} for one in broken],
            "findings": {"broken-line": len(broken)} if broken else {},
        }
        differences = tuple(
            Difference("a broken line", "skips it", "damaged", "it is gone", file=one.file)
            for one in broken
        )
        ground = Ground("skipped" if broken else "ended", at_stake=AtStake(len(broken)))
        return Verdict(
            "fake",
            self.source.path,
            self.format,
            {"broken": len(broken)},
            strict,
            differences,
            judgement_of(REASONS, CODES, [ground], broken),
        )

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        records = (
            record
            for record in self.records()
            if split is None
            or (record.file == split.file and split.begin <= record.offset < split.end)
        )
        yield from record_batches(records, self.source.path, self.clock.value, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        return [
            Split(file.path, begin, min(begin + target_bytes, file.size))
            for file in self.files()
            for begin in range(0, file.size, target_bytes)
        ]


CODES = codes(Code("broken-line", Severity.DAMAGE, "A line is broken.", "Mend the line"))

SYSTEM = System(
    name="fake",
    title="Fake log",
    codes="tests.pipeline.fake:CODES",
    detector="tests.pipeline.fake:detect",
    reader="tests.pipeline.fake:FakeReading",
    clocks=frozenset({Clock.WALL_MS}),
)
