"""What the parts of a log leave open, packed; and what they come to together.

In: the rests of all parts of a log, in log order. Out: the transactions and changes that no part
gave alone, and the parts as one chunk each. A part is a run of whole blocks; joining refuses where
the whole log may read otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any, Self

from tallystick.records import Change, Transaction
from tallystick.systems.cloudtran.format.entries import (
    ALL_TARGETS,
    Entry,
    EntryKind,
    encode_entry,
    parse_entry,
    signed,
    unsigned,
)
from tallystick.systems.cloudtran.read.files import BlockFile
from tallystick.systems.cloudtran.read.interval_set import IntervalSet
from tallystick.systems.cloudtran.read.transactions import Step, TransactionFold
from tallystick.systems.cloudtran.runs.changes import first_changes
from tallystick.systems.rests import items, packed, require

Left = tuple[int, Step, str, int]
"""An entry of a transaction that is left open, as `TransactionFold.add` takes it."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a part ends, in bytes of the file, and what it holds.

    Attributes:
        stop: where the next part begins.
        size: of the file, when the part was read.
        end: of its last block; 0 where it has none.
        valid_bytes: those of headers and data.
        entries: how many it has.
        ends_closed: 1 if the last block says that its file was closed.
    """

    stop: int
    size: int = 0
    end: int = 0
    valid_bytes: int = 0
    entries: int = 0
    ends_closed: int = 0


@dataclass(slots=True)
class Rest:
    """What a part of a file leaves open.

    Attributes:
        file: its path.
        extent: the end of the part, and what it holds.
        serial: the serial number of its blocks; None if it has no block.
        unbroken: its blocks as `Chunk.unbroken` gives them.
        closed: numbers of the transactions that the part gave.
        logged: numbers of its persisting entries in their first place, whose changes it gave.
        left: the entries of all other transactions, in their order.
        carried: the entries that are carried forward, with their offsets.
    """

    file: str
    extent: Extent
    serial: int | None = None
    unbroken: list[tuple[int, int, int]] = field(default_factory=list)
    closed: IntervalSet = field(default_factory=IntervalSet)
    logged: IntervalSet = field(default_factory=IntervalSet)
    left: list[Left] = field(default_factory=list)
    carried: list[tuple[Entry, int]] = field(default_factory=list)

    def packed(self) -> bytes:
        """Return it as bytes."""
        left = [
            (signed(number), *step[1:-1], step.targets, reference, operations)
            for number, step, reference, operations in self.left
        ]
        carried = [(encode_entry(entry), offset) for entry, offset in self.carried]
        unbroken = [(offset, signed(one), signed(two)) for offset, one, two in self.unbroken]
        head = (self.file, astuple(self.extent), self.serial, unbroken)
        return packed((head, _pairs(self.closed), _pairs(self.logged), left, carried))

    @classmethod
    def built(cls, value: Any) -> Self:
        """Return the rest whose value was packed, for `unpacked`."""
        head, closed, logged, left, carried = items(value, list, list, list, list, list)
        file, extent, serial, unbroken = items(head, str, list, int | None, list)
        edges = Extent(*items(extent, *[int] * len(fields(Extent))))
        runs = [_run(*items(one, int, int, int)) for one in unbroken]
        entries = [_parsed(*items(one, bytes, int)) for one in carried]
        open_entries = [_left(file, *items(one, *_LEFT_TYPES)) for one in left]
        return cls(file, edges, serial, runs, _set(closed), _set(logged), open_entries, entries)


_LEFT_TYPES = (int, int, int, int, int, int, list, str, int)
"""The types of the items of an entry that is left open, packed."""


def _run(offset: int, first: int, last: int) -> tuple[int, int, int]:
    return offset, unsigned(first), unsigned(last)


def _pairs(numbers: IntervalSet) -> list[tuple[int, int]]:
    return [(signed(one.start), signed(one.stop - 1)) for one in numbers.ranges()]


def _set(pairs: Iterable[Any]) -> IntervalSet:
    found = IntervalSet()
    for pair in pairs:
        first, last = map(unsigned, items(pair, int, int))
        if first > last:
            raise ValueError("an empty range of numbers")
        found.add_range(range(first, last + 1))
    return found


def _parsed(encoded: bytes, offset: int) -> tuple[Entry, int]:
    return parse_entry(memoryview(encoded), 0).entry, offset


def _left(file: str, number: int, *rest: Any) -> Left:
    offset, length, kind, flags, time, targets, reference, operations = rest
    names = tuple(items(targets, *[str] * len(targets)))
    step = Step(file, offset, length, EntryKind(kind).value, flags, time, names)
    return unsigned(number), step, reference, operations


def close_rests(rests: Sequence[Rest], log: str) -> tuple[list[Transaction], list[Change]]:
    """Return the transactions and changes that no part gave.

    Raises:
        NotClosedInPartsError: the whole log has to be read.
    """
    _require_joined(rests)
    fold = TransactionFold(log)
    for rest in rests:
        for one in rest.left:
            fold.add(*one)
    return [fold.known[number] for number in sorted(fold.known)], _carried(rests, log)


@dataclass(frozen=True, slots=True)
class KnownBlocks:
    """The blocks of a part as one chunk, for `LogAnalysis`; it has some."""

    index: int
    file: BlockFile
    rest: Rest

    @property
    def end(self) -> int:
        """The offset in the file after the last block."""
        return self.rest.extent.end

    @property
    def ends_closed(self) -> bool:
        """Whether the last block says that its file was closed."""
        return bool(self.rest.extent.ends_closed)

    @property
    def valid_bytes(self) -> int:
        """How many bytes headers and data have."""
        return self.rest.extent.valid_bytes

    @property
    def count(self) -> int:
        """How many entries the blocks have."""
        return self.rest.extent.entries

    def unbroken(self) -> Iterable[tuple[int, int, int]]:
        """Return what `Chunk.unbroken` does."""
        return self.rest.unbroken

    def logged(self) -> Iterable[range]:
        """Return the numbers of persisting entries in their first place."""
        return self.rest.logged.ranges()

    def closed(self) -> Iterator[range]:
        """Yield the numbers that every target holds, as ranges."""
        yield from self.rest.closed.ranges()
        yield from (range(number, number + 1) for number in self._closing)

    def left_open(self) -> Iterator[tuple[int, int, tuple[str, ...], int]]:
        """Yield what `Chunk.left_open` does."""
        closing = self._closing
        for number, step, _, operations in self.rest.left:
            if number not in closing:
                yield step.kind, number, step.targets, operations

    @property
    def _closing(self) -> set[int]:
        return {
            number
            for number, step, *_ in self.rest.left
            if step.kind == EntryKind.PERSISTED and step.flags & ALL_TARGETS
        }


def known_blocks(rests: Sequence[Rest], files: Sequence[BlockFile]) -> Iterator[KnownBlocks]:
    """Yield the parts that have blocks, of the files of a log.

    Raises:
        NotClosedInPartsError: the whole log has to be read.
    """
    _require_joined(rests)
    extents: dict[str, list[Extent]] = {}
    for rest in rests:
        extents.setdefault(rest.file, []).append(rest.extent)
    for some in extents.values():
        # Nothing was written after the last part meanwhile.
        require({one.size for one in some} == {some[-1].stop}, "a file has changed")
    places = {file.path: index for index, file in enumerate(files)}
    for rest in rests:
        if rest.unbroken:
            index = places[rest.file]
            yield KnownBlocks(index, files[index], rest)


def _require_joined(rests: Sequence[Rest]) -> None:
    """Refuse parts of which one may read otherwise beside the others."""
    _require_order(rests)
    closed = IntervalSet()
    for rest in rests:
        for numbers in rest.closed.ranges():
            require(not closed.meets(numbers), "a transaction was closed in two parts")
            closed.add_range(numbers)
    left = (number for rest in rests for number, *_ in rest.left)
    require(not any(one in closed for one in left), "a closed transaction goes on elsewhere")


def _require_order(rests: Iterable[Rest]) -> None:
    """Refuse blocks that the whole log takes for repeated, or left over from an earlier life."""
    last, serials = 0, dict[str, int]()
    for rest in rests:
        if rest.serial is not None:
            require(rest.unbroken[0][1] > last, "the sequences of two parts are not in order")
            same = serials.setdefault(rest.file, rest.serial) == rest.serial
            require(same, "the serials of two parts of a file differ")
            last = rest.unbroken[-1][2]


def _carried(rests: Sequence[Rest], log: str) -> list[Change]:
    """Return the changes of entries whose first place is in no part."""
    found = ((rest.file, *one) for rest in rests for one in rest.carried)
    return first_changes(found, log, lambda one: any(one in rest.logged for rest in rests))
