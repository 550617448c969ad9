"""From blocks to `Record` values, and from a persisting record to a `StoredEntry`.

In: a block and the path of its file. Out: one `Record` per entry, placed at its length field;
entries of a compressed block share the place of their stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tallystick import roles
from tallystick.records import Kind, Record
from tallystick.systems.cloudtran.format.entries import (
    Entry,
    EntryKind,
    Operation,
    PlacedEntry,
    Suspect,
    signed,
    unsigned,
)
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.scan import Block, BlockState
from tallystick.systems.protocol import StoredEntry

KINDS = {EntryKind.PERSISTING: Kind.PERSISTING, EntryKind.PERSISTED: Kind.PERSISTED}
TYPES = {EntryKind.PERSISTING: "persisting", EntryKind.PERSISTED: "persisted"}
ALL_TARGETS = "all"

_SALVAGED_ONLY = frozenset((BlockState.BOTH_HEADERS_DAMAGED, BlockState.TORN, BlockState.STALE))


def block_records(block: Block, path: str, *, salvage: bool = False) -> Iterator[Record]:
    """Yield the block's records: entries where it is readable, suspects where it is not.

    Suspects of a block whose header still states its extent come as corrupt; those in torn tails,
    in left-over blocks and between damaged headers come with ``salvage`` only.
    """
    if block.state in _SALVAGED_ONLY and not salvage:
        return
    for place, entry in enumerate(block.entries):
        yield _entry_record(block, path, place, entry)
    for place, suspect in enumerate(block.suspects):
        yield _suspect_record(block, path, place, suspect)


def count_records(block: Block) -> int:
    """Return how many records `block_records` gives without salvage."""
    if block.state in _SALVAGED_ONLY:
        return 0
    return len(block.entries) + len(block.suspects)


def _entry_record(block: Block, path: str, place: int, placed: PlacedEntry) -> Record:
    entry = placed.entry
    offset, length = block.place_of(placed)
    return Record(
        SYSTEM_NAME,
        path,
        offset,
        length,
        block.outcome,
        KINDS[entry.kind],
        TYPES[entry.kind],
        sequence=signed(block.prologue.sequence),
        time=entry.time,
        transaction=signed(entry.number),
        resources=entry.targets,
        body=placed.body,
        attributes=_attributes(block, place) | _entry_attributes(entry),
    )


def _suspect_record(block: Block, path: str, place: int, suspect: Suspect) -> Record:
    return Record(
        SYSTEM_NAME,
        path,
        block.entries_at + suspect.offset,
        suspect.length,
        block.outcome,
        KINDS[suspect.kind],
        TYPES[suspect.kind],
        time=suspect.time,
        transaction=signed(suspect.number),
        attributes=_attributes(block, place) | {"suspect": True},
    )


def _attributes(block: Block, place: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "block_offset": block.offset,
        "block_length": block.length,
        "block_state": block.state.value,
        "place": place,
    }
    if block.content is not None:
        attributes["count"] = len(block.entries)
        attributes["serial"] = block.prologue.serial
    if block.state in _SALVAGED_ONLY:
        attributes["salvaged"] = True
    return attributes


def _entry_attributes(entry: Entry) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "targets": ALL_TARGETS if entry.all_targets else list(entry.targets)
    }
    if entry.flags:
        attributes["flags"] = entry.flags
    if entry.reference:
        attributes["ref"] = entry.reference
    if entry.kind is EntryKind.PERSISTING:
        attributes["operations"] = len(entry.operations)
        attributes["operation_list"] = [
            _operation_json(one, entry.targets) for one in entry.operations
        ]
    return attributes


def _operation_json(operation: Operation, targets: tuple[str, ...]) -> dict[str, Any]:
    return {
        "code": operation.kind.name.lower(),
        "target": None if operation.target is None else targets[operation.target],
        "collection": operation.collection,
        "key": operation.key,
        "value": operation.value,
    }


def stored_entry(record: Record) -> StoredEntry:
    """Return the entry of a persisting record; its number is the transaction's."""
    number = None if record.transaction is None else unsigned(record.transaction)
    return StoredEntry(number, str(record.attributes.get("ref") or ""), _operations(record))


def _operations(record: Record) -> Iterator[roles.Operation]:
    for one in record.attributes["operation_list"]:
        yield roles.Operation(
            roles.OperationCode(one["code"]),
            one["collection"],
            one["key"],
            one["value"],
            one["target"],
        )
