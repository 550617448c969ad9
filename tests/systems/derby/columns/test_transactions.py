"""Transactions in columns are those that are made one by one, whatever a log holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallystick.arrow.schemas import TRANSACTIONS, batches_of_transactions
from tallystick.systems.derby.columns.transactions import plain_transactions
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.derby.runs import chunk
from tests.kit import read_in_runs, table_rows
from tests.systems.derby.logs import copy, cut, reading_of
from tests.systems.derby.mixed import MixedLog, written


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have short logs read in runs, too."""
    read_in_runs(monkeypatch)


def same(log: DerbyReading, rows: int = 7) -> list[dict[str, Any]]:
    """Check that the batches have the rows of the objects; return these."""
    batches = list(log.transaction_batches(rows))
    assert all(one.schema == TRANSACTIONS and one.num_rows <= rows for one in batches)
    expected = list(batches_of_transactions(log.transactions(), log.clock.value))
    found = table_rows(batches, "transactions")
    assert found == table_rows(expected, "transactions")
    return found


@pytest.mark.parametrize("seed", range(10))
def test_boots_and_checkpoints_are_told_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(chunk, "ROWS", (5, 50, 1 << 15)[seed % 3])
    files = MixedLog(
        seed, 1 + seed % 4, 500, checkpoints=True, reboots=seed % 2 == 0, gaps=False
    ).files
    if seed > 5 and "log2.dat" in files:
        del files["log1.dat"]
    log = reading_of(written(files, tmp_path / "log"))
    assert log._runs is not None
    assert plain_transactions(log._runs, "") is not None
    found = same(log)
    assert {one["complete"] for one in found} == ({True} if "log1.dat" in files else {True, False})


def test_log_that_is_not_plain_is_read_one_by_one(tmp_path: Path) -> None:
    log = reading_of(copy("threads", tmp_path / "db", {"log1.dat": cut(60_000)}))
    assert log._runs is not None
    assert plain_transactions(log._runs, "") is None
    assert same(log)


def test_log_without_transactions_has_no_batches(tmp_path: Path) -> None:
    files = MixedLog(1, 1, 0, checkpoints=False, reboots=False, gaps=False).files
    assert same(reading_of(written(files, tmp_path / "log"))) == []
