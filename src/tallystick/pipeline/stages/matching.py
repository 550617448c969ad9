"""Matches that no log states: resource names with logs, nameless rollbacks with branches.

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

from tallystick.reconcile.rows import RESOURCES, assigned
from tallystick.records import State
from tallystick.systems.registry import systems

_DECIDED = (State.COMMITTED.value, State.COMMITTING.value)


def arrow_function(function: Callable[..., object], form: DataType) -> Callable[..., Column]:
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
    note = F.filter("parts", lambda part: part["bqual"].isNull())
    branches = F.filter("parts", lambda part: part["bqual"].isNotNull())
    place = F.transform(branches, lambda part: F.struct(part["log"], part["system"]))
    patterns = (
        grouped.select(
            "owner",
            F.get(note, 0)["log"].alias("journal"),
            F.get(note, 0)["state"].alias("state"),
            F.array_sort(F.get(note, 0)["participants"]).alias("names"),
            F.array_sort(F.array_distinct(place)).alias("logs"),
        )
        .where((F.size("names") > 0) & (F.size("logs") > 0) & F.col("state").isin(*_DECIDED))
        .groupBy("owner", "journal", "names", "logs")
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


def nameless_rollbacks(transactions: DataFrame, xa: DataFrame, named: DataFrame) -> DataFrame:
    """Global transactions whose branch was rolled back in a log that lost its name.

    Some systems (`ResourceTraits.nameless_rollback`) write a bare rollback over the prepare record
    of a branch that is decided from outside, and for nothing else. Such a record belongs to a
    global transaction that names this resource and has no branch in its log: the likeliest state
    first, then the newest.
    """
    bare = (
        _is_nameless_rollback()
        & F.col("gtrid").isNull()
        & (F.col("state") == State.ROLLED_BACK.value)
    )
    what = ("system", "log", "evidence_file", "evidence_offset", "evidence_type")
    nameless = transactions.where(bare).select(*what)
    numbered = nameless.withColumn(
        "number", F.row_number().over(_newest_first("log", F.col("evidence_offset")))
    )
    claims = _claims(xa, named).join(F.broadcast(nameless.select("log").distinct()), "log")
    branches = xa.where(F.col("bqual").isNotNull()).select("format_id", "gtrid", "log")
    order = F.struct(_likelihood(), "last_time")
    ranked = claims.join(branches, ["format_id", "gtrid", "log"], "left_anti").withColumn(
        "number", F.row_number().over(_newest_first("log", order))
    )
    found = ranked.join(numbered, ["log", "number"])
    return found.groupBy("format_id", "gtrid").agg(F.collect_list(F.struct(*what)).alias("undone"))


def _is_nameless_rollback() -> Column:
    found = F.lit(False)
    for one in systems():
        if kind := one.resource.nameless_rollback:
            found |= (F.col("system") == one.name) & (F.col("evidence_type") == kind)
    return found


def _likelihood() -> Column:
    """Return how likely a transaction in this state has a branch that was rolled back by hand.

    Open decisions wait for an operator; undecided ones were rolled back by recovery.
    """
    rank = F.lit(0)
    for place, state in enumerate((State.COMMITTED, State.UNDECIDED, State.COMMITTING), 1):
        rank = F.when(F.col("state") == state.value, F.lit(place)).otherwise(rank)
    return rank


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


def _newest_first(key: str, order: Column) -> WindowSpec:
    return Window.partitionBy(key).orderBy(order.desc())
