"""Matches that no log states: resource names with logs, ends without a name with branches.

In: the ``transactions`` table or what `globals` made of it. Out: small frames to join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from tallystick.reconcile.nameless import ENDED, LIKELIHOOD
from tallystick.reconcile.rows import COMMITTED
from tallystick.reconcile.structures import (
    PATTERN,
    RESOURCES,
    UNDONE,
    assigned,
    patterns_of,
    undone,
)
from tallystick.systems.registry import systems

_OF_PATTERNS = (
    "system",
    "log",
    "state",
    "bqual",
    "participants",
    "last_time",
    "evidence_offset",
)
"""What of a part `patterns_of` needs."""


def arrow_function(function: Callable[..., object], form: DataType | str) -> Callable[..., Column]:
    """Return a function of Arrow arrays as one of columns; unlike mapInArrow without pandas."""
    make: Any = arrow_udf  # its types know of literal evaluation types only
    wrapped: Callable[..., Column] = make(function, form)
    return wrapped


def without_logs(transactions: DataFrame, logs: DataFrame) -> DataFrame:
    """Return the transactions of other logs than these few."""
    return transactions.join(F.broadcast(logs), "log", "left_anti")


def settled(frame: DataFrame) -> DataFrame:
    """Return the same rows, computed now and kept.

    A frame that several others are made of would be planned and computed for each of them.
    """
    # Columns by new names, though the same: those of a checkpoint are still those of its plan, and
    # Spark cannot distinguish the sides of a join by them.
    return frame.localCheckpoint().toDF(*frame.columns)


def matched_resources(grouped: DataFrame) -> DataFrame:
    """Return per owner the pairs of resource name and log, from what occurs together."""
    pattern = arrow_function(patterns_of, from_arrow_type(PATTERN))
    decided = F.exists("parts", lambda part: part["state"].isin(*COMMITTED))
    needed = F.transform("parts", lambda part: F.struct(*(part[name] for name in _OF_PATTERNS)))
    patterns = (
        grouped.where(decided)
        .select("owner", pattern(needed).alias("pattern"))
        .where(F.col("pattern").isNotNull())
        .groupBy("owner", "pattern.journal", "pattern.names", "pattern.logs")
        .count()
        .groupBy("owner")
        .agg(F.collect_list(F.struct("journal", "names", "logs", "count")).alias("patterns"))
    )
    pairs = arrow_function(assigned, from_arrow_type(RESOURCES))
    return patterns.select("owner", pairs("patterns").alias("resources"))


def given_resources(journals: DataFrame, resources: Mapping[str, str]) -> DataFrame:
    """Return the same pairs for every journal, as an operator gave them."""
    pairs = F.array(
        *(F.struct(F.lit(n).alias("name"), F.lit(p).alias("log")) for n, p in resources.items())
    )
    each = journals.select("owner", F.explode("journals.log").alias("journal"))
    paired = each.select("owner", "journal", F.explode(pairs).alias("pair"))
    return paired.groupBy("owner").agg(
        F.collect_list(F.struct("journal", "pair.name", "pair.log")).alias("resources")
    )


def nameless_ends(transactions: DataFrame, xa: DataFrame, named: DataFrame) -> DataFrame:
    """Global transactions whose branch was ended in a log that lost its name.

    See `tallystick.reconcile.nameless`.
    """
    ended = F.col("state").isin(*(one.value for one in ENDED))
    bare = _is_marked() & F.col("gtrid").isNull() & ended
    what = ("system", "log", "state", "evidence_file", "evidence_offset", "evidence_type")
    nameless = transactions.where(bare).select(*what)
    per_log = nameless.groupBy("log").agg(F.collect_list(F.struct(*what)).alias("bare"))
    claims = _claims(xa, named).join(F.broadcast(per_log), "log")
    branches = xa.where(F.col("bqual").isNotNull()).select("format_id", "gtrid", "log")
    claim = F.struct(_likelihood(), "last_time", "state")
    # Only as many of the foremost as there are records for: a log may have millions of claims.
    foremost = (
        claims.join(branches, ["format_id", "gtrid", "log"], "left_anti")
        .groupBy("format_id", "gtrid", "log")
        .agg(F.max(claim).alias("claim"), F.first("bare").alias("bare"))
        .withColumn("number", F.row_number().over(_foremost()))
        .where(F.col("number") <= F.size("bare"))
    )
    kept = F.struct("format_id", "gtrid", "claim.state", "claim.last_time")
    of_log = foremost.groupBy("log").agg(
        F.collect_list(kept).alias("claims"), F.first("bare").alias("bare")
    )
    match = arrow_function(undone, from_arrow_type(UNDONE))
    found = of_log.select(F.explode(match(F.struct("claims", "bare"))).alias("one")).select("one.*")
    return found.groupBy("format_id", "gtrid").agg(F.collect_list(F.struct(*what)).alias("undone"))


def _is_marked() -> Column:
    found = F.lit(False)
    for one in systems():
        if mark := one.resource.nameless_end:
            value = F.get_json_object("attributes", f"$.{mark}")
            found |= (F.col("system") == one.name) & value.eqNullSafe("true")
    return found


def _likelihood() -> Column:
    rank = F.lit(0)
    for place, state in enumerate(LIKELIHOOD, 1):
        rank = F.when(F.col("state") == state.value, F.lit(place)).otherwise(rank)
    return rank.alias("likelihood")


def _claims(xa: DataFrame, named: DataFrame) -> DataFrame:
    """Return the logs in which a coordinator's transaction should have a branch."""
    notes = xa.where(F.col("bqual").isNull()).withColumnRenamed("log", "journal")
    names = notes.select(
        "format_id",
        "gtrid",
        "owner",
        "journal",
        "state",
        "last_time",
        F.explode("participants").alias("name"),
    )
    pairs = named.select("owner", F.explode("resources").alias("pair")).select("owner", "pair.*")
    return names.join(pairs, ["owner", "journal", "name"])


def _foremost() -> WindowSpec:
    order = ("claim.likelihood", "claim.last_time", "claim.state", "gtrid")
    return Window.partitionBy("log").orderBy(*(F.col(name).desc() for name in order))
