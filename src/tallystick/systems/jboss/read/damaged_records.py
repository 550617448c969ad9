"""The judged ranges of a file as records: healthy, damaged and salvaged ones.

In: a `FileReading`. Out: `Record`s; of damaged ones the fields whose bytes are there.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import Kind, Outcome, Record
from tallystick.systems.jboss.format.layout import I8, IN_TRANSACTION, OF_RECORD, SYSTEM_NAME, Name
from tallystick.systems.jboss.read.analysis import FileReading
from tallystick.systems.jboss.read.records import KINDS, to_record
from tallystick.systems.jboss.read.spans import Judged


def records_of(reading: FileReading, *, salvage: bool = False) -> Iterator[Record]:
    """The records of a file by offset; stale and dropped ones only with ``salvage``."""
    for one in reading.judged:
        if one.outcome in (Outcome.TORN, Outcome.CORRUPT):
            yield damaged_record(reading, one)
            continue
        salvaged = one.dropped or one.outcome is Outcome.STALE
        if salvaged and not (salvage and reading.whole(one)):
            continue
        record = to_record(reading.item(one), reading.file.path, one.outcome)
        if salvaged:
            record.attributes |= {"salvaged": True, "reason": one.reason}
        yield record


def damaged_record(reading: FileReading, one: Judged) -> Record:
    """The record with the numbers that its bytes hold, which may be damaged themselves."""
    data, shape = reading.file.data(), reading.shape
    row = one.row
    byte = data[row.offset]
    name = shape.type_name(byte) if Name.EVENT <= byte <= Name.ROLLBACK else None
    at = row.offset + shape.fields_at
    numbers: list[int | None] = []
    for wanted in (name in IN_TRANSACTION, name in OF_RECORD):
        fits = wanted and at + I8.size <= row.end
        numbers.append(I8.unpack_from(data, at)[0] if fits else None)
        at += I8.size if fits else 0
    return Record(
        SYSTEM_NAME,
        reading.file.path,
        row.offset,
        row.size,
        one.outcome,
        KINDS[name] if name else Kind.UNKNOWN,
        name.name if name else "UNKNOWN",
        transaction=numbers[0],
        record_id=numbers[1],
        body=bytes(data[row.offset : row.end]),
        attributes={"file_id": row.file_id, "reason": one.reason},
    )
