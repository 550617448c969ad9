"""Entries of a scan as the house's records and as the oracle's JSON.

In: an `Entry`, the stream it came from, the state of recovery. Out: a `Record`, or the oracle's
form of the same. Both carry the same words and numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallystick.records import Kind, Outcome, Record
from tallystick.storage.crc import crc32
from tallystick.systems.h2.engine.recovery import Recovery
from tallystick.systems.h2.format.entries import INCOMPLETE, UNKNOWN, Entry, Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.values.value import json_of
from tallystick.systems.h2.format.xid import parse_name
from tallystick.systems.h2.read.stream import LogStream

KINDS = {
    Type.NOOP: Kind.NOOP,
    Type.UNDO: Kind.UNDO,
    Type.COMMIT: Kind.COMMIT,
    Type.PREPARE_COMMIT: Kind.PREPARE,
    Type.ROLLBACK: Kind.ROLLBACK,
    Type.ADD: Kind.ADD,
    Type.REMOVE: Kind.DELETE,
    Type.TRUNCATE: Kind.TRUNCATE,
    Type.CHECKPOINT: Kind.CHECKPOINT,
    Type.FREE_LOG: Kind.CONTROL,
}
SESSION_TYPES = frozenset(
    (Type.COMMIT, Type.PREPARE_COMMIT, Type.ROLLBACK, Type.ADD, Type.REMOVE, Type.TRUNCATE)
)


def oracle_form(entry: Entry, stream: LogStream, recovery: Recovery | None) -> dict[str, Any]:
    """The entry with the keys and value forms of the oracle's record list. Without ``recovery``
    what only recovery knows is left out."""
    page, offset = stream.place(entry.start)
    form: dict[str, Any] = {
        "pos": entry.pos,
        "section": entry.section,
        "code": entry.code,
        "page": page,
        "offset": offset,
        "type": entry.type,
    }
    fields = None if entry.type == INCOMPLETE else _FIELDS.get(entry.code)
    if fields is not None:
        form |= fields(entry)
        if recovery is not None:
            form |= _decisions(entry, recovery)
    return form


def _decisions(entry: Entry, recovery: Recovery) -> dict[str, Any]:
    if entry.session_bound:
        return {"redo": recovery.redo(entry)}
    if entry.code == Type.UNDO:
        return {"applied_in_stage0": recovery.undo_applied(entry)}
    if entry.code == Type.FREE_LOG:
        return {"freed": recovery.freed(entry)}
    return {}


def _undo(entry: Entry) -> dict[str, Any]:
    return {
        "undo_page": entry.page,
        "size": entry.size,
        "crc32": f"{crc32(entry.image):x}",
        "first_byte": entry.image[0],
    }


def _session(entry: Entry) -> dict[str, Any]:
    return {"session": entry.session}


def _prepare(entry: Entry) -> dict[str, Any]:
    return {"session": entry.session, "transaction": entry.name, "prepare_page": entry.page}


def _table(entry: Entry) -> dict[str, Any]:
    return {"session": entry.session, "table": entry.table}


def _remove(entry: Entry) -> dict[str, Any]:
    return _table(entry) | {"key": entry.key}


def _add(entry: Entry) -> dict[str, Any]:
    return _remove(entry) | {"values": [json_of(value) for value in entry.values]}


_FIELDS: dict[int, Callable[[Entry], dict[str, Any]]] = {
    Type.NOOP: lambda entry: {"count": entry.count},
    Type.UNDO: _undo,
    Type.COMMIT: _session,
    Type.PREPARE_COMMIT: _prepare,
    Type.ROLLBACK: _session,
    Type.ADD: _add,
    Type.REMOVE: _remove,
    Type.TRUNCATE: _table,
    Type.FREE_LOG: lambda entry: {"pages": list(entry.pages)},
}


def outcome_of(entry: Entry, stream: LogStream) -> Outcome:
    """A cut record is torn where the log ends in order, and corrupt behind damage."""
    if entry.type == INCOMPLETE:
        return Outcome.TORN if stream.end_of_file else Outcome.CORRUPT
    return Outcome.CORRUPT if entry.fault else Outcome.VALID


def record_of(entry: Entry, stream: LogStream, recovery: Recovery | None) -> Record:
    """The entry as a record; ``sequence`` is its position in the scan, ``transaction`` its
    session, ``record_id`` its row key or page."""
    form = oracle_form(entry, stream, recovery)
    for name in ("type", "offset"):
        form.pop(name)
    form["page_offset"] = stream.place(entry.start)[1]
    if entry.fault:
        form["fault"] = entry.fault
    cut = entry.type == INCOMPLETE
    record = Record(
        system=SYSTEM_NAME,
        file=stream.pages.file,
        offset=stream.file_offset(entry.start),
        length=entry.length,
        outcome=outcome_of(entry, stream),
        kind=Kind.UNKNOWN if cut or entry.type == UNKNOWN else KINDS[Type(entry.code)],
        type=entry.type,
        sequence=entry.pos,
        attributes=form,
    )
    if not cut and entry.type != UNKNOWN:
        _fill(record, entry)
    return record


def _fill(record: Record, entry: Entry) -> None:
    if entry.code in SESSION_TYPES:
        record.transaction = entry.session
    if entry.code in (Type.ADD, Type.REMOVE):
        record.record_id = entry.key
    if entry.code == Type.ADD:
        record.body = entry.row
    if entry.code == Type.UNDO:
        record.record_id, record.body = entry.page, entry.stored
    if entry.code == Type.PREPARE_COMMIT:
        xid = parse_name(entry.name)
        if xid is not None:
            record.format_id, record.gtrid, record.bqual = xid.format_id, xid.gtrid, xid.bqual
