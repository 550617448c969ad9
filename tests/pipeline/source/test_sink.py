"""The sink: whole batches, each once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tallystick
from tallystick.errors import TallystickError
from tallystick.pipeline.source.sink import ShardStreamWriter, ShardWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _batches(*bodies: object) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"body": list(bodies), "other": list(range(len(bodies)))})


def _bodies(folder: Path) -> list[bytes]:
    return sorted(
        record.body or b"" for record in tallystick.scan(folder) if record.type == "append"
    )


def test_a_batch_id_is_written_once(tmp_path: Path) -> None:
    writer = ShardStreamWriter(str(tmp_path / "out"))
    for _ in range(2):
        messages: list[Any] = [writer.write(_batches("one", "two")), writer.write(_batches(b"3"))]
        writer.commit(messages, 0)
    writer.commit([writer.write(_batches("four"))], 1)
    assert _bodies(tmp_path / "out") == [b"3", b"four", b"one", b"two"]
    assert not [path for path in tmp_path.rglob("*") if path.is_dir() and "stream/" in str(path)]


def test_an_aborted_batch_leaves_nothing(tmp_path: Path) -> None:
    writer = ShardWriter(str(tmp_path / "out"), overwrite=False)
    message = writer.write(_batches("one"))
    writer.abort([message, None])
    assert list(tmp_path.iterdir()) == []


def test_overwrite_takes_older_batches_away_after_the_new_one_is_there(tmp_path: Path) -> None:
    for text in ("old", "new"):
        writer = ShardWriter(str(tmp_path / "out"), overwrite=True)
        writer.commit([writer.write(_batches(text))])
    assert _bodies(tmp_path / "out") == [b"new"]


def test_a_frame_without_body_is_refused(tmp_path: Path) -> None:
    writer = ShardWriter(str(tmp_path / "out"), overwrite=False)
    with pytest.raises(TallystickError, match="a column body"):
        writer.write(iter([pa.record_batch({"value": [b"x"]})]))


def test_a_frame_comes_back_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

    frame = spark.range(1_000).select(F.concat(F.lit("row "), "id").alias("body"))
    frame.repartition(2).write.format("tallystick").mode("append").save(str(tmp_path / "out"))
    back = spark.read.format("tallystick").load(str(tmp_path / "out")).where("type = 'append'")
    assert back.select("body").distinct().count() == back.count() == 1_000
    assert back.select("log").distinct().count() == 2
