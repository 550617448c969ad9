"""Entries of a scan as records.

In: an `Entry`, the stream it came from, what recovery decides of it. Out: a `Record`, whose
attributes are the entry's fields with the keys and value forms of the oracle's record list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tallystick.records import Clock, Kind, Outcome, Record
from tallystick.roles import branch_of
from tallystick.storage.crc import crc32
from tallystick.systems.h2.format.entries import INCOMPLETE, SESSION_TYPES, Entry, Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.values.types import json_of
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.protocol import Split

if TYPE_CHECKING:
    import pyarrow as pa

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
_NOT_DECIDED: Mapping[str, Any] = MappingProxyType({})


def entry_fields(entry: Entry) -> dict[str, Any]:
    """Return the fields of the entry's type in the oracle's form; none if it is cut off."""
    fields = None if entry.type == INCOMPLETE else _FIELDS.get(entry.code)
    return fields(entry) if fields is not None else {}


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
    """Return the outcome: a cut record is torn where the log ends in order, corrupt at damage."""
    if entry.type == INCOMPLETE:
        return Outcome.TORN if stream.end_of_file and not entry.odd else Outcome.CORRUPT
    return Outcome.CORRUPT if entry.fault else Outcome.VALID


def record_of(
    entry: Entry, stream: LogStream, decisions: Mapping[str, Any] = _NOT_DECIDED
) -> Record:
    """Return the entry as a record; ``decisions`` of recovery go into its attributes.

    ``sequence`` is its position in the scan, ``transaction`` its session, ``record_id`` its row
    key or page.
    """
    page, offset = stream.place(entry.start)
    attributes: dict[str, Any] = {
        "pos": entry.pos,
        "section": entry.section,
        "code": entry.code,
        "page": page,
        **entry_fields(entry),
        **decisions,
        "page_offset": offset,
    }
    if entry.fault:
        attributes["fault"] = entry.fault
    record = Record(
        system=SYSTEM_NAME,
        file=stream.pages.file,
        offset=page * stream.pages.page_size + offset,
        length=entry.length,
        outcome=outcome_of(entry, stream),
        kind=KINDS[Type(entry.code)] if entry.is_known else Kind.UNKNOWN,
        type=entry.type,
        sequence=entry.pos,
        attributes=attributes,
    )
    if entry.is_known:
        _fill(record, entry)
    return record


def batches_of_entries(
    entries: Iterable[Entry], stream: LogStream, log: str, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield entries, or those in ``split``, as Arrow batches of at most ``rows`` rows."""
    from tallystick.arrow.schemas import record_batches

    records = (record_of(entry, stream) for entry in entries)
    wanted = (one for one in records if split is None or split.begin <= one.offset < split.end)
    yield from record_batches(wanted, log, Clock.NONE.value, rows)


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
        xid = branch_of(entry.name)
        if xid is not None:
            record.format_id, record.gtrid, record.bqual = xid.format_id, xid.gtrid, xid.bqual
