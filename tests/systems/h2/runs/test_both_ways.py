"""What is read of a log in runs is what is read of it record by record."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tallystick.records import Severity
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fixtures import cases
from tests.kit import read_in_runs, same_both_ways
from tests.sweeps import Sweep
from tests.systems.h2.kit import fixture
from tests.systems.h2.made_logs import (
    CREATED,
    LOG,
    damaged,
    file_of,
    long_log,
    random_log,
)

SEEDS = range(30)
MUTANTS = range(70)
MIXED = range(112)
_LONG = ("auto-checkpoint-512", "large-log-512", "crashed-in-recovery-512")
ENGINE_CASES = [one for one in cases("h2") if one.endswith("-512") and one not in _LONG]


def reading(path: str, **options: Any) -> H2Reading:
    return H2Reading(LogSource("h2", path, (path,)), ReadOptions(**options))


def compare(path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Read a file both ways; return how many records came in runs, and one by one."""
    same_both_ways(lambda: reading(path), monkeypatch)
    read_in_runs(monkeypatch)
    count = reading(path).run_count
    return count.in_runs, count.one_by_one


def test_both_ways_of_reading_a_made_log_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    path = tmp_path / "made.h2.db"
    in_runs = one_by_one = 0
    for seed in sweep.of(SEEDS, 10):
        path.write_bytes(random_log(seed))
        some, others = compare(str(path), monkeypatch)
        in_runs, one_by_one = in_runs + some, one_by_one + others
    assert in_runs > 99 * one_by_one


def test_both_ways_of_reading_a_damaged_log_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    path = tmp_path / "damaged.h2.db"
    for seed in sweep.of(MUTANTS, 10):
        path.write_bytes(damaged(seed))
        compare(str(path), monkeypatch)


def test_both_ways_agree_on_logs_with_damage_between_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    path, log, mixed = tmp_path / "damaged.h2.db", long_log(150), 0
    for seed in sweep.of(MIXED, 28):
        rng, body = random.Random(seed), bytearray(log)
        for _ in range(rng.randrange(1, 6)):
            body[rng.randrange(len(body))] = rng.choice((0, 2, 5, rng.randrange(256)))
        path.write_bytes(file_of(bytes(body), 512))
        in_runs, one_by_one = compare(str(path), monkeypatch)
        mixed += in_runs > 100 and one_by_one > 1
    assert mixed, "runs go on after damage"


def test_both_ways_agree_on_what_stands_on_pages_after_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    path, whole, lost = tmp_path / "damaged.h2.db", file_of(long_log(120), 512), 0
    for seed in (seeds := sweep.of(MIXED, 16)):
        rng, data = random.Random(seed), bytearray(whole)
        for _ in range(rng.randrange(1, 3)):
            page = rng.choice((1, LOG, LOG, rng.randrange(CREATED, len(data) // 512)))
            data[page * 512 + rng.choice((0, 1, 3, 8, 300))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        compare(str(path), monkeypatch)
        lost += any(one.severity is Severity.LOSS for one in reading(str(path)).findings())
    assert lost > len(seeds) / 8


@pytest.mark.parametrize("case", ENGINE_CASES)
def test_both_ways_of_reading_a_log_of_the_engine_agree(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(fixture(case).source.files[0], monkeypatch)
