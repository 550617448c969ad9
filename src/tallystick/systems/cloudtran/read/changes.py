"""The operations of persisting entries as `Change` values.

In: blocks in the order of reading. Out: the changes of all transactions by ascending number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tallystick.records import Change, Kind
from tallystick.systems.cloudtran.format.entries import (
    EntryKind,
    OperationKind,
    PlacedEntry,
    signed,
)
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence
from tallystick.systems.cloudtran.read.interval_set import IntervalSet
from tallystick.systems.cloudtran.read.scan import Block

_CHANGE_KINDS = {
    OperationKind.OPAQUE: Kind.UNKNOWN,
    OperationKind.INSERT: Kind.ADD,
    OperationKind.UPDATE: Kind.UPDATE,
    OperationKind.DELETE: Kind.DELETE,
}


def plain_changes(occurrences: Iterable[BlockOccurrence], log: str) -> Iterator[Change]:
    """Yield the operations of entries in their first place, by ascending number."""
    for occurrence, placed in _persisting(occurrences):
        if not placed.entry.carried_forward:
            yield from _entry_changes(occurrence.block, placed, occurrence.file.path, log)


def carried_changes(occurrences: Iterable[BlockOccurrence], log: str) -> list[Change]:
    """Return the operations of transactions with carried entries only, by ascending number."""
    carried: dict[int, list[Change]] = {}
    plain = IntervalSet()
    for occurrence, placed in _persisting(occurrences):
        number = placed.entry.number
        if not placed.entry.carried_forward:
            plain.add(number)
        elif number not in carried:
            path = occurrence.file.path
            carried[number] = list(_entry_changes(occurrence.block, placed, path, log))
    numbers = sorted(number for number in carried if number not in plain)
    return [change for number in numbers for change in carried[number]]


def _persisting(
    occurrences: Iterable[BlockOccurrence],
) -> Iterator[tuple[BlockOccurrence, PlacedEntry]]:
    for occurrence in occurrences:
        if occurrence.block.readable:
            for placed in occurrence.block.entries:
                if placed.entry.kind is EntryKind.PERSISTING:
                    yield occurrence, placed


def _entry_changes(block: Block, placed: PlacedEntry, path: str, log: str) -> Iterator[Change]:
    """Yield the operations of a persisting entry; keys as text, undecodable bytes escaped."""
    entry = placed.entry
    offset, _ = block.place_of(placed)
    for ordinal, operation in enumerate(entry.operations):
        yield Change(
            SYSTEM_NAME,
            log,
            signed(entry.number),
            ordinal,
            _CHANGE_KINDS[operation.kind],
            operation.collection,
            operation.key.decode("utf-8", "backslashreplace"),
            path,
            offset,
            transaction=str(entry.number),
            time=entry.time,
            after=operation.value,
        )
