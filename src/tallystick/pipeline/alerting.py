"""A streaming job that raises an alert for each branch that has been in doubt for too long.

In: logs that are being written, and a limit. Out: rows of `stages.overdue` appended to the table
``alerts`` beside the others, each global transaction once per resolution, however often the
job is started again.
"""

from __future__ import annotations

import json
import time
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING

from tallystick.pipeline.fingerprint import fingerprint
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.planning import find
from tallystick.pipeline.runner import Run
from tallystick.pipeline.stages import overdue
from tallystick.pipeline.tables.output_dir import PLAIN_FORMATS, TableSpace, literal
from tallystick.reading.names import row_name
from tallystick.storage.source import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ALERTS = "alerts"

KEYS = ("format_id", "gtrid", "resolution")
"""Columns of an alert that is raised once; ids of two formats may have the same gtrid."""


def watch(
    spark: SparkSession, run: Run, limit_seconds: float, *, until_now: bool = False
) -> StreamingQuery:
    """Start a query that brings the tables of ``run`` up to date and appends alerts.

    The query looks for alerts only when records come. With ``until_now`` it ends when it has seen
    the records that are there now. From then on the run ``goes_on`` where publishing fails.
    """
    run.goes_on = True

    def step(_records: DataFrame, _number: int) -> None:
        run.advance(spark)
        raise_alerts(spark, run, limit_seconds)

    reader = spark.readStream.format("tallystick").options(**run.options)
    records = reader.option("paths", json.dumps(list(run.sources))).load()
    writer = records.writeStream.foreachBatch(step)
    writer = writer.option("checkpointLocation", f"{run.out}/_alerts_checkpoint")
    return (writer.trigger(availableNow=True) if until_now else writer).start()


def raise_alerts(spark: SparkSession, run: Run, limit_seconds: float) -> None:
    """Append what is overdue in the tables now and is not in the table of alerts yet.

    Raises `OptionError` where the tables are not on this machine's file system.
    """
    if is_remote(run.out) or run.form == "iceberg":
        raise OptionError("alerts are kept in local folders only", found=run.out)
    judged = TableSpace(run.out.rstrip("/"), run.form).read(spark, "global_transactions")
    late = overdue(judged, limit_seconds, time.time(), _changed(run))
    folder = f"{run.out}/{ALERTS}"
    if _was_written(folder, run.form):
        reader = spark.read.format(run.form)
        if run.form in PLAIN_FORMATS:  # files tell no types where they hold no rows
            reader = reader.schema(late.schema)
        known = reader.load(literal(folder, run.form)).select(*KEYS)
        same = reduce(and_, (late[name].eqNullSafe(known[name]) for name in KEYS))
        late = late.join(known, same, "left_anti")
        if late.isEmpty():  # else every look would leave one more file of nothing
            return
    late.coalesce(1).write.format(run.form).mode("append").save(folder)


def _was_written(folder: str, form: str) -> bool:
    """Return whether alerts were kept; a writer that was killed may leave a folder of nothing."""
    if form == "delta":
        return any(Path(folder, "_delta_log").glob("*.json"))
    return Path(folder).is_dir()


def _changed(run: Run) -> dict[str, float]:
    """Return by log when its local files changed last, in seconds since 1970."""
    logs = [log for log in find(run.sources).logs if not is_remote(log.path)]
    times = ((row_name(log), max(fingerprint(file)[1] for file in log.files)) for log in logs)
    return {log: time_ns / 1e9 for log, time_ns in times}
