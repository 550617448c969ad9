"""Few transactions are judged in one task: as by joins, and with few jobs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tallystick.pipeline.planning import find
from tallystick.pipeline.runner import Run
from tallystick.pipeline.tables import judge_task
from tallystick.reading.names import log_name
from tallystick.roles.coordinator_files import RESOURCES
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES
from tests.reading.test_estate import TABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS_MAX = 15
EXECUTIONS_MAX = 6


def _with_copies(root: Path) -> Path:
    """The examples, with a backup beside a log, and an older copy of a database."""
    shutil.copytree(EXAMPLES, root)
    shutil.copytree(root / "mid-phase-two" / "artemis", root / "mid-phase-two" / "artemis-backup")
    (h2,) = (root / "mid-phase-two").rglob("*.h2.db*")
    shutil.copy(h2, f"{h2.with_suffix('') if h2.suffix == '.gz' else h2}.before{h2.suffix}")
    return root


def _rows(out: Path, table: str, names: tuple[str, ...]) -> list[str]:
    rows = pq.read_table(out / table, columns=list(names)).to_pylist()
    for row in rows:
        row.get("branches", []).sort(key=repr)
    return sorted(map(repr, rows))


ESTATES: dict[str, Callable[[Path], Path]] = {
    "examples": _with_copies,
    "fixtures": lambda _: fixture_dir("estate"),
}


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("estate", ESTATES)
@pytest.mark.parametrize("named", [(), ("jdbc/branch-a", "jms/ledger")])
def test_one_task_judges_as_joins_do(
    estate: str,
    named: tuple[str, ...],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = ESTATES[estate](tmp_path / "estate")
    resources = dict(zip(named, map(log_name, find([str(root)]).logs), strict=False))
    for name, limit in (("joined", 0), ("at-once", judge_task.JUDGED_AT_ONCE)):
        monkeypatch.setattr(judge_task, "JUDGED_AT_ONCE", limit)
        Run([str(root)], str(tmp_path / name), resources=resources).advance(spark)
    tables: dict[str, tuple[str, ...]] = {
        "global_transactions": (
            "format_id", "gtrid", "owner", "coordinator", "decision", "branches", "resolution",
            "alarm", "last_time", "clock",
        ),
        "findings": ("code", "severity", "system", "log", "advice", "bytes_at_risk", "gtrid"),
    }  # fmt: skip
    for table, names in tables.items():
        joined = _rows(tmp_path / "joined", table, names)
        assert joined
        assert _rows(tmp_path / "at-once", table, names) == joined


def _spent(spark: SparkSession) -> tuple[int, int]:
    """The jobs and the SQL executions of the session so far."""
    context: Any = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    store: Any = spark._jsparkSession.sharedState().statusStore()
    return len(context.statusTracker().getJobIdsForGroup(None)), store.executionsCount()


def test_a_small_estate_takes_few_jobs(spark: SparkSession, tmp_path: Path) -> None:
    """With adaptive execution, as a session of the command line has it: each stage is a job."""
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    jobs, executions = _spent(spark)
    try:
        summary = Run([str(EXAMPLES)], str(tmp_path / "tables"))(spark)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    assert summary.resolutions["none"]
    more_jobs, more_executions = _spent(spark)
    assert 0 < more_jobs - jobs <= JOBS_MAX
    assert 0 < more_executions - executions <= EXECUTIONS_MAX


def test_a_run_judges_anew_what_the_small_files_beside_a_log_tell_otherwise(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = TABLE["decided-elsewhere"][0](tmp_path)
    known = root / "coordinator" / RESOURCES.name
    decides = known.read_bytes()
    known.unlink()
    run = Run([str(root)], str(tmp_path / "tables"))
    for alarm in (None, "decided-elsewhere"):
        assert bool(run.advance(spark)) is (alarm is None)
        rows = pq.read_table(tmp_path / "tables" / "global_transactions").to_pylist()
        assert [(row["resolution"], row["alarm"]) for row in rows] == [("rollback", alarm)]
        assert run.advance(spark) == []
        known.write_bytes(decides)
