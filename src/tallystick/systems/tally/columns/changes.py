"""The change feed of a native log as Arrow batches, without an object per plain record.

In: steps of a scan. Out: batches of the `CHANGES` schema in commit order. A group whose records
are changes outside of transactions becomes columns as a whole; of other groups the changes are made
one by one and merged with these columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.schemas import CHANGES, batches_of_changes, plain
from tallystick.records import Change, Clock, Kind
from tallystick.systems.tally.columns.batches import BatchBuilder, sliced
from tallystick.systems.tally.read.changes import ChangeFeed
from tallystick.systems.tally.read.records import has_only_loose_changes, step_records
from tallystick.systems.tally.read.scan import Step

_KINDS = (Kind.ADD.value, Kind.UPDATE.value, Kind.DELETE.value)


def change_batches(
    log: str, steps: Iterable[Step], key: bytes | None, incomplete: Mapping[int, str], rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of the steps in batches of at most ``rows`` rows."""
    loose = BatchBuilder(log, key, rows)
    feed = ChangeFeed(log, incomplete)
    others: list[Change] = []
    for step in steps:
        header = step.place.header
        if header is None or not step.place.case.whole:
            continue
        if has_only_loose_changes(header):
            batches = loose.add(step)
        else:
            others += feed.take(step_records(step, key))
            batches = loose.flush() if len(others) >= rows else []
        if batches or len(others) >= rows:
            yield from _merged(batches, others, rows)
            others.clear()
    yield from _merged(loose.flush(), others, rows)


def _merged(
    records: list[pa.RecordBatch], others: list[Change], rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield records that are changes, and changes, in commit order."""
    batches = [batch for batch in map(_changes, records) if batch.num_rows]
    if not others:
        yield from batches
        return
    batches += batches_of_changes(others, Clock.WALL_US.value, len(others))
    if len(batches) == 1:
        yield from sliced(batches[0], rows)
        return
    order = [("commit_sequence", "ascending"), ("ordinal", "ascending")]
    table = pa.Table.from_batches(batches).sort_by(order).combine_chunks()
    yield from table.to_batches(max_chunksize=rows)


def _changes(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return records that change something at once as rows of `CHANGES`."""
    known = pc.is_in(_text(records, "kind"), pa.array(_KINDS))
    if records.num_rows != pc.sum(known).as_py():
        records = records.filter(known)  # without the envelopes of groups that cannot be decoded
    count = records.num_rows
    kinds = _text(records, "kind")
    deleted = pc.equal(kinds, Kind.DELETE.value)
    bodies = records["body"]
    if pc.any(deleted).as_py():
        bodies = pc.if_else(deleted, pa.scalar(None, pa.binary()), bodies)
    columns = {
        "commit_sequence": records["sequence"],
        "ordinal": pa.repeat(pa.scalar(0, pa.int64()), count),
        "kind": kinds,
        "collection": pa.repeat(pa.scalar("", pa.string()), count),
        "key": pc.fill_null(records["record_id"].cast(pa.string()), ""),
        "after": bodies,
    } | {name: records[name] for name in ("system", "log", "time", "clock", "file", "offset")}
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in CHANGES]
    return plain(pa.RecordBatch.from_arrays(arrays, CHANGES.names), CHANGES)


def _text(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch[name].cast(pa.string())
