"""On Windows logs are read as here; writing is refused in one sentence."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.storage.source import slashed
from tests.fixtures import cases, fixture_dir
from tests.reading.without_posix import read

SYSTEMS = ("bitronix", "cloudtran", "derby", "estate", "h2", "jboss")
SEED = 31
"""Chooses five cases of each system, of which the smallest is read."""


def without_posix(*arguments: str) -> dict[str, dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.reading.without_posix", *arguments],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, dict[str, str]] = json.loads(done.stdout)
    return answer


def say_the_same(paths: list[str]) -> None:
    assert without_posix(*paths) == {path: read(Path(path)) for path in paths}


def test_a_fixture_of_each_system_says_the_same_without_posix() -> None:
    rng = random.Random(SEED)
    some = [rng.sample(cases(system), 5) for system in SYSTEMS]
    every = [
        [fixture_dir(system) / case for case in names]
        for system, names in zip(SYSTEMS, some, strict=True)
    ]
    say_the_same([str(min(paths, key=size_below)) for paths in every])


def size_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.soak
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_fixture_says_the_same_without_posix(system: str) -> None:
    say_the_same([str(fixture_dir(system) / case) for case in cases(system)])


def test_writing_without_posix_is_refused_in_one_sentence_and_makes_nothing(tmp_path: Path) -> None:
    found = without_posix("write", str(tmp_path))
    assert len(found) == 6
    for said in found.values():
        assert "writing logs needs an operating system with POSIX files" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "slashes"),
    [
        ("C:\\logs\\a b\\log1.dat", "C:/logs/a b/log1.dat"),
        ("..\\logs", "../logs"),
        ("\\\\server\\share\\logs", "//server/share/logs"),
        ("C:/logs", "C:/logs"),
        ("s3://bucket/a\\b", "s3://bucket/a\\b"),
    ],
)
def test_paths_of_windows_are_read_with_slashes(path: str, slashes: str) -> None:
    assert slashed(path, "\\") == slashes
    assert slashed(path, "/") == path
