"""What is read of a plain log by columns is what is read record by record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallystick.reading.tables import TABLES, batches_of
from tallystick.systems.h2.read import skim
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fixtures import cases
from tests.systems.h2.kit import fixture
from tests.systems.h2.made_logs import damaged, random_log

SEEDS = range(30)
MUTANTS = range(30)
_LONG = ("auto-checkpoint-512", "large-log-512", "crashed-in-recovery-512")
ENGINE_CASES = [one for one in cases("h2") if one.endswith("-512") and one not in _LONG]


def told(path: str, **options: Any) -> tuple[dict[str, Any], bool]:
    """Return all that a reading tells, and whether the log was plain."""
    reading = H2Reading(LogSource("h2", path, (path,)), ReadOptions(**options))
    rows: dict[str, Any] = {
        table: [row for batch in batches_of(reading, table, rows=97) for row in batch.to_pylist()]
        for table in TABLES
    }
    rows["transactions"].sort(key=lambda row: row["key"])
    verdict = reading.verdict()
    engine = {name: value for name, value in dict(verdict.engine).items() if name != "records"}
    rows["explain"] = engine, verdict.strict, verdict.differences, verdict.judgement
    return rows, reading._plain is not None


def compare(path: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> bool:
    """Read a file both ways; return whether the log was plain and had changes."""
    monkeypatch.setattr(skim, "compiled", lambda _stream: False)
    expected, _ = told(path, **options)
    monkeypatch.setattr(skim, "compiled", lambda _stream: True)
    found, plain = told(path, **options)
    assert found == expected
    return plain and bool(found["changes"])


def test_both_ways_of_reading_a_made_log_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "made.h2.db"
    plain = 0
    for seed in SEEDS:
        path.write_bytes(random_log(seed))
        plain += compare(str(path), monkeypatch)
    assert plain > 0.4 * len(SEEDS)


def test_both_ways_of_reading_a_damaged_log_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "damaged.h2.db"
    plain = 0
    for seed in MUTANTS:
        path.write_bytes(damaged(seed))
        plain += compare(str(path), monkeypatch)
    assert 2 < plain < len(MUTANTS), "some are plain, and some are not"


@pytest.mark.parametrize("case", ENGINE_CASES)
def test_both_ways_of_reading_a_log_of_the_engine_agree(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(fixture(case).source.files[0], monkeypatch)
