"""``overdue``: global transactions that have been in doubt for too long.

In: the ``global_transactions`` table. Out: one alert row per transaction with something due
that is older than the limit, by the clock of its coordinator's journal: the newest time
that any transaction of that journal has, or the time now where the clock tells the time of day.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from tallystick.pipeline.stages.profile import per_second


def overdue(
    global_transactions: DataFrame, limit_seconds: float, now: float | None = None
) -> DataFrame:
    """Return rows with the column ``age_seconds``.

    Without a journal, or a clock, there is no age, and no alert: `findings` has the foreign ones.

    Args:
        global_transactions: the table.
        limit_seconds: the age from which on a transaction is overdue.
        now: seconds since 1970. None for the newest time of each journal: what stands last in a
            journal that is not written any more then has no age.
    """
    newest = global_transactions.groupBy("coordinator").agg(F.max("last_time").alias("newest"))
    present = F.when(F.col("clock").startswith("wall_"), F.lit(now) * per_second())
    age = (F.greatest(F.col("newest"), present) - F.col("last_time")) / per_second()
    aged = global_transactions.join(newest, "coordinator").withColumn("age_seconds", age)
    due = (F.col("resolution") != "none") & (F.col("age_seconds") > limit_seconds)
    return aged.where(due).drop("newest")
