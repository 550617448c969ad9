"""``global_transactions``: what the coordinator decided, what each resource holds, what is due.

In: the ``transactions`` table of all logs. Out: one row per (format id, gtrid), in the
schema `tallystick.reconcile.structures.GLOBAL_TRANSACTIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it
from pyspark.sql.pandas.types import from_arrow_type

from tallystick.arrow.texts import whole_text
from tallystick.pipeline.source.batch import spark_schema
from tallystick.pipeline.stages.copies import copied_logs, renamed_copies, without
from tallystick.pipeline.stages.matching import (
    arrow_function,
    given_resources,
    matched_resources,
    nameless_ends,
    settled,
    without_logs,
)
from tallystick.reading.coordinators import Coordinator
from tallystick.reconcile.coverage import SEVERE, WHOLE_RECORDS, harmless
from tallystick.reconcile.ids import BITRONIX, SUFFIX
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS, judged
from tallystick.records import State
from tallystick.systems.findings import BEING_WRITTEN
from tallystick.systems.registry import NATIVE

PARTS = (
    "system",
    "log",
    "state",
    "bqual",
    "participants",
    "open_participants",
    "last_time",
    "clock",
    "evidence_file",
    "evidence_offset",
    "evidence_type",
    "attributes",
)
"""What of a log's transaction the judgement needs."""

KEYS = ("format_id", "gtrid", "owner")

_CLOSED = pa.list_(pa.field("element", pa.struct([("log", pa.string()), ("file", pa.string())])))
"""The logs that have forgotten a decision, each with the file where it is noted."""


class Reconciled(NamedTuple):
    """The tables that only all logs together give."""

    rows: DataFrame
    """One row per global transaction."""
    copies: DataFrame
    """Logs left out of that, as copies of others: `stages.copies.COPIES`."""


def global_transactions(
    transactions: DataFrame,
    resources: Mapping[str, str] | None = None,
    findings: DataFrame | None = None,
) -> DataFrame:
    """Return one row per global transaction: the ``rows`` of `reconciled`."""
    return reconciled(transactions, resources, findings).rows


def reconciled(
    transactions: DataFrame,
    resources: Mapping[str, str] | None = None,
    findings: DataFrame | None = None,
    coordinators: Sequence[Coordinator] = (),
) -> Reconciled:
    """Return every global transaction, judged, and the logs that are copies.

    ``resources`` maps resource names to log names where the logs alone leave it open; ``findings``
    of the logs tell which journals are not whole, and the directories of ``coordinators`` what
    stands in no log. What several parts of the answer are made of is computed when this is called.
    """
    transactions = _with_closed(transactions, coordinators)
    renamed = settled(renamed_copies(transactions))
    originals = without_logs(transactions, renamed)
    xa = _xa(originals)
    parts = F.collect_list(F.struct(*PARTS)).alias("parts")
    grouped = settled(xa.groupBy(*KEYS).agg(parts))
    copies = settled(copied_logs(grouped, xa))
    grouped = without(grouped, copies)
    originals, xa = without_logs(originals, copies), without_logs(xa, copies)
    known = _with_told(_with_damage(_journals(xa, grouped), findings), coordinators)
    journal = F.struct("log", "since", "until", "logs", "damaged", "lasts")
    journals = settled(known.groupBy("owner").agg(F.collect_list(journal).alias("journals")))
    pairs = given_resources(journals, resources) if resources else matched_resources(grouped)
    named = settled(pairs)
    undone = nameless_ends(originals, xa, named)
    complete = (
        grouped.join(journals, "owner", "left")
        .join(named, "owner", "left")
        .join(undone, ["format_id", "gtrid"], "left")
    )
    judge = arrow_function(judged, spark_schema(GLOBAL_TRANSACTIONS))
    judgement = judge(F.struct(*KEYS, "parts", "journals", "resources", "undone"))
    rows = complete.select(judgement.alias("judgement")).select("judgement.*")
    return Reconciled(rows, renamed.unionByName(copies))


def _xa(transactions: DataFrame) -> DataFrame:
    """Transactions with a global id that are not settled, and the owner that is written in it."""
    length = F.octet_length("gtrid") - SUFFIX
    # By hexadecimal digits: not every engine's substring leaves bytes as they are.
    digits = F.substring(F.hex("gtrid"), F.lit(1), F.lit(2) * length)
    owner = F.when(length > 0, F.unhex(digits)).otherwise(F.lit(b""))
    format_id = F.coalesce("format_id", F.lit(BITRONIX))
    heuristic = F.when(F.col("state") == State.HEURISTIC.value, F.col("attributes"))
    added = {"owner": owner, "format_id": format_id, "attributes": heuristic}
    return _open(transactions).withColumns(added)


