"""From blocks to the one language of the house: records, changes, spans.

In: a block and the path of its file. Out: `Record`s (one per entry, placed at its length
field; entries of a compressed block share the place of their stream), `Change`s and `Span`s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tallystick.records import Change, Kind, Outcome, Record, Span
from tallystick.systems.cloudtran.format.entries import (
    Entry,
    EntryKind,
    Operation,
    OperationKind,
    PlacedEntry,
    Suspect,
)
from tallystick.systems.cloudtran.format.layout import HEADER_SIZE, SYSTEM_NAME
from tallystick.systems.cloudtran.read.scan import Block, BlockState

KINDS = {EntryKind.PERSISTING: Kind.PERSISTING, EntryKind.PERSISTED: Kind.PERSISTED}
TYPES = {EntryKind.PERSISTING: "persisting", EntryKind.PERSISTED: "persisted"}
ALL_TARGETS = "all"

_CHANGE_KINDS = {
    OperationKind.OPAQUE: Kind.UNKNOWN,
    OperationKind.INSERT: Kind.ADD,
    OperationKind.UPDATE: Kind.UPDATE,
    OperationKind.DELETE: Kind.DELETE,
}
_OUTCOMES = {
    BlockState.PAYLOAD_DAMAGED: Outcome.CORRUPT,
    BlockState.BOTH_HEADERS_DAMAGED: Outcome.CORRUPT,
    BlockState.TORN: Outcome.TORN,
    BlockState.STALE: Outcome.STALE,
}
_SALVAGED_ONLY = frozenset((BlockState.BOTH_HEADERS_DAMAGED, BlockState.TORN, BlockState.STALE))


def block_outcome(block: Block) -> Outcome:
    """What the block's bytes are: valid where it is readable, headers repaired or not."""
    return _OUTCOMES.get(block.state, Outcome.VALID)


# -- records -----------------------------------------------------------------------------


def block_records(block: Block, path: str, *, salvage: bool = False) -> Iterator[Record]:
    """The block's records: entries where it is readable, suspects where it is not.

    Suspects of a block whose header still tells its extent come as corrupt; what lies in torn
    tails, left-overs and between damaged headers comes with ``salvage`` only.
    """
    if block.state in _SALVAGED_ONLY and not salvage:
        return
    for place, entry in enumerate(block.entries):
        yield _entry_record(block, path, place, entry)
    for place, suspect in enumerate(block.suspects):
        yield _suspect_record(block, path, place, suspect)


def believed(block: Block) -> int:
    """How many records `block_records` gives without salvage."""
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
        block_outcome(block),
        KINDS[entry.kind],
        TYPES[entry.kind],
        sequence=block.prologue.sequence,
        time=entry.time,
        transaction=entry.number,
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
        block_outcome(block),
        KINDS[suspect.kind],
        TYPES[suspect.kind],
        time=suspect.time,
        transaction=suspect.number,
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


# -- changes -----------------------------------------------------------------------------


def entry_changes(block: Block, placed: PlacedEntry, path: str, log: str) -> Iterator[Change]:
    """The operations of a persisting entry; keys as text, undecodable bytes escaped."""
    entry = placed.entry
    offset, _ = block.place_of(placed)
    for ordinal, operation in enumerate(entry.operations):
        yield Change(
            SYSTEM_NAME,
            log,
            entry.number,
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


# -- spans -------------------------------------------------------------------------------

_REASONS = {
    BlockState.PAYLOAD_DAMAGED: "a header is whole, the checksum of the data fails",
    BlockState.BOTH_HEADERS_DAMAGED: "neither header is readable",
    BlockState.TORN: "nothing whole follows: the write never finished",
    BlockState.STALE: "serial or sequence are of an earlier life of the file",
}
_REPAIRED = "damaged; the other copy and the data give its content"
_DAMAGED_FIRSTS = (BlockState.FIRST_HEADER_DAMAGED, BlockState.BOTH_HEADERS_REPAIRED)


def block_spans(block: Block, file_size: int) -> Iterator[Span]:
    """The parts of a block: header, data, padding, header; a block that is lost in one piece."""
    if block.content is None or not block.readable:
        what = "block" if block.content is not None else "damaged range"
        yield Span(block.offset, block.length, block_outcome(block), what, _REASONS[block.state])
        return
    data_end = block.offset + HEADER_SIZE + block.content.size
    second = block.second_at
    if second is None:
        second = min(file_size, max(data_end, block.end - HEADER_SIZE))
    second_end = min(file_size, second + HEADER_SIZE)
    yield _header_span(block.offset, HEADER_SIZE, block.state in _DAMAGED_FIRSTS)
    yield Span(block.offset + HEADER_SIZE, block.content.size, Outcome.VALID, "data")
    yield from _padding(data_end, second)
    if second_end > second:
        yield _header_span(second, second_end - second, block.second_at is None)
    yield from _padding(second_end, block.end)


def _header_span(offset: int, size: int, damaged: bool) -> Span:
    if damaged:
        return Span(offset, size, Outcome.CORRUPT, "header", _REPAIRED)
    return Span(offset, size, Outcome.VALID, "header")


def _padding(start: int, end: int) -> Iterator[Span]:
    if end > start:
        reason = "fill up to the disk block boundary"
        yield Span(start, end - start, Outcome.UNUSED, "padding", reason)
