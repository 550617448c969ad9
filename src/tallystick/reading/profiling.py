"""``profile`` of one log: latencies and rates per resource and time bucket.

In: records and transactions of a log. Out: the rows that the pipeline's stage of that name makes of
tables. Memory grows with buckets, resources and different latencies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.reading.names import log_name
from tallystick.reading.tables import batches_of, selected
from tallystick.records import Clock, State

if TYPE_CHECKING:
    from tallystick.systems.protocol import LogReading

BUCKET_SECONDS = 60

PROFILE = pa.schema(
    [
        ("system", pa.string()),
        ("log", pa.string()),
        ("clock", pa.string()),
        ("resource", pa.string()),
        ("bucket", pa.int64()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("record_bytes_max", pa.int64()),
        ("transactions", pa.int64()),
        (State.COMMITTED.value, pa.int64()),
        (State.ROLLED_BACK.value, pa.int64()),
        (State.ACTIVE.value, pa.int64()),
        ("in_doubt", pa.int64()),
        ("group_records_avg", pa.float64()),
        ("group_records_max", pa.int64()),
        ("latency_p50", pa.float64()),
        ("latency_p99", pa.float64()),
        ("latency_max", pa.float64()),
        ("in_doubt_age_max", pa.float64()),
    ]
)
"""One row is a log in a time bucket, or one of its resources; durations are in seconds."""

_PER_SECOND = {Clock.BOOT_MS: 1e3, Clock.WALL_MS: 1e3, Clock.WALL_US: 1e6, Clock.WALL_NS: 1e9}
_IN_DOUBT = frozenset({State.PREPARED.value, State.COMMITTING.value, State.UNDECIDED.value})

_Key = tuple[str, str | None, int | None]
"""Clock, resource, bucket."""


@dataclass(slots=True)
class _Ended:
    """Transactions of one key. Times are in units of the clock."""

    states: Counter[str] = field(default_factory=Counter)
    # All values with their numbers: of percentiles that tasks had counted none of all could be
    # made.
    latencies: Counter[int] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    oldest_in_doubt: int | None = None

    def merge(self, other: _Ended) -> None:
        """Count what another one has counted."""
        self.states.update(other.states)
        self.latencies.update(other.latencies)
        self.sizes.update(other.sizes)
        self.oldest_in_doubt = _known(min, self.oldest_in_doubt, other.oldest_in_doubt)

    def sums(self) -> list[Any]:
        """Return the arguments of `of_sums`, as JSON takes them."""
        counted = (self.states, self.latencies, self.sizes)
        return [*([*one.items()] for one in counted), self.oldest_in_doubt]

    @classmethod
    def of_sums(
        cls,
        states: Iterable[tuple[str, int]],
        latencies: Iterable[tuple[int, int]],
        sizes: Iterable[tuple[int, int]],
        oldest_in_doubt: int | None,
    ) -> _Ended:
        """Return what was counted as pairs of value and number."""
        counted = Counter(dict(states)), Counter(dict(latencies)), Counter(dict(sizes))
        return cls(*counted, oldest_in_doubt)

    def row(self, newest: int | None, units: float | None) -> dict[str, Any]:
        """Return the columns; ``units`` are those of the clock in a second."""
        found: dict[str, Any] = {
            "transactions": self.states.total(),
            "in_doubt": sum(self.states[state] for state in _IN_DOUBT),
            **{one.value: self.states[one.value] for one in _COUNTED},
        }
        if self.sizes:
            total = sum(size * count for size, count in self.sizes.items())
            found["group_records_avg"] = total / self.sizes.total()
            found["group_records_max"] = max(self.sizes)
        if units is not None and self.latencies:
            found["latency_p50"] = self._percentile(0.5) / units
            found["latency_p99"] = self._percentile(0.99) / units
            found["latency_max"] = max(self.latencies) / units
        if units is not None and newest is not None and self.oldest_in_doubt is not None:
            found["in_doubt_age_max"] = (newest - self.oldest_in_doubt) / units
        return found

    def _percentile(self, part: float) -> int:
        """Return the least latency with ``part`` of all at or below it."""
        left = math.ceil(part * self.latencies.total())
        for latency in sorted(self.latencies):
            left -= self.latencies[latency]
            if left <= 0:
                return latency
        raise AssertionError("a part is at most 1")


_COUNTED = (State.COMMITTED, State.ROLLED_BACK, State.ACTIVE)


@dataclass
class LogProfile:
    """The sums from which the rows of one log come; they are the same in whatever order it is read.

    Attributes:
        system: the log's system.
        log: its name.
    """

    system: str
    log: str
    _written: dict[_Key, _Written] = field(default_factory=dict)
    _ended: dict[_Key, _Ended] = field(default_factory=dict)
    _newest: int | None = None

    def add_records(self, batch: pa.RecordBatch) -> None:
        """Count rows of the table ``records``; `RECORD_COLUMNS` are looked at."""
        clocks = batch["clock"].unique().to_pylist()
        for clock in clocks:
            one = len(clocks) == 1
            self._add_records(
                batch if one else batch.filter(pc.equal(batch["clock"], clock)), clock
            )

    def _add_records(self, batch: pa.RecordBatch, clock: str) -> None:
        sizes = batch["length"].fill_null(0).to_numpy(zero_copy_only=False)
        first, last = (_bucket(time.as_py(), clock) for time in pc.min_max(batch["time"]).values())
        # The usual case: all times of the batch lie in one bucket, and no column is made of them.
        if first == last and (first is None or not batch["time"].null_count):
            self._count((clock, None, first), sizes)
            return
        times = batch["time"].to_numpy(zero_copy_only=False).astype(float)
        units = _units(clock) or np.nan
        buckets = np.floor(times / units / BUCKET_SECONDS) * BUCKET_SECONDS
        for bucket in np.unique(buckets):  # which takes all that are no number for one
            same = np.isnan(buckets) if np.isnan(bucket) else buckets == bucket
            self._count((clock, None, None if np.isnan(bucket) else int(bucket)), sizes[same])

    def _count(self, key: _Key, sizes: npt.NDArray[np.int64]) -> None:
        count, size, most = self._written.get(key, (0, 0, 0))
        ours = len(sizes), int(sizes.sum()), int(sizes.max())
        self._written[key] = count + ours[0], size + ours[1], max(most, ours[2])

    def add_transactions(self, batch: pa.RecordBatch) -> None:
        """Count rows of the table ``transactions``; `TRANSACTION_COLUMNS` are looked at."""
        if not batch.num_rows:
            return
        self._newest = _known(max, self._newest, pc.max(batch["last_time"]).as_py())
        rows = _by_resource(batch)
        for counted in ("states", "sizes", "latencies"):
            for key, value, count in _counts(rows, counted):
                getattr(self._of(key), counted)[value] += count
        for key, oldest in _least(rows, "in_doubt"):
            ended = self._of(key)
            ended.oldest_in_doubt = _known(min, ended.oldest_in_doubt, oldest)

    def _of(self, key: _Key) -> _Ended:
        return self._ended.setdefault(key, _Ended())

    def merge(self, other: LogProfile) -> None:
        """Count what another task has counted of the same log."""
        for key, (count, size, most) in other._written.items():
            ours = self._written.get(key, (0, 0, 0))
            self._written[key] = ours[0] + count, ours[1] + size, max(ours[2], most)
        for key, ended in other._ended.items():
            self._of(key).merge(ended)
        self._newest = _known(max, self._newest, other._newest)

    def sums(self) -> dict[str, Any]:
        """Return the sums as JSON takes them, for `of_sums`."""
        return {
            "system": self.system,
            "log": self.log,
            "newest": self._newest,
            "written": [[*key, *sums] for key, sums in self._written.items()],
            "ended": [[*key, *ended.sums()] for key, ended in self._ended.items()],
        }

    @classmethod
    def of_sums(cls, sums: Mapping[str, Any]) -> LogProfile:
        """Return the profile with these sums."""
        found = cls(sums["system"], sums["log"], _newest=sums["newest"])
        for clock, resource, bucket, count, size, most in sums["written"]:
            found._written[clock, resource, bucket] = count, size, most
        for clock, resource, bucket, *ended in sums["ended"]:
            found._ended[clock, resource, bucket] = _Ended.of_sums(*ended)
        return found

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield rows of `PROFILE`."""
        for key in {**dict.fromkeys(self._written), **dict.fromkeys(self._ended)}:
            row: dict[str, Any] = {"system": self.system, "log": self.log}
            row |= zip(("clock", "resource", "bucket"), key, strict=True)
            if key in self._written:
                row |= zip(_SUMS, self._written[key], strict=True)
            if key in self._ended:
                row |= self._ended[key].row(self._newest, _units(key[0]))
            yield row


