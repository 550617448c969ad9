"""Logs that are copies of other logs, for instance backups beside the logs at work.

In: global transactions with their parts. Out: the names of the copies. Of two logs that hold
the same branch or decision, the original is the one with the younger transactions; else the one
that came further with what both hold (compaction can take that back, so it does not come first);
else, where they are the same, the one with the shorter name.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it
from pyspark.sql.pandas.types import from_arrow_type

from tallystick.pipeline.reconcile.copies import PAIRS, seen_twice
from tallystick.pipeline.reconcile.ids import SUFFIX, TIME
from tallystick.pipeline.stages.matching import arrow_function


def copied_logs(grouped: DataFrame, xa: DataFrame) -> DataFrame:
    """The column ``log``: of few rows, as only logs that share something are compared."""
    pairs = arrow_function(seen_twice, from_arrow_type(PAIRS))
    seen = (
        grouped.where(_places("system", "bqual") < _places("system", "bqual", "log"))
        .select(F.explode(pairs("parts")).alias("pair"))
        .groupBy("pair.log", "pair.other")
        .agg(F.sum("pair.ahead").alias("ahead"))
    )
    compared = seen.select(F.explode(F.array("log", "other")).alias("log")).distinct()
    newest = (
        xa.join(F.broadcast(compared), "log")
        .groupBy("log")
        .agg(F.max(F.substring("gtrid", -SUFFIX, TIME)).alias("newest"))
    )
    others = newest.select(F.col("log").alias("other"), F.col("newest").alias("newest_other"))
    known = seen.join(newest, "log").join(others, "other")
    first = F.struct("newest", "ahead", -F.length("log"))
    second = F.struct(F.col("newest_other"), F.lit(0).cast("bigint"), -F.length("other"))
    original = (first > second) | ((first == second) & (F.col("log") < F.col("other")))
    return known.select(
        F.when(original, F.col("other")).otherwise(F.col("log")).alias("log")
    ).distinct()


def without(grouped: DataFrame, copies: DataFrame) -> DataFrame:
    """Global transactions without the parts in these logs, and without those left empty."""
    listed = copies.agg(F.collect_list("log").alias("copies"))
    kept = F.filter("parts", lambda part: ~F.array_contains("copies", part["log"]))
    joined = grouped.crossJoin(F.broadcast(listed)).withColumn("parts", kept)
    return joined.drop("copies").where(F.size("parts") > 0)


def _places(*names: str) -> Column:
    """How many different ones there are among the parts."""
    different = F.transform("parts", lambda part: F.struct(*(part[name] for name in names)))
    return F.size(F.array_distinct(different))
