"""Parts of files close what the whole journal says, or refuse: fixtures, our pairs, mutants."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from tallystick.systems.bitronix.columns import closing
from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    PREPARED,
    ROLLEDBACK,
    make_gtrid,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.bitronix.reader import BitronixReading
from tallystick.systems.bitronix.runs import chunk
from tallystick.systems.protocol import NotClosedInPartsError
from tests.kit import closed_alike, read_in_runs
from tests.sweeps import Sweep
from tests.systems.bitronix.logs import file_bytes, reading_of, record, write_pair
from tests.systems.bitronix.runs.test_pieces import PAIRS, mutant, written

MUTANTS, JOURNALS, ACTIVE_MAX = 200, 30, 5
SIZES = (500, 3_000, 1 << 30)
NAMES: tuple[tuple[str, ...], ...] = (
    ("jdbc/a", "jms/b"),
    ("jdbc/a",),
    ("jdbc/a", "jdbc/c", "jms/b"),
    (),
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few transactions at the begin of a part that may have begun before it."""
    read_in_runs(monkeypatch)
    monkeypatch.setattr(closing, "FIRST_GTRIDS", 3)


def closed(reading: BitronixReading) -> int:
    """Return with how many sizes of parts a journal was closed by them."""
    return sum(closed_alike(reading, size, rows=7) for size in SIZES)


