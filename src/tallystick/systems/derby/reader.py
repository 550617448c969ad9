"""Reading one Derby log: files, records, transactions, changes, findings and both verdicts.

In: a `LogSource` and options (boot password, external key, ``settings``: encryptionAlgorithm,
derby_version). Out: everything a `LogReading` offers. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tallystick.records import (
    Change,
    Clock,
    Finding,
    Kind,
    LogFile,
    Outcome,
    Record,
    Span,
    Transaction,
    Verdict,
)
from tallystick.systems.derby.engine.formatting import spelled_fields
from tallystick.systems.derby.engine.recovery import Recovery, control_or_error, recover
from tallystick.systems.derby.format.layout import (
    HEADER_SIZE,
    Control,
    Group,
    decode_header,
    instant_text,
)
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read import changes, detect
from tallystick.systems.derby.read.analysis import Account
from tallystick.systems.derby.read.byte_ranges import Piece
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.scan import Walk
from tallystick.systems.derby.read.transactions import with_xid
from tallystick.systems.derby.verdict import differences, findings
from tallystick.systems.derby.verdict import strict as verdict
from tallystick.systems.protocol import LogSource, ReadOptions, Split

if TYPE_CHECKING:
    import pyarrow as pa


class DerbyReading:
    """One log. Files are opened at first use and stay open while the reading lives."""

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        self._source = source
        self._options = options
        self.whole: dict[int, int] = {}
        """Up to where the vectorised walk found each file whole."""

    @property
    def source(self) -> LogSource:
        return self._source

    @property
    def format(self) -> str:
        """The store version in the control file, and whether the log is encrypted."""
        versions = (control_or_error(control.data) for control in self.log.controls)
        known = [one for one in versions if isinstance(one, Control)]
        name = f"{known[0].major}.{known[0].minor}" if known else "unknown version"
        return f"{name}, encrypted" if self.log.encrypted else name

    @property
    def clock(self) -> Clock:
        return Clock.NONE

    @cached_property
    def _gathered(self) -> detect.Gathered:
        return detect.Gathered(self._source, self._options)

    @property
    def log(self) -> LogFiles:
        """The opened files."""
        return self._gathered.log

    @cached_property
    def recovery(self) -> Recovery:
        """What a boot would do."""
        return recover(self.log, self._options.settings)

    @cached_property
    def walk(self) -> Walk:
        """The walk over all bytes."""
        return Walk(self.log, self.recovery)

    @cached_property
    def _account(self) -> Account:
        mark = self.recovery.redo_mark or self.recovery.checkpoint
        return Account(mark).take(self.walk)

    def files(self) -> Sequence[LogFile]:
        """Log files by number, then the control files."""
        logs = [self._log_file(file, order) for order, file in enumerate(self.log.files.values())]
        return [*logs, *self._control_files(len(logs))]

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Every record in log order; see `LogReading`. Transactions and changes behind damage and
        records of stale files come with ``salvage`` only."""
        for piece in self.walk.pieces():
            if piece.envelope is None:
                continue
            beyond = piece.salvaged or piece.outcome is Outcome.STALE
            if salvage or not beyond:
                yield record_of(piece, beyond)

    def transactions(self) -> Iterable[Transaction]:
        """In order of first records; memory grows with their number."""
        for one in self._account.histories.all:
            yield one.transaction(self._source.path)

    def changes(self) -> Iterable[Change]:
        """Committed changes of table rows; memory grows with open transactions."""
        believed = (piece for piece in self.walk.pieces() if self._believed(piece))
        return changes.committed(believed, self._source.path)

    @staticmethod
    def _believed(piece: Piece) -> bool:
        return piece.outcome is Outcome.VALID and not piece.salvaged

    def findings(self) -> Sequence[Finding]:
        found = findings.find_all(self.log, self._source.path, self._account, self.recovery)
        return [*self._gathered.problems, *found]

    def verdict(self) -> Verdict:
        """Both judgements and their differences."""
        return Verdict(
            "derby",
            self._source.path,
            self.format,
            verdict.engine(self.log, self.recovery),
            verdict.strict(self._account, self.recovery, list(self.findings())),
            differences.differences(self._account, self.recovery),
        )

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """See `tallystick.systems.derby.columns.splits`."""
        from tallystick.systems.derby.columns import splits as batches

        return batches.batches(self, split, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        """Parts of log files that begin at a group."""
        from tallystick.systems.derby.columns import splits as batches

        return batches.splits(self.log, target_bytes)

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
            spans=tuple(merged(spans_of(self.walk.file_pieces(file.number)))),
        )

    def _control_files(self, order: int) -> list[LogFile]:
        found = []
        for place, control in enumerate(self.log.controls):
            content = control_or_error(control.data)
            problem = "" if isinstance(content, Control) else content
            outcome = Outcome.CORRUPT if problem else Outcome.VALID
            size = len(control.data)
            spans = (Span(0, size, outcome, "control file", problem),) if size else ()
            found.append(LogFile(control.path, size, "control file", order + place, spans=spans))
        return found


def spans_of(pieces: Iterable[Piece]) -> Iterator[Span]:
    """Pieces as spans; empty ones are left out."""
    for piece in pieces:
        if piece.length:
            what = "records" if piece.envelope is not None else piece.what
            yield Span(piece.offset, piece.length, piece.outcome, what, piece.reason)


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Neighbours of one kind as one span."""
    current: Span | None = None
    for span in spans:
        if current is None:
            current = span
        elif _alike(current, span):
            current = Span(
                current.offset,
                current.length + span.length,
                span.outcome,
                span.what,
                span.reason,
            )
        else:
            yield current
            current = span
    if current is not None:
        yield current


def _alike(one: Span, other: Span) -> bool:
    return (one.outcome, one.what, one.reason) == (other.outcome, other.what, other.reason)


def record_of(piece: Piece, beyond: bool = False) -> Record:
    """The record of a piece that has an envelope; attributes carry what the oracle lists."""
    envelope = piece.envelope
    assert envelope is not None
    body = piece.body
    record = Record(
        "derby",
        piece.file.path,
        piece.offset,
        piece.length,
        piece.outcome,
        body.kind if body else Kind.UNKNOWN,
        body.name if body else "sealed",
        sequence=envelope.instant,
        transaction=body.transaction if body else None,
        record_id=body.fields.get("recordId") if body else None,
        body=piece.clear,
        attributes=_attributes(piece, body),
    )
    if beyond:
        record.attributes["salvaged"] = True
    return with_xid(record, body.xid if body else None)


def _attributes(piece: Piece, body: Body | None) -> dict[str, Any]:
    envelope = piece.envelope
    assert envelope is not None
    found: dict[str, Any] = {"i": instant_text(piece.place), "len": envelope.length}
    if piece.reason:
        found["reason"] = piece.reason
    if body is None:
        return found
    found |= {"group": int(body.group), "fid": body.operation, "body": body.head}
    found["flags"] = flag_text(body.group)
    found["fields"] = spelled_fields(body.operation, body.fields)
    if piece.checksum_valid is not None:
        return found | {"valid": piece.checksum_valid}
    found["in_scan"] = piece.in_scan
    if body.undo is not None:
        return found | {"undo": instant_text(body.undo), "pad": body.pad}
    return found | {"opt": len(body.optional or b"")}


def flag_text(group: Group) -> str:
    """Names of the group's bits, lowest first."""
    return "|".join(flag.name for flag in Group if flag & group and flag.name)
