"""Streams in a process to be killed: ``python -m tests.pipeline.streaming [--drain] STREAM...``.

STREAM is a folder HOME/TABLE/TARGET: it follows that table of HOME/log into that target; the table
``typed`` is `COLLECTION` of the changes, in its own columns. A line is
printed a few times a second. A query that fails is started again, as it would be in operation, and
its error kept in ``failures``. With ``--drain`` the process ends when everything is read, and the
rows of Delta tables are in ``rows.json``. ``--jars`` are Delta's, ``--master`` and ``--conf``
are for a cluster.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tallystick.pipeline.into import merge_into
from tallystick.pipeline.session import start
from tests.pipeline.lakehouse import SETTINGS
from tests.pipeline.quick import QUICK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PAUSE = 5.0
"""Seconds before a worker is started again: the one given up is still busy with coming up."""

STEP_ROWS = 60

COLUMNS = {
    "records": ("file", "offset", "type", "sequence", "time", "record_id", "gtrid", "body"),
    "changes": ("_change_type", "_commit_version", "ordinal", "collection", "key", "after"),
    "typed": ("_change_type", "_commit_version", "_ordinal", "record_id", "type", "state"),
}
"""By table the columns that are compared."""

COLLECTION = "states"

SEPARATOR = "\n=== failed ===\n"


@dataclass(frozen=True, slots=True)
class Stream:
    """What follows a table of the log of ``home`` into parquet, the sink, or delta."""

    home: Path
    table: str
    target: str

    @classmethod
    def of(cls, folder: Path) -> Stream:
        """The stream of a folder."""
        return cls(folder.parents[1], folder.parent.name, folder.name)

    @property
    def folder(self) -> Path:
        return self.home / self.table / self.target

    @property
    def rows(self) -> Path:
        return self.folder / "rows"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def hold(self) -> Path:
        """Where it says which files it has read."""
        return self.folder / "hold"

    @property
    def options(self) -> dict[str, str]:
        """What the data source is given."""
        given = {"table": self.table}
        if self.table == "typed":
            images = str(self.folder / "images")
            given = {"table": "changes", "collection": COLLECTION, "imagesFolder": images}
        given |= {"maxRowsPerTrigger": str(STEP_ROWS), "holdFolder": str(self.hold)}
        return given | {"path": str(self.home / "log")}

    @property
    def steps(self) -> int:
        """Batches of which Spark has noted that they are done."""
        return len(list(self.checkpoint.glob("commits/[0-9]*")))

    @property
    def begun(self) -> int:
        """Batches that Spark has begun."""
        return len(list(self.checkpoint.glob("offsets/[0-9]*")))

    @property
    def unnoted(self) -> bool:
        """True if the last batch that was begun can be seen in the sink, and is not noted."""
        begun = max((int(one.name) for one in self.checkpoint.glob("offsets/[0-9]*")), default=0)
        noted = (self.checkpoint / "commits" / str(begun)).exists()
        return any(self.rows.glob(f"batch-*{begun:012}")) and not noted

    @property
    def written(self) -> int:
        """Changes of the target that can be seen: batches, or commits of a Delta table."""
        names = {"parquet": "_spark_metadata/[0-9]*", "delta": "_delta_log/[0-9]*.json"}
        return len(list(self.rows.glob(names.get(self.target, "batch-*"))))

    @property
    def failures(self) -> list[str]:
        """What was noted of queries that failed."""
        noted = self.folder / "failures"
        return noted.read_text().split(SEPARATOR)[1:] if noted.exists() else []


def follow(spark: SparkSession, stream: Stream, *, drain: bool = False) -> StreamingQuery:
    """The running query; with ``drain`` it ends when everything there is now is read."""
    frame = spark.readStream.format("tallystick").options(**stream.options).load()
    if stream.target == "sink":
        frame = as_json(frame, stream.table, "body")
    writer = frame.writeStream.option("checkpointLocation", str(stream.checkpoint))
    if stream.target == "delta" and stream.table == "changes":
        writer = writer.foreachBatch(merge_into(f"delta.`{stream.rows}`"))
    else:
        form = "tallystick" if stream.target == "sink" else stream.target
        writer = writer.format(form).option("path", str(stream.rows))
    return (writer.trigger(availableNow=True) if drain else writer).start()


def as_json(frame: DataFrame, table: str, name: str) -> DataFrame:
    """The columns that are compared as one column of JSON."""
    from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

    names = [one for one in COLUMNS[table] if one in frame.columns]
    return frame.select(F.to_json(F.struct(*names)).alias(name))


def failed(query: StreamingQuery, stream: Stream) -> bool:
    """True if the query ended by an error. Spark gives a worker ten seconds to come up, where a
    busy machine may need more; any other error is noted."""
    error = query.exception()
    if error is not None and "failed to connect back" not in str(error):
        with (stream.folder / "failures").open("a") as failures:
            failures.write(f"{SEPARATOR}{error}")
    return error is not None


def wait_for_sources(query: StreamingQuery) -> None:
    """Wait until a query has made its sources, or has ended.

    Spark gives all queries of a session one map of the workers' environment, which each fills when
    it makes its source: where the first two do that at once, the map breaks, and no query after
    them runs (docs/operations/spark.md).
    """
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(0.02)


def drain_all(spark: SparkSession, streams: list[Stream], tries: int = 50) -> None:
    """Read everything that is there, one stream after the other."""
    for stream in streams:
        while True:
            query = follow(spark, stream, drain=True)
            while query.isActive:
                time.sleep(0.1)
            if not failed(query, stream):
                break
            assert len(stream.failures) <= tries, stream.failures[-1]
        if stream.target == "delta":
            found = as_json(spark.read.format("delta").load(str(stream.rows)), stream.table, "row")
            lines = [row["row"] for row in found.collect()]
            (stream.folder / "rows.json").write_text("\n".join(lines))


def main(given: argparse.Namespace) -> None:
    """Follow all logs until killed, or until everything is read."""
    streams: list[Stream] = given.streams
    settings = {
        **QUICK,
        "spark.sql.warehouse.dir": str(streams[0].folder / "warehouse"),
        "spark.local.dir": str(streams[0].folder / "local"),  # a killed one leaves copies of jars
    }
    if given.jars:
        settings |= SETTINGS["delta"] | {"spark.jars": given.jars}
    settings |= dict(one.split("=", 1) for one in given.conf)
    spark = start(given.master, settings)
    if given.drain:
        drain_all(spark, streams)
        spark.stop()
        return
    queries: dict[Stream, StreamingQuery] = {}
    for stream in streams:
        queries[stream] = follow(spark, stream)
        wait_for_sources(queries[stream])
    while True:
        for stream, query in queries.items():
            if failed(query, stream):
                time.sleep(PAUSE)
                queries[stream] = follow(spark, stream)
        print("alive", flush=True)  # noqa: T201
        time.sleep(0.2)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jars", default="")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("streams", nargs="+", type=lambda folder: Stream.of(Path(folder)))
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    main(_parsed())
