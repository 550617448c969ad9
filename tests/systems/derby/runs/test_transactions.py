"""Transactions that have ended are counted and forgotten; those that go on are collected again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tallystick.storage.crc import crc32
from tallystick.systems.derby import reader
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import (
    CHECKSUM_RECORD_SIZE,
    HEADER_SIZE,
    Group,
    encode_checksum_body,
    encode_header,
    encode_record,
    make_instant,
)
from tallystick.systems.derby.format.operations import encode_begin, encode_end
from tallystick.systems.derby.format.record_body import encode_body
from tallystick.systems.derby.read.transactions import LATEST, Numbers
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.derby.runs import chunk
from tests.kit import read_in_runs, same_both_ways
from tests.systems.derby.logs import reading_of

BEGIN = Group.FIRST, encode_begin(0, None)
COMMIT = Group.LAST | Group.COMMIT, encode_end(operations.STATUS_COMMITTED, None)
ABORT = Group.LAST | Group.ABORT, encode_end(operations.STATUS_ABORTED, None)
PREPARE = Group.PREPARE, encode_end(operations.STATUS_PREPARED, None)
MANY = [(number, one) for number in range(200) for one in (BEGIN, COMMIT)]
Step = tuple[int, tuple[Group, bytes]]


@pytest.fixture(autouse=True)
def _forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "KEPT_FROM", 0)


def log_of(steps: Iterable[Step], folder: Path) -> DerbyReading:
    """A log with a record for each step, in one group."""
    begin = HEADER_SIZE + CHECKSUM_RECORD_SIZE
    group = b""
    for number, (flags, operation) in steps:
        body = encode_body(Group.RAWSTORE | flags, number, operation)
        group += encode_record(make_instant(1, begin + len(group)), body)
    checksum = encode_checksum_body(len(group), crc32(group))
    head = encode_header(1, 0) + encode_record(make_instant(1, HEADER_SIZE), checksum)
    (folder / "log1.dat").write_bytes(head + group + bytes(100))
    return reading_of(folder)


@pytest.mark.parametrize("in_runs", [True, False])
def test_memory_holds_open_transactions_and_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_runs: bool
) -> None:
    read_in_runs(monkeypatch, always=in_runs)
    whole = [(number, one) for number in range(7, 400) for one in (BEGIN, COMMIT)]
    steps = [(5, BEGIN), *whole, (6, BEGIN), (6, PREPARE), (401, BEGIN), (401, ABORT)]
    found = log_of(steps, tmp_path)._analysis.transactions
    assert found.states == {"active": 1, "committed": 393, "prepared": 1, "aborted": 1}
    assert [one.number for one in found.kept.values()] == [5, 6]
    assert [one.number for one in found.prepared()] == [6]
    assert [one.number for one in found.latest] == [*range(402 - LATEST, 400), 6, 401]
    assert not found.again


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rows", [2, 1 << 14])
@pytest.mark.parametrize(
    "steps",
    [
        [(7, BEGIN), (7, COMMIT), (8, BEGIN), (7, ABORT)],
        [(7, BEGIN), (7, COMMIT), (8, BEGIN), (7, PREPARE)],
        [(7, COMMIT), (8, BEGIN), (8, ABORT), (7, PREPARE)],
        [(7, COMMIT), (8, BEGIN), (7, BEGIN), (7, COMMIT)],
        [(7, PREPARE), (8, BEGIN), (7, BEGIN), (7, COMMIT), (7, BEGIN)],
        [(7, BEGIN), (8, BEGIN), (8, PREPARE), (7, BEGIN), (7, COMMIT), (8, COMMIT)],
        [*MANY, (7, PREPARE)],
        [(500, BEGIN), (7, ABORT), *MANY],
    ],
)
def test_transactions_that_go_on_after_their_end_are_told_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[Step], rows: int
) -> None:
    monkeypatch.setattr(chunk, "ROWS", rows)
    log = log_of(steps, tmp_path)
    same_both_ways(lambda: DerbyReading(log.source, log._options), monkeypatch)
    said = DerbyReading(log.source, log._options)
    monkeypatch.setattr(reader, "KEPT_FROM", 1 << 40)
    assert said.verdict().strict == DerbyReading(log.source, log._options).verdict().strict


def test_numbers_are_a_set() -> None:
    found = Numbers()
    found.update([0, 63, 64, 1 << 61])
    assert [number for number in (0, 1, 63, 64, 65, 1 << 61) if number in found] == [
        0,
        63,
        64,
        1 << 61,
    ]
    assert found.isdisjoint([1, 65])
    assert not found.isdisjoint([1, 64])
    found.clear()
    assert found.isdisjoint([0, 64])
