"""``profile``: latencies and rates per log, resource and time bucket.

In: the ``records`` and ``transactions`` tables. Out: one row per log and bucket, with
``resource`` null, and one per log, resource and bucket. Durations are in seconds, buckets
start at multiples of ``bucket_seconds`` of the log's own clock (null where it has none).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from tallystick.records import Clock, State

BUCKET_SECONDS = 60

_PER_SECOND = {Clock.BOOT_MS: 1e3, Clock.WALL_MS: 1e3, Clock.WALL_US: 1e6, Clock.WALL_NS: 1e9}

_KEYS = ("system", "log", "clock", "resource", "bucket")

_PERCENTILES = {"latency_p50": 0.5, "latency_p99": 0.99}

_IN_DOUBT = (State.PREPARED.value, State.COMMITTING.value, State.UNDECIDED.value)


def profile(
    records: DataFrame, transactions: DataFrame, bucket_seconds: int = BUCKET_SECONDS
) -> DataFrame:
    """Return records, bytes, transactions by end, commit latency, group sizes and in-doubt ages."""
    written = _written(records, bucket_seconds)
    ended = _ended(transactions, bucket_seconds)
    # Null keys (no resource, no clock) have to meet, so they are compared null-safely.
    both = [F.col(f"w.{key}").eqNullSafe(F.col(f"e.{key}")) for key in _KEYS]
    joined = written.alias("w").join(ended.alias("e"), both, "full")
    keys = [F.coalesce(f"w.{key}", f"e.{key}").alias(key) for key in _KEYS]
    rest = [F.col(f"w.{name}") for name in written.columns if name not in _KEYS]
    rest += [F.col(f"e.{name}") for name in ended.columns if name not in _KEYS]
    return joined.select(*keys, *rest)


def _written(records: DataFrame, bucket_seconds: int) -> DataFrame:
    keyed = records.select(
        "system",
        "log",
        "clock",
        F.lit(None).cast("string").alias("resource"),
        _bucket("time", bucket_seconds),
        "length",
    )
    return keyed.groupBy(*_KEYS).agg(
        F.count("*").alias("records"),
        F.sum("length").alias("bytes"),
        F.max("length").alias("record_bytes_max"),
    )


def _ended(transactions: DataFrame, bucket_seconds: int) -> DataFrame:
    seconds = (F.col("last_time") - F.col("first_time")) / per_second()
    # Joined rather than a window: one log's transactions never meet in one task.
    newest = transactions.groupBy("system", "log").agg(F.max("last_time").alias("newest"))
    age = (F.col("newest") - F.col("last_time")) / per_second()
    in_doubt = F.col("state").isin(*_IN_DOUBT)
    shaped = transactions.join(newest, ["system", "log"]).select(
        "system",
        "log",
        "clock",
        "state",
        "records",
        F.explode(_resources()).alias("resource"),
        _bucket("last_time", bucket_seconds),
        F.when(F.col("state") == State.COMMITTED.value, seconds).alias("latency"),
        F.when(in_doubt, age).alias("age"),
    )
    return shaped.groupBy(*_KEYS).agg(
        F.count("*").alias("transactions"),
        *(_count(state) for state in (State.COMMITTED, State.ROLLED_BACK, State.ACTIVE)),
        F.count_if(in_doubt).alias("in_doubt"),
        F.avg("records").alias("group_records_avg"),
        F.max("records").alias("group_records_max"),
        *(_percentile("latency", part).alias(name) for name, part in _PERCENTILES.items()),
        F.max("latency").alias("latency_max"),
        F.max("age").alias("in_doubt_age_max"),
    )


def _percentile(name: str, part: float) -> Column:
    """Return the least value with ``part`` of all values at or below it.

    Not by approximation, which differs between engines. A clock of milliseconds gives few values.
    """
    return F.expr(f"percentile_disc({part}) WITHIN GROUP (ORDER BY {name})")


def _resources() -> Column:
    none = F.array(F.lit(None).cast("string"))
    return F.concat(none, F.coalesce("participants", F.array().cast("array<string>")))


def _count(state: State) -> Column:
    return F.count_if(F.col("state") == state.value).alias(state.value)


def per_second() -> Column:
    """Units of the row's clock in a second; null where it has none."""
    factor = F.lit(None).cast("double")
    for clock, per_second in _PER_SECOND.items():
        factor = F.when(F.col("clock") == clock.value, F.lit(per_second)).otherwise(factor)
    return factor


def _bucket(time: str, bucket_seconds: int) -> Column:
    width = F.lit(bucket_seconds)
    return (F.floor(F.col(time) / per_second() / width) * width).cast("bigint").alias("bucket")
