"""The same job on a Spark standalone cluster: a master and two workers on loopback.

Executors run an interpreter that has every dependency and not this package, which comes to them
as an archive.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures import fixture_dir
from tests.need import need
from tests.servers import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(__file__).parents[2] / "src"
START_SECONDS = 90.0
JOB_SECONDS = 600.0

JOB = """
import sys
from tallystick.pipeline.runner import Run
from tallystick.pipeline.session import start
master, source, out, archive = sys.argv[1:]
spark = start(master, {
    "spark.submit.pyFiles": archive, "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2", "spark.cores.max": "2",
    # Small files: compiling anything, in Java or in Python, would take most of the time.
    "spark.sql.codegen.wholeStage": "false", "spark.executorEnv.NUMBA_DISABLE_JIT": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
})
try:
    Run([source], out).advance(spark)
finally:
    spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    need("java")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as running:
        home = tmp_path / "cluster"
        home.mkdir()
        master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        running.callback(_end, _spark_class(home / "master", [*master, "--webui-port", "0"]))
        _wait_for(port)
        for number in range(2):
            work = home / f"worker-{number}"
            worker = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1"]
            worker += ["--memory", "600m", "--webui-port", "0", "--work-dir", str(work), url]
            running.callback(_end, _spark_class(work, worker))
        yield url


def _spark_class(home: Path, command: list[str]) -> subprocess.Popen[bytes]:
    import pyspark

    root = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(root),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with home.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            [str(root / "bin" / "spark-class"), *command],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment,
        )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(timeout=START_SECONDS)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, "the master does not listen"
            time.sleep(0.1)
        else:
            return


def _interpreter_without_package(home: Path) -> str:
    """Its packages are those of this interpreter; what is installed in place is left out."""
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    python = str(home / "bin" / "python")
    missing = subprocess.run([python, "-c", "import tallystick"], capture_output=True, check=False)
    assert b"No module named 'tallystick'" in missing.stderr
    return python


def _archive(folder: Path) -> str:
    """Both packages as one zip file."""
    whole = folder / "whole"
    for package in ("tallystick", "pyspark_tallystick"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(SOURCE / package, whole / package, ignore=ignored)
    return shutil.make_archive(str(folder / "tallystick"), "zip", whole)


def _rows(folder: Path) -> dict[str, list[str]]:
    from pyarrow import dataset

    from tallystick.pipeline.runner import OUTPUT

    found = {}
    for table in OUTPUT:
        rows: list[dict[str, Any]] = dataset.dataset(folder / table).to_table().to_pylist()
        found[table] = sorted(map(repr, rows))
    return found


def _run(master: str, source: Path, out: Path, archive: str, python: str) -> None:
    environment = os.environ | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", JOB, master, str(source), str(out), archive],
        env=environment, capture_output=True, text=True, check=False, timeout=JOB_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4_000:]


@pytest.mark.interop
def test_a_cluster_makes_the_tables_that_one_machine_makes(
    spark: SparkSession, cluster: str, tmp_path: Path
) -> None:
    from tallystick.pipeline.runner import Run

    source = tmp_path / "logs"
    for case in ("crash-mid-commit", "committed-2pc"):
        shutil.copytree(fixture_dir("bitronix") / case, source / case)
    archive = _archive(tmp_path)
    bare = _interpreter_without_package(tmp_path / "bare")
    _run(cluster, source, tmp_path / "there", archive, bare)
    Run([str(source)], str(tmp_path / "here")).advance(spark)
    assert _rows(tmp_path / "there") == _rows(tmp_path / "here")
