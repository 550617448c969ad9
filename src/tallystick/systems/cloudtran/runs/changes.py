"""The operations of persisting entries as `Change` values.

In: the pieces of a log in the order of reading. Out: the changes of all transactions by ascending
number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from tallystick.errors import LogUnreadableError
from tallystick.records import Change, Kind
from tallystick.systems.cloudtran.format.entries import (
    Entry,
    EntryKind,
    OperationKind,
    PlacedEntry,
    signed,
    unsigned,
)
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence
from tallystick.systems.cloudtran.read.interval_set import IntervalSet
from tallystick.systems.cloudtran.runs.pieces import Piece

Blocks = Callable[[int | None], Iterable[BlockOccurrence]]

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
    plain = IntervalSet()
    found = ((piece.file.path, *one) for piece in pieces for one in _carried_entries(piece, plain))
    return first_changes(found, log, plain.__contains__)


def first_changes(
    carried: Iterable[tuple[str, Entry, int]], log: str, is_plain: Callable[[int], bool]
) -> list[Change]:
    """Return the operations of carried entries, by ascending number, each where it is first.

    Args:
        carried: the file of each, the entry and its offset.
        log: the name of the log.
        is_plain: whether an entry of this number is not carried; asked after the last entry.
    """
    found: dict[int, list[Change]] = {}
    for file, entry, offset in carried:
        if entry.number not in found:
            found[entry.number] = list(entry_changes(entry, offset, file, log))
    return [one for number in sorted(found) if not is_plain(number) for one in found[number]]


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
    occurrences: Blocks,
    log: str,
    after: int | None,
    until: int,
    *,
    skip_lost: bool,
) -> Iterator[Change]:
    """Yield the operations of entries in the blocks above one number, up to another.

    ``occurrences`` gives blocks in order; those up to a number may be missing, with None none.

    An entry that is carried forward was in an earlier block, and is left out. Where that block is
    not there, as blocks are missing or no step came before, it is given before the next greater
    number, as in a reading of the whole log, wherever it is carried to.

    Raises:
        LogUnreadableError: blocks are gone or damaged, and are not to be skipped.
    """
    last = after
    orphans = _Orphans.after(occurrences, log, None) if after is None else None
    for occurrence in occurrences(after):
        block = occurrence.block
        if not block.readable or (last is not None and block.prologue.sequence <= last):
            continue
        gap, beyond = last is not None and block.prologue.sequence > last + 1, False
        if block.prologue.sequence > until:
            if gap or orphans is None or orphans.closed:
                return
            beyond = True  # what is missing before it is of this step
        if gap and not skip_lost:
            raise LogUnreadableError(
                "records were given up before they were read, or are damaged",
                file=occurrence.file.path, offset=block.offset,
                expected=f"block {(last or 0) + 1}", found=f"block {block.prologue.sequence}",
                advice="Let the disposer wait for the stream: option holdFolder",
            )  # fmt: skip
        if gap:
            orphans = orphans or _Orphans.after(occurrences, log, last)
            orphans.closed = False
        last = block.prologue.sequence
        for _, placed in _persisting([occurrence]):
            entry = placed.entry
            if orphans is not None:
                yield from orphans.until(entry)
            if entry.carried_forward:
                continue
            if beyond:
                return
            offset, _ = block.place_of(placed)
            yield from entry_changes(entry, offset, occurrence.file.path, log)


@dataclass(slots=True)
class _Orphans:
    """The changes of entries that are only carried, by number, ascending.

    ``closed`` is False as long as no new entry has come since blocks were missing.
    """

    waiting: deque[tuple[int, list[Change]]]
    closed: bool = False

    @classmethod
    def after(cls, occurrences: Blocks, log: str, known: int | None) -> _Orphans:
        """Return those that no step up to the block ``known`` has given; with None all."""
        highest = 0
        for occurrence, placed in _persisting(occurrences(None)) if known else ():
            if known is not None and occurrence.block.prologue.sequence > known:
                break
            highest = max(highest, placed.entry.number)
        carried = carried_changes(occurrences(None), log)
        found = groupby(carried, lambda one: unsigned(one.commit_sequence))
        return cls(deque((number, [*some]) for number, some in found if number > highest))

    def until(self, entry: Entry) -> Iterator[Change]:
        """Yield those up to the number of an entry."""
        while self.waiting and self.waiting[0][0] <= entry.number:
            yield from self.waiting.popleft()[1]
        self.closed |= not entry.carried_forward


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
