"""The analysis of all files of a log: losses, warnings, pending transactions, redundant files.

In: the pieces of a log in the order of reading. Out: the `LogAnalysis`. Memory grows with open
transactions, some 100 bytes each, and with damage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tallystick.systems.cloudtran.format.entries import Entry, EntryKind, Suspect
from tallystick.systems.cloudtran.format.high_water_mark import HighWaterMark
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence
from tallystick.systems.cloudtran.read.files import ANY_SERIAL, BlockFile
from tallystick.systems.cloudtran.read.interval_set import IntervalSet
from tallystick.systems.cloudtran.read.scan import LOST, BlockState

if TYPE_CHECKING:
    from tallystick.systems.cloudtran.runs.chunk import Chunk
    from tallystick.systems.cloudtran.runs.rests import KnownBlocks

LOST_AT_END = "lost-at-end"
MISSING_BLOCKS = "missing-blocks"
MISSING_FILE = "missing-file"
UNREADABLE = "unreadable"
TORN_TAIL = "torn-tail"
STALE_TAIL = "stale-tail"
_NO_FILE = BlockFile("", "", ANY_SERIAL)


@dataclass(frozen=True, slots=True)
class Loss:
    """Blocks that are lost: where, why, how many, and what is known of them.

    Attributes:
        file: index of the file.
        name: name of the file.
        offset: in bytes of the file.
        state: the code of the finding.
        blocks: number of lost blocks; None where it is unknown.
        count: number of entries that the header states.
        suspects: what still looks like entries.
    """

    file: int
    name: str
    offset: int
    state: str
    blocks: int | None
    count: int | None = None
    suspects: tuple[Suspect, ...] | None = None

    @property
    def suspects_text(self) -> str:
        """Kind and number of each suspected entry."""
        return ", ".join(f"{one.kind.name.lower()} {one.number}" for one in self.suspects or ())


@dataclass(frozen=True, slots=True)
class LogWarning:
    """A condition that loses nothing: a repaired header, a torn tail, a missing file."""

    code: str
    name: str
    offset: int


class OpenTransaction(NamedTuple):
    """What is known of a transaction that some target does not hold yet.

    Attributes:
        pending: those targets, in the order of its entry.
        operations: how many it has.
        file: index of the file that holds its latest persisting entry.
    """

    pending: tuple[str, ...]
    operations: int
    file: int


@lru_cache(maxsize=1024)
def _shared(pending: tuple[str, ...], operations: int, file: int) -> OpenTransaction:
    """Return one object for all open transactions that are alike: there may be a million."""
    return OpenTransaction(pending, operations, file)


@dataclass(slots=True)
class LogAnalysis:
    """The state of a whole log; `add` takes the blocks in order, `finish` ends it."""

    files: tuple[BlockFile, ...]
    mark: HighWaterMark = field(default_factory=HighWaterMark)
    """What the log says that it has kept; nothing is known of files that are gone without it."""
    mark_damaged: bool = False
    losses: list[Loss] = field(default_factory=list)
    warnings: list[LogWarning] = field(default_factory=list)
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    seen: IntervalSet = field(default_factory=IntervalSet)
    """Numbers of all persisting entries except carried ones: neighbours of those may be gone."""
    closed: IntervalSet = field(default_factory=IntervalSet)
    """Numbers that every target holds, or that an operator gave up."""
    last_sequence: int = 0
    firsts: dict[int, int] = field(default_factory=dict)
    """Sequence of the first block of each file that has one, by the index of the file."""
    other_file: bool = False
    """A file has blocks of a later file, or begins with those of another."""
    ends_closed: bool = False
    """The last block of the newest file is whole, and says that its file was closed."""
    odd_tail: bool = False
    """The newest file ends in a block that is damaged although all of it was written."""
    size: int = 0
    """Bytes of the newest file, where its reader gives them: each block is whole sectors."""
    _partly: dict[int, set[str]] = field(default_factory=dict)
    _regions: list[BlockOccurrence] = field(default_factory=list)
    _torn: tuple[int, BlockOccurrence] | None = None
    _file: int = -1
    _stale: int = -1
    _end: int = 0

    def add(self, occurrence: BlockOccurrence) -> None:
        """Add the next block."""
        self._enter(occurrence.index)
        block = occurrence.block
        self._end = block.end
        self.ends_closed = False
        self.odd_tail = block.state is BlockState.TORN and not block.cut
        if block.state in LOST:
            self._regions.append(occurrence)
        elif block.state is BlockState.TORN:
            self._torn = (occurrence.index, occurrence)
            self._warn(TORN_TAIL, occurrence)
        elif block.state is BlockState.STALE:
            if self._stale != occurrence.index:
                self._warn(STALE_TAIL, occurrence)
                self._judge_stale(occurrence)
            self._stale = occurrence.index
        else:
            self._read(occurrence)

    def add_chunk(self, chunk: Chunk | KnownBlocks) -> None:
        """Add whole blocks that follow each other, with the result of `add` for each.

        Of a number that an entry here closes (every target holds the transaction), the other
        entries are not looked at; only ``seen`` keeps that they were logged.
        """
        self._enter(chunk.index)
        self._end = chunk.end
        self.odd_tail = False
        self.ends_closed = chunk.ends_closed
        # Blocks can be missing only where the sequences have a gap.
        for offset, first, last in chunk.unbroken():
            self._follow(chunk.index, chunk.file, offset, first)
            self.last_sequence = last
        # In this order: what stays open is looked at when all that is closed here is known.
        for numbers in chunk.logged():
            self.seen.add_range(numbers)
        for numbers in chunk.closed():
            self._close(numbers)
        for kind, number, targets, operations in chunk.left_open():
            if kind == EntryKind.PERSISTING:
                self._persisting(number, targets, operations, chunk.index)
            else:
                self._persisted(number, targets)

    def unreadable(self, index: int) -> None:
        """Add the loss of a file whose bytes the operating system does not return."""
        self._enter(index)
        self._lose(UNREADABLE, index, self.files[index], 0, None)

    def finish(self) -> None:
        """Add what only the end shows: damage that no block follows, and blocks that are gone."""
        self._enter(len(self.files) - 1)
        self._assign_end()
        self.losses.sort(key=lambda loss: (loss.file, loss.offset))

    def _enter(self, index: int) -> None:
        while self._file < index:
            self._file += 1
            self._end = 0
            self.ends_closed = self.odd_tail = False
            if (
                self._file
                and self.files[self._file].serial != self.files[self._file - 1].serial + 1
            ):
                self.warnings.append(LogWarning(MISSING_FILE, self.files[self._file].name, 0))

    def _warn(self, code: str, occurrence: BlockOccurrence) -> None:
        self.warnings.append(LogWarning(code, occurrence.file.name, occurrence.block.offset))

    def _judge_stale(self, occurrence: BlockOccurrence) -> None:
        """Tell what a file held earlier from blocks that no earlier life of it can have left."""
        block, serial = occurrence.block, occurrence.file.serial
        if block.content is not None:
            later = ANY_SERIAL < serial < block.prologue.serial
            self.other_file |= later or occurrence.index not in self.firsts

    def _read(self, occurrence: BlockOccurrence) -> None:
        block = occurrence.block
        if block.state is not BlockState.OK:
            self._warn(block.state.value, occurrence)
        self.ends_closed = block.prologue.closing
        self._follow(occurrence.index, occurrence.file, block.offset, block.prologue.sequence)
        for placed in block.entries:
            self._entry(placed.entry, occurrence.index)

    def _follow(self, index: int, file: BlockFile, offset: int, sequence: int) -> None:
        """Compare the sequence of a readable block with the one before it."""
        self.firsts.setdefault(index, sequence)
        if sequence > self.last_sequence:
            known = self.last_sequence > 0 or self.mark.kept > 0
            missing = max(0, sequence - self._before - 1) if known else None
            self._assign(missing, MISSING_BLOCKS, index, file, offset)
            self._torn = None
            self.last_sequence = sequence

    @property
    def _before(self) -> int:
        """Sequence of the last block that is accounted for: read, or said to be disposed of."""
        return max(self.last_sequence, self.mark.kept - 1)

    # -- losses ------------------------------------------------------------------------------

    def _assign_end(self) -> None:
        """Report what was lost at the end of the log: damage, and blocks that the mark names."""
        missing = self.mark.sequence - self._before if self.mark.kept else 0
        index = len(self.files) - 1
        file = self.files[index] if self.files else _NO_FILE
        self._assign(missing if missing > 0 else None, LOST_AT_END, index, file, self._end)

    def _assign(
        self, missing: int | None, state: str, index: int, file: BlockFile, offset: int
    ) -> None:
        """Report missing blocks: in damaged regions, at a torn end, or else at this place.

        None means that it is unknown how many are missing.
        """
        rest = self._assign_to_regions(missing)
        if rest and self._torn is not None:
            torn_index, torn = self._torn
            self._lose(LOST_AT_END, torn_index, torn.file, torn.block.offset, rest)
        elif rest:
            self._lose(state, index, file, offset, rest)

    def _assign_to_regions(self, missing: int | None) -> int:
        """Report missing blocks as lost in unreadable regions; return how many are left over."""
        # A region without a readable header can be of several blocks; any other is one.
        whole = sum(one.block.state is BlockState.BOTH_HEADERS_DAMAGED for one in self._regions)
        single = len(self._regions) - whole
        rest = None if missing is None else max(0, missing - single)
        for one in self._regions:
            block, blocks = one.block, None if rest is None else rest
            if block.state is BlockState.PAYLOAD_DAMAGED:
                count = block.claimed.count if block.claimed is not None else None
                self._lose(block.state, one.index, one.file, block.offset, 1, count, block.suspects)
                continue
            if rest is not None:
                whole -= 1
                # At least one block for each region that follows; the first one gets what is more
                # than that.
                blocks = max(1, rest - whole)
                rest = max(0, rest - blocks)
            self._lose(block.state, one.index, one.file, block.offset, blocks)
        self._regions.clear()
        return rest or 0

    def _lose(
        self,
        state: str,
        index: int,
        file: BlockFile,
        offset: int,
        blocks: int | None,
        count: int | None = None,
        suspects: tuple[Suspect, ...] | None = None,
    ) -> None:
        self.losses.append(Loss(index, file.name, offset, str(state), blocks, count, suspects))

    # -- transactions ------------------------------------------------------------------------

    def _entry(self, entry: Entry, index: int) -> None:
        number = entry.number
        if entry.kind is EntryKind.PERSISTING:
            if not entry.carried_forward:
                self.seen.add(number)
            self._persisting(number, entry.targets, len(entry.operations), index)
        elif entry.all_targets:
            self._close(range(number, number + 1))
        else:
            self._persisted(number, entry.targets)

    def _close(self, numbers: range) -> None:
        for number in numbers:
            self.open.pop(number, None)
            self._partly.pop(number, None)
        self.closed.add_range(numbers)

    def _persisting(
        self, number: int, targets: tuple[str, ...], operations: int, index: int
    ) -> None:
        # A repeated block, or an entry that is carried forward although every target has it by now.
        if number in self.closed:
            return
        if (known := self.open.get(number)) is not None:
            self.open[number] = _shared(known.pending, known.operations, index)
            return
        held = self._partly.pop(number, ())
        self._keep(number, _but(targets, held), operations, index)

    def _persisted(self, number: int, targets: tuple[str, ...]) -> None:
        one = self.open.get(number)
        if one is not None:
            self._keep(number, _but(one.pending, targets), one.operations, one.file)
        elif number not in self.closed:
            self._partly.setdefault(number, set()).update(targets)

    def _keep(self, number: int, pending: tuple[str, ...], operations: int, file: int) -> None:
        if pending:
            self.open[number] = _shared(pending, operations, file)
        else:
            self.open.pop(number, None)
            self.closed.add(number)

    # -- files -------------------------------------------------------------------------------

    def redundant(self) -> list[bool]:
        """Return per file: wholly readable, and without the latest entry of an open transaction.

        All files count as left by an earlier process.
        """
        kept = {loss.file for loss in self.losses} | {one.file for one in self.open.values()}
        return [index not in kept for index in range(len(self.files))]

    def disposable(self) -> int:
        """Return how many of the oldest files may go: redundant ones without a kept one before."""
        # A kept file keeps all later ones: these may hold the entries that made it redundant.
        flags = self.redundant()
        return flags.index(False) if False in flags else len(flags)

    def why_kept(self) -> dict[int, str]:
        """Return why files are not redundant, by their indices."""
        waiting = Counter(one.file for one in self.open.values())
        least: dict[int, int] = {}
        for number, one in self.open.items():
            least[one.file] = min(number, least.get(one.file, number))
        found = {}
        for index, count in waiting.items():
            more = f" and {count - 1} more" if count > 1 else ""
            found[index] = f"transaction {least[index]}{more} still waits for a target"
        lost = "blocks of it are lost; only an operator may set it aside"
        return found | {loss.file: lost for loss in self.losses}


def _but(targets: tuple[str, ...], held: Container[str]) -> tuple[str, ...]:
    return tuple(target for target in targets if target not in held)
