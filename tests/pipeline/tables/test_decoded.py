"""Rows of logs that are decoded once for all tables."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import find
from tallystick.pipeline.tables.decoded import decoded, on_one_machine
from tallystick.reading.tables import TABLES
from tests.pipeline.walkthrough import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _rows(frame: DataFrame) -> list[str]:
    """Rows in an order of their own, without the column that runs leave empty."""
    return sorted(map(repr, frame.drop("attributes").toArrow().to_pylist()))


def test_every_table_comes_from_one_reading_of_the_logs(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The logs are gone once the first table was read."""
    home = tmp_path / "logs"
    write(home, 1)
    reader = spark.read.format("tallystick").option("search", "false").option("feed", "false")
    wanted = {table: _rows(reader.option("table", table).load(str(home))) for table in TABLES}
    options = SourceOptions((str(home),), split_bytes=10_000)
    with decoded(spark, find([str(home)]).logs, options) as rows:
        rows("logs")
        shutil.rmtree(home)
        found = {table: _rows(rows(table)) for table in TABLES}
        (folder,) = {Path(name).parents[1] for name in rows("records").inputFiles()}
    assert found == wanted
    assert all(found[table] for table in ("logs", "files", "records", "transactions", "changes"))
    assert not Path(folder.as_posix().removeprefix("file:")).exists()


def test_no_log_gives_tables_without_rows(spark: SparkSession) -> None:
    with decoded(spark, [], SourceOptions(())) as rows:
        assert {table: rows(table).count() for table in TABLES} == dict.fromkeys(TABLES, 0)


@pytest.mark.parametrize(
    ("master", "shared"), [("local[2]", True), ("spark://host:7077", False), ("yarn", False)]
)
def test_only_on_one_machine_all_workers_are_known_to_share_a_folder(
    master: str, shared: bool
) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    assert on_one_machine(cast("SparkSession", session)) is shared
    assert not on_one_machine(cast("SparkSession", SimpleNamespace()))
