"""Whether the records that a file held before it was used again were done with.

In: `FileReading`s and the live records. Out: a file whose new id cannot be right, in words.

A file is used again once every record in it was deleted, or copied by a compaction. The deletes
stand in it or in later files, and these are used again after it. So while the records of its
earlier life are there untouched, each of them is live elsewhere, or its delete is there too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from tallystick.records import Outcome
from tallystick.systems.jboss.format.layout import RecordType
from tallystick.systems.jboss.read.classify import Classified, FileReading

_DELETES = frozenset({RecordType.DELETE, RecordType.DELETE_TX})


def not_done_with(readings: Sequence[FileReading], live: Container[int]) -> str:
    """Return which empty file held a record that is neither live nor deleted; empty if none."""
    added = {number: one for one in readings for number in _added(one) if number not in live}
    if not added:
        return ""
    for one in readings:
        for row in one.ranges:
            if _is_whole(one, row) and _kind(one, row) in _DELETES:
                added.pop(one.item(row).record_id or 0, None)
    for number, one in added.items():
        return (
            f"{one.file.name} has the id {one.effective_id}, and record {number} of its earlier "
            "life is neither live nor deleted"
        )
    return ""


def _added(reading: FileReading) -> Iterator[int]:
    """Yield the records that were added outside of transactions in an untouched earlier life."""
    if reading.has_records or not reading.ranges:
        return
    first = reading.ranges[0].row
    if first.offset != reading.shape.header_size:
        return
    for row in reading.ranges:
        of_life = row.row.file_id == first.file_id and row.outcome is Outcome.STALE
        if of_life and _is_whole(reading, row) and _kind(reading, row) is RecordType.ADD:
            yield reading.item(row).record_id or 0


def _is_whole(reading: FileReading, row: Classified) -> bool:
    return row.outcome in (Outcome.VALID, Outcome.STALE) and reading.whole(row)


def _kind(reading: FileReading, row: Classified) -> RecordType:
    return reading.shape.record_type(reading.file.data()[row.row.offset])