def journal(folder: Path, seed: int) -> BitronixReading:
    """Return a journal of a manager that changed files, or was killed: some stay open."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    log = DiskJournal(str(folder), max_log_size=1 << 13, forced_write_enabled=False)
    steps: list[list[tuple[int, bytes, tuple[str, ...]]]] = []
    for number in range(rng.randrange(20, 400)):
        gtrid = make_gtrid("node", 1_700_000_000_000 + number // 3, number)
        steps.append(_steps(rng, gtrid))
        while len(steps) > ACTIVE_MAX:
            log.log(*_next(rng, steps))
    while steps and rng.random() < 0.95:
        log.log(*_next(rng, steps))
    if rng.random() < 0.5:
        log.close()
    return reading_of(folder)


def _steps(rng: random.Random, gtrid: bytes) -> list[tuple[int, bytes, tuple[str, ...]]]:
    names = rng.choice(NAMES)
    if rng.random() < 0.1:
        return [(ACTIVE, gtrid, ()), (ROLLEDBACK, gtrid, names)]
    found = [(ACTIVE, gtrid, ()), (PREPARED, gtrid, names)] if rng.random() < 0.6 else []
    ends = [names[:1], names[1:]] if len(names) > 1 and rng.random() < 0.2 else [names]
    found += [(COMMITTING, gtrid, names), *((COMMITTED, gtrid, one) for one in ends)]
    return found[: -1 if rng.random() < 0.02 else None]


def _next(
    rng: random.Random, steps: list[list[tuple[int, bytes, tuple[str, ...]]]]
) -> tuple[int, bytes, tuple[str, ...]]:
    one = rng.choice(steps)
    step = one.pop(0)
    if not one:
        steps.remove(one)
    return step


@pytest.mark.parametrize("window", [1 << 20, 700])
def test_parts_of_journals_close_what_the_whole_says(
    window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    monkeypatch.setattr(chunk, "WINDOW", window)
    monkeypatch.setattr(closing, "FIRST_GTRIDS", ACTIVE_MAX + 3)
    seeds = sweep.of(range(JOURNALS), 6)
    found = [closed(journal(tmp_path / str(seed), seed)) for seed in seeds]
    assert found == len(found) * [len(SIZES)]


def test_parts_of_all_kinds_of_records_close_what_the_whole_says(
    tmp_path: Path, sweep: Sweep
) -> None:
    for seed in sweep.of(range(PAIRS), 10):
        closed(write_pair(tmp_path, *written(seed)))


def test_parts_of_mutants_close_what_the_whole_says(tmp_path: Path, sweep: Sweep) -> None:
    for seed in sweep.of(range(MUTANTS), 30):
        rng = random.Random(-seed - 1)
        one, two = written(seed % PAIRS)
        closed(write_pair(tmp_path, mutant(one, rng), mutant(two, rng)))


def test_parts_of_mutants_of_journals_close_what_the_whole_says(
    tmp_path: Path, sweep: Sweep
) -> None:
    for seed in sweep.of(range(MUTANTS // 4), 8):
        rng, folder = random.Random(-seed - 1), tmp_path / str(seed)
        journal(folder, seed % JOURNALS)
        for path in folder.glob("*.tlog"):
            path.write_bytes(mutant(path.read_bytes(), rng))
        closed(reading_of(folder))


def test_most_transactions_are_closed_by_the_part_that_they_are_in(tmp_path: Path) -> None:
    records = _decisions(range(300))
    reading = _pair(tmp_path, records)
    split, *others = reading.splits(8_000)
    assert len(others) > 2
    count = sum(batch.num_rows for _, batch in reading.close_split(split, 1_000).batches)
    assert count > 30


def test_a_transaction_that_a_part_closed_and_that_goes_on_in_another_is_refused(
    tmp_path: Path,
) -> None:
    """The whole journal says what it came to."""
    records = [*_decisions(range(300)), *_decisions([9])]
    reading = _pair(tmp_path, records)
    assert not closed_alike(reading, 8_000)
    assert closed_alike(reading, 1 << 30)


def test_decisions_that_close_in_part_elsewhere_stay_open_for_the_others(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    records = _decisions(range(100))
    gtrids = [make_gtrid("node", 4_000, number) for number in range(4)]
    records[:0] = [record(COMMITTING, 0, *names, gtrid=gtrid) for gtrid in gtrids]
    records += [record(COMMITTED, 0, "a", gtrid=gtrid) for gtrid in gtrids[:3]]
    records += _decisions(range(100, 200))
    records += [record(COMMITTED, 0, "b", "c", gtrid=gtrids[0])]
    records += [record(COMMITTING, 0, "a", gtrid=gtrids[1]), record(COMMITTED, 0, gtrid=gtrids[2])]
    reading = _pair(tmp_path, records)
    assert closed(reading) == len(SIZES)


def test_parts_of_files_that_changed_since_are_refused(tmp_path: Path) -> None:
    records = _decisions(range(100))
    reading = _pair(tmp_path, records)
    rests = []
    for split in reading.splits(5_000):
        part = reading.close_split(split, 100)
        list(part.batches)
        rests.append(part.rest() or b"")
    _pair(tmp_path, [*records, records[0]])
    for refused in (reading.knowing, lambda some: list(reading.close_rests(some, 100))):
        with pytest.raises(NotClosedInPartsError, match="a file has changed"):
            refused(rests)


def test_a_part_is_missing_where_rests_do_not_tile_the_files(tmp_path: Path) -> None:
    reading = _pair(tmp_path, _decisions(range(99)))
    parts = [reading.close_split(split, 100) for split in reading.splits(5_000)]
    for part in parts:
        list(part.batches)
    rests = [rest for part in parts if (rest := part.rest()) is not None]
    for number in range(len(rests)):
        with pytest.raises(NotClosedInPartsError):
            reading.knowing(rests[:number] + rests[number + 1 :])


def test_records_of_parts_are_those_of_the_whole_each_once(tmp_path: Path, sweep: Sweep) -> None:
    for seed in sweep.of(range(JOURNALS), 6):
        reading = journal(tmp_path / str(seed), seed)
        whole = [row for batch in reading.batches() for row in batch.to_pylist()]
        for size in SIZES:
            rows = [
                row
                for split in reading.splits(size)
                for batch in reading.batches(split, rows=7)
                for row in batch.to_pylist()
            ]
            assert sorted(map(repr, rows)) == sorted(map(repr, whole))


def _pair(folder: Path, records: Iterable[TransactionLogRecord]) -> BitronixReading:
    size = 1 << 16
    return write_pair(folder, file_bytes(records, 9_000, size), file_bytes([], 8_000, size))


def _decisions(numbers: range | list[int]) -> list[TransactionLogRecord]:
    return [
        record(status, number, "jdbc/a", gtrid=make_gtrid("node", 5_000, number))
        for number in numbers
        for status in (COMMITTING, COMMITTED)
    ]
