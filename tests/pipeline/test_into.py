"""The change feed into Delta, Iceberg and Debezium's envelopes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import CHANGES, batch_of
from tallystick.pipeline.change_feed import FEED, feed
from tests.interop.java import classpath
from tests.pipeline.histories import history_row
from tests.pipeline.kafka import broker
from tests.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
JARS = {
    "delta": ("4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    "iceberg": ("4.1.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"),
}
"""By form: the newest PySpark that it has been released for, and its jar."""
KAFKA = "4.2.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
BROKER = "org.apache.kafka:kafka_2.13:3.9.1"

RUN_LIMIT_S = 900


def spark_with(form: str) -> tuple[dict[str, str], str]:
    """The environment of a process that has that form's PySpark, and the form's jars."""
    version, jar = (JARS | {"kafka": KAFKA})[form]
    folder = ROOT / ".sparks" / version
    if not (folder / ".ready").exists():
        pytest.skip(f"PySpark {version} for {form} is not there: scripts/sparks.sh --fetch-only")
    jars = [one for one in classpath([jar]).split(os.pathsep) if _own(one)]
    path = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])
    return os.environ | {"PYTHONPATH": path}, ",".join(jars)


def run_with(form: str, module: str, home: Path) -> str:
    """Standard output of a module that gets form, home and jars, with that form's PySpark."""
    environment, jars = spark_with(form)
    answer = subprocess.run(
        [sys.executable, "-m", module, form, str(home), jars],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    return answer.stdout


def _own(jar: str) -> bool:
    """True for jars that Spark does not bring."""
    folders = ("/io/delta/", "/org/apache/iceberg/", "/org/apache/kafka/", "/commons-pool2/")
    return any(one in jar for one in folders) or "-kafka-0-10_" in jar


@pytest.mark.sampled(1)
@pytest.mark.interop
@pytest.mark.timeout(RUN_LIMIT_S + 60)
@pytest.mark.parametrize("form", JARS)
def test_batches_that_come_again_leave_the_rows_of_one_pass(tmp_path: Path, form: str) -> None:
    assert int(run_with(form, "tests.pipeline.lakehouse", tmp_path).split()[-1]) > 3


@pytest.mark.interop
@pytest.mark.timeout(RUN_LIMIT_S + 60)
def test_a_consumer_of_kafka_has_the_envelopes_of_each_key_in_their_order(tmp_path: Path) -> None:
    environment, jars = spark_with("kafka")
    with broker(tmp_path, classpath([BROKER])) as servers:
        answer = subprocess.run(
            [sys.executable, "-m", "tests.pipeline.kafka", "kafka", servers, str(tmp_path), jars],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RUN_LIMIT_S,
            check=False,
        )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-4000:]
    assert int(answer.stdout.split()[-1]) > 300


@pytest.mark.interop
@pytest.mark.timeout(RUN_LIMIT_S + 60)
def test_batches_that_come_again_leave_the_same_rows_in_postgres(postgres_server: Server) -> None:
    jar = classpath(["org.postgresql:postgresql:42.7.4"]).split(os.pathsep)
    url = f"jdbc:postgresql://localhost:{postgres_server.port}/{postgres_server.database}"
    command = ["postgres", f"{url}?user=tally", ",".join(jar)]
    answer = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.lakehouse", *command],
        cwd=ROOT, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-4000:]
    assert int(answer.stdout.split()[-1]) > 3


@pytest.mark.parametrize(
    ("name", "fits"),
    [("x" * 62, True), ("x" * 63, False), ("s" * 80 + "." + "x" * 62, True),
     ("s." + "x" * 63, False), ('"' + "x" * 62 + '"', True), ('"a.b"."' + "x" * 63 + '"', False),
     ('"' + "ü" * 32 + '"', False), ('"' + '""' * 62 + '"', True)],
)  # fmt: skip
def test_a_name_that_postgres_cuts_is_refused(name: str, fits: bool) -> None:
    """Cut, the table beside it is the table itself, which a batch would replace."""
    from tallystick.pipeline.into import upsert_into

    given = "jdbc:postgresql://db.example/bank", name
    if fits:
        upsert_into(*given)
    else:
        with pytest.raises(ValueError, match="shorter than 63 bytes"):
            upsert_into(*given)


