"""Reading one Bitronix journal: files, records, transactions, findings, both verdicts.

In: a `LogSource` of one or two files. Out: what `LogReading` promises. Nothing is written, and
files are opened only while they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystick.errors import LogUnreadableError
from tallystick.records import Change, Clock, Finding, LogFile, Record, Span, Transaction, Verdict
from tallystick.storage.source import open_source, read_head
from tallystick.systems.bitronix.format.layout import (
    HEADER_LENGTH,
    RECORD_HEAD,
    WALL_CLOCK_MIN,
    FileHeader,
)
from tallystick.systems.bitronix.read import transactions as by_gtrid
from tallystick.systems.bitronix.read.detect import part_number
from tallystick.systems.bitronix.read.files import Pair, Part
from tallystick.systems.bitronix.read.records import record_of
from tallystick.systems.bitronix.read.scan import Piece
from tallystick.systems.bitronix.verdict import findings as about
from tallystick.systems.bitronix.verdict import strict as judged
from tallystick.systems.protocol import LogSource, ReadOptions, Split, unreadable_finding

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD = HEADER_LENGTH + RECORD_HEAD.size


@dataclass(slots=True)
class BitronixReading:
    """One journal. Everything but `files` and `verdict` keeps little more than what is open."""

    source: LogSource
    options: ReadOptions
    _clock: Clock | None = field(default=None, repr=False)

    @property
    def format(self) -> str:
        return judged.FORMAT

    @property
    def clock(self) -> Clock:
        """Since boot (2.1.3, 2.1.4) or since 1970 (3.0 and others): by the numbers themselves."""
        if self._clock is None:
            times = [time for path in self.source.files for time in _times(path)]
            wall = max(times, default=0) >= WALL_CLOCK_MIN
            self._clock = Clock.WALL_MS if wall else Clock.BOOT_MS
        return self._clock

    def files(self) -> Sequence[LogFile]:
        """The earlier part, then the one in use."""
        with self._opened() as journal:
            return [
                _log_file(part, order, list(part.pieces(journal.pair.newest)), self.clock)
                for order, part in enumerate(journal.pair.order())
                if part.data is not None
            ]

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Records that 2.1.4 reaches when it skips damage, and damaged stretches; earlier part
        first. ``salvage`` adds those that it has lost step for, does not count, or has left
        behind in an earlier life of the file."""
        with self._opened() as journal:
            for part in journal.pair.order():
                pieces = part.pieces(journal.pair.newest) if salvage else part.counted()
                for piece in pieces:
                    record = record_of(part.path or "", piece)
                    if record is not None and (salvage or not record.attributes.get("salvaged")):
                        yield record

    def transactions(self) -> Iterator[Transaction]:
        """One per gtrid, from both parts. Memory grows with the gtrids of the journal."""
        with self._opened() as journal:
            yield from by_gtrid.transactions(journal.pair, self.source.path)

    def changes(self) -> Sequence[Change]:
        """None: a coordinator's journal holds decisions, not data."""
        return ()

    def findings(self) -> Sequence[Finding]:
        with self._opened() as journal:
            return self._findings(journal)

    def verdict(self) -> Verdict:
        """Both verdicts. Memory grows with the records, all of which the engine's part lists."""
        with self._opened(keeps=True) as journal:
            return judged.verdict(journal, self._findings(journal))

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """The rows of ``records()``, decoded by a compiled kernel; ``attributes`` is null."""
        from tallystick.systems.bitronix.columns.batches import batches

        log, clock = self.source.path, self.clock
        if split is not None:
            with open_source(split.file) as opened:
                yield from batches(opened.data, split.file, log, clock, rows)
            return
        with self._opened() as journal:
            for part in journal.pair.order():
                if part.data is not None and part.path is not None:
                    yield from batches(part.data, part.path, log, clock, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:  # noqa: ARG002 - files are small
        """One per file: whether the manager is still in step depends on all that lies before."""
        return [Split(path, 0, 1 << 62) for path in self.source.files]

    # -- opening -------------------------------------------------------------------------------

    @contextmanager
    def _opened(self, *, keeps: bool = False) -> Iterator[about.Journal]:
        with ExitStack() as stack:
            parts = []
            for number, path in self._numbered():
                data = None
                with suppress(LogUnreadableError):  # a finding tells it
                    data = None if path is None else stack.enter_context(open_source(path)).data
                parts.append(Part(number, path, data, keeps))
            yield about.Journal(self.source.path, Pair((parts[0], parts[1])))

    def _numbered(self) -> list[tuple[int, str | None]]:
        """Both part numbers with the path of each, by the names; None for a missing file."""
        paths: list[str | None] = list(self.source.files)
        if len(paths) == 1:
            other = part_number(self.source.files[0]) == 2
            paths = [None, *paths] if other else [*paths, None]
        return list(enumerate(paths, 1))

    def _findings(self, journal: about.Journal) -> list[Finding]:
        return [*self._unreadable(), *about.findings(journal)]

    def _unreadable(self) -> Iterator[Finding]:
        for path in self.source.files:
            try:
                read_head(path, 1)
            except LogUnreadableError as error:
                yield unreadable_finding("bitronix", self.source.path, error)


def _times(path: str) -> Iterator[int]:
    """The times near the start of a file: in its header and in its first record."""
    try:
        head = read_head(path, _HEAD)
    except LogUnreadableError:
        return
    header = FileHeader.decode(head)
    if header is not None:
        yield header.timestamp
    if header is not None and header.position > HEADER_LENGTH and len(head) == _HEAD:
        yield RECORD_HEAD.unpack_from(head, HEADER_LENGTH)[3]


def _log_file(part: Part, order: int, pieces: list[Piece], clock: Clock) -> LogFile:
    return LogFile(
        path=part.path or "",
        size=part.size,
        role=f"part {part.number}, {'in use' if order else 'passive'}",
        order=order,
        generation=None if part.header is None else part.header.timestamp,
        clock=clock,
        redundant=order == 0,
        why="its open decisions were copied at the change of files" if order == 0 else "in use",
        spans=_spans(pieces),
    )


def _spans(pieces: list[Piece]) -> tuple[Span, ...]:
    """Pieces with neighbours of one kind joined; they tile the file."""
    spans: list[Span] = []
    for piece in pieces:
        last = spans[-1] if spans else None
        kind = (piece.outcome, piece.what, piece.reason)
        if last is not None and (last.outcome, last.what, last.reason) == kind:
            length = last.length + piece.length
            spans[-1] = Span(last.offset, length, piece.outcome, piece.what, piece.reason)
        else:
            spans.append(Span(piece.offset, piece.length, *kind))
    return tuple(spans)
