"""The operations of persisting entries as `Change` values.

In: the pieces of a log in the order of reading. Out: the changes of all transactions by ascending
number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from tallystick.errors import LogUnreadableError
from tallystick.records import Change, Kind
from tallystick.systems.cloudtran.format.entries import (
    Entry,
    EntryKind,
    OperationKind,
    PlacedEntry,
    signed,
)
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence
from tallystick.systems.cloudtran.read.interval_set import IntervalSet
from tallystick.systems.cloudtran.runs.pieces import Piece

CHANGE_KINDS = {
    OperationKind.OPAQUE: Kind.UNKNOWN,
    OperationKind.INSERT: Kind.ADD,
    OperationKind.UPDATE: Kind.UPDATE,
    OperationKind.DELETE: Kind.DELETE,
}


def plain_changes(occurrences: Iterable[BlockOccurrence], log: str) -> Iterator[Change]:
    """Yield the operations of entries in their first place, by ascending number."""
    for occurrence, placed in _persisting(occurrences):
        if not placed.entry.carried_forward:
            offset, _ = occurrence.block.place_of(placed)
            yield from entry_changes(placed.entry, offset, occurrence.file.path, log)


def carried_changes(pieces: Iterable[Piece], log: str) -> list[Change]:
    """Return the operations of transactions with carried entries only, by ascending number."""
    carried: dict[int, list[Change]] = {}
    plain = IntervalSet()
    for piece in pieces:
        for entry, offset in _carried_entries(piece, plain):
            if entry.number not in carried:
                carried[entry.number] = list(entry_changes(entry, offset, piece.file.path, log))
    numbers = sorted(number for number in carried if number not in plain)
    return [change for number in numbers for change in carried[number]]


def _carried_entries(piece: Piece, plain: IntervalSet) -> Iterator[tuple[Entry, int]]:
    """Yield carried entries with their offsets; add the numbers of all others to ``plain``."""
    if not isinstance(piece, BlockOccurrence):
        for numbers in piece.logged():
            plain.add_range(numbers)
        yield from piece.carried()
        return
    for _, placed in _persisting([piece]):
        if placed.entry.carried_forward:
            yield placed.entry, piece.block.place_of(placed)[0]
        else:
            plain.add(placed.entry.number)


def changes_between(
    occurrences: Callable[[int | None], Iterable[BlockOccurrence]],
    log: str,
    after: int | None,
    until: int,
    *,
    skip_lost: bool,
) -> Iterator[Change]:
    """Yield the operations of entries in the blocks above one number, up to another.

    ``occurrences`` gives blocks in order; those up to a number may be missing, with None none.

    An entry that is carried forward was in an earlier block, and is left out. With ``after`` None
    it is given where that block is not there.

    Raises:
        LogUnreadableError: blocks are gone or damaged, and are not to be skipped.
    """
    carried = carried_changes(occurrences(None), log) if after is None else []
    orphans = {key: [*some] for key, some in groupby(carried, lambda one: one.commit_sequence)}
    last = after
    for occurrence in occurrences(after):
        block = occurrence.block
        if not block.readable or (last is not None and block.prologue.sequence <= last):
            continue
        if block.prologue.sequence > until:
            return
        if not skip_lost and last is not None and block.prologue.sequence > last + 1:
            raise LogUnreadableError(
                "records were given up before they were read, or are damaged",
                file=occurrence.file.path, offset=block.offset,
                expected=f"block {last + 1}", found=f"block {block.prologue.sequence}",
                advice="Let the disposer wait for the stream: option holdFolder",
            )  # fmt: skip
        last = block.prologue.sequence
        for _, placed in _persisting([occurrence]):
            if placed.entry.carried_forward:
                yield from orphans.pop(signed(placed.entry.number), ())
            else:
                offset, _ = block.place_of(placed)
                yield from entry_changes(placed.entry, offset, occurrence.file.path, log)


def _persisting(
    occurrences: Iterable[BlockOccurrence],
) -> Iterator[tuple[BlockOccurrence, PlacedEntry]]:
    for occurrence in occurrences:
        if occurrence.block.readable:
            for placed in occurrence.block.entries:
                if placed.entry.kind is EntryKind.PERSISTING:
                    yield occurrence, placed


def entry_changes(entry: Entry, offset: int, path: str, log: str) -> Iterator[Change]:
    """Yield the operations of a persisting entry."""
    for ordinal, operation in enumerate(entry.operations):
        yield Change(
            SYSTEM_NAME,
            log,
            signed(entry.number),
            ordinal,
            CHANGE_KINDS[operation.kind],
            operation.collection,
            key_text(operation.key),
            path,
            offset,
            transaction=str(entry.number),
            time=entry.time,
            after=operation.value,
        )


def key_text(key: bytes) -> str:
    """Return a key as text, undecodable bytes escaped."""
    return key.decode("utf-8", "backslashreplace")
