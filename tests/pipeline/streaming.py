"""A stream in a process of its own, to be killed: ``python -m tests.pipeline.streaming LOG HOME``.

It follows the log into Parquet below HOME/rows and prints a line every second, until it is
killed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tallystick.pipeline.session import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def follow(spark: SparkSession, log: str, home: str, *, drain: bool = False) -> StreamingQuery:
    """The running query; with ``drain`` it ends when everything there is now is read."""
    stream = (
        spark.readStream.format("tallystick")
        .option("maxRowsPerTrigger", "200")
        .option("holdFolder", f"{home}/hold")
        .load(log)
    )
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{home}/checkpoint")
    return (writer.trigger(availableNow=True) if drain else writer).start(f"{home}/rows")


def main(log: str, home: str) -> None:
    """Follow ``log`` until killed."""
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.warehouse.dir": f"{home}/warehouse",
    }
    query = follow(start("local[1]", settings), log, home)
    while not query.awaitTermination(1):
        print("alive", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:3])
