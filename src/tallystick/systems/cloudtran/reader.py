"""A block log read: records, transactions, changes, findings and both verdicts.

In: the files of one log. Out: what `tallystick.systems.protocol.LogReading` promises. Nothing is
written. One pass over all files gives files, findings and verdict; its memory grows with the
number of blocks (for the spans) and with open transactions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from heapq import merge
from typing import TYPE_CHECKING, TypeVar

from tallystick.errors import LogUnreadableError, UnsupportedFormatError
from tallystick.records import (
    Change,
    Clock,
    Finding,
    LogFile,
    Outcome,
    Record,
    Span,
    Transaction,
    Verdict,
)
from tallystick.storage.source import ByteSource, open_source, read_head
from tallystick.systems.cloudtran.format.layout import (
    BLOCK_SIZES,
    SIGNATURE,
    SIGNATURE_SIZE,
    SYSTEM_NAME,
    UNPACKED_MAX,
)
from tallystick.systems.cloudtran.read.analysis import Survey
from tallystick.systems.cloudtran.read.block_order import ANY_SERIAL, Part, Sighting, sightings
from tallystick.systems.cloudtran.read.block_size import find_block_size
from tallystick.systems.cloudtran.read.detect import file_parts, signature_of
from tallystick.systems.cloudtran.read.header_repair import BlockFinder
from tallystick.systems.cloudtran.read.records import (
    believed,
    block_outcome,
    block_records,
    block_spans,
)
from tallystick.systems.cloudtran.read.scan import FileScan
from tallystick.systems.cloudtran.read.transactions import (
    carried_changes,
    fold_transactions,
    plain_changes,
)
from tallystick.systems.cloudtran.verdict.strict import (
    differences,
    engine_verdict,
    findings,
    strict_verdict,
)
from tallystick.systems.protocol import LogSource, ReadOptions, Split, unreadable_finding

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "block log, version 1"
BEGINNING_SIZE = 2 << 20
"""Bytes of a file that are read to find signature and disk block size."""
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Form:
    """What the files do not say and a reader has to know."""

    signature: bytes
    block_size: int
    unpacked_max: int


@dataclass(slots=True)
class Picture:
    """What one pass over all files gives."""

    survey: Survey
    files: list[LogFile]
    outcomes: Counter[str]


class CloudtranReading:
    """One block log. ``options.settings`` may give ``signature`` (128 hex digits),
    ``disk_block_size`` and ``max_transaction_size`` (bytes); they are found or defaulted
    otherwise. Raises `UnsupportedFormatError` for a setting that is none."""

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        self._source = source
        self._options = options
        self.parts = file_parts(source)
        self._errors: dict[str, LogUnreadableError] = {}
        self._sizes = {part.path: 0 for part in self.parts}

    @property
    def source(self) -> LogSource:
        return self._source

    @property
    def format(self) -> str:
        return FORMAT

    @property
    def clock(self) -> Clock:
        return Clock.WALL_US

    @cached_property
    def form(self) -> Form:
        """Signature and disk block size: as set, or as the first files show them."""
        signature = self._set_signature() or self._find(signature_of) or SIGNATURE
        block_size = self._set_number("disk_block_size") or self._find(
            lambda sources: find_block_size((one.data for one in sources), signature)
        )
        block_size = block_size or BLOCK_SIZES[0]
        if block_size not in BLOCK_SIZES:
            raise _bad_setting("disk_block_size", "a power of two from 512 to 65536")
        limit = self._set_number("max_transaction_size") or UNPACKED_MAX
        return Form(signature, block_size, limit)

    def _find(self, find: Callable[[Iterator[ByteSource]], _Found | None]) -> _Found | None:
        """What ``find`` makes of the beginnings of the files, or else of the whole files."""
        found = find(self._sources(_beginning))
        return found if found is not None else find(self._sources(open_source))

    def _sources(self, opened: Callable[[str], ByteSource]) -> Iterator[ByteSource]:
        for part in self.parts:
            try:
                source = opened(part.path)
            except LogUnreadableError as error:
                self._errors[part.path] = error
                continue
            with source:
                yield source

    def _set_signature(self) -> bytes | None:
        text = self._options.settings.get("signature")
        if text is None:
            return None
        try:
            signature = bytes.fromhex(text)
        except ValueError as error:
            raise _bad_setting("signature", "128 hex digits") from error
        if len(signature) != SIGNATURE_SIZE:
            raise _bad_setting("signature", "128 hex digits")
        return signature

    def _set_number(self, name: str) -> int | None:
        text = self._options.settings.get(name)
        if text is not None and not text.isdecimal():
            raise _bad_setting(name, "a number of bytes")
        return None if text is None else int(text)

    # -- blocks ------------------------------------------------------------------------------

    @contextmanager
    def scan(self, part: Part) -> Iterator[FileScan]:
        """A scan of one file; of nothing if it cannot be read, which `findings` tells."""
        form = self.form
        try:
            source = open_source(part.path)
        except LogUnreadableError as error:
            self._errors[part.path] = error
            yield FileScan(BlockFinder(memoryview(b""), form.signature, form.block_size))
            return
        with source:
            self._sizes[part.path] = source.size
            yield FileScan(
                BlockFinder(source.data, form.signature, form.block_size, form.unpacked_max)
            )

    def sightings(self, *, beyond: bool = False) -> Iterator[Sighting]:
        """Every block of every file in order; see `survey.sightings`."""
        return sightings(self.parts, self.scan, beyond=beyond)

    # -- what LogReading promises ------------------------------------------------------------

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Entries in log order. Damaged blocks whose extent is known give what still looks like
        an entry, as corrupt; ``salvage`` adds torn tails, left-overs and damaged ranges."""
        for sighting in self.sightings(beyond=salvage):
            yield from block_records(sighting.block, sighting.part.path, salvage=salvage)

    def transactions(self) -> Iterable[Transaction]:
        """One per persisting entry's number; memory grows with the number of transactions."""
        return fold_transactions(self.sightings(), self.source.path)

    def changes(self) -> Iterator[Change]:
        """The operations of every transaction by ascending number, whatever reached its targets:
        it was acknowledged. Carried entries are kept in memory, others stream."""
        carried = carried_changes(self.sightings(), self.source.path)
        plain = plain_changes(self.sightings(), self.source.path)
        return merge(carried, plain, key=lambda change: change.commit_sequence)

    @cached_property
    def _picture(self) -> Picture:
        """Everything that one pass over all blocks gives."""
        survey = Survey(self.parts)
        spans: list[list[Span]] = [[] for _ in self.parts]
        outcomes: Counter[str] = Counter()
        for sighting in self.sightings(beyond=True):
            block = sighting.block
            survey.add(sighting)
            spans[sighting.index].extend(block_spans(block, self._sizes[sighting.part.path]))
            outcomes[block_outcome(block)] += believed(block)
        for index, part in enumerate(self.parts):
            if part.path in self._errors:
                survey.unreadable(index)
        survey.finish()
        return Picture(survey, self._files(survey, spans), outcomes)

    def _files(self, survey: Survey, spans: list[list[Span]]) -> list[LogFile]:
        redundant = survey.redundant()
        return [
            LogFile(
                part.path,
                self._sizes[part.path],
                "log file",
                index,
                identity=None if part.serial == ANY_SERIAL else part.serial,
                clock=self.clock,
                redundant=redundant[index],
                why=survey.why_kept(index) or "everything in it has reached its targets",
                spans=(*spans[index], *_rest(spans[index], self._sizes[part.path])),
            )
            for index, part in enumerate(self.parts)
        ]

    def files(self) -> Sequence[LogFile]:
        return self._picture.files

    def findings(self) -> Sequence[Finding]:
        unreadable = [
            unreadable_finding(SYSTEM_NAME, self.source.path, error)
            for error in self._errors.values()
        ]
        return unreadable + findings(self._picture.survey, self.source.path)

    def verdict(self) -> Verdict:
        survey = self._picture.survey
        return Verdict(
            SYSTEM_NAME,
            self.source.path,
            self.format,
            engine_verdict(survey),
            strict_verdict(survey, self._picture.outcomes, self.findings()),
            tuple(differences(survey)),
        )

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        from tallystick.systems.cloudtran.columns.batches import read_batches

        return read_batches(self, split, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        from tallystick.systems.cloudtran.columns.splits import find_splits

        return find_splits(self, target_bytes)


def _beginning(path: str) -> ByteSource:
    return ByteSource(path, memoryview(read_head(path, BEGINNING_SIZE)))


def _rest(spans: list[Span], size: int) -> Iterator[Span]:
    end = spans[-1].end if spans else 0
    if end < size:
        reason = "zero to the end of the file"
        yield Span(end, size - end, Outcome.UNUSED, "preallocated", reason)


def _bad_setting(name: str, expected: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(f"the setting {name} does not fit", expected=expected)
