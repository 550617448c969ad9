"""Fields of operations as the engine prints them.

In: values as `operations` reads them. Out: the same as text and plain JSON values.
"""

from __future__ import annotations

from typing import Any

from tallystick.records import Xid
from tallystick.systems.derby.format.layout import instant_text
from tallystick.systems.derby.format.operations import CHECKPOINT, Fields, Page


def spelled(value: Any) -> Any:
    """A field as the engine prints it: pages and global ids as text, instants by `instant_text`."""
    if isinstance(value, Page):
        return str(value)
    if isinstance(value, Xid):
        return f"{value.format_id}:{value.gtrid.hex()}:{value.bqual.hex()}"
    return value


def spelled_fields(operation: int, fields: Fields) -> Fields:
    """All fields of an operation as plain JSON values."""
    if operation == CHECKPOINT:
        return {
            "redoLWM": instant_text(fields["redoLWM"]),
            "undoLWM": instant_text(fields["undoLWM"]),
            "transactionTable": [_spelled_entry(entry) for entry in fields["transactionTable"]],
        }
    return {name: spelled(value) for name, value in fields.items()}


def _spelled_entry(entry: Fields) -> Fields:
    last = entry["last"]
    return {
        "xid": str(entry["xid"]),
        "gid": spelled(entry["gid"]),
        "first": instant_text(entry["first"] or 0),
        "last": "null" if last is None else instant_text(last),
        "status": entry["status"],
    }
