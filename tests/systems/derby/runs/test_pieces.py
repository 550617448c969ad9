"""Whatever a log holds, compiled runs and record by record reading say the same of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tallystick.arrow import numba_kernel
from tallystick.systems.derby import reader
from tallystick.systems.derby.engine import redo_of_runs
from tallystick.systems.derby.format.layout import HEADER_SIZE, Group, encode_header
from tallystick.systems.derby.format.operations import encode_begin
from tallystick.systems.derby.format.record_body import encode_body
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.derby.runs import chunk
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fuzz.mutate import Mutator
from tests.kit import read_in_runs, same_both_ways
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


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small tables of redo grow, and no transactions that have ended kept."""
    monkeypatch.setattr(redo_of_runs, "SLOTS", 2)
    monkeypatch.setattr(reader, "KEPT_FROM", 0)


def same(
    source: LogSource, secret: ReadOptions, patch: pytest.MonkeyPatch, rows: int = chunk.ROWS
) -> DerbyReading:
    """Check that all that is said is the same; return the reading by runs.

    ``rows`` are those of a chunk.
    """
    patch.setattr(chunk, "ROWS", rows)
    one_by_one, by_runs = DerbyReading(source, secret), DerbyReading(source, secret)
    same_both_ways(lambda: DerbyReading(source, secret), patch)
    read_in_runs(patch, always=False)
    recovery = repr(one_by_one.recovery)
    read_in_runs(patch)
    assert repr(by_runs.recovery) == recovery
    return by_runs


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_fixtures_are_read_alike(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    same(reading(case).source, options(case), monkeypatch)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_mixed_logs_are_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    log = reading_of(written(made(seed), tmp_path / "log"))
    by_runs = same(log.source, ReadOptions(), monkeypatch, rows=1 + 7 * seed)
    assert by_runs._runs is not None
    ends = [by_runs._runs.run(one, HEADER_SIZE).end for one in log.log.files.values()]
    assert ends == [len(bytes(one.data).rstrip(b"\0")) for one in log.log.files.values()]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(36))
def test_mutants_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    pool = [SMALL, made(seed % len(SEEDS))]
    chance = random.Random(seed)
    mutator = Mutator("derby", pool, lambda data, _: chance.randbytes(len(data)))
    files = mutator.mutant(pool[seed % 4 > 0], seed)
    files = {name: content for name, content in files.items() if content}
    files |= {"log9.dat": log_bytes("clean")[:4000]}
    log = reading_of(written(files, tmp_path / "log"))
    same(log.source, ReadOptions(), monkeypatch, rows=1 + 11 * seed)


def test_records_after_damage_are_read_in_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = MixedLog(1, 2, 400, checkpoints=False, reboots=False, gaps=False).files
    damaged = bytearray(files["log1.dat"])
    damaged[len(damaged.rstrip(b"\0")) // 5] ^= 1
    log = reading_of(written(files | {"log1.dat": bytes(damaged)}, tmp_path / "log"))
    by_runs = same(log.source, ReadOptions(), monkeypatch)
    assert by_runs.judgement.reason == "commits-dropped"
    assert by_runs.run_count.share > 0.9


@pytest.mark.parametrize("case", ["clean", "encrypted-aes-external-key"])
def test_short_and_encrypted_logs_are_read_record_by_record(case: str) -> None:
    log = reading(case)
    list(log.change_batches(10))
    assert log._runs is None


def test_without_numba_a_log_is_read_record_by_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_runs(monkeypatch)
    monkeypatch.setattr(numba_kernel, "find_spec", lambda _: None)
    log = reading_of(written(made(0), tmp_path / "log"))
    assert log._runs is None
    assert log.judgement.answer is reading_of(tmp_path / "log").judgement.answer


def test_file_of_a_number_with_negative_instants_is_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 1 << 31
    body = encode_body(Group.FIRST | Group.RAWSTORE, 1, encode_begin(0, None))
    record = (number << 32 | HEADER_SIZE).to_bytes(8)
    content = b"".join([encode_header(number, 0), len(body).to_bytes(4), record, body])
    files = {f"log{number}.dat": content + len(body).to_bytes(4) + bytes(50)}
    same(reading_of(written(files, tmp_path / "log")).source, ReadOptions(), monkeypatch)
