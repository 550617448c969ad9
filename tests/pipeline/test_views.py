"""The tables of a run as views, and runs that fail for a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.parquet
import pytest

from tallystick.pipeline.runner import OUTPUT, Run
from tallystick.pipeline.summary import FAIL_ON, RunSummary
from tallystick.pipeline.tables.output_dir import TableSpace
from tallystick.pipeline.views import create_views
from tallystick.systems.tally.live.roles import TallyRecordJournal
from tests.indoubt.estates import EXAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FAR = {
    "records": "timestamp",
    "transactions": "last_timestamp",
    "profile": "bucket_timestamp",
}
"""By table a timestamp of its view."""


def _run(spark: SparkSession, folder: Path, out: str) -> None:
    """Make the tables of an estate, of which one log tells the time of day."""
    journal = TallyRecordJournal(str(folder / "native"))
    journal.add_in(1, 7, b"seven")
    journal.commit(1).wait()
    journal.close()
    Run([str(EXAMPLES / "mid-phase-two"), str(folder / "native")], out).advance(spark)


def test_every_table_is_a_view_with_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "tables `of` {a} run [1]*")
    _run(spark, tmp_path, out)
    try:
        assert create_views(spark, out, "estate") == [f"estate.{name}" for name in OUTPUT]
        for name in OUTPUT:
            plain = TableSpace(out).read(spark, name)
            assert spark.table(f"estate.{name}").select(*plain.columns).count() == plain.count()
        rows = spark.sql(
            "SELECT last_time, clock, unix_micros(last_timestamp) AS stamp FROM estate.transactions"
        ).collect()
        units = {"wall_us": 1, "wall_ms": 1_000}
        assert {row.clock for row in rows} > {"wall_us"}
        for row in rows:
            unit = units.get(row.clock)
            assert row.stamp == (None if unit is None else row.last_time * unit)
        create_views(spark, out, "estate")  # again, over what is there
    finally:
        spark.sql("DROP DATABASE IF EXISTS estate CASCADE")


def test_a_time_beyond_all_calendars_has_no_timestamp_and_fails_no_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "tables"
    _run(spark, tmp_path, str(out))
    far = {"time": 2**63 - 1, "last_time": 2**63 - 1, "bucket": (2**63 - 1) // 1000}
    for name in FAR:
        file = next((out / name).glob("*.parquet"))
        table = pyarrow.parquet.read_table(str(out / name))
        rows = [row | {one: far[one] for one in far if one in row} for row in table.to_pylist()]
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(rows, table.schema), file.with_name("far.parquet")
        )
    try:
        create_views(spark, str(out), "far")
        for name, column in FAR.items():
            wall = spark.table(f"far.{name}").where("startswith(clock, 'wall')")
            stamps = [row[column] for row in wall.select(column).collect()]
            assert stamps.count(None) == len(stamps) / 2 > 0
    finally:
        spark.sql("DROP DATABASE IF EXISTS far CASCADE")


def _summary(resolutions: dict[str, int], findings: dict[str, int]) -> RunSummary:
    return RunSummary({"x": 1}, 1, {}, {}, {}, resolutions, [], findings, [], [], [], 0.0)


@pytest.mark.parametrize(
    ("resolutions", "findings", "first"),
    [
        ({"none": 3}, {"info": 3}, None),
        ({"none": 3, "commit": 1}, {"info": 3}, "due"),
        ({"none": 3, "foreign": 1}, {"warning": 3}, "warning"),
        ({"none": 3, "heuristic_mismatch": 1}, {}, "damage"),
        ({"none": 3}, {"damage": 1}, "damage"),
        ({"none": 3}, {"loss": 1, "warning": 2}, "loss"),
    ],
)
def test_a_run_fails_on_what_is_as_grave_as_it_is_told(
    resolutions: dict[str, int], findings: dict[str, int], first: str | None
) -> None:
    summary = _summary(resolutions, findings)
    failing = [level for level in FAIL_ON if summary.fails(level)]
    assert failing == ([] if first is None else list(FAIL_ON[FAIL_ON.index(first) :]))
    assert summary.exit_code == int("damage" in failing)
    with pytest.raises(ValueError, match="tuple"):
        summary.fails("nothing")
