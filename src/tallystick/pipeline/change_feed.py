"""The table ``changes`` as a change feed: with the columns that change feeds have, and its bounds.

In: batches of `tallystick.arrow.schemas.CHANGES`, or of `WITH_IMAGES`, in commit order. Out:
batches of `FEED`. What a log writes as delete and add of one key in one transaction is an update;
an update whose old image is known is two rows, as in the change feeds of Delta and Iceberg. And of
changes and records those between bounds by version or time, both included: the version of a record
is its number in the log, that of a change its commit's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.schemas import CHANGES, COLLECTIONS
from tallystick.errors import TallystickError
from tallystick.pipeline.row_images import BEFORE_VALUES, without_images
from tallystick.reading.profiling import PROFILE
from tallystick.reading.tables import TABLES
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tallystick.records import Clock, Kind, Outcome

CHANGE_TYPE = "_change_type"

TIMESTAMP = "timestamp"
"""Column of records: their time, where the log's clock tells the time of day."""

_MOMENT = pa.timestamp("us", "UTC")

FEED = pa.schema(
    [
        *CHANGES,
        (CHANGE_TYPE, pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", _MOMENT),
    ]
)
"""One row is a committed change, or the image of a row before it."""

SOURCE_TABLES = TABLES | {
    "changes": FEED,
    "collections": COLLECTIONS,
    "global_transactions": GLOBAL_TRANSACTIONS,
    "profile": PROFILE,
}
"""The schemas of the tables that the data source gives."""

INSERT, DELETE = "insert", "delete"
UPDATE_BEFORE, UPDATE_AFTER = "update_preimage", "update_postimage"

_TYPES = {Kind.ADD: INSERT, Kind.UPDATE: UPDATE_AFTER, Kind.DELETE: DELETE}

ONE_KEY = frozenset({"system", "log", "commit_sequence", "collection", "key"})
"""Columns that are equal in a delete and an add that together are an update."""

_MICROSECONDS = {Clock.WALL_MS: (1_000, 1), Clock.WALL_US: (1, 1), Clock.WALL_NS: (1, 1_000)}
"""Factor and divisor that make microseconds since 1970 of a clock."""

_LONG_MAX = 2**63 - 1
_SECOND_MICROSECONDS = 1_000_000

DATED_SECONDS = range(-62_135_596_800, 253_402_300_800)
"""The years 1 to 9999 in seconds since 1970: SQL and Python have no dates for others."""

TIMES_OF_DAY = [clock.value for clock in _MICROSECONDS]
"""The clocks that tell the time of day."""


def selected_columns(
    table: str, columns: Iterable[str] = (), *, feeds: bool = True, timestamps: bool = False
) -> pa.Schema:
    """Return the schema of some columns of a table of the source, or of all if none are named.

    Without ``feeds`` the changes have no columns of a feed; with ``timestamps`` the table has the
    column `TIMESTAMP`.
    """
    whole = (SOURCE_TABLES if feeds or table not in TABLES else TABLES)[table]
    if timestamps:
        whole = whole.append(pa.field(TIMESTAMP, _MOMENT))
    return pa.schema([whole.field(name) for name in tuple(columns) or whole.names])


def stamped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records with the column `TIMESTAMP`."""
    return batch.append_column(TIMESTAMP, _timestamps(batch))


def feed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the feed; a delete at the end of a batch waits for what follows it."""
    waiting: pa.RecordBatch | None = None
    for batch in batches:
        if BEFORE_VALUES not in batch.schema.names:
            (batch,) = without_images([batch])
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
    types = _types(batch["kind"])
    updated = _updated(batch, types)
    rows, types[updated + 1] = np.arange(batch.num_rows), UPDATE_AFTER
    before_at = rows.copy()
    before_at[updated + 1] = updated  # the delete may have the old image
    before = batch["before"].take(pa.array(before_at))
    old = batch[BEFORE_VALUES].take(pa.array(before_at))
    kept = np.delete(rows, updated)
    is_known = pc.or_(before.is_valid(), old.is_valid()).to_numpy(zero_copy_only=False)
    has_image = (types == UPDATE_AFTER) & is_known
    places = np.repeat(kept, 1 + has_image[kept])
    first = np.r_[True, places[1:] != places[:-1]]
    preimage = first & has_image[places]
    taken = pa.RecordBatch.from_arrays(
        [before if name == "before" else batch[name] for name in CHANGES.names], schema=CHANGES
    )
    if not np.array_equal(places, rows):  # else each row is one of the feed
        taken, old, types = taken.take(pa.array(places)), old.take(pa.array(places)), types[places]
    columns = {name: taken[name] for name in CHANGES.names}
    columns["after"] = pc.if_else(pa.array(preimage), pa.scalar(None, pa.binary()), taken["after"])
    is_old = pa.array(preimage | (types == DELETE))
    columns["values"] = pc.if_else(is_old, old, taken["values"])
    columns[CHANGE_TYPE] = pa.array(np.where(preimage, UPDATE_BEFORE, types), pa.string())
    columns["_commit_version"] = taken["commit_sequence"]
    columns["_commit_timestamp"] = _timestamps(taken)
    return pa.RecordBatch.from_arrays([columns[name] for name in FEED.names], schema=FEED)


def _types(kinds: pa.Array) -> npt.NDArray[np.object_]:
    coded = kinds.dictionary_encode()
    names = [_TYPES.get(Kind(kind), kind) for kind in coded.dictionary.to_pylist()]
    found: npt.NDArray[np.object_] = np.array(names, object)[coded.indices.to_numpy()]
    return found


def _updated(batch: pa.RecordBatch, types: npt.NDArray[np.object_]) -> npt.NDArray[np.int64]:
    """Return the rows of deletes whose key is added again by the next row."""
    found = (types[:-1] == DELETE) & (types[1:] == INSERT)
    for name in ONE_KEY:
        same = pc.equal(batch[name].slice(0, batch.num_rows - 1), batch[name].slice(1))
        found &= same.to_numpy(zero_copy_only=False).astype(bool)
    return np.flatnonzero(found)


def _timestamps(batch: pa.RecordBatch) -> pa.Array:
    """Return times as timestamps; null where the log's clock does not tell the time of day.

    And where a time lies outside of the years 1 to 9999, for which SQL and Python have no date.
    """
    found = _microseconds(batch)
    dated = pc.and_(
        pc.greater_equal(found, DATED_SECONDS.start * _SECOND_MICROSECONDS),
        pc.less(found, DATED_SECONDS.stop * _SECOND_MICROSECONDS),
    )
    return pc.if_else(dated, found, pa.scalar(None, pa.int64())).cast(_MOMENT)


def _microseconds(batch: pa.RecordBatch) -> pa.Array:
    """Return times in microseconds since 1970; a time that is too far for these is the farthest."""
    found = pa.nulls(batch.num_rows, pa.int64())
    for clock, (factor, divisor) in _MICROSECONDS.items():
        farthest = _LONG_MAX // factor
        times = pc.min_element_wise(batch["time"], farthest, skip_nulls=False)
        times = pc.max_element_wise(times, -farthest, skip_nulls=False)
        times = pc.divide(pc.multiply(times, factor), divisor)
        found = pc.if_else(pc.equal(batch["clock"], clock.value), times, found)
    return found


# -- start and end --------------------------------------------------------------------------------

NEEDED = ("sequence", "outcome", "time", "clock", "log")
"""The columns of records that tell whether they lie between bounds."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first and the last version or time that are wanted; None is without bound.

    Times are microseconds since 1970 in UTC.
    """

    first_version: int | None = None
    last_version: int | None = None
    first_time: int | None = None
    last_time: int | None = None

    @property
    def of_versions(self) -> bool:
        """True if there is a bound by version, which only one log has a meaning for."""
        return (self.first_version, self.last_version) != (None, None)

    @property
    def of_times(self) -> bool:
        """True if there is a bound by time."""
        return (self.first_time, self.last_time) != (None, None)


EVERYTHING = Bounds()
"""Without bounds."""


def within(batches: Iterable[pa.RecordBatch], bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Yield the rows between bounds; those without number or time, as damaged ones, are left out.

    Raises:
        TallystickError: a log does not number its records, or its clock does not tell the time.
    """
    for batch in batches:
        if bounds.of_versions:
            batch = _of_versions(batch, bounds)
        if bounds.of_times:
            told = pc.is_in(batch["clock"], pa.array(TIMES_OF_DAY))
            _require(batch, told, "the clock of this log does not tell the time of day")
            times = _microseconds(batch)
            batch = batch.filter(_between(times, bounds.first_time, bounds.last_time))
        if batch.num_rows:
            yield batch


def _of_versions(batch: pa.RecordBatch, bounds: Bounds) -> pa.RecordBatch:
    if "commit_sequence" in batch.schema.names:
        versions = batch["commit_sequence"]
    else:
        versions = batch["sequence"]
        told = pc.or_(versions.is_valid(), pc.not_equal(batch["outcome"], Outcome.VALID.value))
        _require(batch, told, "the records of this log have no numbers")
    return batch.filter(_between(versions, bounds.first_version, bounds.last_version))


def _require(batch: pa.RecordBatch, told: pa.Array, problem: str) -> None:
    lacking = batch["log"].filter(pc.invert(told))
    if len(lacking):
        raise TallystickError(
            f"{problem}, so nothing of it is before or after a bound", file=lacking[0].as_py(),
            advice="Read this log without start and end, or by the other kind of them",
        )  # fmt: skip


def _between(values: pa.Array, first: int | None, last: int | None) -> pa.Array:
    kept = values.is_valid()
    if first is not None:
        kept = pc.and_(kept, pc.greater_equal(values, first))
    if last is not None:
        kept = pc.and_(kept, pc.less_equal(values, last))
    return kept
