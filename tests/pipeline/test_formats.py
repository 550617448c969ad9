"""Tables in other formats than Parquet, and what a failure of Spark says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tallystick.errors import TallystickError
from tallystick.indoubt.listing import InDoubtReport, gathered
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.runner import Run
from tallystick.pipeline.session import own_errors
from tallystick.pipeline.tables.output_dir import TableSpace
from tests.fixtures import fixture_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_csv_is_refused_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="csv cannot hold the tables: ids and bodies are bytes"):
        Run([str(tmp_path)], str(tmp_path / "out"), "csv")


def test_json_holds_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "estate", tmp_path / "out"
    shutil.copytree(fixture_dir("bitronix") / "crash-mid-commit", root)
    (root / "manifest.json").unlink()
    run = Run([str(root)], str(out), "json")
    summary = run(spark)
    rows = TableSpace(str(out), "json").read(spark, "global_transactions").collect()
    judged = gathered([str(root)], InDoubtReport([])).judged()
    expected = {(row["gtrid"], row["resolution"]) for row in judged}
    assert {(bytes(row.gtrid), row.resolution) for row in rows} == expected
    assert summary.resolutions
    assert run(spark).read == []  # nothing new: the tables are there, and read again


def test_a_failure_says_its_own_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TallystickError, match="nosuch") as caught, own_errors():
        spark.read.format("tallystick").option("table", "nosuch").load(str(tmp_path)).collect()
    assert len(str(caught.value)) < 300
    assert "Traceback" not in str(caught.value)
