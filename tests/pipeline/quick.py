"""What makes Spark quick over frames of a few rows: it compiles nothing that would run once."""

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a Java process: nothing runs for long enough that its second compiler pays."""
QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.defaultJavaOptions": JAVA,
    "spark.executor.defaultJavaOptions": JAVA,
}
