"""A run that a full disk ended is finished by the same command once there is room."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tallystick.cli import main
from tallystick.pipeline.runner import Run
from tests.fixtures import fixture_dir
from tests.pipeline.test_runner import _tables
from tests.sweeps import IN_TURNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = IN_TURNS

CASES = ("crash-mid-commit", "committed-2pc")
LATER = "all-dangling"
KIB_MIN, KIB_MAX = 8, 1 << 14


@dataclass(frozen=True)
class Disk:
    """A file system of its own, of a size that can be changed."""

    path: Path

    def resize(self, kib: int) -> None:
        _mount("-o", f"remount,size={kib}k", str(self.path))

    def fill(self) -> None:
        """Leave no room."""
        self.resize(shutil.disk_usage(self.path).used >> 10)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", f"size={KIB_MIN}k", "tmpfs", str(path))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a file system of its own needs the right to mount: {error}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def logs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two journals; commands use the session of the tests, and leave it."""
    monkeypatch.setattr("tallystick.pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr("tallystick.pipeline.session.ended", nullcontext)
    for case in CASES:
        _copy(case, tmp_path / "logs")
    return tmp_path / "logs"


def _copy(case: str, logs: Path) -> None:
    shutil.copytree(fixture_dir("bitronix") / case, logs / case)
    (logs / case / "manifest.json").unlink()


def _run(capsys: pytest.CaptureFixture[str], logs: Path, out: Path, *options: str) -> bool:
    """Return whether a run ends well, or for a full disk with one sentence."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "run", str(logs), "--out", str(out), "--fail-on", "never", *options])
    said = capsys.readouterr().err.strip()
    if ended.value.code:
        assert ended.value.code == 2, said
        assert said.count("No space left on device. Free space") == 1, said
        assert len(said.splitlines()) == 1, said
    return not ended.value.code


def _same_as_anew(capsys: pytest.CaptureFixture[str], logs: Path, out: Path, anew: Path) -> None:
    assert _run(capsys, logs, anew)
    assert _tables(out) == _tables(anew)


def test_a_run_goes_on_from_wherever_a_full_disk_ended_it(
    disk: Disk, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kib, refused = KIB_MIN, 0
    while not _run(capsys, logs, disk.path / "tables"):
        refused, kib = refused + 1, 2 * kib
        assert kib < KIB_MAX
        disk.resize(kib)
    assert refused > 1
    _same_as_anew(capsys, logs, disk.path / "tables", tmp_path / "anew")


def test_a_stream_of_runs_goes_on_from_the_round_in_which_the_disk_was_full(
    disk: Disk,
    logs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    follow = Run.follow

    def filled(run: Run, spark: SparkSession, every: float, stopped: Any) -> Any:
        _copy(LATER, logs)
        disk.fill()
        return follow(run, spark, every, stopped)

    def once(run: Run, spark: SparkSession, every: float, stopped: Any) -> Any:
        stopped.set()
        return follow(run, spark, every, stopped)

    disk.resize(KIB_MAX)
    out, stream = disk.path / "tables", ("--stream", "--every", "0.1")
    monkeypatch.setattr(Run, "follow", filled)
    assert not _run(capsys, logs, out, *stream)
    disk.resize(KIB_MAX)
    monkeypatch.setattr(Run, "follow", once)
    assert _run(capsys, logs, out, *stream)
    _same_as_anew(capsys, logs, out, tmp_path / "anew")
