"""Journal records as `Record`s: whole, damaged and salvaged ones.

In: a `FileReading`. Out: `Record`s; of damaged ones the fields whose bytes are there.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import Kind, Outcome, Record
from tallystick.systems.jboss.format.bodies import (
    HEURISTIC_TYPE,
    heuristic_xid,
    object_state,
    xid,
)
from tallystick.systems.jboss.format.layout import (
    EVENT,
    I8,
    IN_TRANSACTION,
    OF_RECORD,
    ROLLBACK,
    SYSTEM_NAME,
    Item,
    RecordType,
)
from tallystick.systems.jboss.read.classify import Classified, FileReading

KINDS = {
    RecordType.EVENT: Kind.CONTROL,
    RecordType.ADD: Kind.ADD,
    RecordType.UPDATE: Kind.UPDATE,
    RecordType.ADD_TX: Kind.ADD,
    RecordType.UPDATE_TX: Kind.UPDATE,
    RecordType.DELETE_TX: Kind.DELETE,
    RecordType.DELETE: Kind.DELETE,
    RecordType.PREPARE: Kind.PREPARE,
    RecordType.COMMIT: Kind.COMMIT,
    RecordType.ROLLBACK: Kind.ROLLBACK,
}


def records_of(reading: FileReading, *, salvage: bool = False) -> Iterator[Record]:
    """Yield the records of a file by offset; stale and dropped ones only with ``salvage``."""
    for one in reading.ranges:
        if one.outcome in (Outcome.TORN, Outcome.CORRUPT):
            yield damaged_record(reading, one)
            continue
        salvaged = one.dropped or one.outcome is Outcome.STALE
        if salvaged and not (salvage and reading.whole(one)):
            continue
        record = to_record(reading.item(one), reading.file.path, one.outcome)
        if salvaged:
            record.attributes |= {"salvaged": True, "reason": one.reason}
        yield record


def damaged_record(reading: FileReading, one: Classified) -> Record:
    """Return a damaged record with the numbers in its bytes, which may be damaged themselves."""
    data, shape = reading.file.data(), reading.shape
    row = one.row
    byte = data[row.offset]
    kind = shape.record_type(byte) if EVENT <= byte <= ROLLBACK else None
    at = row.offset + shape.fields_at
    numbers: list[int | None] = []
    for wanted in (kind in IN_TRANSACTION, kind in OF_RECORD):
        fits = wanted and at + I8.size <= row.end
        numbers.append(I8.unpack_from(data, at)[0] if fits else None)
        at += I8.size if fits else 0
    return Record(
        SYSTEM_NAME,
        reading.file.path,
        row.offset,
        row.size,
        one.outcome,
        KINDS[kind] if kind else Kind.UNKNOWN,
        kind.name if kind else "UNKNOWN",
        transaction=numbers[0],
        record_id=numbers[1],
        body=bytes(data[row.offset : row.end]),
        attributes={"file_id": row.file_id, "reason": one.reason},
    )


def to_record(item: Item, path: str, outcome: Outcome = Outcome.VALID) -> Record:
    """Return the record, with the Xid of a PREPARE or of a heuristic outcome."""
    record = Record(
        SYSTEM_NAME,
        path,
        item.offset,
        item.length,
        outcome,
        KINDS[item.type],
        item.type.name,
        transaction=item.transaction,
        record_id=item.record_id,
        body=item.body,
        attributes=_attributes(item),
    )
    if item.type is RecordType.PREPARE:
        _set_xid(record, item)
    elif item.type is RecordType.ADD and item.user_type == HEURISTIC_TYPE:
        _set_heuristic(record, item)
    return record


def _attributes(item: Item) -> dict[str, object]:
    named = {
        "file_id": item.file_id,
        "compact_count": item.compact_count,
        "user_type": item.user_type,
        "count": item.count,
        "pairs": item.pairs,
        "extra": item.extra,
    }
    attributes: dict[str, object] = {
        key: value for key, value in named.items() if value is not None
    }
    is_object = item.type in (RecordType.ADD, RecordType.UPDATE)
    if is_object and (state := object_state(item.body or b"")):
        attributes["object"] = {"uid": state.uid_text, "type": state.type_name}
    return attributes


def _set_xid(record: Record, item: Item) -> None:
    if (found := xid(item.extra or b"")) is not None:
        record.format_id, record.gtrid, record.bqual = found.format_id, found.gtrid, found.bqual


def _set_heuristic(record: Record, item: Item) -> None:
    if (found := heuristic_xid(item.body or b"")) is not None:
        one, committed = found
        record.kind = Kind.HEURISTIC
        record.format_id, record.gtrid, record.bqual = one.format_id, one.gtrid, one.bqual
        record.attributes["heuristic"] = "committed" if committed else "rolled_back"
