"""Streams in a process of their own, to be killed: ``python -m tests.pipeline.streaming HOME...``.

Each follows HOME/log into Parquet below HOME/rows, and the changes of a native log into
HOME/changes. A line is printed a few times a second. A query that fails is started again, as it
would be in operation, and its error kept in ``failures``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tallystick.pipeline.session import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PAUSE = 5.0
"""Seconds before a worker is started again: the one given up is still busy with coming up."""


WITH_CHANGES = "native"
"""The home of a log whose changes can be followed."""

PLACES = {
    "records": ("rows", "checkpoint", "hold"),
    "changes": ("changes", "checkpoint-changes", "hold-changes"),
}
"""Where a table's rows, the checkpoint and what was read are kept."""

SEPARATOR = "\n=== failed ===\n"


def tables(home: Path) -> list[str]:
    """What is followed of the log there."""
    return ["records", "changes"] if home.name == WITH_CHANGES else ["records"]


def follow(
    spark: SparkSession, home: Path, table: str = "records", *, drain: bool = False
) -> StreamingQuery:
    """The running query; with ``drain`` it ends when everything there is now is read."""
    rows, checkpoint, hold = PLACES[table]
    stream = (
        spark.readStream.format("tallystick")
        .option("table", table)
        .option("maxRowsPerTrigger", "500")
        .option("holdFolder", str(home / hold))
        .load(str(home / "log"))
    )
    writer = stream.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(home / checkpoint))
    return (writer.trigger(availableNow=True) if drain else writer).start(str(home / rows))


def failed(query: StreamingQuery, home: Path) -> bool:
    """True if the query ended by an error. Spark gives a worker ten seconds to come up, where a
    busy machine may need more; any other error is noted in ``home/failures``."""
    error = query.exception()
    if error is not None and "failed to connect back" not in str(error):
        with (home / "failures").open("a") as failures:
            failures.write(f"{SEPARATOR}{error}")
    return error is not None


def failures(home: Path) -> list[str]:
    """What was noted of queries that failed."""
    noted = home / "failures"
    return noted.read_text().split(SEPARATOR)[1:] if noted.exists() else []


def main(homes: list[Path]) -> None:
    """Follow all logs until killed."""
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.warehouse.dir": str(homes[0] / "warehouse"),
        # It lives for seconds: optimising compilation would take most of them.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = start("local[2]", settings)
    wanted = [(home, table) for home in homes for table in tables(home)]
    queries = {one: follow(spark, *one) for one in wanted}
    while True:
        for (home, table), query in queries.items():
            if failed(query, home):
                time.sleep(PAUSE)
                queries[home, table] = follow(spark, home, table)
        print("alive", flush=True)  # noqa: T201
        time.sleep(0.2)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
