"""What all files of a log say together: losses, warnings, what is pending, which files may go.

In: `Sighting`s in the order of reading, as `succession` gives them. Out: the `Survey`. Memory grows
with open transactions and with damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.systems.cloudtran.format.entries import Entry, EntryKind, Suspect
from tallystick.systems.cloudtran.read.block_order import Part, Sighting
from tallystick.systems.cloudtran.read.interval_set import NumberSet
from tallystick.systems.cloudtran.read.scan import LOST, BlockState

LOST_AT_END = "lost-at-end"
MISSING_BLOCKS = "missing-blocks"
MISSING_FILE = "missing-file"
UNREADABLE = "unreadable"
TORN_TAIL = "torn-tail"
STALE_TAIL = "stale-tail"


@dataclass(frozen=True, slots=True)
class Loss:
    """Blocks that are gone: where, why, how many (None: unknown) and what is known of them."""

    file: int
    name: str
    offset: int
    state: str
    blocks: int | None
    count: int | None = None
    suspects: tuple[Suspect, ...] | None = None


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to be told that is no loss: a repaired header, a torn tail."""

    code: str
    name: str
    offset: int


@dataclass(slots=True)
class OpenTransaction:
    """A transaction with targets that do not hold it yet, in the order of its entry."""

    number: int
    pending: list[str]
    targets: tuple[str, ...]
    operations: int
    home: int
    """Index of the file that holds its latest persisting entry."""