@pytest.mark.long
@pytest.mark.interop
@pytest.mark.timeout(RUN_LIMIT_S + 60)
def test_the_guide_s_lines_follow_three_logs_into_a_delta_table(tmp_path: Path) -> None:
    assert int(run_with("delta", "tests.pipeline.walkthrough", tmp_path).split()[-1]) > 100


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.interop
@pytest.mark.timeout(RUN_LIMIT_S + 60)
@pytest.mark.parametrize("form", JARS)
def test_a_run_s_tables_are_whole_and_old_or_new_wherever_it_is_killed(
    tmp_path: Path, form: str
) -> None:
    assert int(run_with(form, "tests.pipeline.lake_tables", tmp_path).split()[-1]) >= 3


RIGHT = {
    "system": "string", "log": "string", "collection": "string", "key": "string",
    "_commit_version": "bigint", "ordinal": "bigint", "_commit_timestamp": "timestamp",
    "transaction": "string", "gtrid": "binary", "after": "binary", "values": "string",
}  # fmt: skip
"""The columns of a table that follows the feed."""
MISFITS: dict[str, tuple[dict[str, str | None], str]] = {
    "no-column": ({"ordinal": None}, "has no column ordinal; expected ordinal bigint"),
    "other-type": ({"after": "string"}, "type in the column after; expected binary; found string"),
    "narrower": ({"ordinal": "int"}, "type in the column ordinal; expected bigint; found int"),
}


def _ddl(changes: dict[str, str | None]) -> str:
    types = {name: kind for name, kind in (RIGHT | changes).items() if kind is not None}
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    spark.sql("CREATE DATABASE IF NOT EXISTS targets")
    yield "targets.rows"
    spark.sql("DROP DATABASE targets CASCADE")


@pytest.mark.parametrize("case", MISFITS)
def test_a_table_of_other_columns_is_refused_in_a_sentence(
    spark: SparkSession, table: str, case: str
) -> None:
    """It was an error of the engine after the first half of a batch, or text for bytes."""
    from tallystick.pipeline.into import merge_into
    from tallystick.pipeline.options import OptionError

    changes, said = MISFITS[case]
    spark.sql(f"CREATE TABLE {table} ({_ddl(changes)}) USING parquet")
    rows = [history_row(1, "add", "1", after=b"one")]
    batch = spark.createDataFrame(pa.Table.from_batches([*feed([batch_of(rows, CHANGES)])], FEED))
    with pytest.raises(OptionError, match=f"the table {table} is there, and .*{said}") as error:
        merge_into(table)(batch, 0)
    assert "Nothing was written; name another table" in str(error.value)
    assert spark.table(table).count() == 0


@pytest.mark.parametrize("name", ["merge_into", "upsert_into", "as_debezium"])
def test_changes_without_the_columns_of_the_feed_are_refused_in_a_sentence(
    spark: SparkSession, name: str
) -> None:
    from tallystick.pipeline import into

    calls: dict[str, Callable[[DataFrame], object]] = {
        "merge_into": lambda changes: into.merge_into("t")(changes, 0),
        "upsert_into": lambda changes: into.upsert_into("jdbc:postgresql://h/d", "t")(changes, 0),
        "as_debezium": into.as_debezium,
    }
    rows = batch_of([history_row(1, "add", "1", after=b"one")], CHANGES)
    changes = spark.createDataFrame(pa.Table.from_batches([rows]))
    said = r"the changes lack columns; .*found none of _change_type, _commit_version,.*feed=false"
    with pytest.raises(ValueError, match=said):
        calls[name](changes)


