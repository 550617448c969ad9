"""The table ``changes`` as a change feed: with the columns that change feeds have.

In: batches of `tallystick.arrow.schemas.CHANGES` in commit order. Out: batches of `FEED`. What a
log writes as delete and add of one key in one transaction is an update; an update whose old image
is known is two rows, as in the change feeds of Delta and Iceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.schemas import CHANGES
from tallystick.reading.tables import TABLES
from tallystick.records import Clock, Kind

CHANGE_TYPE = "_change_type"

FEED = pa.schema(
    [
        *CHANGES,
        (CHANGE_TYPE, pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ]
)
"""One row is a committed change, or the image of a row before it."""

SOURCE_TABLES = TABLES | {"changes": FEED}
"""The schemas of the tables that the data source gives."""

INSERT, DELETE = "insert", "delete"
UPDATE_BEFORE, UPDATE_AFTER = "update_preimage", "update_postimage"

_TYPES = {Kind.ADD: INSERT, Kind.UPDATE: UPDATE_AFTER, Kind.DELETE: DELETE}

_ONE_KEY = ("system", "log", "commit_sequence", "collection", "key")
"""Columns that are equal in a delete and an add that together are an update."""

_MICROSECONDS = {Clock.WALL_MS: (1_000, 1), Clock.WALL_US: (1, 1), Clock.WALL_NS: (1, 1_000)}
"""Factor and divisor that make microseconds since 1970 of a clock."""


def selected_columns(table: str, columns: Iterable[str] = (), *, feeds: bool = True) -> pa.Schema:
    """Return the schema of some columns of a table of the source, or of all if none are named.

    Without ``feeds`` the changes have no columns of a feed.
    """
    whole = (SOURCE_TABLES if feeds else TABLES)[table]
    return pa.schema([whole.field(name) for name in tuple(columns) or whole.names])


def feed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the feed; a delete at the end of a batch waits for what follows it."""
    waiting: pa.RecordBatch | None = None
    for batch in batches:
        if waiting is not None:
            batch = pa.concat_batches([waiting, batch])
        ends_open = batch.num_rows and batch["kind"][-1].as_py() == Kind.DELETE.value
        waiting = batch.slice(batch.num_rows - 1) if ends_open else None
        batch = batch.slice(0, batch.num_rows - 1) if ends_open else batch
        if batch.num_rows:
            yield _rows(batch)
    if waiting is not None:
        yield _rows(waiting)


def _rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    types = np.array([_TYPES.get(Kind(kind), kind) for kind in batch["kind"].to_pylist()], object)
    updated = _updated(batch, types)
    rows, types[updated + 1] = np.arange(batch.num_rows), UPDATE_AFTER
    before_at = rows.copy()
    before_at[updated + 1] = updated  # the delete may have the old image
    before = batch["before"].take(pa.array(before_at))
    kept = np.delete(rows, updated)
    has_image = (types == UPDATE_AFTER) & before.is_valid().to_numpy(zero_copy_only=False)
    places = np.repeat(kept, 1 + has_image[kept])
    first = np.r_[True, places[1:] != places[:-1]]
    preimage = first & has_image[places]
    taken = pa.RecordBatch.from_arrays(
        [before if name == "before" else batch[name] for name in CHANGES.names], schema=CHANGES
    ).take(pa.array(places))
    columns = {name: taken[name] for name in CHANGES.names}
    for name in ("after", "values"):
        columns[name] = pc.if_else(
            pa.array(preimage), pa.scalar(None, columns[name].type), columns[name]
        )
    columns[CHANGE_TYPE] = pa.array(np.where(preimage, UPDATE_BEFORE, types[places]), pa.string())
    columns["_commit_version"] = taken["commit_sequence"]
    columns["_commit_timestamp"] = _timestamps(taken)
    return pa.RecordBatch.from_arrays([columns[name] for name in FEED.names], schema=FEED)


def _updated(batch: pa.RecordBatch, types: npt.NDArray[np.object_]) -> npt.NDArray[np.int64]:
    """Return the rows of deletes whose key is added again by the next row."""
    found = (types[:-1] == DELETE) & (types[1:] == INSERT)
    for name in _ONE_KEY:
        same = pc.equal(batch[name].slice(0, batch.num_rows - 1), batch[name].slice(1))
        found &= same.to_numpy(zero_copy_only=False).astype(bool)
    return np.flatnonzero(found)


def _timestamps(batch: pa.RecordBatch) -> pa.Array:
    """Return times as timestamps; null where the log's clock does not tell the time of day."""
    found = pa.nulls(batch.num_rows, pa.int64())
    for clock, (factor, divisor) in _MICROSECONDS.items():
        times = pc.divide(pc.multiply(batch["time"], factor), divisor)
        found = pc.if_else(pc.equal(batch["clock"], clock.value), times, found)
    return found.cast(pa.timestamp("us", "UTC"))
