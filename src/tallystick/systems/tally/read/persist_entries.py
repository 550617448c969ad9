"""Persisting records of a native log as entries that any persist log can take."""

from __future__ import annotations

from tallystick.records import Record
from tallystick.roles import Operation, OperationCode
from tallystick.systems.protocol import StoredEntry
from tallystick.systems.tally.format.bodies import OPERATION_CODES, decode_entry


def stored_entry(record: Record) -> StoredEntry:
    """Return the entry of a persisting record; its number is the record id."""
    assert record.record_id is not None
    targets, _, operations = decode_entry(record.body or b"")
    told = tuple(
        Operation(
            OperationCode(OPERATION_CODES[one.code]),
            one.collection,
            one.key,
            one.value,
            None if one.target is None else targets[one.target],
        )
        for one in operations
    )
    reference = str(record.attributes.get("reference") or "")
    return StoredEntry(record.record_id, reference, told)
