"""The sink: whole batches, each once."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import tallystick
from tallystick.errors import LogWriteError, TallystickError
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.source import sink
from tallystick.pipeline.source.batch import TallystickDataSource
from tallystick.pipeline.source.sink import ShardStreamWriter, ShardWriter, ShardWritten
from tallystick.storage.local import LOCAL
from tallystick.storage.source import read_head
from tallystick.systems import protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BODIES = StructType().add("body", "binary")


def _batches(*bodies: object) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"body": list(bodies)})


def _bodies(folder: Path) -> list[bytes]:
    return sorted(
        record.body or b"" for record in tallystick.scan(folder) if record.type == "append"
    )


def _source(path: Path) -> TallystickDataSource:
    return TallystickDataSource({"path": str(path)})


def _written(writer: ShardStreamWriter, query: str, *bodies: object) -> ShardWritten:
    return replace(writer.write(_batches(*bodies)), query=query)


def test_a_batch_id_is_written_once(tmp_path: Path) -> None:
    writer = ShardStreamWriter(str(tmp_path / "out"))
    for _ in range(2):
        messages: list[Any] = [_written(writer, "q", "one", "two"), _written(writer, "q", b"3")]
        writer.commit(messages, 0)
    writer.commit([_written(writer, "q", "four")], 1)
    assert _bodies(tmp_path / "out") == [b"3", b"four", b"one", b"two"]
    assert not [path for path in tmp_path.rglob("*") if path.is_dir() and "stream/" in str(path)]


def test_the_names_of_all_folders_are_durable_once_a_batch_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = set[Path](), os.fsync

    def noting(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    root = tmp_path / "a" / "b" / "out"
    writer = ShardStreamWriter(str(root))
    writer.commit([_written(writer, "q", "one")], 0)
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b", root} <= synced


def test_a_commit_removes_the_shards_that_killed_tries_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = ShardStreamWriter(str(tmp_path / "out"))
    monkeypatch.setattr(sink, "_query_id", lambda: "other")
    others = writer.write(_batches("other"))
    monkeypatch.setattr(sink, "_query_id", lambda: "q")
    writer.write(_batches("lost"))  # killed before its commit
    writer.commit([writer.write(_batches("one"))], 0)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["out", Path(others.path).parent.name]
    writer.commit([others], 0)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert _bodies(tmp_path / "out") == [b"one", b"other"]


@pytest.mark.parametrize("bodies", [[], [b""] * 3, [b"x"] * 2000, [bytes(10 << 20)], [b"y" * 99]])
def test_a_shard_takes_the_room_that_its_rows_need(tmp_path: Path, bodies: list[bytes]) -> None:
    writer = ShardStreamWriter(str(tmp_path / "out"))
    writer.commit([_written(writer, "q", *bodies)], 0)
    assert _bodies(tmp_path / "out") == bodies
    taken = sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*.tally"))
    assert taken <= sum(map(len, bodies)) + 64 * len(bodies) + (64 << 10)
    assert len([*tmp_path.rglob("0*.tally")]) == 1


def test_the_first_batch_of_another_query_is_another_batch(tmp_path: Path) -> None:
    writer = ShardStreamWriter(str(tmp_path / "out"))
    for query in ("one", "two"):
        writer.commit([_written(writer, query, query)], 0)
    assert _bodies(tmp_path / "out") == [b"one", b"two"]


def test_a_batch_that_does_not_say_its_query_is_refused(tmp_path: Path) -> None:
    writer = ShardStreamWriter(str(tmp_path / "out"))
    with pytest.raises(LogWriteError, match="which query"):
        writer.commit([writer.write(_batches("one"))], 0)
    (tmp_path / "out" / "batch-000000000000").mkdir(parents=True)
    with pytest.raises(LogWriteError, match="which query wrote it"):
        writer.commit([_written(writer, "q", "one")], 0)


def test_an_aborted_batch_leaves_nothing(tmp_path: Path) -> None:
    writer = ShardWriter(str(tmp_path / "out"), overwrite=False)
    message = writer.write(_batches("one"))
    writer.abort([message, None])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_log_is_neither_overwritten_nor_written_into(tmp_path: Path, overwrite: bool) -> None:
    with tallystick.Journal(str(tmp_path / "log")) as journal:
        journal.append(b"kept")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(LogWriteError, match="would remove" if overwrite else "folder of a log"):
        _source(tmp_path / "log").writer(_BODIES, overwrite)
    with pytest.raises(LogWriteError, match="folder of a log"):
        _source(tmp_path / "log").streamWriter(_BODIES, overwrite)
    assert sorted(tmp_path.rglob("*")) == before


def test_overwrite_removes_nothing_but_batches_and_append_bears_more(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "batch-1").mkdir(parents=True)
    _source(out).writer(_BODIES, True)
    (out / "_checkpoint").mkdir()
    (out / "README").write_text("notes")
    _source(out).writer(_BODIES, False)
    with pytest.raises(LogWriteError, match="found README, _checkpoint"):
        _source(out).writer(_BODIES, True)
    with pytest.raises(LogWriteError, match="Not a directory"):
        _source(out / "README").writer(_BODIES, False)


def test_each_foreign_file_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[str]()

    def counted(path: str, size: int) -> bytes:
        looked.append(path)
        return read_head(path, size)

    monkeypatch.setattr(protocol.source, "read_head", counted)
    for number in range(20):
        (tmp_path / f"part-{number:05}.json").write_text("{}")
    _source(tmp_path).writer(_BODIES, False)
    assert sorted(looked) == sorted(map(str, tmp_path.iterdir()))


def test_a_folder_with_a_file_that_cannot_be_read_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("notes")
    (tmp_path / "1.tally").symlink_to("/unmounted/1.tally")
    with pytest.raises(LogWriteError, match=r"1\.tally: .*may be a log's"):
        _source(tmp_path).writer(_BODIES, False)


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_link_is_followed_and_stays(tmp_path: Path, overwrite: bool) -> None:
    """So what is staged lies on the disk that the link leads to."""
    (tmp_path / "disk" / "out").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "out")
    for text in ("old", "new"):
        writer = _source(tmp_path / "link").writer(_BODIES, overwrite)
        message = cast(ShardWriter, writer).write(_batches(text))
        assert Path(message.path).is_relative_to(tmp_path / "disk")
        writer.commit([message])
    assert (tmp_path / "link").is_symlink()
    expected = [b"new"] if overwrite else [b"new", b"old"]
    assert _bodies(tmp_path / "disk" / "out") == _bodies(tmp_path / "link") == expected
    assert [one.name for one in (tmp_path / "disk").iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["out*", "out[1]", "out?"])
def test_a_folder_to_write_into_is_a_name_and_no_pattern(tmp_path: Path, name: str) -> None:
    (tmp_path / "out1").mkdir()
    writer = cast(ShardWriter, _source(tmp_path / name).writer(_BODIES, True))
    writer.commit([writer.write(_batches("one"))])
    assert _bodies(tmp_path / name) == [b"one"]
    assert [*(tmp_path / "out1").iterdir()] == []


def test_several_paths_to_write_into_are_refused(tmp_path: Path) -> None:
    paths = json.dumps([str(tmp_path / "a"), str(tmp_path / "b")])
    with pytest.raises(OptionError, match="a frame is written into one folder"):
        TallystickDataSource({"paths": paths}).writer(_BODIES, False)


def test_overwrite_takes_older_batches_away_after_the_new_one_is_there(tmp_path: Path) -> None:
    for text in ("old", "new"):
        writer = ShardWriter(str(tmp_path / "out"), overwrite=True)
        writer.commit([writer.write(_batches(text))])
    assert _bodies(tmp_path / "out") == [b"new"]


class _Killed(BaseException):
    """Stands for the end of the process at a step of the commit."""


@pytest.mark.sampled(29)
@pytest.mark.parametrize("step", range(1, 30))
@pytest.mark.parametrize("exchange", [True, False])
def test_overwrite_killed_at_any_step_leaves_old_or_new_rows_never_both(
    tmp_path: Path, step: int, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where two folders cannot be exchanged in one step; and the next write finishes it."""
    calls = 0

    def killing(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                raise _Killed
            return call(*given, **named)

        return counted

    def unable(*_: str) -> None:
        raise OSError(errno.ENOSYS, "no exchange")

    first = ShardWriter(str(tmp_path / "out"), overwrite=True)
    first.commit([first.write(_batches("old"))])
    second = ShardWriter(str(tmp_path / "out"), overwrite=True)
    message = second.write(_batches("new"))
    with monkeypatch.context() as patch:
        patch.setattr(sink, "_exchange", killing(sink._exchange if exchange else unable))
        patch.setattr(LOCAL, "sync_dir", killing(LOCAL.sync_dir))
        patch.setattr(shutil, "rmtree", killing(shutil.rmtree))
        for name in ("rename", "write_text", "mkdir"):
            patch.setattr(Path, name, killing(getattr(Path, name)))
        with suppress(_Killed):
            second.commit([message])
    there = _bodies(tmp_path / "out") if (tmp_path / "out").exists() else None
    assert there in ([b"old"], [b"new"]) or (there is None and not exchange)
    third = ShardWriter(str(tmp_path / "out"), overwrite=False)
    third.commit([third.write(_batches("more"))])
    assert _bodies(tmp_path / "out") in ([b"more", b"old"], [b"more", b"new"])
    assert not [path for path in tmp_path.rglob("*") if path.name == "old"]


def test_a_null_body_is_refused(tmp_path: Path) -> None:
    writer = ShardWriter(str(tmp_path / "out"), overwrite=False)
    with pytest.raises(TallystickError, match="a body is null"):
        writer.write(_batches(b"one", None))


@pytest.mark.long
@pytest.mark.parametrize("streamed", [False, True], ids=["batch", "stream"])
def test_through_spark_a_refusal_of_a_task_is_a_sentence(
    spark: SparkSession, tmp_path: Path, streamed: bool
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"body": null}\n')
    reader = (spark.readStream if streamed else spark.read).schema("body string")
    frame = reader.json(str(tmp_path / "in"))
    with pytest.raises(Exception, match="a body is null") as refused:
        if streamed:
            writer = frame.writeStream.format("tallystick").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            writer.start(str(tmp_path / "out")).awaitTermination()
        else:
            frame.write.format("tallystick").mode("append").save(str(tmp_path / "out"))
    assert "Traceback" not in str(refused.value)


@pytest.mark.parametrize("columns", ["value binary", "body binary, more int", "body int"])
def test_a_frame_with_other_columns_is_refused(
    spark: SparkSession, tmp_path: Path, columns: str
) -> None:
    frame = spark.createDataFrame([], columns)
    with pytest.raises(Exception, match="a column body, binary or string, and no other"):
        frame.write.format("tallystick").mode("append").save(str(tmp_path / "out"))


def test_two_streams_into_one_folder_both_arrive(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rows.txt").write_text(f"{name}\n")
        frame = spark.readStream.schema("body string").text(str(folder))
        writer = frame.withColumnRenamed("value", "body").writeStream.format("tallystick")
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{name}"))
        for _ in range(2):  # the second run of a query has nothing new
            query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
            query.awaitTermination()
    assert _bodies(tmp_path / "out") == [b"one", b"two"]


def test_a_frame_comes_back_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

    frame = spark.range(1_000).select(F.concat(F.lit("row "), "id").alias("body"))
    frame.repartition(2).write.format("tallystick").mode("append").save(str(tmp_path / "out"))
    back = spark.read.format("tallystick").load(str(tmp_path / "out")).where("type = 'append'")
    assert back.select("body").distinct().count() == back.count() == 1_000
    assert back.select("log").distinct().count() == 2
