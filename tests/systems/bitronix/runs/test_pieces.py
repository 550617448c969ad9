"""Read in runs and record by record a journal says the same: fixtures, our pairs, mutants."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    HEADER_LENGTH,
    PREPARED,
    ROLLEDBACK,
    UNKNOWN,
    FileHeader,
    make_gtrid,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.runs import chunk, transactions
from tests.fuzz.seals import seal_bitronix
from tests.kit import read_in_runs, same_both_ways
from tests.sweeps import Sweep
from tests.systems.bitronix.logs import (
    CASES,
    file_bytes,
    folder_of,
    reading_of,
    record,
    write_pair,
)

SMALL_CASES = [
    case
    for case in CASES
    if sum(path.stat().st_size for path in folder_of(case).glob("*.tlog*")) < 10_000
]
BATCH_ROWS = 5
LONG_BATCH_ROWS = 300
PAIRS = 30
MUTANTS = 60
DAMAGED = 12
STATUSES = (ACTIVE, COMMITTED, COMMITTED, ROLLEDBACK, UNKNOWN, COMMITTING, COMMITTING, 77)
LONG = tuple(f"resource-{number:04}" for number in range(600))
"""Names of a record that the 3.0 line cannot read."""


def written(seed: int) -> tuple[bytes, bytes]:
    """Return a pair: decisions that close in part or in the other file, and odd ends."""
    rng = random.Random(seed)
    clock = rng.choice((5_000, 1_700_000_000_000))
    known: list[tuple[bytes, tuple[str, ...]]] = []
    size = rng.choice((1500, 6000, 12_000))
    one, clock = _file(rng, clock, size, known)
    two, _ = _file(rng, clock, size, known)
    return one, two


def _file(
    rng: random.Random, clock: int, size: int, known: list[tuple[bytes, tuple[str, ...]]]
) -> tuple[bytes, int]:
    begun, body = clock, b""
    for sequence in range(rng.randrange(size // 150)):
        clock += rng.randrange(3)
        one = _record(rng, clock, sequence, known).encode()
        body += one if HEADER_LENGTH + len(body) + len(one) <= size else b""
    position = HEADER_LENGTH + len(body)
    tail = rng.choice((b"", b"", _record(rng, clock + 9, 0, known).encode(), b"remains"))
    tail += _stale(rng, begun, known) if rng.random() < 0.5 else b""
    stamp = rng.choice((begun, begun, begun, position))
    content = FileHeader(stamp, rng.choice((0, -1)), position).encode() + body + tail
    return content.ljust(size, b"\0"), clock


def _stale(rng: random.Random, begun: int, known: list[tuple[bytes, tuple[str, ...]]]) -> bytes:
    """Return records of an earlier life of a file, some with an odd length of their header."""
    found = []
    for sequence in range(rng.randrange(12)):
        one = _record(rng, begun - rng.choice((9, 9, -9000)), sequence, known)
        if rng.random() < 0.1:
            one = replace(one, header_length=29)
            one = replace(one, crc32=one.calculate_crc32())
        found.append(one.encode() + rng.choice((b"", b"", b"", b"", b"", b"parts")))
    return b"".join(found)


def _record(
    rng: random.Random, clock: int, sequence: int, known: list[tuple[bytes, tuple[str, ...]]]
) -> TransactionLogRecord:
    if not known or rng.random() < 0.3:
        server = rng.choice(("node", "node", "node", "other", "x" * 51))
        names = tuple(rng.sample(("a", "jdbc/b", "", "c" * 140), rng.randrange(4)))
        gtrid = make_gtrid(server, clock, sequence)
        known.append((gtrid if rng.random() < 0.95 else gtrid[-5:], names))
    gtrid, names = rng.choice(known[-6:])
    if rng.random() < 0.2:
        names = names[:1]
    elif rng.random() < 0.02:
        names = LONG
    return TransactionLogRecord.create(rng.choice(STATUSES), gtrid, names, clock, sequence)


def mutant(content: bytes, rng: random.Random) -> bytes:
    """Return a file with bytes changed, cut, zero or repeated; most are sealed again."""
    data = bytearray(content)
    for _ in range(rng.randrange(3)):
        at, to = rng.randrange(len(data)), rng.randrange(len(data))
        how = rng.randrange(8)
        if how == 0 and at > HEADER_LENGTH:
            del data[at:]
        elif how == 1:
            data[at : at + 64] = bytes(len(data[at : at + 64]))
        elif how == 2:
            data[to : to + 64] = data[at : at + 64]
        else:
            data[rng.choice((at, at % 200))] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
    if rng.random() < 0.6:
        seal_bitronix("", data)
    return bytes(data)


def compare(folder: Path, monkeypatch: pytest.MonkeyPatch, rows: int = BATCH_ROWS) -> None:
    same_both_ways(lambda: reading_of(folder), monkeypatch, rows)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("case", SMALL_CASES)
def test_runs_agree_with_records_in_small_fixtures(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(folder_of(case), monkeypatch)


def test_runs_agree_with_records_in_pairs_of_all_kinds_of_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    for seed in sweep.of(range(PAIRS), 10):
        monkeypatch.setattr(chunk, "WINDOW", (1 << 20, 700)[seed % 2])
        write_pair(tmp_path, *written(seed))
        compare(tmp_path, monkeypatch)


def test_runs_agree_with_records_in_mutants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    for seed in sweep.of(range(MUTANTS), 20):
        rng = random.Random(-seed - 1)
        one, two = written(seed % PAIRS)
        write_pair(tmp_path, mutant(one, rng), mutant(two, rng))
        compare(tmp_path, monkeypatch)


def test_both_cursors_go_on_in_runs_behind_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    """Long files, as the newer cursor goes record by record in the last two of its pages."""
    records = _decisions(900)
    content = file_bytes(records, 9_000, size=1 << 17)
    size = sum(one.size for one in records)
    for seed in sweep.of(range(DAMAGED), 4):
        rng = random.Random(seed)
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(HEADER_LENGTH, HEADER_LENGTH + size)] ^= 1 << rng.randrange(8)
        write_pair(tmp_path, bytes(damaged), file_bytes([], 8_000, size=1 << 17))
        compare(tmp_path, monkeypatch, LONG_BATCH_ROWS)
    read_in_runs(monkeypatch)
    assert reading_of(tmp_path).run_count.share > 0.9


def _decisions(count: int) -> list[TransactionLogRecord]:
    rng, found = random.Random(count), []
    for number in range(count):
        names = rng.sample(("jdbc/a", "jms/b", "c" * 300), rng.randrange(1, 4))
        gtrid = make_gtrid("node", 5_000, number)
        found.append(record(COMMITTING, number, *names, gtrid=gtrid))
        if rng.random() < 0.9:
            found.append(record(COMMITTED, number, *names, gtrid=gtrid))
    return found


def test_gtrids_that_come_again_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the ends of only a few closed ones are known."""
    monkeypatch.setattr(transactions, "CLOSED_MAX", 20)
    records = [record(COMMITTED, n, gtrid=make_gtrid("node", 5_000, n)) for n in range(300)]
    records += [records[7], record(PREPARED, 7, "a", gtrid=records[7].gtrid), records[299]]
    records += [record(ROLLEDBACK, 1, gtrid=gtrid) for gtrid in (b"", b"short", records[8].gtrid)]
    reading = write_pair(tmp_path, file_bytes(records, 9_000, 1 << 15), bytes(1 << 15))
    strict = reading.verdict().strict
    assert strict["transactions"] == {"committed": 298, "undecided": 1, "rolled_back": 3}
    assert [one["gtrid"] for one in strict["in_doubt"]] == [records[7].gtrid.hex().upper()]
    compare(tmp_path, monkeypatch)


def test_a_short_file_is_read_record_by_record(tmp_path: Path) -> None:
    assert write_pair(tmp_path, *written(1)).run_count.in_runs == 0
