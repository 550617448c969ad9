"""What is found in columns of a run is what its records say one by one, whole and damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import CHANGES, batches_of_changes
from tallystick.errors import TallystickError, UnsupportedFormatError
from tallystick.systems.tally.format.bodies import Ending, encode_ending, encode_row
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live import opening
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.read.scan import Scan
from tallystick.systems.tally.reader import TallyReading
from tallystick.systems.tally.runs.chunk import Chunk
from tallystick.systems.tally.runs.pieces import Runs, chunk_of
from tallystick.testing import MemoryFileSystem
from tests.fuzz import bundle
from tests.fuzz.bundle import Bundle
from tests.fuzz.mutate import Mutator
from tests.fuzz.seeds import seeds
from tests.kit import read_in_runs, same_both_ways
from tests.sweeps import Sweep
from tests.systems.tally.build import FOLDER, TINY, XID, reading, tiny_log

MUTANTS = 40
KEY = bytes(range(32))
_OF_ROWS = (Code.REDO_ADD, Code.REDO_REMOVE, Code.TRUNCATE)
_CODES = (Code.APPEND, Code.ADD, Code.UPDATE, Code.DELETE, *_OF_ROWS)


def _element(chance: random.Random, number: int) -> UnplacedRecord:
    code = chance.choice(_CODES)
    body = bytes(chance.randrange(30)) if code is not Code.DELETE else b""
    if code in _OF_ROWS:
        body = encode_row(chance.randrange(-2, 5), body)
    key = None if code is Code.APPEND else chance.randrange(9)
    return UnplacedRecord(code, body, number if chance.random() < 0.9 else None, key)


def _transactions(
    seed: int,
    *,
    segment_size: int = 16 << 10,
    together: float = 0.5,
    key: bytes | None = None,
    **settings: Any,
) -> Bundle:
    """Transactions of all kinds: within a group, over several, prepared, rolled back, left open."""
    chance = random.Random(seed)
    fs = MemoryFileSystem()
    chosen = replace(TINY, segment_size=segment_size, **settings)
    log = TallyLog(FOLDER, settings=chosen, fs=fs, key=None if key is None else lambda: key)
    for number in range(1, 40):
        for _ in range(chance.randrange(5)):
            log.submit(_element(chance, number))
        ended = number if chance.random() < 0.8 else max(1, number - 1)
        if chance.random() < 0.1:
            log.submit(UnplacedEnding(Code.PREPARE, ended, XID, b"extra"))
        end = UnplacedRecord(Code.ROLLBACK, b"", ended)
        ticket = log.submit(UnplacedEnding(Code.COMMIT, ended) if chance.random() < 0.9 else end)
        if chance.random() > together:
            ticket.wait()
    log.close()
    return bundle.of_memory(fs, FOLDER)


def _large_groups(key: bytes | None = None, **settings: Any) -> Bundle:
    """Groups larger than a run takes, of many transactions each."""
    fs = MemoryFileSystem()
    chosen = replace(TINY, segment_size=2 << 20, **settings)
    log = TallyLog(FOLDER, settings=chosen, fs=fs, key=None if key is None else lambda: key)
    chance = random.Random(1)
    for number in range(1, 1000):
        for one in range(3):
            log.submit(UnplacedRecord(Code.ADD, chance.randbytes(40), number, one))
        ticket = log.submit(UnplacedEnding(Code.COMMIT, number))
    ticket.wait()
    log.close()
    return bundle.of_memory(fs, FOLDER)


def _pool() -> tuple[Bundle, ...]:
    made = [_transactions(seed, together=seed / 6) for seed in (0, 3, 6)]
    return (*made, _large_groups(), *seeds("tally")[:8])


def _rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def _closed(one: TallyReading) -> list[Any]:
    found: list[Any] = []
    for split in one.splits(20_000):
        parts = one.close_split(split, 100)
        rows = [f"{table}{row}" for table, batch in parts.batches for row in batch.to_pylist()]
        rest = parts.rest()
        found.append((rest is None, sorted(rows) if rest is not None else []))
    return found


def _alike(
    files: Bundle, monkeypatch: pytest.MonkeyPatch, key: bytes | None = None
) -> TallyReading:
    """Assert that runs give what steps give, and recovery's live records; return a reading."""
    fs = bundle.in_memory(files, FOLDER)
    same_both_ways(lambda: reading(fs, key), monkeypatch, refusals=True)
    closed = []
    for always in (False, True):
        read_in_runs(monkeypatch, always=always)
        with suppress(UnsupportedFormatError):
            closed.append(_closed(reading(fs, key)))
    assert not closed or closed[0] == closed[1]
    read_in_runs(monkeypatch)
    one = reading(fs, key)
    scan = Scan(one.catalog, one._access)
    with suppress(TallystickError):
        state, _ = opening._rebuild(scan, key)
        assert scan.broken or one.verdict().engine["live_records"] == len(state.live)
    return one


