"""A Spark standalone cluster, a master and two workers on loopback, with the package's wheel.

No process of a job can import the source tree. Executors get an environment that has the wheel, as
an archive; or they have an interpreter without this package, which comes to them as the wheel.
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
from tests.pipeline.quick import JAVA, QUICK
from tests.pipeline.source.test_stream_kills import Drivers, at_work, check
from tests.servers import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.long]

ROOT = Path(__file__).parents[2]
START_SECONDS = 90.0
JOB_SECONDS = 600.0
KILLS = 2
STREAMS = ["native/records/sink", "native/changes/parquet"]

SETTINGS = {
    **QUICK,
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.cores.max": "2",
    # Small files: compiling would take most of the time.
    "spark.executorEnv.NUMBA_DISABLE_JIT": "1",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    need("java")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    home = tmp_path_factory.mktemp("cluster")
    with ExitStack() as running:
        master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        running.callback(_end, _spark_class(home / "master", [*master, "--webui-port", "0"]))
        _wait_for(port)
        for number in range(2):
            work = home / f"worker-{number}"
            worker = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1"]
            worker += ["--memory", "600m", "--webui-port", "0", "--work-dir", str(work), url]
            running.callback(_end, _spark_class(work, worker))
        yield url


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is released."""
    folder = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)])
    (built,) = folder.glob("tallystick-*.whl")
    return built


def _spark_class(home: Path, command: list[str]) -> subprocess.Popen[bytes]:
    import pyspark

    root = Path(pyspark.__file__).parent
    environment = _environment(SPARK_HOME=str(root), SPARK_DAEMON_JAVA_OPTS=JAVA)
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


def _environment(**more: str) -> dict[str, str]:
    """What processes of a job get: nothing that leads to the source tree."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return own | {"SPARK_LOCAL_IP": "127.0.0.1"} | more


def _run(command: list[str], **options: Any) -> str:
    """Standard output of a command, which must end well."""
    done = subprocess.run(command, capture_output=True, check=False, timeout=JOB_SECONDS, **options)
    assert done.returncode == 0, done.stderr.decode()[-4_000:]
    return str(done.stdout, "utf-8")


def _interpreter(home: Path, wheel: Path | None) -> str:
    """An interpreter whose packages are those of this one, and of this package the wheel or
    nothing: what is installed in place is left out."""
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    python = str(home / "bin" / "python")
    if wheel is not None:
        pip = [sys.executable, "-m", "pip", "--python", python]
        _run([*pip, "install", "-q", "--no-deps", str(wheel)])
    where = "import importlib.util as u; print(u.find_spec('tallystick'))"
    found = _run([python, "-c", where], cwd=home, env=_environment())
    assert (str(packages) if wheel else "None") in found
    return python


def _rows(folder: Path) -> dict[str, list[str]]:
    from pyarrow import dataset

    from tallystick.pipeline.runner import OUTPUT

    found = {}
    for table in OUTPUT:
        rows: list[dict[str, Any]] = dataset.dataset(folder / table).to_table().to_pylist()
        found[table] = sorted(map(repr, rows))
    return found


def test_a_cluster_makes_the_tables_that_one_machine_makes_of_an_environment_as_archive(
    spark: SparkSession, cluster: str, wheel: Path, tmp_path: Path
) -> None:
    from tallystick.pipeline.runner import Run

    source = tmp_path / "logs"
    for case in ("crash-mid-commit", "committed-2pc"):
        shutil.copytree(fixture_dir("bitronix") / case, source / case)
    _interpreter(tmp_path / "environment", wheel)
    archive = shutil.make_archive(str(tmp_path / "environment"), "gztar", tmp_path / "environment")
    command = ["environment/bin/tallystick", "pipeline", "run", str(source)]
    command += ["--out", str(tmp_path / "there"), "--master", cluster]
    settings = SETTINGS | {"spark.archives": f"{archive}#environment"}
    command += [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    python = "./environment/bin/python"
    environment = _environment(PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python)
    _run(command, cwd=tmp_path, env=environment)
    Run([str(source)], str(tmp_path / "here")).advance(spark)
    assert _rows(tmp_path / "there") == _rows(tmp_path / "here")


def test_streams_on_a_cluster_that_gets_the_wheel_survive_kills_of_their_driver(
    cluster: str, wheel: Path, tmp_path: Path
) -> None:
    shipped = shutil.copy(wheel, tmp_path / "tallystick.zip")
    driver = _interpreter(tmp_path / "driver", wheel)
    environment = _environment(
        PYSPARK_PYTHON=_interpreter(tmp_path / "bare", None), PYSPARK_DRIVER_PYTHON=driver
    )
    settings = SETTINGS | {"spark.submit.pyFiles": str(shipped)}
    conf = [f"--conf={name}={value}" for name, value in settings.items()]
    with at_work(tmp_path, STREAMS) as working:
        drivers = Drivers(
            [*working.values()], environment, ["--master", cluster, *conf], python=driver
        )
        drivers.kill(KILLS)
        check(working, drivers, drivers.drain)
