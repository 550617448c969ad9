"""From sightings of blocks to transactions and changes.

In: sightings in order. Out: one `Transaction` per number that has a persisting entry, and the
`Change`s of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tallystick.records import Change, State, Transaction
from tallystick.systems.cloudtran.format.entries import Entry, EntryKind, PlacedEntry
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.block_order import Sighting
from tallystick.systems.cloudtran.read.interval_set import NumberSet
from tallystick.systems.cloudtran.read.records import TYPES, entry_changes


def fold_transactions(sightings: Iterable[Sighting], log: str) -> list[Transaction]:
    """Transactions by ascending number; persisted entries whose persisting entry is gone are
    left out, as replay ignores them."""
    known: dict[int, Transaction] = {}
    early: dict[int, list[tuple[Sighting, PlacedEntry]]] = {}
    for sighting in sightings:
        if not sighting.block.readable:
            continue
        for placed in sighting.block.entries:
            one = known.get(placed.entry.number)
            if placed.entry.kind is EntryKind.PERSISTED and one is None:
                early.setdefault(placed.entry.number, []).append((sighting, placed))
                continue
            if one is None:
                one = known[placed.entry.number] = _begun(placed.entry, log)
                for earlier in early.pop(placed.entry.number, ()):
                    _note(one, *earlier)
            _note(one, sighting, placed)
    return [known[number] for number in sorted(known)]


def _begun(entry: Entry, log: str) -> Transaction:
    return Transaction(
        SYSTEM_NAME,
        log,
        str(entry.number),
        State.PENDING,
        transaction=entry.number,
        name=entry.reference or None,
        participants=entry.targets,
        open_participants=entry.targets,
        first_time=entry.time,
        attributes={"operations": len(entry.operations)},
    )


def _note(one: Transaction, sighting: Sighting, placed: PlacedEntry) -> None:
    entry, path = placed.entry, sighting.part.path
    offset, length = sighting.block.place_of(placed)
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


def plain_changes(sightings: Iterable[Sighting], log: str) -> Iterator[Change]:
    """Operations of the entries that are in their first place, by ascending number."""
    for sighting, placed in _persisting(sightings):
        if not placed.entry.carried_forward:
            yield from entry_changes(sighting.block, placed, sighting.part.path, log)


def carried_changes(sightings: Iterable[Sighting], log: str) -> list[Change]:
    """Operations of transactions of which only carried entries are left, by ascending number."""
    carried: dict[int, list[Change]] = {}
    plain = NumberSet()
    for sighting, placed in _persisting(sightings):
        number = placed.entry.number
        if not placed.entry.carried_forward:
            plain.add(number)
        elif number not in carried:
            path = sighting.part.path
            carried[number] = list(entry_changes(sighting.block, placed, path, log))
    numbers = sorted(number for number in carried if number not in plain)
    return [change for number in numbers for change in carried[number]]


def _persisting(sightings: Iterable[Sighting]) -> Iterator[tuple[Sighting, PlacedEntry]]:
    for sighting in sightings:
        if sighting.block.readable:
            for placed in sighting.block.entries:
                if placed.entry.kind is EntryKind.PERSISTING:
                    yield sighting, placed
