"""From blocks to transactions.

In: blocks in the order of reading. Out: one `Transaction` per number with a persisting entry.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.records import State, Transaction
from tallystick.systems.cloudtran.format.entries import Entry, EntryKind, PlacedEntry, signed
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence
from tallystick.systems.cloudtran.read.records import TYPES


def fold_transactions(occurrences: Iterable[BlockOccurrence], log: str) -> list[Transaction]:
    """Return transactions by ascending number.

    Persisted entries whose persisting entry is gone are left out, as replay ignores them.
    """
    known: dict[int, Transaction] = {}
    early: dict[int, list[tuple[BlockOccurrence, PlacedEntry]]] = {}
    for occurrence in occurrences:
        if not occurrence.block.readable:
            continue
        for placed in occurrence.block.entries:
            one = known.get(placed.entry.number)
            if placed.entry.kind is EntryKind.PERSISTED and one is None:
                early.setdefault(placed.entry.number, []).append((occurrence, placed))
                continue
            if one is None:
                one = known[placed.entry.number] = _new_transaction(placed.entry, log)
                for earlier in early.pop(placed.entry.number, ()):
                    _add_entry(one, *earlier)
            _add_entry(one, occurrence, placed)
    return [known[number] for number in sorted(known)]


def _new_transaction(entry: Entry, log: str) -> Transaction:
    return Transaction(
        SYSTEM_NAME,
        log,
        str(entry.number),
        State.PENDING,
        transaction=signed(entry.number),
        name=entry.reference or None,
        participants=entry.targets,
        open_participants=entry.targets,
        first_time=entry.time,
        attributes={"operations": len(entry.operations)},
    )


def _add_entry(one: Transaction, occurrence: BlockOccurrence, placed: PlacedEntry) -> None:
    entry, path = placed.entry, occurrence.file.path
    offset, length = occurrence.block.place_of(placed)
    one.records += 1
    one.bytes += length
    one.last_time = entry.time
    if path not in one.files:
        one.files += (path,)
    if one.state is State.PENDING:
        one.evidence = (path, offset)
        one.evidence_type = TYPES[entry.kind]
        _advance(one, entry)


def _advance(one: Transaction, entry: Entry) -> None:
    if entry.carried_forward:
        one.attributes["carried_forward"] = True
    if entry.discarded:
        one.attributes["discarded"] = list(one.open_participants)
        one.state = State.HEURISTIC
    if entry.kind is EntryKind.PERSISTED:
        left = (
            ()
            if entry.all_targets
            else tuple(target for target in one.open_participants if target not in entry.targets)
        )
        one.open_participants = left
        if not left and one.state is State.PENDING:
            one.state = State.COMMITTED
