"""Logs that are copies of other logs, for instance backups beside the logs at work.

In: transactions, or global transactions with their parts. Out: frames of `COPIES`, by the rules of
`tallystick.reconcile.copies`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it
from pyspark.sql.pandas.types import from_arrow_type

from tallystick.pipeline.stages.matching import arrow_function
from tallystick.reconcile.ids import SUFFIX, TIME
from tallystick.reconcile.structures import COPY, PAIRS, copies_of, copy_pairs

COPIES = ("system", "log", "original")
"""Columns: the copy by its system and name, and what it is a copy of."""

_FOLDER = r"^(.*)/[^/]*$"


def renamed_copies(transactions: DataFrame) -> DataFrame:
    """Return logs of one file whose name is another's in the same folder with a suffix.

    ``bank.h2.db.before-operator`` is an older copy.
    """
    folder = F.regexp_extract("evidence_file", _FOLDER, 1)
    logs = transactions.select("system", "log", folder.alias("folder")).distinct()
    logs = logs.where((F.col("folder") != "") & (F.col("folder") != F.col("log")))
    one, other = logs.alias("one"), logs.alias("other")
    same = (F.col("one.folder") == F.col("other.folder")) & (
        F.col("one.system") == F.col("other.system")
    )
    copied = F.startswith(F.col("other.log"), F.concat(F.col("one.log"), F.lit(".")))
    pairs = one.join(other, same & copied)
    return _once(pairs.select("other.system", "other.log", F.col("one.log").alias("original")))


def copied_logs(grouped: DataFrame, xa: DataFrame) -> DataFrame:
    """Return logs whose content is in another log, too; only logs that share ids are compared."""
    pairs = arrow_function(copy_pairs, from_arrow_type(PAIRS))
    seen = (
        grouped.where(_places("system", "bqual") < _places("system", "bqual", "log"))
        .select(F.explode(pairs("parts")).alias("pair"))
        .groupBy("pair.log", "pair.other")
        .agg(F.sum("pair.ahead").alias("ahead"))
    )
    compared = seen.select(F.explode(F.array("log", "other")).alias("log")).distinct()
    newest = (
        xa.join(F.broadcast(compared), "log")
        .groupBy("system", "log")
        .agg(F.max(F.substring("gtrid", -SUFFIX, TIME)).alias("newest"))
    )
    others = newest.select(F.col("log").alias("other"), F.col("newest").alias("newest_other"))
    known = seen.join(newest, "log").join(others, "other")
    decided = arrow_function(copies_of, from_arrow_type(COPY))
    pair = F.struct("log", "other", "ahead", "newest", "newest_other")
    return _once(known.select("system", decided(pair).alias("copy")).select("system", "copy.*"))


def _once(pairs: DataFrame) -> DataFrame:
    """Return every copy once, whatever it is a copy of."""
    return pairs.groupBy("system", "log").agg(F.min("original").alias("original"))


def without(grouped: DataFrame, copies: DataFrame) -> DataFrame:
    """Global transactions without the parts in these logs, and without those left empty."""
    listed = copies.agg(F.collect_list("log").alias("copies"))
    kept = F.filter("parts", lambda part: ~F.array_contains("copies", part["log"]))
    joined = grouped.crossJoin(F.broadcast(listed)).withColumn("parts", kept)
    return joined.drop("copies").where(F.size("parts") > 0)


def _places(*names: str) -> Column:
    """Return how many different ones there are among the parts."""
    different = F.transform("parts", lambda part: F.struct(*(part[name] for name in names)))
    return F.size(F.array_distinct(different))
