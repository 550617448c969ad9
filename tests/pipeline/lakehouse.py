"""A table of Delta or Iceberg that follows changes: ``... lakehouse FORM HOME JARS``.

In a process of its own, as the PySpark that has these jars is another one than that of the tests.
Batches come in random pieces, some twice; in the end the table has the rows that a reader has who
keeps them all in memory. Prints the number of rows. With the form ``postgres`` HOME is the URL of
a database for JDBC.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import CHANGES, batch_of
from tallystick.pipeline.change_feed import FEED, feed
from tallystick.pipeline.into import merge_into, upsert_into
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.session import start
from tests.pipeline.histories import Row, random_history
from tests.pipeline.quick import QUICK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
    },
}
"""What a session needs for each form."""

COMMITS = 60


def settings(form: str, home: Path, jars: str) -> dict[str, str]:
    """The settings of a small session that has the jars."""
    return {
        **SETTINGS[form],
        **QUICK,
        "spark.jars": jars,
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.catalog.ice.warehouse": str(home / "ice"),
    }


def newest(rows: list[Row]) -> dict[tuple[str, str], bytes]:
    """The rows that are there after all changes, by collection and key."""
    found: dict[tuple[str, str], bytes] = {}
    for row in rows:
        place = row["collection"], row["key"]
        if row["kind"] == "truncate":
            found = {one: body for one, body in found.items() if one[0] != place[0]}
        elif row["kind"] == "delete":
            found.pop(place, None)
        else:
            found[place] = row["after"]
    return found


def in_postgres(url: str, jars: str) -> None:
    """Do as `main` does with a table of PostgreSQL."""
    spark = start("local[1]", QUICK | {"spark.jars": jars})

    def found() -> list[Any]:
        by = {"driver": "org.postgresql.Driver"}
        return spark.read.jdbc(url, "accounts", properties=by).collect()

    kept = merged(spark, upsert_into(url, "accounts"), found)
    _leaves_other_tables(spark, url)
    print(kept)  # noqa: T201
    spark.stop()


def _leaves_other_tables(spark: SparkSession, url: str) -> None:
    """Check that a table called as that of batches is left alone, and a killed driver's is not."""
    by = {"driver": "org.postgresql.Driver"}
    batch = batch_of_changes(spark, random_history(7, 3))
    spark.range(3).write.jdbc(url, '"Pay roll_batch"', properties=by)
    with pytest.raises(OptionError, match='"Pay roll_batch", which is none of theirs'):
        upsert_into(url, '"Pay roll"')(batch, 0)
    assert spark.read.jdbc(url, '"Pay roll_batch"', properties=by).count() == 3
    upsert_into(url, "earlier")(batch, 0)
    spark.read.jdbc(url, "earlier", properties=by).selectExpr(
        "*", "false AS _deleted", "false AS _emptied"
    ).write.jdbc(url, "earlier_batch", properties=by)
    upsert_into(url, "earlier")(batch, 0)
    _refuses_other_columns(spark, url)


def _refuses_other_columns(spark: SparkSession, url: str) -> None:
    """Check what a table that is there is refused for; PostgreSQL tells capitals apart."""
    by = {"driver": "org.postgresql.Driver"}
    batch = batch_of_changes(spark, random_history(7, 3))
    made = spark.read.jdbc(url, "earlier", properties=by).limit(0)
    cases = {
        "twice": (made, "nothing keeps a row of it from being there twice"),
        "loud": (made.toDF(*map(str.upper, made.columns)), "has no column system; .*found SYSTEM"),
        "texts": (made.withColumn("ordinal", made["ordinal"].cast("string")),
                  "type in the column ordinal; expected integer; found text"),
    }  # fmt: skip
    for name, (frame, said) in cases.items():
        frame.write.jdbc(url, name, properties=by)
        with pytest.raises(OptionError, match=said):
            upsert_into(url, name)(batch, 0)
        assert spark.read.jdbc(url, name, properties=by).count() == 0


def main(form: str, home: Path, jars: str) -> None:
    """Merge a history in pieces and check the table in the end."""
    spark = start("local[1]", settings(form, home, jars))
    table = f"delta.`{home / 'table'}`" if form == "delta" else "ice.db.accounts"
    if form == "iceberg":
        spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")

    def found() -> list[Any]:
        return spark.table(table).collect()

    kept = merged(spark, merge_into(table, form), found)
    _takes_other_case(spark, table, form)
    print(kept)  # noqa: T201
    spark.stop()


def _takes_other_case(spark: SparkSession, table: str, form: str) -> None:
    """Check that a table of the same columns in capitals, and one more, is one that is followed."""
    loud = table.replace("table", "loud").replace("accounts", "loud")
    types = [
        f"`{one.name.upper()}` {one.dataType.simpleString()}" for one in spark.table(table).schema
    ]
    spark.sql(f"CREATE TABLE {loud} ({', '.join([*types, '`NOTED` string'])}) USING {form}")
    rows = random_history(7, 9)
    for _ in range(2):
        merge_into(loud, form)(batch_of_changes(spark, rows), 0)
    assert spark.table(loud).count() == len(newest(rows)) > 0
    assert spark.table(loud).columns[-1] == "NOTED"
    needed = loud.replace("loud", "needed")
    types.append("`needed` int NOT NULL")
    spark.sql(f"CREATE TABLE {needed} ({', '.join(types)}) USING {form}")
    with pytest.raises(OptionError, match="has a column needed, which no row has a value for"):
        merge_into(needed, form)(batch_of_changes(spark, rows), 0)
    assert spark.table(needed).count() == 0


def batch_of_changes(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """Rows of a history as a batch of the change feed."""
    fed = pa.Table.from_batches(list(feed([batch_of(rows, CHANGES)])), FEED)
    return spark.createDataFrame(fed)


def merged(
    spark: SparkSession, merge: Callable[[DataFrame, int], None], table: Callable[[], list[Any]]
) -> int:
    """Merge a history in pieces, some twice, and check the table; return how many rows it has."""
    choice, rows = random.Random(5), random_history(7, COMMITS)

    def batch(first: int, last: int) -> DataFrame:
        some = [row for row in rows if first < row["commit_sequence"] <= last]
        return batch_of_changes(spark, some)

    done = 0
    for number in range(1, COMMITS):
        last = min(done + choice.randint(10, 25), COMMITS)
        for _ in range(choice.randint(1, 2)):
            merge(batch(done, last), number)
        done = last
        if done == COMMITS:
            break
    for _ in range(2):
        found = {(row["collection"], row["key"]): bytes(row["after"]) for row in table()}
        assert found == newest(rows), (found, newest(rows))
        merge(batch(0, COMMITS), 0)  # all of it once more, as after a lost checkpoint
    return len(found)


if __name__ == "__main__":
    if sys.argv[1] == "postgres":
        in_postgres(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
