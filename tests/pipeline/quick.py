"""What makes Spark quick over frames of a few rows: it compiles nothing that would run once, and
its processes share what Java has made of its classes, which is half of the work of a start.

``python -m tests.pipeline.quick`` makes the file of classes, for all tests of an environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""Where Java finds Spark's classes as it keeps them in memory. One of other jars is not used."""

_ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Nothing runs for long enough that Java's second compiler pays, or a collector of threads."""
_IN_SILENCE = "-Xshare:auto -Xlog:cds=off,cds+dynamic=off"

JAVA = _ONE_COMPILER
"""Options of a Java process."""
if CLASSES.exists():
    JAVA += f" -XX:SharedArchiveFile={CLASSES} {_IN_SILENCE}"

QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.defaultJavaOptions": JAVA,
    "spark.executor.defaultJavaOptions": JAVA,
}


def end(spark: SparkSession) -> None:
    """End a session and its Java process, so that what comes after has none beside it."""
    from pyspark import SparkContext

    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends when it reads the end of its input
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def main() -> None:
    """Have a session load the classes that most need, and write them down as it ends."""
    from tallystick.pipeline.session import start
    from tallystick.pipeline.source.batch import TallystickDataSource
    from tests.fixtures import fixture_dir

    made = CLASSES.with_suffix(".made")
    noting = f"{_ONE_COMPILER} {_IN_SILENCE} -XX:ArchiveClassesAtExit={made}"
    spark = start("local[2]", QUICK | {"spark.driver.defaultJavaOptions": noting}, app="classes")
    spark.dataSource.register(TallystickDataSource)
    with TemporaryDirectory() as home:
        log = str(fixture_dir("bitronix") / "all-dangling")
        source = spark.readStream.format("tallystick").load(log)
        sink = source.writeStream.option("checkpointLocation", f"{home}/checkpoint")
        sink.trigger(availableNow=True).start(f"{home}/rows", format="parquet").awaitTermination()
        rows = spark.read.parquet(f"{home}/rows")
        kinds = rows.groupBy("type").count().join(rows.select("type").distinct(), "type")
        kinds.orderBy("type").write.json(f"{home}/kinds")
        spark.createDataFrame([(1, "one")], ["number", "name"]).createTempView("numbers")
        spark.sql("SELECT max(number), name FROM numbers WHERE number > 0 GROUP BY name").collect()
    end(spark)
    made.replace(CLASSES)


if __name__ == "__main__":
    main()
