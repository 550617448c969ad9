"""Records with a timestamp: in batch, and in streams that have a watermark without a cast."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tallystick.pipeline.options import OptionError, SourceOptions, parse
from tallystick.pipeline.planning import tasks
from tallystick.pipeline.task import execute
from tallystick.systems.tally.live.log import TallyLog
from tests.fixtures import fixture_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("columns", [(), ("timestamp",), ("timestamp", "time", "offset")])
def test_records_have_their_time_as_a_timestamp(tmp_path: Path, columns: tuple[str, ...]) -> None:
    with TallyLog(str(tmp_path)) as log:
        log.append(b"one")
    options = SourceOptions((str(tmp_path),), columns=columns, timestamps=True)
    (task,) = tasks(options)
    (row,) = [row for batch in execute(task, options) for row in batch.to_pylist()]
    assert list(row) == [*(columns or options.schema.names)]
    age = datetime.datetime.now(datetime.UTC) - row["timestamp"]
    assert datetime.timedelta(0) <= age < datetime.timedelta(hours=1)
    if "time" in row:
        assert row["timestamp"].timestamp() == pytest.approx(row["time"] / 1e6)


def test_a_clock_that_does_not_tell_the_time_of_day_has_none() -> None:
    options = SourceOptions((str(fixture_dir("h2") / "committed-512"),), timestamps=True)
    (task,) = tasks(options)
    rows = [row for batch in execute(task, options) for row in batch.to_pylist()]
    assert rows
    assert {row["timestamp"] for row in rows} == {None}


def test_only_records_take_the_option() -> None:
    with pytest.raises(OptionError, match="timestamps is for records"):
        parse({"path": "/l", "table": "files", "timestamps": "true"})


@pytest.mark.long
@pytest.mark.usefixtures("streams")
def test_through_spark_a_stream_of_few_columns_has_a_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    with TallyLog(str(tmp_path / "log")) as log:
        for _ in range(5):
            log.append(b"one")
    stream = spark.readStream.format("tallystick").options(timestamps="true")
    rows = stream.option("columns", "timestamp,kind").load(str(tmp_path / "log"))
    assert rows.columns == ["timestamp", "kind"]
    query = (
        rows.withWatermark("timestamp", "1 hour")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert found.where("timestamp IS NOT NULL").count() == 5
