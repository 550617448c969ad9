"""What a stream has not read yet, as its progress reports tell it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tallystick import Journal
from tallystick.pipeline.options import Limit, SourceOptions
from tallystick.pipeline.source.backlog import Backlog, Looks, backlog
from tallystick.pipeline.source.listener import BacklogListener
from tallystick.pipeline.source.positions import UNREAD, Position
from tallystick.pipeline.source.tailer import Tailer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LISTENING_SECONDS = 60.0
SEGMENTS: dict[str, Any] = {"segment_size": 64 << 10, "idle_mark_s": 0.1}


def _append(path: Path, count: int) -> None:
    with Journal(str(path), settings=SEGMENTS) as journal:
        for number in range(count):
            journal.append(b"%d" % number + bytes(400))


def _told(looks: Looks, tailer: Tailer, reached: Position) -> list[Backlog]:
    latest = json.dumps(looks.report(tailer, reached))
    source = {"endOffset": json.dumps(reached), "latestOffset": latest}
    return backlog({"sources": [source]})


def test_what_is_not_read_is_counted_until_it_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _append(log, 300)
    options, looks, position = SourceOptions((str(log),)), Looks(), Position()
    tailer, left = Tailer(options), []
    for path in log.glob("*.tally"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    while True:
        (one,) = _told(looks, tailer, position)
        left.append((one.records, one.bytes))
        if not one.records:
            break
        assert one.oldest_unread == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        position = tailer.advance(position, Limit(rows=70))
    records, sizes = zip(*left, strict=True)
    assert records == (300, 230, 160, 90, 20, 0)
    assert [*sizes] == sorted(sizes, reverse=True)
    assert 300 * 400 < sizes[0] <= sum(path.stat().st_size for path in log.glob("*.tally"))
    assert (sizes[-1], one.oldest_unread, one.losses) == (0, None, 0)


def test_what_was_seen_earlier_and_is_not_read_keeps_its_moment(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _append(log, 3)
    looks, tailer = Looks(), Tailer(SourceOptions((str(log),)))
    (first,) = _told(looks, tailer, {})
    for path in log.iterdir():  # its file is written to all the time
        os.utime(path, (4_000_000_000, 4_000_000_000))
    (again,) = _told(looks, tailer, {})
    assert first.oldest_unread is not None
    assert again.oldest_unread is not None
    assert first.oldest_unread <= again.oldest_unread <= datetime.now(UTC)


def test_a_loss_that_the_stream_went_on_behind_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _append(log, 300)
    sorted(log.glob("*.tally"))[1].unlink()
    tailer = Tailer(SourceOptions((str(log),), fail_on_data_loss=False))
    position, looks = tailer.advance({}), Looks()
    (before,) = _told(looks, tailer, position)
    (one,) = _told(looks, tailer, tailer.advance(position))
    assert (before.losses, one.losses) == (0, 1)
    assert "records were given up before they were read" in one.loss


@pytest.mark.parametrize("offset", ["5", 5, None, '{"topic": {"0": 7}}', '{"topic": 7}', "[1]"])
def test_sources_of_others_have_no_backlog(offset: object) -> None:
    assert backlog({"sources": [{"endOffset": offset, "latestOffset": offset}]}) == []


def _report(log: str, records: int | None, name: str | None = None, query: str = "q") -> Any:
    behind = {"bytes": 900, "records": records, "oldest_unread": 1_700_000_000.0}
    source = {"endOffset": {log: UNREAD | {"losses": 2}}, "latestOffset": {log: {"behind": behind}}}
    text = json.dumps({"id": query, "name": name, "sources": [source]})
    return SimpleNamespace(id=query, progress=SimpleNamespace(json=text))


def test_a_listener_exports_the_last_report_of_each_running_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = _gauges(monkeypatch)
    listener = BacklogListener()
    listener.onQueryProgress(_report("tally /a", 9, "ledger"))
    listener.onQueryProgress(_report("tally /a", 7, "ledger"))
    listener.onQueryProgress(_report("jboss /b", None, query="other"))
    found = read()
    assert found["unread_records"] == {("ledger", "tally /a"): 7}
    assert found["unread_bytes"] == {("ledger", "tally /a"): 900, ("other", "jboss /b"): 900}
    assert found["losses"] == {("ledger", "tally /a"): 2, ("other", "jboss /b"): 2}
    assert min(found["unread_seconds"].values()) > 90_000_000
    listener.onQueryTerminated(_report("tally /a", 7))
    assert set(read()["unread_bytes"]) == {("other", "jboss /b")}


def _gauges(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, dict[Any, float]]]:
    """Return a function that collects the gauges of streams, by query and log."""
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics, "get_meter", MeterProvider(metric_readers=[reader]).get_meter)

    def read() -> dict[str, dict[Any, float]]:
        data: Any = reader.get_metrics_data()
        return {
            metric.name.removeprefix("tallystick_stream_"): {
                (point.attributes["query"], point.attributes["log"]): point.value
                for point in metric.data.data_points
            }
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    return read


@pytest.mark.long
@pytest.mark.usefixtures("streams")
def test_through_spark_a_progress_report_tells_what_is_not_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _append(tmp_path / "log", 100)
    read, listener, exported = _gauges(monkeypatch), BacklogListener(), list[Any]()
    monkeypatch.setattr(listener, "onQueryTerminated", lambda _: exported.append(read()))
    spark.streams.addListener(listener)
    frame = spark.readStream.format("tallystick").option("maxRowsPerTrigger", "60")
    query = (
        frame.load(str(tmp_path / "log"))
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    begun = time.monotonic()
    while not exported and time.monotonic() - begun < LISTENING_SECONDS:
        time.sleep(0.05)
    spark.streams.removeListener(listener)
    told = [one for progress in query.recentProgress for one in backlog(progress)]
    assert [one.records for one in told][:2] == [40, 0]
    assert {one.log for one in told} == {f"tally {tmp_path / 'log'}"}
    (found,) = exported
    assert found["unread_records"] == {(str(query.id), f"tally {tmp_path / 'log'}"): 0}
