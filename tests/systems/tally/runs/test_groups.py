"""Runs of small groups: the same records as the plain walk, and none that is not whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tallystick.arrow.schemas import RECORDS, plain, record_batches
from tallystick.errors import CorruptLogError
from tallystick.records import Verdict
from tallystick.systems.tally.format.bodies import encode_names
from tallystick.systems.tally.format.columns import UnplacedRecord, encode_records
from tallystick.systems.tally.format.entries import encode_entry
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    HEADER_SIZE,
    decode_group_header,
    encode_group_header,
)
from tallystick.systems.tally.live import opening as recovery
from tallystick.systems.tally.read.scan import Scan
from tallystick.systems.tally.read.walk import ReadRun
from tallystick.systems.tally.reader import TallyReading
from tallystick.systems.tally.runs import pieces, walk
from tallystick.systems.tally.runs.groups import ChunkReader
from tallystick.systems.tally.runs.pieces import Runs, chunk_of
from tallystick.testing import MemoryFileSystem
from tests.kit import read_in_runs
from tests.systems.tally.build import FOLDER, every_item, reading, tiny_log

SEGMENT = f"{FOLDER}/0000000000000001.tally"


def one_by_one(count: int, *, mixed: bool = False) -> MemoryFileSystem:
    """A log whose every record has a group of its own."""
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    for number in range(count):
        log.append(b"%d." % number * (number % 40)).wait()
        if mixed:
            log.submit(UnplacedRecord(Code.ADD, b"", None, number), sync=False)
            log.submit(UnplacedRecord(Code.ADD, b"in", 7, number, 3), sync=False)
            log.append(b"together").wait()
    for item in every_item() if mixed else ():
        log.submit(item).wait()
    log.close()
    return fs


def damaged_logs(*, seed: int, count: int) -> Iterator[TallyReading]:
    """Logs of small groups, each with one bit flipped."""
    files = one_by_one(4, mixed=True).contents()
    whole = files[SEGMENT]
    chance = random.Random(seed)
    for place in chance.sample(range(8192, len(whole.rstrip(b"\0"))), count):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        yield reading(MemoryFileSystem(files | {SEGMENT: damaged}))


def run_sizes(one: TallyReading) -> list[int]:
    """Records of each run."""
    steps = Scan(one.catalog, one._access, read_run=Runs(read=ChunkReader())).steps()
    return [chunk.count for step in steps if (chunk := chunk_of(step.place)) is not None]


def table(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches([plain(one) for one in batches], RECORDS).drop(["attributes"])


def agree(one: TallyReading, rows: int = 10_000) -> None:
    oracle = table(list(record_batches(one.records(), FOLDER, "wall_us")))
    assert table(list(one.batches(rows=rows))).equals(oracle)


def test_a_log_of_one_caller_is_read_in_runs() -> None:
    one = reading(one_by_one(100))
    assert sum(run_sizes(one)) == 100
    assert len(run_sizes(one)) == len(one.catalog.segments)
    agree(one)


@pytest.mark.parametrize("rows", [1, 3, 10_000])
def test_what_needs_more_than_columns_is_left_to_the_plain_walk(rows: int) -> None:
    one = reading(one_by_one(30, mixed=True))
    assert sum(run_sizes(one)) >= 90
    agree(one, rows)


def test_damage_in_small_groups_is_judged_as_without_runs() -> None:
    for one in damaged_logs(seed=20, count=150):
        agree(one)


def test_a_group_that_states_another_size_is_damaged_in_a_run_too() -> None:
    """Every checksum holds: only the two sizes of a payload that is not packed contradict."""
    fs = one_by_one(3)
    data = fs.open(SEGMENT).pread(16 << 10, 0)
    header = decode_group_header(data, DATA_OFFSET)
    assert header is not None
    encoded = encode_group_header(replace(header, raw=header.raw + 1))
    for place in (DATA_OFFSET, header.end - HEADER_SIZE):
        fs.open(SEGMENT).pwrite(encoded, place)
    one = reading(fs)
    records = table(list(record_batches(one.records(), FOLDER, "wall_us")))
    assert records.column("outcome")[0].as_py() == "corrupt"
    assert table(list(one.batches())).equals(records)


def test_plain_python_takes_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    one = reading(one_by_one(12, mixed=True))
    compiled = table(list(one.batches()))
    for name in ("_whole", "_take", "_rises", "_is_plain", "_same", "_bit", "walk_small"):
        function = getattr(walk, name)
        monkeypatch.setattr(walk, name, getattr(function, "py_func", function))
    with np.errstate(over="ignore"):
        assert table(list(one.batches())).equals(compiled)


def in_runs() -> Runs:
    """Runs from the first group on."""
    return Runs(pay=lambda _size: True)


def rebuilt(
    one: TallyReading, read_run: ReadRun | None
) -> tuple[dict[str, object], object, object]:
    """State, index and findings, as recovery makes them."""
    scan = Scan(one.catalog, one._access, read_run=read_run)
    state, index = recovery._rebuild(scan, None)
    ends = (scan.next_lsn, scan.end and scan.end[1], scan.clean, scan.broken, scan.time_us)
    return vars(state), index, (ends, scan.findings)


@pytest.mark.parametrize("least", [0, 1 << 10, 20 << 10])
def test_the_fold_is_the_same_by_runs_and_by_steps(least: int) -> None:
    one = reading(one_by_one(60, mixed=True))
    late = Runs(pay=lambda size: size >= least)
    assert rebuilt(one, late) == rebuilt(one, None)
    assert late._read is not None


def test_the_walk_is_loaded_once_the_log_has_the_size_that_pays() -> None:
    one = reading(one_by_one(100))
    asked: list[int] = []

    def pay(size: int) -> bool:
        asked.append(size)
        return size >= 7 + 20_000

    groups = 0
    for step in Scan(one.catalog, one._access, read_run=Runs(7, pay=pay)).steps():
        groups += chunk_of(step.place) is None and step.place.case.whole
    assert len(one.catalog.segments) > 2
    assert asked == sorted(asked)
    assert asked[0] == 7
    assert 20_000 <= groups * 512 < 25_000
    assert Runs.of(one.catalog, None)._known == sum(
        each.stated_end or 0 for each in one.catalog.segments
    )


def test_damage_refuses_the_log_by_runs_as_by_steps() -> None:
    for one in damaged_logs(seed=21, count=100):
        assert rebuilt(one, in_runs()) == rebuilt(one, None)


def test_a_log_opened_by_runs_goes_on_as_one_opened_by_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = one_by_one(100, mixed=True).contents()
    found = []
    for always in (True, False):
        monkeypatch.setattr(pieces, "pay_at_opening", lambda _size, always=always: always)
        fs = MemoryFileSystem(files)
        log = tiny_log(fs)
        for number in range(40):
            log.append(b"%d" % number * 50).wait()
        log.close()
        one = reading(fs)
        assert not one.findings()
        found.append([(record.sequence, record.body) for record in one.records()])
    assert found[0] == found[1]


def transactions_and_verdict(
    one: TallyReading, monkeypatch: pytest.MonkeyPatch, *, always: bool
) -> tuple[list[Any], Verdict]:
    """Transactions and verdict, in runs or not."""
    read_in_runs(monkeypatch, always=always)
    fresh = TallyReading(one.source, access=one._access)
    return [one.to_dict() for one in fresh.transactions()], fresh.verdict()


def test_transactions_and_verdicts_are_the_same_by_runs_and_by_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = one_by_one(20, mixed=True)
    log = tiny_log(fs)
    entries = [(Code.PERSISTING, encode_entry(("a", "b"), "", ()), number) for number in (20, 21)]
    entries += [(Code.PERSISTED, encode_names(["a"]), 20), (Code.DISCARD, b"", 21)]
    for code, body, number in entries:
        log.submit(UnplacedRecord(code, body, None, number)).wait()
    log.close()
    one = reading(fs)
    transactions, verdict = transactions_and_verdict(one, monkeypatch, always=True)
    assert (transactions, verdict) == transactions_and_verdict(one, monkeypatch, always=False)
    assert {"7", "8", "9", "entry:20", "entry:21"} <= {each["key"] for each in transactions}


def test_damage_is_judged_by_runs_as_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in damaged_logs(seed=22, count=60):
        assert transactions_and_verdict(one, monkeypatch, always=True) == transactions_and_verdict(
            one, monkeypatch, always=False
        )


def test_plain_groups_of_a_run_are_not_looked_at_again_for_transactions() -> None:
    one = reading(one_by_one(100))
    steps = Scan(one.catalog, one._access, read_run=Runs(read=ChunkReader())).steps()
    chunks = [chunk for step in steps if (chunk := chunk_of(step.place)) is not None]
    assert chunks
    assert not any(list(chunk.sorted(1, ()).other_rows()) for chunk in chunks)


def test_a_malformed_body_is_found_at_the_place_of_its_group() -> None:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    for number in range(5):
        log.append(b"%d" % number).wait()
    log._appender.write_group(encode_records([UnplacedRecord(Code.COMMIT, b"\xff\xff", 3)]), 1)
    log.close()
    one = reading(fs)
    places = []
    for read_run in (None, in_runs()):
        scan = Scan(one.catalog, one._access, read_run=read_run)
        with pytest.raises(CorruptLogError) as caught:
            recovery._rebuild(scan, None)
        places.append((caught.value.file, caught.value.offset))
    assert places == [(SEGMENT, 8192 + 5 * 512)] * 2
    assert [(f.code, f.file, f.offset) for f in one.findings()] == [
        ("unreadable-group", *places[0])
    ]
