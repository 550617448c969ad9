"""``findings``: those of single logs, and those that only all logs together show.

In: the logs' findings and the ``global_transactions`` table. Out: both in the schema
`tallystick.schemas.FINDINGS`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from tallystick.pipeline.source import spark_schema
from tallystick.records import Severity
from tallystick.schemas import FINDINGS

SEVERITIES = {
    "lost-commit": Severity.LOSS,
    "heuristic-mismatch": Severity.DAMAGE,
    "heuristic-outcome": Severity.DAMAGE,
    "foreign-branch": Severity.WARNING,
}

ADVICE = {
    "lost-commit": "Commit the branch by hand before its coordinator starts",
    "heuristic-mismatch": "Compare the resources and correct the data by hand",
    "heuristic-outcome": "Compare the resources and correct the data by hand",
    "foreign-branch": "Ask the coordinator named by the owner; do not decide in its place",
}


def findings(logs: DataFrame, global_transactions: DataFrame) -> DataFrame:
    """The findings of the logs and, for each alarm, one of the reconciliation."""
    schema = spark_schema(FINDINGS)
    alarms = global_transactions.where(F.col("alarm").isNotNull())
    values = {
        "code": F.col("alarm"),
        "severity": _by_code({code: one.value for code, one in SEVERITIES.items()}),
        "log": F.col("coordinator"),
        "message": F.concat(F.lit("global transaction "), _hex(), F.lit(": "), F.col("evidence")),
        "advice": _by_code(ADVICE),
        "bytes_at_risk": F.lit(0),
        "gtrid": F.col("gtrid"),
    }
    columns = [
        values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
        for field in schema
    ]
    return logs.select(*schema.names).unionByName(alarms.select(*columns))


def _hex() -> Column:
    return F.lower(F.hex("gtrid"))


def _by_code(texts: dict[str, str]) -> Column:
    chosen = F.lit(None).cast("string")
    for code, text in texts.items():
        chosen = F.when(F.col("alarm") == code, F.lit(text)).otherwise(chosen)
    return chosen
