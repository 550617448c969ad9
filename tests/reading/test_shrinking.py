"""Files that another program truncates while they are read: told, and no process ends."""

from __future__ import annotations

import contextlib
import gzip
import mmap
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tallystick import Journal
from tallystick.errors import LogUnreadableError
from tallystick.reading import explain, inspect, read_arrow, scan, verify
from tallystick.records import Finding
from tallystick.storage import source
from tallystick.storage.mapped import lost_pages, map_file
from tallystick.storage.source import open_source, require_whole
from tests.fixtures import fixture_dir


@pytest.fixture(autouse=True)
def every_file_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "READ_WHOLE_MAX", 0)


@pytest.mark.parametrize("left", [0, 1, 4096, 5000, 8191])
def test_bytes_that_are_gone_are_read_as_zeros_and_named(tmp_path: Path, left: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100_000)
    with open_source(str(path)) as opened:
        os.truncate(path, left)
        assert bytes(opened.data) == (b"x" * left).ljust(100_000, b"\0")
        with pytest.raises(LogUnreadableError, match="shorter"):
            require_whole([str(path)])
    assert lost_pages([str(path)]) == [str(path)]
    assert lost_pages([str(path)]) == []


def test_a_file_that_grows_has_lost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100_000)
    with open_source(str(path)) as opened:
        with path.open("ab") as file:
            file.write(b"y")
        assert set(opened.data) == {ord("x")}
    assert lost_pages([str(path)]) == []


def test_the_address_range_of_a_closed_file_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100_000)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with path.open("rb") as file:
        mapped = map_file(str(path), file.fileno(), 100_000)
    mapped.close()
    del mapped
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize("taken", [False, True], ids=["closed", "number taken"])
def test_a_file_that_another_thread_lets_go_meanwhile_is_not_called_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    path, ask = tmp_path / "log", os.fstat
    path.write_bytes(b"x" * 100_000)
    with path.open("rb") as file, contextlib.ExitStack() as opened:
        mapped = [map_file(str(path), file.fileno(), 100_000) for _ in range(2)]

        def as_it_lets_go(descriptor: int) -> os.stat_result:
            while mapped:
                mapped.pop()
                if taken:
                    opened.enter_context((tmp_path / "short").open("wb"))
            return ask(descriptor)

        monkeypatch.setattr(os, "fstat", as_it_lets_go)
        assert lost_pages([str(path)]) == []
        monkeypatch.undo()


FOREIGN = """
import mmap, os, sys
from tallystick.storage.mapped import map_file
path = sys.argv[1]
with open(path, "w+b") as file:
    file.truncate(100_000)
    ours = map_file(path, file.fileno(), 100_000)
    foreign = mmap.mmap(file.fileno(), 100_000, access=mmap.ACCESS_READ)
    file.truncate(0)
    print(ours[50_000], flush=True)
    foreign[50_000]
"""


@pytest.mark.parametrize("options", [(), ("-X", "faulthandler")], ids=["default", "faulthandler"])
def test_a_fault_in_memory_that_is_not_ours_ends_the_process_as_before(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    ended = subprocess.run(
        [sys.executable, *options, "-c", FOREIGN, str(tmp_path / "file")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout == "0\n"
    assert ended.returncode == -signal.SIGBUS
    assert ("Fatal Python error" in ended.stderr) == bool(options)


def test_compiled_code_of_many_threads_goes_on(tmp_path: Path) -> None:
    """They do not hold the interpreter's lock when the signal comes."""
    path = tmp_path / "log"
    path.write_bytes(b"x" * (8 << 20))
    with open_source(str(path)) as opened:
        os.truncate(path, 0)
        parts = [opened.data[start : start + (1 << 20)] for start in range(0, 8 << 20, 1 << 20)]
        with ThreadPoolExecutor(8) as threads:
            sums = list(threads.map(zlib.crc32, parts))
        for part in parts:
            part.release()
    assert sums == [zlib.crc32(bytes(1 << 20))] * 8


LOGS = [
    ("bitronix", "rollover-2"),
    ("cloudtran", "block-4096/log"),
    ("derby", "ddl"),
    ("h2", "auto-checkpoint-512"),
    ("jboss", "g3-artemis-main/default-size"),
    ("tally", ""),
]


def _scan(path: Path) -> tuple[object, list[Finding]]:
    problems: list[Finding] = []
    return list(scan(path, problems=problems)), problems


def _read_arrow(path: Path) -> tuple[object, list[Finding]]:
    problems: list[Finding] = []
    return read_arrow(path, problems=problems).read_all().to_pylist(), problems


def _explain(path: Path) -> tuple[object, list[Finding]]:
    found = explain(path)
    return found.to_dict()["logs"], found.problems


def _inspect(path: Path) -> tuple[object, list[Finding]]:
    found = inspect(path)
    return found.to_dict()["logs"], found.problems


def _verify(path: Path) -> tuple[object, list[Finding]]:
    findings = verify(path).findings
    return findings, findings


READINGS: dict[str, Callable[[Path], tuple[object, list[Finding]]]] = {
    "scan": _scan,
    "read_arrow": _read_arrow,
    "explain": _explain,
    "inspect": _inspect,
    "verify": _verify,
}


@pytest.mark.sampled(30)
@pytest.mark.parametrize("left", [0, 3])
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize(("system", "case"), LOGS, ids=[system for system, _ in LOGS])
def test_what_is_read_of_a_log_that_shrinks_meanwhile_is_not_told(
    tmp_path: Path,
    system: str,
    case: str,
    reading: str,
    left: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each file becomes shorter right after it was mapped, and is read through all the same.

    It is named, or what is told is what the shorter files hold.
    """
    if system == "tally":
        with Journal(tmp_path / "log") as log:
            log.append_many([b"x" * 100] * 2_000)
    else:
        shutil.copytree(fixture_dir(system) / case, tmp_path / "log")
        for packed in (tmp_path / "log").rglob("*.gz"):
            packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
            packed.unlink()

    def shrinking(path: str, descriptor: int, size: int) -> mmap.mmap:
        mapped = map_file(path, descriptor, size)
        os.truncate(path, left)
        return mapped

    monkeypatch.setattr(source, "map_file", shrinking)
    value, problems = READINGS[reading](tmp_path / "log")
    named = "shorter" in " ".join(found.message for found in problems)
    assert named or (value, problems) == READINGS[reading](tmp_path / "log")
