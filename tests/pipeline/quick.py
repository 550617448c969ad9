"""What makes Spark quick over frames of a few rows: it compiles nothing that would run once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of a Java process: nothing runs for long enough that Java's second compiler pays, or a
collector of many threads, or a proof of each class that is loaded."""

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
