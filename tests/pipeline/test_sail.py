"""The same stages on an engine without Java give the same rows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tallystick.pipeline.runner import OUTPUT, Run
from tests.fixtures import fixture_dir
from tests.need import SAIL, need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOINED = "from tallystick.pipeline.tables import judge_task; judge_task.JUDGED_AT_ONCE = 0; "
"""As if there were too many transactions to judge in one task."""

LIMIT_S = 300


def run_sail(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command where there is no Java to be found."""
    need("sail")
    command = f"{before}from tallystick.cli import main; main()"
    environment = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
    return subprocess.run(
        [SAIL, "-c", command, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**environment, "PATH": "/nowhere"},
    )


def rows_of(root: Path, table: str) -> list[str]:
    """Every row of a table as text, sorted."""
    rows: list[dict[str, Any]] = pq.read_table(root / table).to_pylist()
    return sorted(map(repr, rows))


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables as Spark makes them."""
    out = tmp_path_factory.mktemp("of-spark")
    Run([str(fixture_dir("estate"))], str(out))(spark)
    return out


@pytest.mark.parametrize("before", ["", JOINED], ids=["judged-at-once", "joined"])
def test_every_row_of_every_table_is_the_one_that_spark_makes(
    expected: Path, tmp_path: Path, before: str
) -> None:
    out = tmp_path / "tables"
    estate = str(fixture_dir("estate"))
    done = run_sail("pipeline", "run", estate, "--out", str(out), "--master", "sail", before=before)
    assert done.returncode == 1, done.stderr  # the estate holds damage
    for table in OUTPUT:
        assert rows_of(out, table) == rows_of(expected, table), table


def test_a_second_run_reads_only_what_changed(tmp_path: Path) -> None:
    command = ("pipeline", "run", str(fixture_dir("bitronix")), "--out", str(tmp_path / "t"))
    first = run_sail(*command, "--master", "sail", "--json")
    second = run_sail(*command, "--master", "sail", "--json")
    assert '"read": []' not in first.stdout, first.stderr
    assert '"read": []' in second.stdout, second.stderr


def test_an_error_is_one_sentence_and_the_command_ends(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    out = str(tmp_path / "t")
    done = run_sail("pipeline", "run", missing, "--out", out, "--master", "sail")
    assert done.returncode != 0
    assert done.stderr.startswith("tallystick: "), done.stderr
    assert "Traceback" not in done.stderr
