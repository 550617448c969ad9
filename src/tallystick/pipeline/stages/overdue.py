"""``overdue``: global transactions that have been in doubt for too long.

In: the ``global_transactions`` table. Out: one alert row per transaction with something due
that is older than the limit, by the clock of its coordinator's journal: until now where that clock
tells the time of day; else until the newest time that any transaction of that journal has, and
from the last change of its files on until now.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from tallystick.pipeline.stages.profile import per_second


def overdue(
    global_transactions: DataFrame,
    limit_seconds: float,
    now: float | None = None,
    changed: Mapping[str, float] | None = None,
) -> DataFrame:
    """Return rows with the column ``age_seconds``.

    Without a journal, or a clock, there is no age, and no alert: `findings` has the foreign ones.

    Args:
        global_transactions: the table.
        limit_seconds: the age from which on a transaction is overdue.
        now: seconds since 1970. None for the newest time of each journal: what stands last in a
            journal that is not written any more then has no age.
        changed: by journal when its files changed last, in seconds since 1970. A journal whose
            clock does not tell the time of day is taken to rest since then. A copy may be newer
            than what it holds, so an age is too small rather than too great.
    """
    newest = global_transactions.groupBy("coordinator").agg(F.max("last_time").alias("newest"))
    rests = global_transactions.sparkSession.createDataFrame(
        [*(changed or {}).items()], "coordinator string, changed double"
    )
    rested = F.greatest(F.lit(now) - F.col("changed"), F.lit(0.0)) * per_second()
    of_day = F.col("clock").startswith("wall_")
    present = F.when(of_day, F.lit(now) * per_second()).otherwise(F.col("newest") + rested)
    age = (F.greatest(F.col("newest"), present) - F.col("last_time")) / per_second()
    clocks = global_transactions.join(newest, "coordinator").join(rests, "coordinator", "left")
    aged = clocks.withColumn("age_seconds", age)
    due = (F.col("resolution") != "none") & (F.col("age_seconds") > limit_seconds)
    return aged.where(due).drop("newest", "changed")
