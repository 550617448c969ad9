"""Journal records in the house's language.

In: an `Item` and where it stands. Out: a `Record` or a `Change`.
"""

from __future__ import annotations

from tallystick.records import Change, Kind, Outcome, Record
from tallystick.systems.jboss.format.layout import SYSTEM_NAME, Item, Name
from tallystick.systems.jboss.format.narayana import (
    HEURISTIC_TYPE,
    heuristic_xid,
    object_state,
    xid,
)

KINDS = {
    Name.EVENT: Kind.CONTROL,
    Name.ADD: Kind.ADD,
    Name.UPDATE: Kind.UPDATE,
    Name.ADD_TX: Kind.ADD,
    Name.UPDATE_TX: Kind.UPDATE,
    Name.DELETE_TX: Kind.DELETE,
    Name.DELETE: Kind.DELETE,
    Name.PREPARE: Kind.PREPARE,
    Name.COMMIT: Kind.COMMIT,
    Name.ROLLBACK: Kind.ROLLBACK,
}


def to_record(item: Item, path: str, outcome: Outcome = Outcome.VALID) -> Record:
    """The record; a PREPARE's Xid and a heuristic outcome are taken from its bytes."""
    record = Record(
        SYSTEM_NAME,
        path,
        item.offset,
        item.length,
        outcome,
        KINDS[item.name],
        item.name.name,
        transaction=item.transaction,
        record_id=item.record_id,
        body=item.body,
        attributes=_attributes(item),
    )
    if item.name is Name.PREPARE:
        _take_xid(record, item)
    elif item.name is Name.ADD and item.user_type == HEURISTIC_TYPE:
        _take_heuristic(record, item)
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
    if item.name in (Name.ADD, Name.UPDATE) and (state := object_state(item.body or b"")):
        attributes["object"] = {"uid": state.uid_text, "type": state.type_name}
    return attributes


def _take_xid(record: Record, item: Item) -> None:
    if (found := xid(item.extra or b"")) is not None:
        record.format_id, record.gtrid, record.bqual = found.format_id, found.gtrid, found.bqual


def _take_heuristic(record: Record, item: Item) -> None:
    if (found := heuristic_xid(item.body or b"")) is not None:
        one, committed = found
        record.kind = Kind.HEURISTIC
        record.format_id, record.gtrid, record.bqual = one.format_id, one.gtrid, one.bqual
        record.attributes["heuristic"] = "committed" if committed else "rolled_back"


def to_change(
    item: Item, path: str, log: str, sequence: int, ordinal: int, gtrid: bytes | None
) -> Change:
    """A committed add, update or delete."""
    return Change(
        SYSTEM_NAME,
        log,
        sequence,
        ordinal,
        KINDS[item.name],
        "",
        str(item.record_id),
        path,
        item.offset,
        transaction=None if item.transaction is None else str(item.transaction),
        gtrid=gtrid,
        after=None if KINDS[item.name] is Kind.DELETE else item.body,
        values=None if item.user_type is None else {"user_type": item.user_type},
    )
