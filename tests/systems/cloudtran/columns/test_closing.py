"""Splits close the transactions and changes that the whole log has, or refuse."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tallystick.storage.crc import crc32
from tallystick.systems.cloudtran.format.entries import Entry, EntryKind
from tallystick.systems.cloudtran.reader import CloudtranReading
from tallystick.systems.protocol import NotClosedInPartsError
from tallystick.testing import check_tiling
from tests.kit import closed_alike
from tests.systems.cloudtran.blocks import NAME, block, entry
from tests.systems.cloudtran.blocks import reading as reading_in
from tests.systems.cloudtran.runs.test_pieces import LOGS, mutant, store, written
from tests.systems.cloudtran.test_fixtures import CASES, reading_of

SIZES = (1, 2000, 1 << 30)
ROWS = 5
MUTANTS = 40


@pytest.mark.sampled(18)
@pytest.mark.parametrize("case", CASES)
def test_splits_of_every_fixture_close_what_the_log_holds(case: str) -> None:
    for size in SIZES:
        closed_alike(reading_of(case), size, ROWS)


def test_splits_of_logs_with_all_kinds_of_entries_close_what_they_hold(tmp_path: Path) -> None:
    closed = 0
    for seed in range(LOGS):
        store(tmp_path / "log", written(seed))
        closed += sum(closed_alike(reading_in(tmp_path / "log"), size, ROWS) for size in SIZES)
    assert closed


def test_splits_of_mutants_never_give_other_rows(tmp_path: Path) -> None:
    for seed in range(MUTANTS):
        rng = random.Random(crc32(bytes([seed])))
        store(tmp_path / "log", mutant(written(seed % LOGS), rng))
        for size in SIZES[:2]:
            closed_alike(reading_in(tmp_path / "log"), size, ROWS)


def test_transactions_that_cross_splits_are_closed_by_their_rests(tmp_path: Path) -> None:
    done = [Entry(EntryKind.PERSISTED, number, 9, (), flags=1) for number in (1, 2, 3)]
    data = block(0, 1, entry(1), entry(2), done[0])
    for sequence, entries in enumerate(([entry(3), done[1]], [entry(4)], [done[2]]), 2):
        data += block(len(data), sequence, *entries)
    (tmp_path / NAME).write_bytes(data)
    log = reading_in(tmp_path)
    assert len(log.splits(1)) == 4
    assert closed_alike(log, 1, ROWS)
    _, rows = zip(*log.close_split(log.splits(1)[0], ROWS).batches, strict=True)
    assert [one["transaction"].to_pylist() for one in rows] == [["1", "2"], [1]]


def test_an_entry_after_the_split_that_closed_its_transaction_refuses(tmp_path: Path) -> None:
    done = Entry(EntryKind.PERSISTED, 1, 9, (), flags=1)
    data = block(0, 1, entry(1), done)
    data += block(len(data), 2, done)
    (tmp_path / NAME).write_bytes(data)
    assert not closed_alike(reading_in(tmp_path), 1, ROWS)


def _rests(folder: Path) -> tuple[CloudtranReading, list[bytes]]:
    log, rests = reading_in(folder), []
    for split in log.splits(1):
        closed = log.close_split(split, ROWS)
        list(closed.batches)
        rests.append(closed.rest() or b"")
    return log, rests


def test_a_log_that_its_splits_tell_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(block(0, 1, entry(1)) + block(512, 2, entry(2)) + bytes(512))
    log, rests = _rests(tmp_path)
    assert len(rests) == 2
    expected = [one.bytes_by_outcome() for one in log.files()], log.verdict().to_dict()
    (tmp_path / NAME).write_bytes(bytes(1536))
    known = log.knowing(rests)
    found = [one.bytes_by_outcome() for one in known.files()], known.verdict().to_dict()
    assert found == expected
    check_tiling(known.files()[0])


def test_a_file_that_grew_while_its_splits_were_read_refuses(tmp_path: Path) -> None:
    first = block(0, 1, entry(1))
    (tmp_path / NAME).write_bytes(first)
    log = reading_in(tmp_path)
    (split,) = log.splits(1)
    (tmp_path / NAME).write_bytes(first + block(512, 2, entry(2)))
    closed = log.close_split(split, ROWS)
    list(closed.batches)
    with pytest.raises(NotClosedInPartsError, match="changed"):
        log.knowing([closed.rest() or b""])


def test_a_damaged_split_has_no_rest(tmp_path: Path) -> None:
    data = bytearray(block(0, 1, entry(1)) + block(512, 2, entry(2)))
    data[130] ^= 1
    (tmp_path / NAME).write_bytes(data)
    log = reading_in(tmp_path)
    closed = log.close_split(log.splits(1 << 20)[0], ROWS)
    assert list(closed.batches) == []
    assert closed.rest() is None
