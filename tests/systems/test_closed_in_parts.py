"""Splits of a log close its transactions and changes as a reading of the whole log, or refuse."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.errors import TallystickError
from tallystick.reading.survey import survey
from tallystick.systems.protocol import ClosesBySplit
from tests.fixtures import cases, fixture_dir
from tests.fuzz.bundle import Bundle
from tests.fuzz.mutate import Mutator
from tests.fuzz.seeds import seeds
from tests.kit import closed_alike, read_in_runs

SYSTEMS = ("bitronix", "cloudtran", "derby", "h2", "jboss", "tally")
FIXTURES = (*SYSTEMS[:-1], "estate")
SIZES = (5_000, 1 << 30)
"""Targets of splits in bytes: splits of few groups, and one of every file."""
MUTANTS = 40


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have short logs read in runs, too: only such are closed in parts in some systems."""
    read_in_runs(monkeypatch)


def _readings(folder: Path) -> Iterator[ClosesBySplit]:
    found = survey(folder)
    for source in found.logs:
        with found.guard(source):
            reading = found.read(source)
            if isinstance(reading, ClosesBySplit):
                yield reading


def _closed(folder: Path, sizes: tuple[int, ...] = SIZES) -> list[bool]:
    """Whether each log below the folder was closed in parts, for each size."""
    found = []
    for reading in _readings(folder):
        for size in sizes:
            try:
                found.append(closed_alike(reading, size))  # type: ignore[arg-type]
            except TallystickError:
                found.append(False)
    return found


def _put(folder: Path, files: Bundle) -> Path:
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.mark.sampled(3)
@pytest.mark.parametrize("system", FIXTURES)
def test_splits_of_every_fixture_give_the_rows_of_the_whole_log(system: str) -> None:
    for case in cases(system):
        _closed(fixture_dir(system) / case)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("system", SYSTEMS)
def test_splits_of_damaged_logs_never_give_other_rows(system: str, tmp_path: Path) -> None:
    pool = seeds(system)
    mutator = Mutator(system, pool, lambda data, size: random.Random(size).randbytes(len(data)))
    for seed in range(MUTANTS):
        files = mutator.mutant(pool[seed % len(pool)], seed)
        _closed(_put(tmp_path / str(seed), files), (1 if seed % 2 else 20_000,))
