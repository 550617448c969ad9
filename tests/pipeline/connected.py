"""A session of Spark Connect from log to rows: ``python -m tests.pipeline.connected LOGS HOME``.

In a process of its own, as a session of Connect and one of plain Spark exclude each other, and as
it needs pandas and gRPC. A batch, SQL, a frame of pandas on Spark, and a stream give the rows that
the library gives. Prints the number of rows of the stream.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import pyspark_tallystick
import tallystick
from tallystick.records import Outcome

COLUMNS = ("file", "offset", "type")

TRIES = 5
"""How often a stream whose worker did not come up in time, on a busy machine, is started again."""

Place = tuple[Any, ...]


def followed(spark: SparkSession, logs: str, home: Path) -> list[Place]:
    """Return what a stream of the records writes, two batches at least."""
    for last in (False,) * TRIES + (True,):
        query = (
            spark.readStream.format("tallystick")
            .options(table="records", maxRowsPerTrigger="3", failOnDataLoss="false")
            .load(logs)
            .writeStream.option("checkpointLocation", str(home / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(home / "rows"))
        )
        try:
            query.awaitTermination()
            break
        except StreamingQueryException as error:
            if last or "failed to connect back" not in str(error):  # it has ten seconds for that
                raise
    assert len(list(home.glob("checkpoint/commits/[0-9]*"))) > 1
    return [tuple(row) for row in spark.read.parquet(str(home / "rows")).select(*COLUMNS).collect()]


def main(logs: str, home: Path) -> None:
    """Compare everything."""
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    spark.dataSource.register(pyspark_tallystick.DefaultSource)
    valid = [one for one in tallystick.scan(logs) if one.outcome is Outcome.VALID]
    there = Counter(tuple(getattr(one, name) for name in COLUMNS) for one in valid)
    frame = spark.read.format("tallystick").load(logs).where("outcome = 'valid'")
    assert Counter(tuple(row) for row in frame.select(*COLUMNS).collect()) == there
    spark.sql(f"CREATE TEMPORARY VIEW rows USING tallystick OPTIONS (path '{logs}')")
    counts = dict(Counter(one.type for one in valid))
    query = "SELECT type, count(*) FROM rows WHERE outcome = 'valid' GROUP BY type"
    assert {row[0]: row[1] for row in spark.sql(query).collect()} == counts
    pandas = frame.select("type").pandas_api()
    assert pandas.groupby("type").size().to_dict() == counts
    rows = followed(spark, logs, home)
    assert Counter(rows) == there
    print(len(rows))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
