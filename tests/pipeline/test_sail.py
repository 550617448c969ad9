"""The same stages and the same source on an engine without Java give the same rows."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tallystick.pipeline.runner import OUTPUT, Run
from tests.fixtures import fixture_dir
from tests.need import SAIL, need
from tests.pipeline import on_sail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOINED = "from tallystick.pipeline.tables import judge_task; judge_task.JUDGED_AT_ONCE = 0; "
"""As if there were too many transactions to judge in one task."""

LIMIT_S = 300


def run_sail(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command where there is no Java to be found."""
    return python("-c", f"{before}from tallystick.cli import main; main()", *arguments)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with Sail and without Java."""
    need("sail")
    kept = ("HOME", "TMPDIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    # Another PySpark that these tests run on would take the place of Sail's own.
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [one for one in given if one and not (Path(one) / "pyspark").exists()]
    return subprocess.run(
        [SAIL, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**environment, "PATH": "/nowhere", "PYTHONPATH": os.pathsep.join(paths)},
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_every_way_into_the_source_gives_the_rows_that_spark_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, collection = str(fixture_dir("estate") / "mid-phase-two"), "APP.ACCOUNTS"
    done = python("-m", on_sail.__name__, folder, collection, str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    rows: dict[str, list[str]] = json.loads(done.stdout)
    assert rows.pop("written") == ["{'body': b'one'}", "{'body': b'two'}"]
    assert rows.pop("catalogued") == rows["transactions"]
    expected = on_sail.frames(spark, folder, collection)
    assert rows.keys() == expected.keys()
    for name, frame in expected.items():
        assert rows[name] == on_sail.texts(frame), name
        assert rows[name], name