def test_envelopes_need_no_other_columns_than_they_show(spark: SparkSession) -> None:
    from tallystick.pipeline.into import as_debezium
    from tallystick.pipeline.stages.envelopes import NEEDED

    rows = [history_row(1, "add", "1", after=b"one")]
    changes = spark.createDataFrame(pa.Table.from_batches([*feed([batch_of(rows, CHANGES)])], FEED))
    assert as_debezium(changes.select(*NEEDED)).collect() == as_debezium(changes).collect()


def test_columns_in_other_letters_of_case_are_those_of_the_engine() -> None:
    from tallystick.pipeline.options import OptionError
    from tallystick.pipeline.tables.lakehouse import REQUIRED, require_fit

    there = {name.upper(): kind for name, kind in RIGHT.items()} | {"noted": "string"}
    require_fit("t", RIGHT, there, same_case=False)
    with pytest.raises(OptionError, match=r"has no column system; .*found SYSTEM"):
        require_fit("t", RIGHT, there, same_case=True)
    with pytest.raises(OptionError, match="has a column noted, which no row has a value for"):
        require_fit("t", RIGHT, there | {"noted": REQUIRED + "string"}, same_case=False)
    with pytest.raises(OptionError, match="has a column noted"):
        require_fit("t", RIGHT, there, same_case=False, whole=True)
    require_fit("t", {"n": "int"}, {"n": "bigint"}, same_case=False)


@pytest.mark.parametrize("name", ["runs", "findings", "profile"])
def test_a_run_is_refused_where_a_table_is_another_one_s(
    spark: SparkSession, table: str, name: str
) -> None:
    from tallystick.pipeline.options import OptionError
    from tallystick.pipeline.tables.lakehouse import Lake

    space = f"spark_catalog.{table.partition('.')[0]}"
    spark.sql(f"CREATE TABLE {space}.{name} (system string, amount int) USING parquet")
    with pytest.raises(OptionError, match=f"the table {space}.{name} is there, and has no column"):
        Lake(spark, space, "iceberg").open()
    found = spark.sql(f"SHOW TABLES IN {space}").collect()
    # A view of the session is in no space.
    assert [one["tableName"] for one in found if not one["isTemporary"]] == [name]


def test_changes_are_envelopes_with_the_old_and_the_new_row(spark: SparkSession) -> None:
    from tallystick.pipeline.into import as_debezium

    rows = [
        history_row(1, "add", "1", after=b"one", values='{"V": 1}', clock="wall_ms", time=1_500),
        history_row(2, "update", "1", before=b"one", after=b"two", gtrid=b"\x01\x02"),
        history_row(3, "delete", "1", before=b"two"),
        history_row(4, "truncate", ""),
    ]
    table = pa.Table.from_batches(list(feed([batch_of(rows, CHANGES)])), FEED)
    found = as_debezium(spark.createDataFrame(table)).collect()
    values = [json.loads(row["value"]) for row in found]
    assert [row["topic"] for row in found] == ["tallystick.h2.T"] * 4
    assert [row["key"] for row in found] == [*['{"key":"1"}'] * 3, None]
    assert [one["op"] for one in values] == ["c", "u", "d", "t"]
    one, two = (base64.b64encode(body).decode() for body in (b"one", b"two"))
    assert values[0]["before"] is None
    assert values[0]["after"] == {"key": "1", "body": one, "values": {"V": 1}}
    assert values[0]["ts_ms"] == 1_500
    assert (values[1]["before"]["body"], values[1]["after"]["body"]) == (one, two)
    assert values[1]["source"]["gtrid"] == "0102"
    assert (values[2]["before"]["body"], values[2]["after"]) == (two, None)
    assert (values[3]["before"], values[3]["after"]) == (None, None)
    assert [one["source"]["commit_version"] for one in values] == [1, 2, 3, 4]