@dataclass(slots=True)
class Survey:
    """The judgement of a whole log, fed with sightings in order and then asked."""

    parts: tuple[Part, ...]
    losses: list[Loss] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    seen: NumberSet = field(default_factory=NumberSet)
    """Numbers of all persisting entries but the carried ones, whose neighbours may be gone."""
    closed: NumberSet = field(default_factory=NumberSet)
    """Numbers that every target holds, or that an operator gave up."""
    last_sequence: int = 0
    _partly: dict[int, set[str]] = field(default_factory=dict)
    _regions: list[Sighting] = field(default_factory=list)
    _torn: tuple[int, Sighting] | None = None
    _file: int = -1
    _stale: int = -1

    def add(self, sighting: Sighting) -> None:
        """Take notice of the next block."""
        self._enter(sighting.index)
        block = sighting.block
        if block.state in LOST:
            self._regions.append(sighting)
        elif block.state is BlockState.TORN:
            self._torn = (sighting.index, sighting)
            self._remark(TORN_TAIL, sighting)
        elif block.state is BlockState.STALE:
            if self._stale != sighting.index:
                self._remark(STALE_TAIL, sighting)
            self._stale = sighting.index
        else:
            self._read(sighting)

    def unreadable(self, index: int) -> None:
        """The operating system would not give the bytes of this file."""
        self._enter(index)
        self._lose(UNREADABLE, index, self.parts[index], 0, None)

    def finish(self) -> None:
        """After the last block: files that nothing was seen of, losses that nothing follows."""
        self._enter(len(self.parts) - 1)
        self._settle_regions(None)
        self.losses.sort(key=lambda loss: (loss.file, loss.offset))

    def _enter(self, index: int) -> None:
        while self._file < index:
            self._file += 1
            if (
                self._file
                and self.parts[self._file].serial != self.parts[self._file - 1].serial + 1
            ):
                self.remarks.append(Remark(MISSING_FILE, self.parts[self._file].name, 0))

    def _remark(self, code: str, sighting: Sighting) -> None:
        self.remarks.append(Remark(code, sighting.part.name, sighting.block.offset))

    def _read(self, sighting: Sighting) -> None:
        block = sighting.block
        if block.state is not BlockState.OK:
            self._remark(block.state.value, sighting)
        sequence = block.prologue.sequence
        if sequence > self.last_sequence:
            known = self.last_sequence > 0
            self._charge(sighting, sequence - self.last_sequence - 1 if known else None)
            self.last_sequence = sequence
        for placed in block.entries:
            self._entry(placed.entry, sighting.index)

    # -- losses ------------------------------------------------------------------------------

    def _charge(self, sighting: Sighting, missing: int | None) -> None:
        """Say where ``missing`` blocks before this one went; None means it cannot be known."""
        rest = self._settle_regions(missing)
        if rest and self._torn is not None:
            index, torn = self._torn
            self._lose(LOST_AT_END, index, torn.part, torn.block.offset, rest)
        elif rest:
            offset = sighting.block.offset
            self._lose(MISSING_BLOCKS, sighting.index, sighting.part, offset, rest)
        self._torn = None

    def _settle_regions(self, missing: int | None) -> int:
        """Charge missing blocks to unreadable regions; returns how many are left over."""
        whole = sum(one.block.state is BlockState.BOTH_HEADERS_DAMAGED for one in self._regions)
        single = len(self._regions) - whole
        rest = None if missing is None else max(0, missing - single)
        for one in self._regions:
            block, blocks = one.block, None if rest is None else rest
            if block.state is BlockState.PAYLOAD_DAMAGED:
                count = block.claimed.count if block.claimed is not None else None
                self._lose(block.state, one.index, one.part, block.offset, 1, count, block.suspects)
                continue
            if rest is not None:
                whole -= 1
                blocks = max(1, rest - whole)
                rest = max(0, rest - blocks)
            self._lose(block.state, one.index, one.part, block.offset, blocks)
        self._regions.clear()
        return rest or 0

    def _lose(
        self,
        state: str,
        index: int,
        part: Part,
        offset: int,
        blocks: int | None,
        count: int | None = None,
        suspects: tuple[Suspect, ...] | None = None,
    ) -> None:
        self.losses.append(Loss(index, part.name, offset, str(state), blocks, count, suspects))

    # -- transactions ------------------------------------------------------------------------

    def _entry(self, entry: Entry, index: int) -> None:
        if entry.kind is EntryKind.PERSISTING:
            self._persisting(entry, index)
        elif entry.all_targets:
            self.open.pop(entry.number, None)
            self._partly.pop(entry.number, None)
            self.closed.add(entry.number)
        else:
            self._persisted(entry)

    def _persisting(self, entry: Entry, index: int) -> None:
        number = entry.number
        if not entry.carried_forward:
            self.seen.add(number)
        if number in self.closed:
            return
        if (known := self.open.get(number)) is not None:
            known.home = index
            return
        held = self._partly.pop(number, set())
        pending = [target for target in entry.targets if target not in held]
        one = OpenTransaction(number, pending, entry.targets, len(entry.operations), index)
        self._keep(one)

    def _persisted(self, entry: Entry) -> None:
        one = self.open.get(entry.number)
        if one is not None:
            one.pending = [target for target in one.pending if target not in entry.targets]
            self._keep(one)
        elif entry.number not in self.closed:
            self._partly.setdefault(entry.number, set()).update(entry.targets)

    def _keep(self, one: OpenTransaction) -> None:
        if one.pending:
            self.open[one.number] = one
        else:
            self.open.pop(one.number, None)
            self.closed.add(one.number)

    # -- files -------------------------------------------------------------------------------

    def redundant(self) -> list[bool]:
        """Per file: wholly readable, and home of no open transaction.

        All files count as left behind by an earlier process.
        """
        kept = {loss.file for loss in self.losses} | {one.home for one in self.open.values()}
        return [index not in kept for index in range(len(self.parts))]

    def disposable(self) -> int:
        """How many of the oldest files may go: redundant ones with no kept file before them."""
        flags = self.redundant()
        return flags.index(False) if False in flags else len(flags)

    def why_kept(self, index: int) -> str:
        """Why a file is not redundant; empty if it is."""
        if any(loss.file == index for loss in self.losses):
            return "blocks of it are lost; only an operator may set it aside"
        numbers = [one.number for one in self.open.values() if one.home == index]
        if not numbers:
            return ""
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        return f"transaction {min(numbers)}{more} still waits for a target"
