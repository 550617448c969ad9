"""From groups to rows and records.

In: whole groups, or steps of a scan. Out: `Row` objects for the state of a log, and
`tallystick.records.NumberedRecord` objects in log order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.records import Kind, NumberedRecord, Outcome, Record
from tallystick.roles import Operation
from tallystick.storage.files import Bytes
from tallystick.systems.protocol import LogSealedError, StoredEntry
from tallystick.systems.tally.format.bodies import (
    decode_decision,
    decode_ending,
    decode_names,
    decode_row,
)
from tallystick.systems.tally.format.columns import (
    CODE_SHIFT,
    CODES,
    GTRIDS,
    TRANSACTIONS,
    Columns,
    Row,
    UnplacedRecord,
    decode_columns,
)
from tallystick.systems.tally.format.entries import decode_entry
from tallystick.systems.tally.format.kinds import Code, must_know, name_of
from tallystick.systems.tally.format.layout import (
    AES_GCM,
    HEADER_SIZE,
    PACKED,
    SYSTEM_NAME,
    GroupHeader,
)
from tallystick.systems.tally.format.sealing import KeyMissingError, payload_bytes
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.scan import Step

_MIXED = CODES | TRANSACTIONS | GTRIDS
"""Columns of groups with records of several codes, of transactions or decisions."""
_LOOSE = frozenset({Code.APPEND.value, Code.ADD.value, Code.UPDATE.value, Code.DELETE.value})
"""Codes of records that, outside of transactions, change something as soon as they are written."""

_Head = tuple[int, int, int, int, int | None]
"""Of a group: its offset, length, first LSN, number of records and time."""


# -- groups -------------------------------------------------------------------------------


def columns_of(payload: Bytes, header: GroupHeader, key: bytes | None) -> Columns:
    """Decode the columns of a group; raises as `payload_bytes` and `decode_columns` do."""
    return decode_columns(payload_bytes(payload, header, key), header.count, header.columns)


def rows_of(payload: Bytes, header: GroupHeader, key: bytes | None) -> Iterator[Row]:
    """Yield the rows of a group.

    Raises:
        UnsupportedFormatError: a record has a code that a reader must know.
        CorruptLogError: the payload is no group's.
    """
    columns = columns_of(payload, header, key)
    for lsn, record in enumerate(columns.records(), header.first_lsn):
        if must_know(record.code):
            raise UnsupportedFormatError(
                "a record of a later version",
                expected="a known code, or one that may be ignored",
                found=f"code {record.code} in record {lsn}",
                advice="Read it with a newer Tallystick",
            )
        yield Row(lsn, header.segment, header.time_us, record)


def records_of(
    file: str, payload: Bytes, header: GroupHeader, key: bytes | None, *, salvaged: bool
) -> Iterator[NumberedRecord]:
    """Yield the records of a whole group, marked as ``salvaged`` if they are.

    ``offset`` and ``length`` of a record are those of its body; in a compressed or encrypted
    group those of the group.
    """
    columns = columns_of(payload, header, key)
    packed = bool(header.flags & PACKED)
    bodies = header.offset + HEADER_SIZE + columns.bodies
    extra = {"salvaged": True} if salvaged else {}
    place, length = header.offset, header.length
    for index, unplaced in enumerate(columns.records()):
        if not packed:
            place = bodies + columns.ends[index]
            length = len(unplaced.body)
        row = Row(header.first_lsn + index, header.segment, header.time_us, unplaced)
        attributes = group_attributes(header.offset, header.segment) | extra
        yield placed_record(file, place, length, row, attributes)


def _unread(path: str, outcome: Outcome, head: _Head, **extra: Any) -> Record:
    """Return a record that stands for groups of which the content cannot be read."""
    offset, length, lsn, records, time = head
    return Record(
        SYSTEM_NAME,
        path,
        offset,
        length,
        outcome,
        Kind.UNKNOWN,
        "group",
        sequence=lsn,
        time=time,
        attributes={"group": offset, "records": records, **extra},
    )


def group_attributes(group: int, segment: int) -> dict[str, Any]:
    """Return the attributes that all records of the group at this offset have."""
    return {"group": group, "segment": segment}


def placed_record(
    file: str, place: int, length: int, row: Row, attributes: dict[str, Any]
) -> NumberedRecord:
    """Return a record of which `group_attributes`, or more, are ``attributes``."""
    unplaced = row.record
    kind, type_name = name_of(unplaced.code)
    record = NumberedRecord(
        SYSTEM_NAME,
        file,
        place,
        length,
        Outcome.VALID,
        kind,
        type_name,
        sequence=row.lsn,
        time=row.time_us,
        transaction=unplaced.transaction,
        gtrid=unplaced.gtrid or None,
        record_id=unplaced.key,
        body=unplaced.body,
        attributes=attributes,
    )
    if unplaced.user_type:
        record.attributes["user_type"] = unplaced.user_type
    try:
        _explain(record, unplaced)
    except CorruptLogError as error:
        record.attributes["malformed"] = str(error)
    return record


def _explain(record: Record, unplaced: UnplacedRecord) -> None:
    """Fill in what the body says.

    Raises:
        CorruptLogError: the body has another form.
    """
    match unplaced.code:
        case Code.PREPARE | Code.COMMIT:
            ending = decode_ending(unplaced.body, unplaced.gtrid)
            record.attributes["pairs"] = [list(pair) for pair in ending.pairs]
            if ending.extra:
                record.attributes["extra"] = ending.extra
            if ending.xid is not None:
                record.format_id = ending.xid.format_id
                record.bqual = ending.xid.bqual
        case Code.NOTE:
            record.resources, state = decode_names(unplaced.body)
            record.attributes["state"] = state.decode("utf-8", "replace")
        case Code.DECISION:
            record.resources, since = decode_decision(unplaced.body)
            if since is not None:
                record.attributes["decided_us"] = since
        case Code.FINISH | Code.HEURISTIC | Code.PERSISTED:
            record.resources, rest = decode_names(unplaced.body)
            if rest:
                record.attributes["outcome"] = rest.decode("utf-8", "replace")
        case Code.PERSISTING:
            record.resources, reference, operations = decode_entry(unplaced.body)
            record.attributes |= {"reference": reference, "operations": len(operations)}
        case Code.REDO_ADD | Code.REDO_REMOVE | Code.TRUNCATE:
            record.attributes["table"] = decode_row(unplaced.body)[0]
        case _:
            pass


# -- steps of a scan ----------------------------------------------------------------------


def step_records(step: Step, key: bytes | None) -> Iterator[Record]:
    """Yield the records at one place, which holds no run."""
    header, place = step.place.header, step.place
    path = step.file.path
    if place.is_hole:
        # Bytes where groups were, and none can be told.
        lost = (place.offset, place.end - place.offset, place.lsn, place.lost, None)
        yield _unread(path, Outcome.CORRUPT, lost, reason=place.reason)
        return
    if header is None or place.case is Case.END or place.end == place.offset:
        return
    head = (header.offset, header.length, header.first_lsn, header.count, header.time_us)
    if place.case in (Case.CORRUPT, Case.TORN):
        outcome = Outcome.CORRUPT if place.case is Case.CORRUPT else Outcome.TORN
        yield _unread(path, outcome, head, reason=place.reason)
        return
    try:
        payload = step.view.payload(header)
        yield from records_of(path, payload, header, key, salvaged=step.after_damage)
    except KeyMissingError:
        yield _unread(path, Outcome.VALID, head, encrypted=True)
    except CorruptLogError as error:
        yield _unread(path, Outcome.CORRUPT, head, reason=str(error))


def require_key(step: Step, key: bytes | None) -> None:
    """Check that what a place holds can be read. Raises `LogSealedError`."""
    header, place = step.place.header, step.place
    if key is None and header is not None and place.case.whole and header.flags & AES_GCM:
        raise LogSealedError(
            "a group is encrypted and the key was not given, so nothing from there on can be read",
            file=step.file.path,
            offset=place.offset,
            advice="Give the log's key (--encryption-key; in Spark encryptionKey)",
        )


def has_work(step: Step) -> bool:
    """Return True if a whole group, which is no run, may hold more than loose changes."""
    header = step.place.header
    if header is None or not step.place.case.whole:
        return False
    code = header.columns >> CODE_SHIFT & 0xFF
    return bool(header.columns & _MIXED) or code not in _LOOSE


# -- persisting records -------------------------------------------------------------------


def stored_entry(record: Record) -> StoredEntry:
    """Return the entry of a persisting record; its number is the record id.

    Taking its operations raises `CorruptLogError` if the body has another form.
    """
    reference = str(record.attributes.get("reference") or "")
    return StoredEntry(record.record_id, reference, _operations(record))


def _operations(record: Record) -> Iterator[Operation]:
    _, _, operations = decode_entry(record.body or b"")
    yield from operations
