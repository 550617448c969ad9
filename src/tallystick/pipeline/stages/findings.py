"""``findings``: those of single logs, and those that only all logs together show.

In: the logs' findings, the ``global_transactions`` table and the copies. Out: all of them in the
schema `tallystick.arrow.schemas.FINDINGS`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from tallystick.arrow.schemas import FINDINGS
from tallystick.pipeline.source.batch import spark_schema
from tallystick.reconcile.alarms import (
    ADVICE,
    ALARM_BEGINS,
    COPY_BEGINS,
    COPY_CODE,
    COPY_ENDS,
    SEVERITIES,
)
from tallystick.records import Severity


def findings(
    logs: DataFrame, global_transactions: DataFrame, copies: DataFrame | None = None
) -> DataFrame:
    """Return the findings of the logs, of the reconciliation, and of copies.

    Every alarm in ``global_transactions`` and every log in ``copies`` (`stages.copies.COPIES`) is
    one finding.
    """
    schema = spark_schema(FINDINGS)
    alarms = global_transactions.where(F.col("alarm").isNotNull())
    raised = {
        "code": F.col("alarm"),
        "severity": _by_code({code: one.value for code, one in SEVERITIES.items()}),
        "log": F.col("coordinator"),
        "message": F.concat(F.lit(ALARM_BEGINS), _hex(), F.lit(": "), F.col("evidence")),
        "advice": _by_code(ADVICE),
        "bytes_at_risk": F.lit(0),
        "gtrid": F.col("gtrid"),
    }
    copied = {
        "code": F.lit(COPY_CODE),
        "severity": F.lit(Severity.INFO.value),
        "system": F.col("system"),
        "log": F.col("log"),
        "message": F.concat(F.lit(COPY_BEGINS), F.col("original"), F.lit(COPY_ENDS)),
        "bytes_at_risk": F.lit(0),
    }
    every = logs.select(*schema.names)
    for rows, values in ((alarms, raised), (copies, copied)):
        if rows is None:
            continue
        columns = [
            values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in schema
        ]
        every = every.unionByName(rows.select(*columns))
    return every


def _hex() -> Column:
    return F.lower(F.hex("gtrid"))


def _by_code(texts: dict[str, str]) -> Column:
    chosen = F.lit(None).cast("string")
    for code, text in texts.items():
        chosen = F.when(F.col("alarm") == code, F.lit(text)).otherwise(chosen)
    return chosen
