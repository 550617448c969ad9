"""Records of the log as `Record`s.

In: a `ByteRange` with an envelope. Out: its record; attributes have the names of the oracle.
"""

from __future__ import annotations

from typing import Any

from tallystick.records import Kind, Record
from tallystick.systems.derby.format.layout import SYSTEM_NAME, Group, instant_text
from tallystick.systems.derby.format.operations import OPERATIONS
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.spans import ByteRange


def record_of(one: ByteRange, *, salvaged: bool = False) -> Record:
    """Return the record of a range that has an envelope."""
    envelope = one.envelope
    assert envelope is not None
    body = one.body
    record = Record(
        SYSTEM_NAME,
        one.file.path,
        one.offset,
        one.length,
        one.outcome,
        body.kind if body else Kind.UNKNOWN,
        body.name if body else "sealed",
        sequence=envelope.instant,
        transaction=body.transaction if body else None,
        record_id=body.fields.get("recordId") if body else None,
        body=one.clear,
        attributes=_attributes(one, body),
    )
    if salvaged:
        record.attributes["salvaged"] = True
    if body is not None and (xid := body.xid) is not None:
        record.format_id, record.gtrid, record.bqual = xid.format_id, xid.gtrid, xid.bqual
    return record


def _attributes(one: ByteRange, body: Body | None) -> dict[str, Any]:
    envelope = one.envelope
    assert envelope is not None
    found: dict[str, Any] = {"i": instant_text(one.place), "len": envelope.length}
    if one.reason:
        found["reason"] = one.reason
    if body is None:
        return found
    found |= {"group": int(body.group), "fid": body.operation, "body": body.head}
    found["flags"] = _flag_text(body.group)
    found["fields"] = OPERATIONS[body.operation].printed(body.fields)
    if one.checksum_valid is not None:
        return found | {"valid": one.checksum_valid}
    found["in_scan"] = one.in_scan
    if body.undo is not None:
        return found | {"undo": instant_text(body.undo), "pad": body.pad}
    return found | {"opt": len(body.optional or b"")}


def _flag_text(group: Group) -> str:
    """Names of the group's bits, lowest first."""
    return "|".join(flag.name for flag in Group if flag & group and flag.name)
