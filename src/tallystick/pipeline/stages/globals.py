"""``global_transactions``: what the coordinator decided, what each resource holds, what is due.

In: the ``transactions`` table of all logs. Out: one row per (format id, gtrid), in the
schema `tallystick.pipeline.reconcile.rows.GLOBAL_TRANSACTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from tallystick.pipeline.reconcile.ids import SUFFIX
from tallystick.pipeline.reconcile.rows import (
    GLOBAL_TRANSACTIONS,
    RESOURCES,
    assigned,
    judged,
)
from tallystick.pipeline.source import spark_schema

PARTS = (
    "system",
    "log",
    "state",
    "bqual",
    "participants",
    "open_participants",
    "last_time",
    "evidence_file",
    "evidence_offset",
    "evidence_type",
)
"""What of a log's transaction the judgement needs."""

BITRONIX = 0x42746E78
"""Format id of coordinators whose records hold none."""

WHOLE_RECORDS = 3
"""Records from which on a coordinator's transaction is there from its beginning: a decision
that was copied into a new file stands alone."""


def global_transactions(
    transactions: DataFrame, resources: Mapping[str, str] | None = None
) -> DataFrame:
    """One row per global transaction.

    ``resources`` maps resource names to log paths where the logs alone leave it open.
    """
    xa = transactions.where(F.col("gtrid").isNotNull()).withColumn("owner", _owner())
    grouped = _grouped(xa)
    journals = _journals(xa)
    named = _given(journals, resources) if resources else _found(grouped)
    complete = grouped.join(journals, "owner", "left").join(named, "owner", "left")
    judge = _arrow_function(judged, spark_schema(GLOBAL_TRANSACTIONS))
    judgement = judge(F.struct("format_id", "gtrid", "owner", "parts", "journals", "resources"))
    return complete.select(judgement.alias("judgement")).select("judgement.*")


def _arrow_function(function: Callable[..., object], form: DataType) -> Callable[..., Column]:
    """A function over Arrow arrays as one over columns; needs no pandas, unlike mapInArrow."""
    make: Any = arrow_udf  # its types know of literal evaluation types only
    wrapped: Callable[..., Column] = make(function, form)
    return wrapped


def _owner() -> Column:
    length = F.octet_length("gtrid") - SUFFIX
    return F.when(length > 0, F.substring("gtrid", F.lit(1), length))


def _grouped(xa: DataFrame) -> DataFrame:
    format_id = F.coalesce("format_id", F.lit(BITRONIX)).alias("format_id")
    return xa.groupBy(format_id, "gtrid", "owner").agg(
        F.collect_list(F.struct(*PARTS)).alias("parts")
    )


def _journals(xa: DataFrame) -> DataFrame:
    """Per owner the logs that hold its decisions, and the times they cover."""
    whole = F.when(F.col("records") >= WHOLE_RECORDS, F.col("first_time"))
    logs = (
        xa.where(F.col("bqual").isNull())
        .groupBy("owner", "log")
        .agg(F.min(whole).alias("since"), F.max("last_time").alias("until"))
    )
    return logs.groupBy("owner").agg(
        F.collect_list(F.struct("log", "since", "until")).alias("journals")
    )


def _found(grouped: DataFrame) -> DataFrame:
    """Per owner the pairs of resource name and log, from what occurs together."""
    names = F.array_sort(F.array_distinct(F.flatten(_of_parts("participants", decided=True))))
    logs = F.array_sort(F.array_distinct(_of_parts(("log", "system"), decided=False)))
    patterns = (
        grouped.select("owner", names.alias("names"), logs.alias("logs"))
        .where((F.size("names") > 0) & (F.size("logs") > 0))
        .groupBy("owner", "names", "logs")
        .count()
        .groupBy("owner")
        .agg(F.collect_list(F.struct("names", "logs", "count")).alias("patterns"))
    )
    pairs = _arrow_function(assigned, from_arrow_type(RESOURCES))
    return patterns.select("owner", pairs("patterns").alias("resources"))


def _of_parts(names: str | tuple[str, ...], *, decided: bool) -> Column:
    """Fields of those parts that are the coordinator's, or of the others."""

    def wanted(part: Column) -> Column:
        return part["bqual"].isNull() if decided else part["bqual"].isNotNull()

    def fields(part: Column) -> Column:
        if isinstance(names, str):
            return F.coalesce(part[names], F.array().cast("array<string>"))
        return F.struct(*(part[name].alias(name) for name in names))

    return F.transform(F.filter("parts", wanted), fields)


def _given(journals: DataFrame, resources: Mapping[str, str]) -> DataFrame:
    pairs = F.array(
        *(F.struct(F.lit(n).alias("name"), F.lit(p).alias("log")) for n, p in resources.items())
    )
    return journals.select("owner", pairs.alias("resources"))