def _open(transactions: DataFrame) -> DataFrame:
    """Return those with a global id that are not settled."""
    dealt_with = F.get_json_object("attributes", "$.settled").eqNullSafe("true")
    return transactions.where(F.col("gtrid").isNotNull() & ~dealt_with)


def _journals(xa: DataFrame, grouped: DataFrame) -> DataFrame:
    """Return the journals: per owner and log, the times covered and the logs of its branches."""
    covered = (
        xa.where(decided())
        .groupBy("owner", "log")
        .agg(F.min(_whole_since()).alias("since"), F.max("last_time").alias("until"))
    )
    notes, branches = (
        F.array_distinct(F.transform(F.filter("parts", of), lambda part: part["log"]))
        for of in (lambda part: part["bqual"].isNull(), lambda part: part["bqual"].isNotNull())
    )
    met = grouped.select("owner", F.explode(notes).alias("log"), branches.alias("logs")).distinct()
    partners = met.groupBy("owner", "log").agg(F.flatten(F.collect_set("logs")).alias("logs"))
    return covered.join(partners, ["owner", "log"], "left")


def _with_damage(journals: DataFrame, findings: DataFrame | None) -> DataFrame:
    """Return the journals with the column ``damaged``: records may be missing."""
    if findings is None:
        return journals.withColumn("damaged", F.expr("false"))
    severe = F.col("severity").isin(*(one.value for one in SEVERE))
    known: dict[str, list[str]] = {}
    for system, code in sorted(harmless()):
        known.setdefault(system, []).append(code)
    hides = severe
    for system, codes in known.items():
        hides &= ~(F.col("system").eqNullSafe(system) & F.col("code").isin(*codes))
    hides = hides | (F.col("code") == BEING_WRITTEN.code)
    damage = findings.groupBy("log").agg(F.bool_or(hides).alias("damaged"))
    return journals.join(damage, "log", "left").fillna(value=False, subset=["damaged"])


def _with_told(journals: DataFrame, coordinators: Sequence[Coordinator]) -> DataFrame:
    """Return the journals with the column ``lasts``, and with what directories tell of them.

    A coordinator is known by its directory, too, where its journal says nothing of any transaction.
    """
    if not coordinators:
        return journals.withColumn("lasts", F.array().cast("array<string>"))
    here = journals.sparkSession.createDataFrame(
        [(one.node, one.log, one.lost, [*one.lasts]) for one in coordinators],
        "owner binary, log string, lost boolean, lasts array<string>",
    )
    lost = F.coalesce("lost", F.lit(False)) | F.coalesce("damaged", F.lit(False))
    lasts = F.coalesce("lasts", F.array().cast("array<string>"))
    joined = journals.join(here.select("log", "lost", "lasts"), "log", "left")
    others = here.join(journals, ["owner", "log"], "left_anti")
    both = joined.unionByName(others, allowMissingColumns=True)
    return both.withColumns({"damaged": lost, "lasts": lasts})


def _with_closed(transactions: DataFrame, coordinators: Sequence[Coordinator]) -> DataFrame:
    """Return the transactions with the closed decisions that the logs have forgotten."""
    if not coordinators:
        return transactions

    def closed(gtrids: pa.Array) -> pa.Array:
        wanted = gtrids.to_pylist()
        found = [(one.log, whole_text(one.closed_file), one.closed(wanted)) for one in coordinators]
        answers = [[(log, file) for log, file, ones in found if one in ones] for one in wanted]
        return pa.array(answers, _CLOSED)

    prepared = F.col("state") == State.PREPARED.value
    named = _open(transactions)
    in_doubt = named.where(prepared).select("gtrid").distinct()
    noted = arrow_function(closed, from_arrow_type(_CLOSED))(F.col("gtrid"))
    forgotten = in_doubt.join(named.where(decided()).select("gtrid"), "gtrid", "left_anti")
    told = forgotten.select("gtrid", F.explode(noted).alias("closed"))
    keys = named.select(F.coalesce("format_id", F.lit(BITRONIX)).alias("format_id"), "gtrid")
    rows = told.join(keys.distinct(), "gtrid").select(
        F.lit(NATIVE).alias("system"),
        "closed.log",
        F.lit(State.COMMITTED.value).alias("state"),
        "format_id",
        "gtrid",
        F.array().cast("array<string>").alias("participants"),
        F.array().cast("array<string>").alias("open_participants"),
        F.lit(0).cast("bigint").alias("records"),
        F.col("closed.file").alias("evidence_file"),
        F.lit("closed decision").alias("evidence_type"),
    )
    return transactions.unionByName(settled(rows), allowMissingColumns=True)


def _whole_since() -> Column:
    return F.when(F.col("records") >= WHOLE_RECORDS, F.col("first_time"))


def decided() -> Column:
    """Return True for a coordinator's own transactions: they are no branch of anything."""
    return F.col("bqual").isNull()
