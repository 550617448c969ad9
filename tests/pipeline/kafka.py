"""Envelopes into a real Kafka by Spark's own writer: ``... kafka SERVERS HOME JARS``.

In a process of its own, as the PySpark that has the connector is another one than that of the
tests. A history goes there as a batch, and the changes of a journal as a stream in steps, which is
stopped and started again. What a consumer reads is what was written, of each key in its order.
Prints the number of messages. `broker` starts a broker of one process.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.pipeline.into import as_debezium
from tallystick.pipeline.session import start
from tallystick.services.journal import Journal
from tests.pipeline.histories import random_history
from tests.pipeline.lakehouse import batch_of_changes
from tests.pipeline.quick import QUICK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMITS = 200
START_SECONDS = 120.0
_SETTINGS = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{inner}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{inner}
log.dirs={folder}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


@contextmanager
def broker(home: Path, classpath: str) -> Iterator[str]:
    """Run a broker with a folder of its own; yields its address."""
    ports = [_free_port() for _ in range(2)]
    settings = home / "server.properties"
    folder = home / "topics"
    settings.write_text(_SETTINGS.format(port=ports[0], inner=ports[1], folder=folder))
    java = ["java", "-Xmx256m", "-cp", classpath]
    made = [*java, "kafka.tools.StorageTool", "format", "-t", str(uuid.uuid4()), "-c"]
    subprocess.run([*made, str(settings)], check=True, capture_output=True)
    with (home / "broker.out").open("wb") as out:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=out, stderr=out)
    try:
        _wait_for(ports[0], process)
        yield f"127.0.0.1:{ports[0]}"
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    begun = time.monotonic()
    while time.monotonic() - begun < START_SECONDS:
        assert process.poll() is None, "the broker has ended"
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the broker does not listen")


Message = tuple[str, str | None, str | None]
"""Topic, key and value."""


def in_a_batch(spark: SparkSession, servers: str) -> int:
    """Write a history, and read it as a consumer does."""
    envelopes = as_debezium(batch_of_changes(spark, random_history(7, COMMITS)))
    envelopes.write.format("kafka").option("kafka.bootstrap.servers", servers).save()
    return _same(_messages(envelopes.collect()), read(spark, servers, "tallystick.h2.*"))


def in_a_stream(spark: SparkSession, servers: str, home: Path) -> int:
    """Follow a journal in steps, and read what came as a consumer does."""
    log = home / "journal"
    for step in range(3):
        with Journal(str(log)) as journal:
            for number in range(30):
                journal.add(100 * step + number, b"body %d" % number)
                if number % 3 == 0:
                    journal.delete(100 * step + number)
        stream = spark.readStream.format("tallystick").option("table", "changes").load(str(log))
        query = as_debezium(stream).writeStream.format("kafka")
        query = query.option("kafka.bootstrap.servers", servers)
        query = query.option("checkpointLocation", str(home / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
    batch = spark.read.format("tallystick").option("table", "changes").option("feed", "true")
    expected = _messages(as_debezium(batch.load(str(log))).collect())
    return _same(expected, read(spark, servers, "tallystick.tally.*"))


def read(spark: SparkSession, servers: str, topics: str) -> list[Message]:
    """All messages of some topics, each topic's in their order."""
    frame: DataFrame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribePattern", topics)
        .option("startingOffsets", "earliest")
        .load()
    )
    texts = [f"CAST({one} AS string) AS {one}" for one in ("key", "value")]
    found = frame.selectExpr("topic", *texts, "partition", "offset")
    return _messages(found.orderBy("topic", "partition", "offset").collect())


def _messages(rows: Iterable[Any]) -> list[Message]:
    return [(row["topic"], row["key"], row["value"]) for row in rows]


def _same(expected: list[Message], found: list[Message]) -> int:
    """Check that all came, and those of each key in their order; return how many."""
    assert len(expected) > COMMITS // 2
    assert _by_key(found) == _by_key(expected)
    return len(found)


def _by_key(messages: Iterable[Message]) -> dict[tuple[str, str | None], list[str | None]]:
    found = defaultdict[tuple[str, str | None], list[str | None]](list)
    for topic, key, value in messages:
        found[topic, key].append(value)
    return dict(found)


def main(servers: str, home: Path, jars: str) -> None:
    """Do both."""
    spark = start("local[1]", QUICK | {"spark.jars": jars})
    print(in_a_batch(spark, servers) + in_a_stream(spark, servers, home))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
