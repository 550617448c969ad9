"""Whatever a log holds, compiled runs and record by record reading say the same of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tallystick.reading.tables import batches_of
from tallystick.systems.derby import reader
from tallystick.systems.derby.columns import plain, redo, runs
from tallystick.systems.derby.format.layout import HEADER_SIZE, Group, encode_header
from tallystick.systems.derby.format.operations import encode_begin
from tallystick.systems.derby.format.record_body import encode_body
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fuzz.mutate import Mutator
from tests.systems.derby.logs import CASES, log_bytes, options, reading, reading_of
from tests.systems.derby.mixed import MixedLog, written

SEEDS = range(12)
SMALL = {"log1.dat": log_bytes("xa-indoubt").rstrip(b"\0") + bytes(600)}


def made(seed: int) -> dict[str, bytes]:
    """The files of a log of mixed operations."""
    log = MixedLog(
        seed, 1 + seed % 3, 300, checkpoints=seed % 4 > 1, reboots=seed % 5 == 4, gaps=seed % 3 == 2
    )
    return log.files


def same(source: LogSource, secret: ReadOptions, rows: int = plain.ROWS) -> DerbyReading:
    """Check that all tables and verdicts are the same; return the reading by runs.

    ``rows`` are those of a chunk.
    """
    by_runs, one_by_one = DerbyReading(source, secret), DerbyReading(source, secret)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "LOADED_FROM", 0)
        patch.setattr(reader, "COMPILED_FROM", 0)
        patch.setattr(plain, "ROWS", rows)
        patch.setattr(redo, "SLOTS", 2)
        found = everything(by_runs)
        patch.setattr(reader, "LOADED_FROM", 1 << 40)
        patch.setattr(reader, "COMPILED_FROM", 1 << 40)
        expected = everything(one_by_one)
    for name, value in expected.items():
        assert found[name] == value, name
    return by_runs


def everything(log: DerbyReading) -> dict[str, Any]:
    """What a reading says, by what it is about."""
    tables = ("files", "transactions", "changes", "findings", "logs")
    found: dict[str, Any] = {
        name: [row for batch in batches_of(log, name) for row in batch.to_pylist()]
        for name in tables
    }
    recovery = repr(log.recovery)
    found["objects"] = [one.to_dict() for one in log.transactions()]
    return found | {"spans": log.files(), "recovery": recovery, "verdict": log.verdict().to_dict()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_fixtures_are_read_alike(case: str) -> None:
    same(reading(case).source, options(case))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_mixed_logs_are_read_alike(tmp_path: Path, seed: int) -> None:
    log = reading_of(written(made(seed), tmp_path / "log"))
    by_runs = same(log.source, ReadOptions(), rows=1 + 7 * seed)
    assert by_runs._runs is not None
    ends = [by_runs._runs.run(one, HEADER_SIZE).end for one in log.log.files.values()]
    assert ends == [len(bytes(one.data).rstrip(b"\0")) for one in log.log.files.values()]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(36))
def test_mutants_are_read_alike(tmp_path: Path, seed: int) -> None:
    pool = [SMALL, made(seed % len(SEEDS))]
    chance = random.Random(seed)
    mutator = Mutator("derby", pool, lambda data, _: chance.randbytes(len(data)))
    files = mutator.mutant(pool[seed % 4 > 0], seed)
    files = {name: content for name, content in files.items() if content}
    files |= {"log9.dat": log_bytes("clean")[:4000]}
    log = reading_of(written(files, tmp_path / "log"))
    same(log.source, ReadOptions(), rows=1 + 11 * seed)


@pytest.mark.parametrize("case", ["clean", "encrypted-aes-external-key"])
def test_short_and_encrypted_logs_are_read_record_by_record(case: str) -> None:
    log = reading(case)
    list(log.change_batches(10))
    assert log._runs is None


def test_transactions_are_not_collected_where_nothing_asks_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError

    by_records = reading("halted")
    expected = by_records.findings(), by_records.judgement
    monkeypatch.setattr(reader, "LOADED_FROM", 0)
    monkeypatch.setattr(reader, "COMPILED_FROM", 0)
    monkeypatch.setattr(runs, "collect", refuse)
    log = DerbyReading(by_records.source, ReadOptions())
    assert (log.findings(), log.judgement) == expected
    with pytest.raises(AssertionError):
        list(log.transactions())


def test_without_numba_a_log_is_read_record_by_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "LOADED_FROM", 0)
    monkeypatch.setattr(reader, "COMPILED_FROM", 0)
    monkeypatch.setattr(reader, "find_spec", lambda _: None)
    log = reading_of(written(made(0), tmp_path / "log"))
    assert log._runs is None
    assert log.judgement.answer is reading_of(tmp_path / "log").judgement.answer


def test_file_of_a_number_with_negative_instants_is_read_alike(tmp_path: Path) -> None:
    number = 1 << 31
    body = encode_body(Group.FIRST | Group.RAWSTORE, 1, encode_begin(0, None))
    record = (number << 32 | HEADER_SIZE).to_bytes(8)
    content = b"".join([encode_header(number, 0), len(body).to_bytes(4), record, body])
    files = {f"log{number}.dat": content + len(body).to_bytes(4) + bytes(50)}
    same(reading_of(written(files, tmp_path / "log")).source, ReadOptions())
