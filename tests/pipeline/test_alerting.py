"""Alerts: once for each transaction that is overdue, whatever the job is put through."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tallystick.pipeline import alerting
from tallystick.pipeline.reconcile.rows import GLOBAL_TRANSACTIONS
from tallystick.pipeline.runner import Run
from tests.fixtures import fixture_dir
from tests.pipeline.test_stages import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_each_overdue_transaction_is_told_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is real; what it would judge is written by hand."""
    place: dict[str, Any] = {"coordinator": "/e/b", "clock": "wall_ms", "resolution": "commit"}
    out = tmp_path / "tables"
    times = iter([[1_000, 9_000], [1_000, 9_000, 30_000], [1_000, 9_000, 30_000]])

    def advance(_run: Run, _spark: SparkSession) -> None:
        rows = [place | {"gtrid": bytes([n]), "last_time": t} for n, t in enumerate(next(times))]
        judged = frame(spark, GLOBAL_TRANSACTIONS, rows)
        judged.coalesce(1).write.mode("overwrite").parquet(str(out / "global_transactions"))

    monkeypatch.setattr(Run, "advance", advance)
    source = str(fixture_dir("bitronix") / "committed-2pc")
    run = Run([source], str(out))
    assert alerting.watch(spark, run, 5, until_now=True).awaitTermination(120)
    assert _told(spark, out) == [b"\x00"]
    for _ in range(2):
        run.advance(spark)
        alerting.raise_alerts(spark, run, 5)
        assert _told(spark, out) == [b"\x00", b"\x01"]


def _told(spark: SparkSession, out: Path) -> list[bytes]:
    rows = spark.read.parquet(str(out / alerting.ALERTS)).select("gtrid").collect()
    return sorted(bytes(row.gtrid) for row in rows)
