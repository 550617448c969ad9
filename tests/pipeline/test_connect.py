"""Spark Connect and pandas on Spark: the whole way, with what they need beside PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import fixture_dir
from tests.pipeline.quick import JAVA

ROOT = Path(__file__).parents[2]
CONNECT = ROOT / ".sparks" / "connect"

LIMIT_S = 900


@pytest.mark.long(5)
@pytest.mark.interop
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.usefixtures("streams")
def test_a_session_of_spark_connect_gives_the_rows_that_the_library_gives(tmp_path: Path) -> None:
    if not (CONNECT / ".ready").exists():
        pytest.skip(
            "pandas and gRPC for Spark Connect are not there: scripts/sparks.sh --fetch-only"
        )
    logs = fixture_dir("bitronix") / "crash-mid-commit"
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join([*filter(None, inherited), str(ROOT / "src"), str(ROOT), str(CONNECT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.connected", str(logs), str(tmp_path)],
        cwd=ROOT,
        env=os.environ
        | {
            "PYTHONPATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": JAVA,
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout.split()[-1]) > 3
