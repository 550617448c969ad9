"""What the parts of a log leave open, packed; and what they come to together.

In: the rests of all parts of a log, in log order. Out: the transactions and changes that no part
gave alone. A part is a run of whole blocks; joining refuses where the whole log may read otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tallystick.records import Change, Transaction
from tallystick.systems.cloudtran.format.entries import (
    Entry,
    EntryKind,
    encode_entry,
    parse_entry,
    signed,
    unsigned,
)
from tallystick.systems.cloudtran.read.interval_set import IntervalSet
from tallystick.systems.cloudtran.read.transactions import Step, TransactionFold
from tallystick.systems.cloudtran.runs.changes import entry_changes
from tallystick.systems.protocol import NotClosedInPartsError
from tallystick.systems.rests import items, packed

Left = tuple[int, Step, str, int]
"""An entry of a transaction that is left open, as `TransactionFold.add` takes it."""


@dataclass(slots=True)
class Rest:
    """What a part of a file leaves open.

    Attributes:
        file: its path.
        serial: that of its blocks; None where there are none.
        first: sequence of its first block.
        last: sequence of its last block.
        closed: numbers of the transactions that the part gave.
        logged: numbers of its persisting entries in their first place, whose changes it gave.
        left: the entries of all other transactions, in their order.
        carried: the entries that are carried forward, with their offsets.
    """

    file: str
    serial: int | None = None
    first: int = 0
    last: int = 0
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
        edges = (self.file, self.serial, signed(self.first), signed(self.last))
        return packed((edges, _pairs(self.closed), _pairs(self.logged), left, carried))

    @classmethod
    def built(cls, value: Any) -> Self:
        """Return the rest whose value was packed, for `unpacked`."""
        edges, closed, logged, left, carried = items(value, list, list, list, list, list)
        file, serial, first, last = items(edges, str, int | None, int, int)
        entries = [_parsed(*items(one, bytes, int)) for one in carried]
        open_entries = [_left(file, *items(one, *_LEFT_TYPES)) for one in left]
        numbers = unsigned(first), unsigned(last), _set(closed), _set(logged)
        return cls(file, serial, *numbers, open_entries, entries)


_LEFT_TYPES = (int, int, int, int, int, int, list, str, int)
"""The types of the items of an entry that is left open, packed."""


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
    _require_order(rests)
    closed = IntervalSet()
    for rest in rests:
        for numbers in rest.closed.ranges():
            _require(not closed.meets(numbers), "a transaction was closed in two parts")
            closed.add_range(numbers)
    fold = TransactionFold(log)
    for rest in rests:
        for one in rest.left:
            _require(one[0] not in closed, "a closed transaction has entries in other parts")
            fold.add(*one)
    return [fold.known[number] for number in sorted(fold.known)], _carried(rests, log)


def _require_order(rests: Iterable[Rest]) -> None:
    """Refuse blocks that the whole log takes for repeated, or left over from an earlier life."""
    last, serials = 0, dict[str, int]()
    for rest in rests:
        if rest.serial is not None:
            _require(rest.first > last, "the sequences of two parts are not in order")
            same = serials.setdefault(rest.file, rest.serial) == rest.serial
            _require(same, "the serials of two parts of a file differ")
            last = rest.last


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise NotClosedInPartsError(why)


def _carried(rests: Sequence[Rest], log: str) -> list[Change]:
    """Return the changes of entries whose first place is in no part."""
    carried: dict[int, list[Change]] = {}
    for rest in rests:
        for entry, offset in rest.carried:
            if entry.number not in carried:
                carried[entry.number] = list(entry_changes(entry, offset, rest.file, log))
    logged = [number for number in carried if any(number in rest.logged for rest in rests)]
    return [change for number in sorted(carried.keys() - set(logged)) for change in carried[number]]
