"""Reading one block log: files, records, transactions, changes, findings and both verdicts.

In: the files of one log. Out: what `tallystick.systems.protocol.LogReading` promises. Nothing is
written. One pass over all files gives files, findings and verdict; its memory grows with open
transactions, some 100 bytes each, and with 32 bytes per block for the spans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from heapq import merge
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Self

from tallystick.errors import LogUnreadableError, UnsupportedFormatError
from tallystick.records import (
    Change,
    Clock,
    Finding,
    Judgement,
    LogFile,
    Outcome,
    Record,
    Transaction,
    Verdict,
)
from tallystick.storage.source import ByteSource, open_source, read_head, source_size
from tallystick.systems.cloudtran.codes import CODES
from tallystick.systems.cloudtran.format.entries import unsigned
from tallystick.systems.cloudtran.format.high_water_mark import HighWaterMark
from tallystick.systems.cloudtran.format.layout import (
    BLOCK_SIZES,
    FORMAT_NAME,
    SIGNATURE,
    SIGNATURE_SIZE,
    SYSTEM_NAME,
    UNPACKED_MAX,
)
from tallystick.systems.cloudtran.read.block_format import (
    BlockFormat,
    SizeTrial,
    find_signature,
)
from tallystick.systems.cloudtran.read.block_order import (
    BlockOccurrence,
    occurrences,
    occurrences_after,
)
from tallystick.systems.cloudtran.read.files import (
    ANY_SERIAL,
    BlockFile,
    block_files,
    mark_beside,
)
from tallystick.systems.cloudtran.read.header_repair import BlockFinder
from tallystick.systems.cloudtran.read.records import block_records, count_records
from tallystick.systems.cloudtran.read.scan import LOST, FileScan
from tallystick.systems.cloudtran.read.spans import FileSpans
from tallystick.systems.cloudtran.runs import changes
from tallystick.systems.cloudtran.runs.analysis import LogAnalysis
from tallystick.systems.cloudtran.runs.pieces import Piece, pieces
from tallystick.systems.cloudtran.runs.rests import (
    KnownBlocks,
    Rest,
    close_rests,
    known_blocks,
)
from tallystick.systems.cloudtran.runs.transactions import fold_transactions
from tallystick.systems.cloudtran.verdict import strict
from tallystick.systems.cloudtran.verdict.findings import findings
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.protocol import (
    ClosedSplit,
    FileLife,
    LogSource,
    Missing,
    Reached,
    Reading,
    ReadOptions,
    Split,
)
from tallystick.systems.rests import unpacked
from tallystick.systems.runs import RunCount

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.systems.protocol import Fitting, Longs

BEGINNING_SIZE = 2 << 20
TRIAL_FILES_MAX = 3
"""Bytes of a file, and files, that are read first to find signature and disk block size."""


@dataclass(slots=True)
class LogContents:
    """The results of one pass over all files."""

    analysis: LogAnalysis
    files: list[LogFile]
    outcomes: Counter[str]
    run_count: RunCount


class CloudtranReading(Reading):
    """One block log.

    ``options.settings`` may give ``signature`` (128 hex digits), ``disk_block_size`` and
    ``max_transaction_size`` (bytes); others are inferred from the files or have defaults.

    Raises:
        UnsupportedFormatError: a setting has an invalid value.
    """

    format = FORMAT_NAME
    clock = Clock.WALL_US

    def __init__(self, source: LogSource, options: ReadOptions) -> None:
        self.source = source
        self._options = options
        self._log_files = block_files(source)
        self._errors: dict[str, LogUnreadableError] = {}
        self._sizes = {file.path: 0 for file in self._log_files}

    @cached_property
    def block_format(self) -> BlockFormat:
        """Signature and disk block size: as configured, or as the first files show them."""
        signature = self._set_signature() or self._found_signature() or SIGNATURE
        limit = self._set_number("max_transaction_size") or UNPACKED_MAX
        block_size = self._set_number("disk_block_size")
        if block_size is None:
            trial = self._block_size_trial(signature)
            return BlockFormat(signature, trial.size, limit, trial.open_sizes)
        if block_size not in BLOCK_SIZES:
            raise _bad_setting("disk_block_size", "a power of two from 512 to 65536")
        return BlockFormat(signature, block_size, limit)

    def _found_signature(self) -> bytes | None:
        """Return what the beginnings of the files show, or else whole files."""
        return find_signature(self._sources(_beginning)) or find_signature(
            self._sources(open_source)
        )

    def _block_size_trial(self, signature: bytes) -> SizeTrial:
        """Return the block sizes that the files leave: of their beginnings, or else of all."""
        trial = SizeTrial(signature)
        for source in islice(self._sources(_beginning), TRIAL_FILES_MAX):
            trial.follow(source.data, judge=False)
        sources = iter(()) if trial.decided else self._sources(open_source)
        for source in sources:
            trial.follow(source.data, judge=True)
            if trial.decided:
                break
        return trial

    def _sources(self, opened: Callable[[str], ByteSource]) -> Iterator[ByteSource]:
        for file in self._log_files:
            try:
                source = opened(file.path)
            except LogUnreadableError as error:
                self._errors[file.path] = error
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
    def scan(self, file: BlockFile) -> Iterator[FileScan]:
        """Open a scan of one file; of no bytes if it cannot be read, which `findings` reports."""
        form = self.block_format
        try:
            source = open_source(file.path)
        except LogUnreadableError as error:
            self._errors[file.path] = error
            yield FileScan(BlockFinder(memoryview(b""), form.signature, form.block_size))
            return
        with source:
            self._sizes[file.path] = source.size
            yield FileScan(
                BlockFinder(source.data, form.signature, form.block_size, form.unpacked_max)
            )

    def occurrences(self, *, beyond: bool = False) -> Iterator[BlockOccurrence]:
        """Yield every block of every file in order; see `block_order.occurrences`."""
        return occurrences(self._log_files, self.scan, beyond=beyond)

    def pieces(self, *, beyond: bool = False) -> Iterator[Piece]:
        """Yield what `occurrences` does, whole blocks of a long log in chunks."""
        return pieces(self._log_files, self.scan, beyond=beyond)

    # -- what LogReading promises ------------------------------------------------------------

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Yield entries in log order.

        Damaged blocks whose extent is known give what still looks like an entry, as corrupt;
        ``salvage`` adds torn tails, left-over blocks and damaged ranges.
        """
        for occurrence in self.occurrences(beyond=salvage):
            yield from block_records(occurrence.block, occurrence.file.path, salvage=salvage)

    def chosen_records(self, fitting: Fitting) -> Iterator[Record]:
        """Yield those of ``records()`` that fit by their columns, and others in their blocks."""
        for piece in self.pieces():
            if isinstance(piece, BlockOccurrence):
                blocks = iter((piece.block,))
            else:
                from tallystick.systems.cloudtran.columns.batches import fitting_blocks

                blocks = fitting_blocks(piece, self.source.path, fitting)
            for block in blocks:
                yield from block_records(block, piece.file.path)

    def transactions(self) -> Iterable[Transaction]:
        """Return one per persisting entry's number; memory grows with the transactions."""
        return fold_transactions(self.pieces(), self.source.path)

    def transaction_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of `transactions` in the same order, as batches of at most ``rows`` rows.

        Memory grows with the transactions.
        """
        from tallystick.systems.cloudtran.columns.transactions import TransactionBatcher

        found = TransactionBatcher(self.source.path, rows).batches(self.pieces())
        return super().transaction_batches(rows) if found is None else found

    def changes(self) -> Iterator[Change]:
        """Yield the operations of every transaction by ascending number, pending ones included.

        A logged transaction was acknowledged. Carried entries are kept in memory, others stream.
        """
        carried = changes.carried_changes(self.pieces(), self.source.path)
        plain = changes.plain_changes(self.occurrences(), self.source.path)
        return merge(carried, plain, key=lambda change: unsigned(change.commit_sequence))

    def change_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all of `changes` in the same order, as batches of at most ``rows`` rows."""
        from tallystick.systems.cloudtran.columns.changes import ChangeBatcher

        carried = changes.carried_changes(self.pieces(), self.source.path)
        return ChangeBatcher(carried, self.source.path, rows).batches(self.pieces())

    def lives(self) -> Mapping[str, FileLife]:
        """Return serial and size of every file; nothing follows a torn block in its file."""
        found = {}
        for file in self._log_files:
            serial = None if file.serial == ANY_SERIAL else file.serial
            try:
                size = source_size(file.path)
            except LogUnreadableError as error:
                self._errors[file.path] = error
                size = 0
            found[file.path] = FileLife(serial, None, size)
        return found

    def number(self, path: str) -> int | None:
        """Return the serial of a file."""
        return next((one.serial for one in self._log_files if one.path == path), None)

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Return which block is missing before those of a file: their numbers have no gaps."""
        file = next(one for one in self._log_files if one.path == path)
        if reached is None:
            return self._missing_before(file)
        if file.serial == reached.number and not reached.there:  # serials are given once
            read = f"the file {file.serial} that was read"
            return Missing(read, f"another file {file.serial}", certain=False)
        if reached.place is None:
            gap = file.serial > reached.number + 1
            return Missing(f"file {reached.number + 1}", f"file {file.serial}") if gap else None
        # The last block of a file that was closed has no entries, so no record tells of it.
        before = self._block_numbers(reached.number) if reached.there else [reached.place + 1]
        last = max(reached.place, *before)
        first = min(self._block_numbers(file.serial), default=last)
        if first <= last + 1:
            return None
        return Missing(f"block {last + 1}", f"block {first} in file {file.serial}")

    def stated_end(self) -> int:
        """Return the greatest number of a block that the mark beside the log calls durable."""
        mark = mark_beside(self._log_files)
        return mark.sequence if mark is not None and mark.kept else 0

    def missing_at_end(self, stated: int, place: int | None) -> Missing | None:
        """Return which blocks are missing up to that number."""
        mark = mark_beside(self._log_files)
        last = max(place or 0, 0 if mark is None else mark.kept - 1)
        if last < stated and self._log_files:  # the last block may have no entries, as above
            last = max(last, *self._block_numbers(self._log_files[-1].serial), 0)
        found = f"the end of the log, whose mark names block {stated}"
        return Missing(f"block {last + 1}", found) if last < stated else None

    def _missing_before(self, first: BlockFile) -> Missing | None:
        """Return what is missing before the blocks of the first file that has any."""
        with self.scan(first) as scan:
            blocks = list(takewhile(lambda one: not one.readable, scan.blocks(0)))
        number = min(self._block_numbers(first.serial), default=1)
        found = f"block {number} in file {first.serial}"
        if any(one.state in LOST for one in blocks):
            return Missing(f"a whole block at the start of file {first.serial}", found)
        # A log that has its first file has given up none.
        begun = min(one.serial for one in self._log_files) == 1
        return Missing("block 1", found) if begun and number > 1 else None

    def _block_numbers(self, serial: int) -> list[int]:
        """Return the numbers of the readable blocks of a file."""
        numbers = []
        for file in self._log_files:
            if file.serial == serial:
                with self.scan(file) as scan:
                    numbers += [one.prologue.sequence for one in scan.blocks(0) if one.readable]
        return numbers

    def damage_between(self, path: str, begin: int, sequences: Longs) -> int | None:
        """Return where blocks are damaged between readable ones: their numbers have no gaps."""
        if not (sequences[1:] - sequences[:-1] > 1).any():
            return None
        (file,) = (one for one in self._log_files if one.path == path)
        with self.scan(file) as scan:
            lost = (one.offset for one in scan.blocks(0) if one.state in LOST)
            return next((offset for offset in lost if offset >= begin), None)

    def places(self, file: str, ends: Longs, sequences: Longs) -> Longs:
        """Return the numbers of the blocks of records."""
        del file, ends
        return sequences

    def changes_between(self, after: int | None, until: int) -> Iterator[Change]:
        """Yield the operations logged in the blocks above ``after``, up to ``until``.

        Only what is new is read where the numbers of blocks prove what is not. Damage in files
        before that is none of this: their operations were given, or refused, by earlier calls.

        Raises:
            LogUnreadableError: some of these blocks are gone or damaged, and are not to be skipped.
        """
        return changes.changes_between(
            self._occurrences_after,
            self.source.path,
            after,
            until,
            skip_lost=self._options.skip_lost,
        )

    def _occurrences_after(self, known: int | None) -> Iterator[BlockOccurrence]:
        if known is None:
            return self.occurrences()
        return occurrences_after(self._log_files, self.scan, self.block_format, known)

    @cached_property
    def _contents(self) -> LogContents:
        """The results of one pass over all blocks."""
        return self._contents_of(self.pieces(beyond=True))

    def _contents_of(self, pieces: Iterable[Piece | KnownBlocks]) -> LogContents:
        mark = mark_beside(self._log_files)  # first: a writer that goes on only adds to it
        analysis = LogAnalysis(self._log_files, mark or HighWaterMark(), mark is None)
        run_count = RunCount()
        spans: dict[int, FileSpans] = {}
        outcomes: Counter[str] = Counter()
        for piece in pieces:
            size = self._sizes[piece.file.path]
            tiled = spans.setdefault(piece.index, FileSpans(size))
            if isinstance(piece, BlockOccurrence):
                analysis.add(piece)
                tiled.add_block(piece.block)
                count = count_records(piece.block)
                outcomes[piece.block.outcome] += count
                run_count.one_by_one += count
                continue
            analysis.add_chunk(piece)
            if isinstance(piece, KnownBlocks):
                tiled.add_sum(piece.valid_bytes, piece.end)
            else:
                tiled.add_whole(piece.extents(), piece.end)
            outcomes[Outcome.VALID] += piece.count
            run_count.in_runs += piece.count
        for index, file in enumerate(self._log_files):
            if file.path in self._errors:
                analysis.unreadable(index)
        analysis.finish()
        analysis.size = self._sizes[self._log_files[-1].path] if self._log_files else 0
        return LogContents(analysis, self._files(analysis, spans), outcomes, run_count)

    @property
    def run_count(self) -> RunCount:
        """How many records the verdict read in runs, and one by one."""
        return self._contents.run_count

    def _files(self, analysis: LogAnalysis, spans: Mapping[int, FileSpans]) -> list[LogFile]:
        redundant, why = analysis.redundant(), analysis.why_kept()
        return [
            LogFile(
                file.path,
                self._sizes[file.path],
                "log file",
                index,
                identity=None if file.serial == ANY_SERIAL else file.serial,
                clock=self.clock,
                redundant=redundant[index],
                why=why.get(index, "everything in it has reached its targets"),
                spans=spans.get(index, FileSpans(self._sizes[file.path])),
            )
            for index, file in enumerate(self._log_files)
        ]

    def files(self) -> Sequence[LogFile]:
        """Return the files by serial, each tiled by its spans."""
        return self._contents.files

    def findings(self) -> Sequence[Finding]:
        """Return losses, files that cannot be read among them, warnings and missing numbers."""
        analysis = self._contents.analysis  # the pass that meets the errors
        build = FindingBuilder(SYSTEM_NAME, self.source.path, CODES)
        found = findings(analysis, build, self._errors)
        if self.block_format.open_sizes:
            form = self.block_format
            sizes = ", ".join(map(str, form.open_sizes))
            text = f"read with a disk block size of {form.block_size}; {sizes} are as likely"
            found.append(build("block-size-open", text))
        return found

    def verdict(self) -> Verdict:
        """Return both verdicts, from one pass over all files."""
        contents = self._contents
        log, found = self.source.path, self.findings()
        return strict.verdict(contents.analysis, log, contents.outcomes, found, self.judgement)

    @cached_property
    def judgement(self) -> Judgement:
        """The answer about the log."""
        return strict.judgement(self._contents.analysis, self.findings())

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``records()``, decoded by compiled kernels; ``attributes`` is null."""
        from tallystick.systems.cloudtran.columns.batches import read_batches

        return read_batches(self._log_files, self.scan, self.source.path, split, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        """Return parts of about ``target_bytes`` that begin at blocks; packed files stay whole."""
        from tallystick.systems.cloudtran.columns.splits import find_splits

        return find_splits(self._log_files, self.scan, target_bytes)

    def close_split(self, split: Split, rows: int) -> ClosedSplit:
        """Return the transactions and changes that begin and end in a split."""
        from tallystick.systems.cloudtran.columns.closing import ClosingSplit

        (file,) = (one for one in self._log_files if one.path == split.file)
        closing = ClosingSplit(file, self.scan, split, self.source.path, rows)
        return ClosedSplit(closing.batches(), closing.rest)

    def close_rests(
        self, rests: Sequence[bytes], rows: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the transactions and changes that no split closed alone.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        from tallystick.arrow.schemas import batches_by_table

        found = [unpacked(one, Rest.built) for one in rests]
        return batches_by_table(*close_rests(found, self.source.path), self.clock.value, rows)

    def knowing(self, rests: Sequence[bytes]) -> Self:
        """Return the log as a reading that takes from splits what their blocks hold.

        Raises:
            NotClosedInPartsError: the whole log has to be read.
        """
        found = [unpacked(one, Rest.built) for one in rests]
        known = type(self)(self.source, self._options)
        known._sizes |= {rest.file: rest.extent.size for rest in found}
        for file in self._log_files:
            if not known._sizes[file.path]:  # no split: it is empty, or cannot be read
                with known.scan(file):
                    pass
        known._contents = known._contents_of(known_blocks(found, self._log_files))
        return known


def _beginning(path: str) -> ByteSource:
    return ByteSource(path, memoryview(read_head(path, BEGINNING_SIZE)))


def _bad_setting(name: str, expected: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(f"the setting {name} does not fit", expected=expected)
