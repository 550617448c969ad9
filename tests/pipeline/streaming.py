"""Streams in a process of their own, to be killed: ``python -m tests.pipeline.streaming HOME...``.

Each follows HOME/log into Parquet below HOME/rows. A line is printed a few times a second.
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


def follow(spark: SparkSession, home: Path, *, drain: bool = False) -> StreamingQuery:
    """The running query; with ``drain`` it ends when everything there is now is read."""
    stream = (
        spark.readStream.format("tallystick")
        .option("maxRowsPerTrigger", "500")
        .option("holdFolder", str(home / "hold"))
        .load(str(home / "log"))
    )
    writer = stream.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(home / "checkpoint"))
    return (writer.trigger(availableNow=True) if drain else writer).start(str(home / "rows"))


def main(homes: list[Path]) -> None:
    """Follow all logs until killed."""
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.warehouse.dir": str(homes[0] / "warehouse"),
        # It lives for seconds: optimising compilation would take most of them.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # On a busy machine a worker may need long to come up.
        "spark.python.authenticate.socketTimeout": "300s",
    }
    spark = start("local[2]", settings)
    queries = [follow(spark, home) for home in homes]
    while all(query.isActive for query in queries):
        print("alive", flush=True)  # noqa: T201
        time.sleep(0.2)
    for query in queries:
        print(query.exception(), file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
