"""Plain records in chunks give what the records give one by one: fixtures, our pairs, mutants."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.arrow.schemas import TRANSACTIONS
from tallystick.systems.bitronix.columns import chunk_columns, plain_chunks
from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    HEADER_LENGTH,
    ROLLEDBACK,
    UNKNOWN,
    FileHeader,
    make_gtrid,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.reader import BitronixReading
from tests.fuzz.seals import seal_bitronix
from tests.systems.bitronix.logs import CASES, folder_of, reading_of, write_pair

SMALL_CASES = [
    case
    for case in CASES
    if sum(path.stat().st_size for path in folder_of(case).glob("*.tlog*")) < 10_000
]
NEVER = 1 << 62
BATCH_ROWS = 5
PAIRS = 30
MUTANTS = 60
STATUSES = (ACTIVE, COMMITTED, COMMITTED, ROLLEDBACK, UNKNOWN, COMMITTING, COMMITTING, 77)
LONG = tuple(f"resource-{number:04}" for number in range(600))
"""Names of a record that the 3.0 line cannot read."""


def read_in_chunks(monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    """Have plain records read in chunks where there are ``least`` bytes of them."""
    for name in ("COMPILED_FROM", "LOADED_FROM"):
        monkeypatch.setattr(plain_chunks, name, least)


def tables(log: BitronixReading) -> object:
    batches = list(log.transaction_batches(BATCH_ROWS))
    assert all(one.num_rows <= BATCH_ROWS and one.schema == TRANSACTIONS for one in batches)
    rows = [row for one in batches for row in one.to_pylist()]
    return log.judgement, list(log.files()), list(log.transactions()), rows, list(log.findings())


def compare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_chunks(monkeypatch, NEVER)
    slow = tables(reading_of(folder))
    read_in_chunks(monkeypatch, 0)
    assert tables(reading_of(folder)) == slow


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


@pytest.mark.sampled(25)
@pytest.mark.parametrize("case", SMALL_CASES)
def test_chunks_agree_with_records_in_small_fixtures(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(folder_of(case), monkeypatch)


def test_chunks_agree_with_records_in_pairs_of_all_kinds_of_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(PAIRS):
        monkeypatch.setattr(chunk_columns, "WINDOW", (1 << 20, 700)[seed % 2])
        write_pair(tmp_path, *written(seed))
        compare(tmp_path, monkeypatch)


def test_chunks_agree_with_records_in_mutants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(MUTANTS):
        rng = random.Random(-seed - 1)
        one, two = written(seed % PAIRS)
        write_pair(tmp_path, mutant(one, rng), mutant(two, rng))
        compare(tmp_path, monkeypatch)


def test_the_answer_is_that_of_the_whole_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(PAIRS):
        log = write_pair(tmp_path, *written(seed))
        read_in_chunks(monkeypatch, NEVER)
        verdict = log.verdict()
        read_in_chunks(monkeypatch, 0)
        assert log.judgement == verdict.judgement
        assert log.verdict().to_dict() == verdict.to_dict()


def test_most_pairs_of_whole_records_are_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_chunks(monkeypatch, 0)
    plain = 0
    for seed in range(PAIRS):
        with write_pair(tmp_path, *written(seed))._opened() as pair:
            plain += sum(part.plain is not None for part in pair.parts)
    assert plain > PAIRS


def test_a_short_file_is_read_record_by_record(tmp_path: Path) -> None:
    with write_pair(tmp_path, *written(1))._opened() as pair:
        assert all(part.plain is None for part in pair.parts)
