"""Alerts: once for each transaction that is overdue, whatever the job is put through."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyarrow import dataset

from tallystick.cli.build.pipeline import command
from tallystick.pipeline import alerting
from tallystick.pipeline.runner import Run
from tallystick.pipeline.tables.output_dir import TableSpace
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tallystick.systems.bitronix.format.layout import COMMITTING
from tallystick.systems.bitronix.live.log import DiskJournal
from tests.fixtures import fixture_dir
from tests.pipeline.bank import KINDS, NAMES, write_bank
from tests.pipeline.stages.test_stages import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.usefixtures("streams")
def test_each_overdue_transaction_is_told_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is real; what it would judge is written by hand."""
    place: dict[str, Any] = {"coordinator": "/e/b", "clock": "boot_ms", "resolution": "commit"}
    out = tmp_path / "tables [1]"
    times = iter([[1_000, 9_000], [1_000, 9_000, 30_000], [1_000, 9_000, 30_000]])

    def advance(_run: Run, _spark: SparkSession) -> None:
        rows = [place | {"gtrid": bytes([n]), "last_time": t} for n, t in enumerate(next(times))]
        judged = frame(spark, GLOBAL_TRANSACTIONS, rows)
        judged.coalesce(1).write.mode("overwrite").parquet(str(out / "global_transactions"))

    monkeypatch.setattr(Run, "advance", advance)
    source = str(fixture_dir("bitronix") / "committed-2pc")
    run = Run([source], str(out))
    assert alerting.watch(spark, run, 5, until_now=True).awaitTermination(120)
    assert _told(out) == [b"\x00"]
    for _ in range(2):
        run.advance(spark)
        alerting.raise_alerts(spark, run, 5)
        assert _told(out) == [b"\x00", b"\x01"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["parquet", "json"])
def test_alerts_go_on_after_a_writer_that_was_killed_and_where_there_were_none(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    place = {"coordinator": "/e/b", "clock": "boot_ms", "resolution": "commit"}
    run = Run([str(fixture_dir("bitronix") / "committed-2pc")], str(tmp_path), form=form)
    (tmp_path / alerting.ALERTS / "_temporary" / "0").mkdir(parents=True)
    for times in ([], [9_000], [1_000, 9_000], [1_000, 9_000]):
        rows = [place | {"gtrid": bytes([n]), "last_time": t} for n, t in enumerate(times)]
        TableSpace(str(tmp_path), form).write(
            frame(spark, GLOBAL_TRANSACTIONS, rows).coalesce(1), "global_transactions"
        )
        staged = tmp_path / "_staging" / "global_transactions"
        shutil.rmtree(tmp_path / staged.name, ignore_errors=True)
        staged.rename(tmp_path / staged.name)
        alerting.raise_alerts(spark, run, 5)
    told = spark.read.format(form).load(str(tmp_path / alerting.ALERTS))
    assert told.count() == 1
    files = [*(tmp_path / alerting.ALERTS).glob("part-*")]
    assert len(files) == 1  # a look that finds nothing leaves none


def test_one_gtrid_of_two_formats_is_two_alerts(spark: SparkSession, tmp_path: Path) -> None:
    place: dict[str, Any] = {"coordinator": "/e/b", "clock": "boot_ms", "resolution": "commit"}
    place["gtrid"] = b"1"
    run = Run([str(fixture_dir("bitronix") / "committed-2pc")], str(tmp_path))
    newest = place | {"gtrid": b"2", "last_time": 9_000}
    for formats in ([1], [1, 2], [1, 2]):
        rows = [newest, *(place | {"format_id": one, "last_time": 1_000} for one in formats)]
        judged = frame(spark, GLOBAL_TRANSACTIONS, rows).coalesce(1)
        judged.write.mode("overwrite").parquet(str(tmp_path / "global_transactions"))
        alerting.raise_alerts(spark, run, 5)
    told = dataset.dataset(tmp_path / alerting.ALERTS).to_table(columns=["format_id"])
    assert sorted(told["format_id"].to_pylist()) == [1, 2]


def _told(out: Path) -> list[bytes]:
    told = dataset.dataset(out / alerting.ALERTS).to_table(columns=["gtrid"])
    return sorted(told["gtrid"].to_pylist())


class Borrowed:
    """The session of the tests, which a command does not stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None: ...


@pytest.mark.long
def test_the_command_tells_of_what_comes_into_doubt_while_it_streams(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "tables"
    truths = write_bank(logs, ["site-1"], rounds=1)
    late = next(gtrid for gtrid, truth in truths.items() if truth.kind is KINDS["undecided"])
    seen: set[tuple[bytes, str]] = set()

    def alerts() -> set[tuple[bytes, str]]:
        files = [str(path) for path in (out / alerting.ALERTS).glob("*.parquet")]
        rows = dataset.dataset(files).to_table(["gtrid", "resolution"]) if files else None
        return {(row["gtrid"], row["resolution"]) for row in rows.to_pylist()} if rows else set()

    def operator() -> None:
        """Wait for the first alerts, change one's due, wait for the alert, and end the command."""
        until(lambda: (late, "rollback") in alerts())
        with DiskJournal(str(logs / "site-0" / "bitronix")) as journal:
            journal.log_forced(COMMITTING, late, set(NAMES)).wait()
        until(lambda: (late, "commit") in alerts())
        seen.update(alerts())
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("tallystick.pipeline.session.start", lambda *_: Borrowed(spark))
    thread = threading.Thread(target=operator)
    thread.start()
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        reported = CliRunner().invoke(
            command, ["run", str(logs), "--out", str(out), "--stream", "--every", "0.2",
                   "--alert-after", "0.001"],
        )  # fmt: skip
    finally:
        thread.join()
        for number, handler in before:
            signal.signal(number, handler)
    assert reported.exit_code == 1, reported.output
    due = {gtrid for gtrid, truth in truths.items() if truth.kind.resolution != "none"}
    dated = {gtrid for gtrid, truth in truths.items() if truth.kind.statuses}
    assert {gtrid for gtrid, _ in seen} == due & dated


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 400
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
