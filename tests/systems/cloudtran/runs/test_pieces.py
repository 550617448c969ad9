"""Read in runs and block by block a log says the same: fixtures, logs of ours, mutants."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.storage.crc import crc32
from tallystick.systems.cloudtran.format.entries import (
    ENTRY_KIND_AT,
    Entry,
    EntryKind,
    Operation,
    OperationKind,
)
from tallystick.systems.cloudtran.format.layout import (
    CODEC_NONE,
    CODEC_ZLIB,
    HEADER_SIZE,
    PROLOGUE_SIZE,
)
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence
from tallystick.systems.cloudtran.runs import chunk
from tests.fixtures import fixture_dir
from tests.fuzz.seals import seal_cloudtran
from tests.kit import read_in_runs, same_both_ways
from tests.systems.cloudtran.blocks import NAME, block, entry
from tests.systems.cloudtran.blocks import reading as reading_in
from tests.systems.cloudtran.test_fixtures import CASES

TARGETS = ("a", "b", "ü")
PLACES = 512
ROWS = 7
MUTANTS = 48
LOGS = 16


def compare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same_both_ways(lambda: reading_in(folder), monkeypatch, ROWS)


def written(seed: int) -> dict[str, bytes]:
    """Return the files of a log whose blocks hold all kinds of entries, in any order."""
    rng = random.Random(seed)
    numbers, sequence = iter(range(rng.choice((1, 90, (1 << 63) - 9)), 1 << 64)), 1
    known: list[int] = []
    files = {}
    for serial in range(1, rng.randrange(2, 5)):
        data = b""
        for _ in range(rng.randrange(1, 12)):
            entries = [_entry(rng, numbers, known) for _ in range(rng.randrange(9))]
            codec = rng.choice((CODEC_NONE, CODEC_NONE, CODEC_ZLIB))
            data += block(len(data), sequence, *entries, serial=serial, codec=codec)
            sequence += rng.choice((1,) * 15 + (2,))
        name = f"translog-{serial:010d}-20130701T100000Z.ctlog"
        files[name] = data + bytes(rng.choice((0, PLACES)))
    if len(files) > 1 and rng.random() < 0.3:
        files.pop(min(files))
    return files


def _entry(rng: random.Random, numbers: Iterator[int], known: list[int]) -> Entry:
    time, targets = rng.randrange(-9, 99), tuple(rng.sample(TARGETS, rng.randrange(1, 4)))
    how = rng.random() if known else 0
    if how < 0.5:
        known.append(next(numbers))
        if rng.random() < 0.1:
            next(numbers)
        carried = int(rng.random() < 0.1)
        operations = tuple(_operation(rng) for _ in range(rng.randrange(4)))
        reference = rng.choice(("", "order-ü"))
        return Entry(EntryKind.PERSISTING, known[-1], time, targets, operations, reference, carried)
    number = rng.choice(known[-9:])
    if how < 0.8:
        return Entry(EntryKind.PERSISTED, number, time, (), flags=rng.choice((1, 1, 1, 3)))
    if how < 0.95:
        return Entry(EntryKind.PERSISTED, number, time, targets)
    if how < 0.98:
        return Entry(EntryKind.PERSISTING, number, time, targets, (_operation(rng),), "", 1)
    return Entry(EntryKind.PERSISTED, number + 3, time, (), flags=1)


def _operation(rng: random.Random) -> Operation:
    key = rng.choice((b"key", b"\xff\xfe", "schlüssel".encode() * 2))
    value = rng.choice((None, b"", bytes(rng.randrange(40))))
    kind = rng.choice(list(OperationKind))
    return Operation(rng.choice((None, 0)), kind, rng.choice(("t", "tü")), key, value)


def mutant(files: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """Return files with bytes changed, zeros, swapped or repeated blocks; most are sealed again."""
    made = {name: bytearray(data) for name, data in files.items()}
    for _ in range(rng.randrange(1, 4)):
        data = made[rng.choice(sorted(made))]
        at, to = (rng.randrange(len(data) // PLACES + 1) * PLACES for _ in range(2))
        how = rng.randrange(5)
        if how == 0:
            del data[rng.randrange(len(data) + 1) :]
        elif how == 1:
            data[at : at + PLACES] = bytes(len(data[at : at + PLACES]))
        elif how == 2:
            data[to : to + PLACES] = data[at : at + PLACES]
        else:
            place = min(at + rng.randrange(HEADER_SIZE + 80), len(data) - 1)
            data[max(place, 0) : place + 1] = bytes([rng.choice((0, 1, 255, rng.randrange(256)))])
    if rng.random() < 0.7:
        for name, data in made.items():
            seal_cloudtran(name, data)
    return {name: bytes(data) for name, data in made.items()}


def store(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("case", CASES)
def test_runs_agree_with_blocks_in_every_fixture(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(fixture_dir("cloudtran") / case / "log", monkeypatch)


def test_runs_agree_with_blocks_in_logs_of_all_kinds_of_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(LOGS):
        store(tmp_path / "log", written(seed))
        compare(tmp_path / "log", monkeypatch)


def test_runs_agree_with_blocks_in_mutants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(MUTANTS):
        rng = random.Random(crc32(bytes([seed])))
        store(tmp_path / "log", mutant(written(seed % LOGS), rng))
        compare(tmp_path / "log", monkeypatch)


def test_blocks_that_hold_no_entries_are_verified_twice_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray(b"".join(block(PLACES * n, n + 1, entry(n + 1)) for n in range(50)))
    for place in range(0, len(data), PLACES):
        data[place + HEADER_SIZE + PROLOGUE_SIZE + ENTRY_KIND_AT] = 99
    seal_cloudtran(NAME, data)
    store(tmp_path / "log", {NAME: bytes(data)})
    verified = []

    def counted(data: memoryview) -> int:
        verified.append(len(data))
        return crc32(data)

    monkeypatch.setattr(chunk, "crc32", counted)
    read_in_runs(monkeypatch)
    found = list(reading_in(tmp_path / "log").pieces(beyond=True))
    assert all(isinstance(one, BlockOccurrence) and not one.block.readable for one in found)
    assert 0 < sum(verified) <= len(data)


def test_a_short_log_is_read_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path / "log", written(1))
    assert all(isinstance(one, BlockOccurrence) for one in reading_in(tmp_path / "log").pieces())
    read_in_runs(monkeypatch)
    found = list(reading_in(tmp_path / "log").pieces())
    assert not all(isinstance(one, BlockOccurrence) for one in found)
