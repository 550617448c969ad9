"""Persisting records of a block log as entries that any persist log can take."""

from __future__ import annotations

from tallystick.records import Record
from tallystick.roles import Operation, OperationCode
from tallystick.systems.protocol import StoredEntry


def stored_entry(record: Record) -> StoredEntry:
    """Return the entry of a persisting record; its number is the transaction's."""
    assert record.transaction is not None
    operations = tuple(
        Operation(
            OperationCode(one["code"]), one["collection"], one["key"], one["value"], one["target"]
        )
        for one in record.attributes["operation_list"]
    )
    return StoredEntry(record.transaction, str(record.attributes.get("ref") or ""), operations)
