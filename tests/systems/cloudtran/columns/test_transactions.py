"""Transactions as columns: the rows of `transactions`, in the same order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tallystick.arrow.schemas import batches_of_transactions
from tallystick.storage.crc import crc32
from tallystick.systems.cloudtran.columns.transactions import TransactionBatcher
from tallystick.systems.cloudtran.format.entries import Entry, EntryKind
from tallystick.systems.cloudtran.reader import CloudtranReading
from tests.kit import read_in_runs, table_rows
from tests.systems.cloudtran.blocks import NAME, block, entry
from tests.systems.cloudtran.blocks import reading as reading_in
from tests.systems.cloudtran.runs.test_pieces import LOGS, mutant, store, written
from tests.systems.cloudtran.test_fixtures import CASES, reading_of

MUTANTS = 24
ROWS = 7


@pytest.fixture(autouse=True)
def runs_of_short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_runs(monkeypatch)


def same_transactions(log: CloudtranReading) -> bool:
    """Assert that batches hold the transactions; return whether they came from columns."""
    batches = list(log.transaction_batches(ROWS))
    assert all(0 < one.num_rows <= ROWS for one in batches)
    expected = batches_of_transactions(log.transactions(), log.clock.value)
    assert table_rows(batches, "transactions") == table_rows(expected, "transactions")
    return TransactionBatcher(log.source.path, ROWS).batches(log.pieces()) is not None


@pytest.mark.parametrize("case", CASES)
def test_columns_hold_the_transactions_of_every_fixture(case: str) -> None:
    same_transactions(reading_of(case))


def test_columns_hold_the_transactions_of_logs_and_mutants(tmp_path: Path) -> None:
    for seed in range(LOGS):
        store(tmp_path / "log", written(seed))
        same_transactions(reading_in(tmp_path / "log"))
    for seed in range(MUTANTS):
        rng = random.Random(crc32(bytes([seed])))
        store(tmp_path / "log", mutant(written(seed % LOGS), rng))
        same_transactions(reading_in(tmp_path / "log"))


def closed(number: int) -> Entry:
    return Entry(EntryKind.PERSISTED, number, 9, (), flags=1)


TOGETHER = [[entry(1), entry(2), closed(1), closed(2)], [entry(3), closed(3)]]


@pytest.mark.parametrize(
    ("blocks", "in_columns"),
    [
        (TOGETHER, True),
        ([[entry(1), entry(2), closed(1)], [entry(3), entry(4), closed(3)], [closed(2)]], True),
        ([[entry(1), closed(1)], [closed(1)]], False),
        ([[entry(4), closed(4)], [entry(2), closed(2)]], False),
        ([[closed(7), entry(8), closed(8)], [entry(7), entry(9), closed(9)]], True),
    ],
    ids=["settled", "open between runs", "ended again", "not in order", "ended before it began"],
)
def test_later_entries_of_an_ended_transaction_are_read_as_objects(
    blocks: list[list[Entry]], in_columns: bool, tmp_path: Path
) -> None:
    data = b""
    for sequence, entries in enumerate(blocks, 1):
        data += block(len(data), sequence, *entries, codec=sequence % 2)  # a run has one codec
    (tmp_path / NAME).write_bytes(data)
    assert same_transactions(reading_in(tmp_path)) is in_columns


def test_a_short_log_is_read_without_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_runs(monkeypatch, always=False)
    store(tmp_path, written(1))
    assert same_transactions(reading_in(tmp_path))
