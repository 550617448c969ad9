"""From groups to rows and records.

In: whole groups of a `SegmentView`. Out: `Row` objects for the fold, and the house's `Record`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.records import Kind, Outcome, Record
from tallystick.storage.files import Bytes
from tallystick.systems.tally.format.bodies import (
    decode_decision,
    decode_ending,
    decode_entry,
    decode_names,
    decode_row,
)
from tallystick.systems.tally.format.columns import PLAIN, Columns, Draft, decode_columns
from tallystick.systems.tally.format.kinds import Code, must_know, name_of
from tallystick.systems.tally.format.layout import (
    AES_GCM,
    HEADER_SIZE,
    SYSTEM_NAME,
    ZLIB,
    ZSTD,
    GroupHeader,
)
from tallystick.systems.tally.format.sealing import inner_bytes
from tallystick.systems.tally.read.open_work import Row
from tallystick.systems.tally.read.state import LogState

_PACKED = ZLIB | ZSTD | AES_GCM


def columns_of(stored: Bytes, header: GroupHeader, key: bytes | None) -> Columns:
    """The columns of a group. Raises as `inner_bytes` and `decode_columns` do."""
    return decode_columns(inner_bytes(stored, header, key), header.count, header.columns)


def rows_of(stored: Bytes, header: GroupHeader, key: bytes | None) -> Iterator[Row]:
    """The rows of a group. Raises `UnsupportedFormatError` for a code it has to know."""
    columns = columns_of(stored, header, key)
    for lsn, draft in enumerate(columns.drafts(), header.first_lsn):
        if must_know(draft.code):
            raise UnsupportedFormatError(
                "a record of a later version",
                expected="a known code, or one that may be ignored",
                found=f"code {draft.code} in record {lsn}",
                advice="Read it with a newer Tallystick",
            )
        yield Row(lsn, header.segment, header.time_us, draft)


def fold_group(state: LogState, stored: Bytes, header: GroupHeader, key: bytes | None) -> None:
    """Fold a group into the state. Plain records are folded without looking at each.

    Raises as `rows_of` does.
    """
    if header.columns == PLAIN:
        if header.flags & AES_GCM:
            inner_bytes(stored, header, key)  # a wrong key must not go unnoticed
        state.plain(header.segment, header.last_lsn)
        return
    for row in rows_of(stored, header, key):
        state.apply(row)


def records_of(
    file: str, stored: Bytes, header: GroupHeader, key: bytes | None, *, behind: bool
) -> Iterator[Record]:
    """The records of a whole group.

    ``offset`` and ``length`` of a record are those of its body; in a compressed or encrypted
    group those of the group.
    """
    columns = columns_of(stored, header, key)
    packed = bool(header.flags & _PACKED)
    bodies = header.offset + HEADER_SIZE + columns.bodies
    extra = {"salvaged": True} if behind else {}
    place, length = header.offset, header.length
    for index, draft in enumerate(columns.drafts()):
        if not packed:
            place = bodies + columns.ends[index]
            length = len(draft.body)
        yield _record(file, place, length, header, header.first_lsn + index, draft, extra)


def envelope_record(file: str, header: GroupHeader, outcome: Outcome, **extra: Any) -> Record:
    """A record that stands for a whole group whose content cannot be told."""
    return Record(
        SYSTEM_NAME,
        file,
        header.offset,
        header.length,
        outcome,
        Kind.UNKNOWN,
        "group",
        sequence=header.first_lsn,
        time=header.time_us,
        attributes={"group": header.offset, "records": header.count, **extra},
    )


def _record(
    file: str, place: int, length: int, header: GroupHeader, lsn: int, draft: Draft,
    extra: dict[str, Any],
) -> Record:  # fmt: skip
    kind, type_name = name_of(draft.code)
    record = Record(
        SYSTEM_NAME,
        file,
        place,
        length,
        Outcome.VALID,
        kind,
        type_name,
        sequence=lsn,
        time=header.time_us,
        transaction=draft.transaction,
        gtrid=draft.gtrid or None,
        record_id=draft.key,
        body=draft.body,
        attributes={"group": header.offset, "segment": header.segment, **extra},
    )
    if draft.user_type:
        record.attributes["user_type"] = draft.user_type
    try:
        _explain(record, draft)
    except CorruptLogError as error:
        record.attributes["malformed"] = str(error)
    return record


def _explain(record: Record, draft: Draft) -> None:
    """Fill in what the body says. Raises `CorruptLogError` for a body of another form."""
    match draft.code:
        case Code.PREPARE | Code.COMMIT:
            ending = decode_ending(draft.body, draft.gtrid)
            record.attributes["pairs"] = [list(pair) for pair in ending.pairs]
            if ending.extra:
                record.attributes["extra"] = ending.extra
            if ending.xid is not None:
                record.format_id = ending.xid.format_id
                record.bqual = ending.xid.bqual
        case Code.NOTE:
            record.resources, state = decode_names(draft.body)
            record.attributes["state"] = state.decode("utf-8", "replace")
        case Code.DECISION:
            record.resources, since = decode_decision(draft.body)
            if since is not None:
                record.attributes["decided_us"] = since
        case Code.FINISH | Code.HEURISTIC | Code.PERSISTED:
            record.resources, rest = decode_names(draft.body)
            if rest:
                record.attributes["outcome"] = rest.decode("utf-8", "replace")
        case Code.PERSISTING:
            record.resources, reference, operations = decode_entry(draft.body)
            record.attributes |= {"reference": reference, "operations": len(operations)}
        case Code.REDO_ADD | Code.REDO_REMOVE | Code.TRUNCATE:
            record.attributes["table"] = decode_row(draft.body)[0]
        case _:
            pass