def profile_rows(reading: LogReading) -> Iterator[dict[str, Any]]:
    """Yield rows of `PROFILE` of one log."""
    found = LogProfile(reading.source.system, log_name(reading.source))
    for batch in batches_of(reading, "records", schema=selected("records", RECORD_COLUMNS)):
        found.add_records(batch)
    for batch in batches_of(reading, "transactions"):
        found.add_transactions(batch)
    yield from found.rows()


def _by_resource(batch: pa.RecordBatch) -> pa.Table:
    """Return a row per transaction and one for each of its resources, with what is counted."""
    states, first, last = (batch[name] for name in ("state", "first_time", "last_time"))
    doubtful = pc.is_in(states, pa.array(sorted(_IN_DOUBT)))
    columns = {
        "clock": batch["clock"],
        "bucket": _buckets(last, batch["clock"]),
        "states": states,
        "sizes": batch["records"],
        "latencies": pc.if_else(
            pc.equal(states, State.COMMITTED.value), _between(first, last), None
        ),
        "in_doubt": pc.if_else(doubtful, last, None),
    }
    parents = pc.list_parent_indices(batch["participants"])
    places = pa.concat_arrays([pa.array(np.arange(batch.num_rows)), parents.cast(pa.int64())])
    resources = pc.list_flatten(batch["participants"])
    nothing = pa.nulls(batch.num_rows, resources.type)
    return (
        pa.table(columns)
        .take(places)
        .append_column("resource", pa.concat_arrays([nothing, resources]))
    )