def test_whole_logs_have_the_same_answers_by_runs_and_by_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for files in _pool():
        _alike(files, monkeypatch)
    one = _alike(_large_groups(), monkeypatch)
    assert len(list(one.transactions())) == 999
    assert one.run_count.one_by_one == 0


def test_damaged_logs_have_the_same_answers_by_runs_and_by_steps(
    monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    pool = _pool()
    mutator = Mutator("tally", pool, lambda data, size: random.Random(size).randbytes(len(data)))
    for seed in sweep.of(range(MUTANTS), MUTANTS // 3):
        _alike(mutator.mutant(pool[seed % len(pool)], seed), monkeypatch)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_packed_logs_have_the_same_answers_by_runs_and_by_steps(
    key: bytes | None, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: dict[str, Any] = {"key": key, "compression": compression, "compress_min": 1}
    pool = [_transactions(seed, **packed) for seed in (0, 3)]
    for files in pool:
        one = _alike(files, monkeypatch, key)
        assert one.run_count.in_runs > one.run_count.one_by_one > 0
        _alike(files, monkeypatch, bytes(32))
        _alike(files, monkeypatch)
    assert _alike(_large_groups(**packed), monkeypatch, key).run_count.one_by_one == 0
    mutator = Mutator("tally", pool, lambda data, size: random.Random(size).randbytes(len(data)))
    for seed in range(MUTANTS // 4):
        _alike(mutator.mutant(pool[seed % len(pool)], seed), monkeypatch, key)


def test_changes_in_columns_are_those_of_the_feed() -> None:
    for seed in range(4):
        one = reading(bundle.in_memory(_transactions(seed, segment_size=64 << 10), FOLDER))
        plain = _rows(batches_of_changes(one.changes(), one.clock.value))
        assert pa.Table.from_pylist(_rows(one.change_batches(10)), CHANGES) == pa.Table.from_pylist(
            plain, CHANGES
        )


def _chunks(fs: MemoryFileSystem) -> Iterator[Chunk]:
    for step in reading(fs)._steps(Runs(pay=lambda _size: True)):
        if (chunk := chunk_of(step.place)) is not None:
            yield chunk


def test_only_whole_plain_transactions_are_taken_in_columns() -> None:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    element = partial(UnplacedRecord, Code.ADD, b"body")
    for number in (1, 2, 3, 4, 5):
        log.submit(element(number, number))
    log.submit(UnplacedEnding(Code.COMMIT, 1))  # whole
    log.submit(UnplacedRecord(Code.ROLLBACK, b"", 2))
    log.submit(UnplacedRecord(Code.COMMIT, encode_ending(Ending(((1, 2),))), 3))  # lacks one
    log.submit(UnplacedRecord(Code.COMMIT, encode_ending(Ending(((2, 1),))), 4))  # elsewhere
    log.submit(UnplacedRecord(Code.REDO_ADD, b"x", 6, 1))  # has no table
    log.submit(UnplacedEnding(Code.COMMIT, 6))
    log.submit(UnplacedEnding(Code.COMMIT, 7)).wait()  # empty
    log.close()
    (chunk,) = _chunks(fs)
    found = chunk.sorted(1, ())
    assert found.numbers.tolist() == [1]
    others = [row.record.transaction for _, row in found.other_rows()]
    assert others == [2, 3, 4, 5, 2, 3, 4, 6, 6, 7]
    assert chunk.sorted(1, {1}).numbers.tolist() == []
    assert chunk.sorted(2, ()).numbers.tolist() == [4]


def test_a_log_is_read_by_steps_where_there_is_no_compiled_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tallystick.arrow.numba_kernel.find_spec", lambda _name: None)
    read_in_runs(monkeypatch)
    assert reading(bundle.in_memory(_transactions(1), FOLDER)).run_count.in_runs == 0
    one = reading(bundle.in_memory(_transactions(1), FOLDER))
    plain = _rows(batches_of_changes(one.changes(), one.clock.value))
    assert _rows(one.change_batches(10)) == plain
