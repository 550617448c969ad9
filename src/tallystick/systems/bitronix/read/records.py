"""From spans of a file to `Record` values.

In: a `RecordSpan`, and whether 2.1.4 reaches it. Out: a `Record`, or None for what is no log record
(header, fill, remains of records). The attributes have the oracle's names.
"""

from __future__ import annotations

from typing import Any

from tallystick.records import Kind, Record
from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    FORMAT_ID,
    MARKED_ROLLBACK,
    NO_TRANSACTION,
    PREPARED,
    PREPARING,
    ROLLEDBACK,
    ROLLING_BACK,
    SYSTEM_NAME,
    UNKNOWN,
    signed32,
    split_gtrid,
    status_name,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.read.scan import RecordSpan

KIND_OF = {
    ACTIVE: Kind.BEGIN,
    MARKED_ROLLBACK: Kind.STATUS,
    PREPARED: Kind.PREPARE,
    COMMITTED: Kind.COMMIT,
    ROLLEDBACK: Kind.ROLLBACK,
    UNKNOWN: Kind.HEURISTIC,
    NO_TRANSACTION: Kind.NOOP,
    PREPARING: Kind.STATUS,
    COMMITTING: Kind.DECISION,
    ROLLING_BACK: Kind.STATUS,
}
DAMAGED = "damaged"
"""The type of a range of bytes that holds no whole record."""


def record_of(path: str, span: RecordSpan, *, reached: bool) -> Record | None:
    """Return the record of a span; damaged ranges of the counted range are records too.

    ``reached`` is false where 2.1.4 would not read the record: it becomes ``salvaged``.
    """
    if span.record is not None:
        return _whole(path, span, span.record, reached)
    if span.is_damage:
        return Record(
            SYSTEM_NAME,
            path,
            span.offset,
            span.length,
            span.outcome,
            Kind.UNKNOWN,
            DAMAGED,
            attributes={"reason": span.reason},
        )
    return None


def _whole(path: str, span: RecordSpan, record: TransactionLogRecord, reached: bool) -> Record:
    return Record(
        system=SYSTEM_NAME,
        file=path,
        offset=span.offset,
        length=span.length,
        outcome=span.outcome,
        kind=KIND_OF.get(record.status, Kind.UNKNOWN),
        type=status_name(record.status),
        sequence=record.sequence_number,
        time=record.time,
        format_id=FORMAT_ID,
        gtrid=record.gtrid,
        resources=record.unique_names,
        attributes=_attributes(span, record, reached),
    )


def _attributes(span: RecordSpan, record: TransactionLogRecord, reached: bool) -> dict[str, Any]:
    parts = split_gtrid(record.gtrid)
    attributes: dict[str, Any] = {
        "status": record.status,
        "recordLength": record.record_length,
        "headerLength": record.header_length,
        "crc32": signed32(record.crc32),
        "gtridServerId": parts.server_id,
        "gtridTimestamp": parts.time,
        "gtridSequence": parts.sequence,
        "endRecord": record.end_record,
    }
    if not reached:
        attributes["salvaged"] = True
    if span.reason:
        attributes["reason"] = span.reason
    return attributes