def _between(first: pa.Array, last: pa.Array) -> pa.Array:
    """Return the times from ``first`` to ``last``, cut to the longest that the type holds."""
    # The difference wraps round where it does not fit 64 bits: then it has the wrong sign.
    found, backwards = pc.subtract(last, first), pc.less(last, first)
    longest = pc.if_else(backwards, -_LONGEST, _LONGEST)
    return pc.if_else(pc.equal(pc.less(found, 0), backwards), found, longest)


def _buckets(times: pa.Array, clocks: pa.Array) -> pa.Array:
    """Return the buckets of times by these clocks; null without any."""
    found = pa.nulls(len(times), pa.int64())
    for clock in clocks.unique().to_pylist():
        units = _units(clock)
        if units is not None:
            bucket = pc.floor(
                pc.divide(
                    pc.divide(times.cast(pa.float64(), safe=False), units), float(BUCKET_SECONDS)
                )
            )
            found = pc.if_else(
                pc.equal(clocks, clock),
                pc.multiply(bucket, float(BUCKET_SECONDS)).cast(pa.int64()),
                found,
            )
    return found


def _counts(rows: pa.Table, column: str) -> Iterator[tuple[_Key, Any, int]]:
    """Yield key, value and number of the rows with each value of a column."""
    known = rows.filter(pc.is_valid(rows[column]))
    groups = known.group_by([*_KEY_COLUMNS, column]).aggregate([([], "count_all")])
    yield from _groups(groups, column, "count_all")


def _least(rows: pa.Table, column: str) -> Iterator[tuple[_Key, int]]:
    """Yield key and least value of a column."""
    known = rows.filter(pc.is_valid(rows[column]))
    groups = known.group_by(_KEY_COLUMNS).aggregate([(column, "min")])
    yield from _groups(groups, f"{column}_min")


def _groups(groups: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    keys = zip(*(groups[name].to_pylist() for name in _KEY_COLUMNS), strict=True)
    return zip(keys, *(groups[name].to_pylist() for name in columns), strict=True)


def _known(choice: Callable[..., int], *values: int | None) -> int | None:
    """Return the smallest or largest, by ``choice``, of the values that are not None."""
    known = [one for one in values if one is not None]
    return choice(known) if known else None


RECORD_COLUMNS = ("clock", "time", "length")
"""Columns of ``records`` that a profile needs."""
TRANSACTION_COLUMNS = ("clock", "state", "first_time", "last_time", "records", "participants")
"""Columns of ``transactions`` that a profile needs."""
_KEY_COLUMNS = ["clock", "resource", "bucket"]
_LONGEST = (1 << 63) - 1
_SUMS = ("records", "bytes", "record_bytes_max")

_Written = tuple[int, int, int]
"""Number, bytes and largest size of records."""


def _units(clock: str) -> float | None:
    return _PER_SECOND.get(Clock(clock))


def _bucket(time: int | None, clock: str) -> int | None:
    units = _units(clock)
    if time is None or units is None:
        return None
    return math.floor(time / units / BUCKET_SECONDS) * BUCKET_SECONDS
