"""What one pass over the files of a journal proves.

In: the pieces of both files. Out: an `Evidence`: spans, findings, and the decisions that are open
over both files, and after each alone. Memory holds what is open or damaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from tallystick.records import Outcome, Span
from tallystick.systems.bitronix.engine.reached import reached_pieces
from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    CLOSING,
    COMMITTED,
    COMMITTING,
    MARKED_ROLLBACK,
    NO_TRANSACTION,
    PREPARED,
    PREPARING,
    ROLLING_BACK,
    split_gtrid,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.read.files import DualFiles, Part
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions
from tallystick.systems.bitronix.read.scan import REMAINS, RecordSpan, Stamp, stamp
from tallystick.systems.bitronix.read.spans import join
from tallystick.systems.bitronix.runs.pieces import apply, span_of
from tallystick.systems.bitronix.verdict.findings import (
    Details,
    about_files,
    about_server_ids,
    about_span,
    about_uncounted,
)
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.runs import RunCount

if TYPE_CHECKING:
    from tallystick.systems.bitronix.runs.known import KnownRecords
    from tallystick.systems.bitronix.runs.pieces import Piece

    ReadReached: TypeAlias = Callable[
        [Part, Stamp | None], Iterator[tuple[Piece | KnownRecords, bool]]
    ]

_SECTOR = 512
"""Bytes that a disk writes at once, or not at all."""
_ZEROS_MAX = 16
"""A part of a record begins with fewer zeros."""
_DECIDES_NOTHING = frozenset(
    {ACTIVE, PREPARING, PREPARED, COMMITTED, MARKED_ROLLBACK, ROLLING_BACK, NO_TRANSACTION}
)
"""The statuses of records that a restart may not know of, and nothing is lost or goes wrong."""


class PartEvidence:
    """What the pieces of one file prove.

    Attributes:
        spans: those of the file, neighbours of one kind joined.
        details: the findings about records and damaged ranges.
        records: how many there are, by outcome.
        servers: the server ids of the gtrids.
        whole: whether all that the header counts is whole.
        outlived: whether a whole record that no header counts is newer than all that they count.
            Behind a damaged one it is taken for a record of an earlier life of its file; but those
            are older, unless the clock began anew in between, as one that counts since boot does,
            and none had a life before the first change of files; nor had parts of one after a gap.
        alone: the decisions that this file alone leaves open; None where not all that its header
            counts is in chunks.
        uncounted: the whole records that no header counts, newer than all that they count.
    """

    def __init__(self, part: Part, pair: DualFiles) -> None:
        self.spans: list[Span] = []
        self.details = Details()
        self.records: Counter[str] = Counter()
        self.servers: set[str | None] = set()
        self.count = RunCount()
        self.whole, self.outlived = True, False
        self.alone: OpenDecisions | None = None
        self.uncounted: list[RecordSpan] = []
        self._pair, self._damaged = pair, False
        self._counted_end = self._written_end = part.counted_end
        self._in_chunks = part.header is not None and part.header.position == part.counted_end

    def read(
        self, part: Part, decisions: OpenDecisions, build: FindingBuilder, read: ReadReached
    ) -> None:
        """Read the file, and apply its records to the decisions that are open before it."""
        alone = OpenDecisions()
        for piece, reached in read(part, self._pair.newest):
            join(self.spans, span_of(piece))
            apply(piece, decisions)
            if isinstance(piece, RecordSpan):
                self._take_span(piece)
                if piece.whole is not None and not piece.counted:
                    self.uncounted.append(piece)
                    continue
                for one in about_span(build, part, piece, reached, self._damaged):
                    self.details.add(one)
                self._damaged |= piece.is_damage
            else:
                if self._in_chunks:
                    piece.decide(alone)
                self.records[Outcome.VALID.value] += piece.count
                self.count.in_runs += piece.count
                self.servers |= {split_gtrid(gtrid).server_id for gtrid in piece.servers()}
        self.alone = alone if self._in_chunks else None

    def unforced(self) -> bool:
        """Return whether a crash leaves the records that no header counts, of the file in use.

        The manager writes a record, then the position that counts it, and then forces both: so a
        kill leaves a record that is not counted (3.0 writes several at a time), a power cut all
        since the last force, and nobody was told of any of them. A transaction over two resources
        that is closed there was forced with all before it: then the position went back.
        """
        forced: set[bytes] = set()
        for one in self.records_not_counted():
            if one.status == COMMITTING and len(one.unique_names) > 1:
                forced.add(one.gtrid)
            elif one.status in CLOSING and one.gtrid in forced:
                return False
        return self.whole and bool(self.uncounted)

    def records_not_counted(self) -> Iterator[TransactionLogRecord]:
        """Yield those of `uncounted`."""
        return (span.record for span in self.uncounted if span.record is not None)

    def _take_span(self, span: RecordSpan) -> None:
        if span.record is not None or span.is_damage:
            self.records[span.outcome.value] += span.count
            self.count.one_by_one += span.count
        if span.whole is not None:
            self._written_end = max(self._written_end, span.end)
            self.servers.add(split_gtrid(span.whole.gtrid).server_id)
        if span.offset < self._counted_end:
            # The header's span, at 0, is no record.
            self._in_chunks = self._in_chunks and not span.offset
            self.whole = self.whole and span.outcome is Outcome.VALID and span.counted
        if span.record is not None and not span.counted:
            newest = self._pair.newest
            newer = newest is None or stamp(span.record) > newest
            outlived = newer and (self._pair.counts_since_1970 or self._pair.no_use_before())
            self.outlived |= span.whole is not None or outlived
        elif span.what == REMAINS and self._pair.no_use_before():
            self.outlived |= not self._is_unfinished(span)

    def _is_unfinished(self, remains: RecordSpan) -> bool:
        """Return whether a write that a crash ended leaves parts of records after what is counted.

        They follow it, or the one sector is lacking in which that ends: nothing was here before.
        """
        gap = remains.offset - self._written_end
        return gap < _ZEROS_MAX or (gap < _SECTOR and remains.offset % _SECTOR < _ZEROS_MAX)


class Evidence:
    """What the files of a journal prove together.

    Args:
        pair: both files.
        build: makes findings.
        read: gives the pieces of a file as `reached_pieces` does.

    Attributes:
        parts: that of part 1 and of part 2.
        decisions: those that are open over both.
        findings: all about the bytes.
        unforced: the gtrids of the records at the end of the file in use that no header counts,
            where a crash leaves them so: none of them was acknowledged.
    """

    def __init__(
        self, pair: DualFiles, build: FindingBuilder, read: ReadReached = reached_pieces
    ) -> None:
        self.decisions = OpenDecisions()
        found: dict[int, PartEvidence] = {}
        for part in pair.order():
            found[part.number] = PartEvidence(part, pair)
            found[part.number].read(part, self.decisions, build, read)
        self.parts = found[1], found[2]
        self.findings = list(about_files(pair, build))
        later = found[pair.order()[1].number]
        left = [*later.records_not_counted()] if later.unforced() else []
        self.unforced = {one.gtrid for one in left}
        self._notes_only = bool(left) and all(one.status in _DECIDES_NOTHING for one in left)
        self._later = later
        for part, one in zip(pair.parts, self.parts, strict=True):
            for span in one.uncounted:
                for about in about_uncounted(
                    build, part, span, unforced=bool(left and one is later)
                ):
                    one.details.add(about)
            self.findings += one.details.findings(build, part)
        self.findings += about_server_ids(set().union(*(one.servers for one in self.parts)), build)

    def records(self) -> dict[str, int]:
        """Return how many records there are, by outcome."""
        one, two = (part.records for part in self.parts)
        return {outcome.value: one[outcome.value] + two[outcome.value] for outcome in Outcome}

    def proves_its_end(self) -> bool:
        """Return whether all that is counted is whole, and nothing newer follows it."""
        return all(
            part.whole and (not part.outlived or self.ends_in_notes(part)) for part in self.parts
        )

    def ends_in_notes(self, part: PartEvidence | None = None) -> bool:
        """Return whether records follow that no header counts, as a crash leaves, and no decision.

        Those that close a commit come after its branches are committed: a restart that does not
        know of them finds none that is left.
        """
        return self._notes_only and part in (None, self._later)

    @property
    def run_count(self) -> RunCount:
        """How many records were read in runs."""
        counts = [part.count for part in self.parts]
        return RunCount(sum(c.in_runs for c in counts), sum(c.one_by_one for c in counts))
