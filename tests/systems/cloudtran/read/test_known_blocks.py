"""A step that follows a log reads what is new, and gives what a reading of all files gives."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.records import Change
from tallystick.storage import source
from tallystick.storage.crc import crc32
from tallystick.systems.cloudtran import reader
from tallystick.systems.cloudtran.read import block_order
from tallystick.systems.cloudtran.reader import CloudtranReading
from tallystick.systems.cloudtran.runs import changes
from tests.systems.cloudtran.blocks import block, entry
from tests.systems.cloudtran.blocks import reading as reading_in
from tests.systems.cloudtran.runs.test_pieces import LOGS, mutant, store, written
from tests.systems.cloudtran.test_fixtures import CASES, reading_of

MUTANTS = 24
FILES, BLOCKS = 6, 40

Read = list[Change | str]


def name(serial: int) -> str:
    return f"translog-{serial:010d}-20130701T100000Z.ctlog"


def file_of(serial: int, sequences: Iterable[int]) -> bytes:
    data = b""
    for sequence in sequences:
        data += block(len(data), sequence, entry(sequence), serial=serial)
    return data


def regular() -> dict[str, bytes]:
    """Return the files of a log whose blocks are numbered without a gap."""
    starts = range(1, FILES * BLOCKS, BLOCKS)
    return {
        name(serial): file_of(serial, range(start, start + BLOCKS))
        for serial, start in enumerate(starts, 1)
    }


def result(found: Iterable[Change]) -> Read:
    read: Read = []
    try:
        read.extend(found)
    except LogUnreadableError as error:
        read.append(str(error))
    return read


def steps_alike(log: CloudtranReading) -> None:
    """Assert that steps from and to every block give what a reading of all files does."""
    numbers = {one.block.prologue.sequence for one in log.occurrences() if one.block.readable}
    for after in sorted(numbers | {0, *(one + 1 for one in numbers)}):
        for until in {max(numbers, default=1), after + 3}:
            assert result(log.changes_between(after, until)) == whole(log, after, until)


def whole(log: CloudtranReading, after: int, until: int) -> Read:
    every, name = log.occurrences, log.source.path
    return result(changes.changes_between(lambda _: every(), name, after, until, skip_lost=False))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return how many bytes of each file are read from now on."""
    found: dict[str, int] = {}

    def whole(path: str) -> source.ByteSource:
        read = source.open_source(path)
        found[Path(path).name] = found.get(Path(path).name, 0) + read.size
        return read

    def part(path: str, offset: int, size: int) -> bytes:
        read = source.read_part(path, offset, size)
        found[Path(path).name] = found.get(Path(path).name, 0) + len(read)
        return read

    monkeypatch.setattr(reader, "open_source", whole)
    monkeypatch.setattr(block_order, "read_part", part)
    return found


def test_a_step_reads_the_files_of_new_blocks_and_edges_of_others(
    tmp_path: Path, opened: dict[str, int]
) -> None:
    store(tmp_path, regular())
    log, size = reading_in(tmp_path), BLOCKS * 512
    assert log.block_format.block_size == 512
    opened.clear()
    assert len(list(log.changes_between(FILES * BLOCKS - 3, FILES * BLOCKS))) == 3
    assert opened[name(FILES)] - size < 512
    assert opened[name(FILES - 1)] < block_order.TAIL_SIZE + 512
    assert len(opened) == 2
    opened.clear()
    log.lives()
    assert not opened


def test_known_blocks_are_not_decoded(tmp_path: Path) -> None:
    store(tmp_path, regular())
    for after in (0, 1, BLOCKS - 1, BLOCKS, BLOCKS + 1, FILES * BLOCKS - 3, FILES * BLOCKS):
        found = reading_in(tmp_path)._occurrences_after(after)
        assert next(found).block.prologue.sequence in (after, after + 1)


@pytest.mark.parametrize("case", CASES)
def test_steps_over_every_fixture_give_what_whole_readings_give(case: str) -> None:
    steps_alike(reading_of(case))


def test_steps_over_logs_and_mutants_give_what_whole_readings_give(tmp_path: Path) -> None:
    for seed in range(LOGS):
        store(tmp_path / "log", written(seed))
        steps_alike(reading_in(tmp_path / "log"))
    for seed in range(MUTANTS):
        rng = random.Random(crc32(bytes([seed])))
        store(tmp_path / "log", mutant(written(seed % LOGS), rng))
        steps_alike(reading_in(tmp_path / "log"))


def _repeated(files: dict[str, bytes]) -> None:
    files[name(2)] = file_of(2, range(BLOCKS - 3, 2 * BLOCKS + 1))


def _damaged_edges(files: dict[str, bytes]) -> None:
    files[name(3)] = files[name(3)][:-600]
    files[name(5)] = bytes(512) + files[name(5)][512:]


def _other_serial(files: dict[str, bytes]) -> None:
    files[name(4)] = file_of(5, range(3 * BLOCKS + 1, 4 * BLOCKS + 1))


def _packed(files: dict[str, bytes]) -> None:
    for serial in (2, 3):
        files[name(serial) + ".gz"] = gzip.compress(files.pop(name(serial)))


def _without_one(files: dict[str, bytes]) -> None:
    del files[name(3)]


def _padded(files: dict[str, bytes]) -> None:
    files[name(3)] += bytes(512)
    files[name(4)] += bytes(block_order.TAIL_SIZE)


def _no_successor(files: dict[str, bytes]) -> None:
    files[name(FILES + 1)] = b""


@pytest.mark.parametrize(
    "change",
    [_repeated, _damaged_edges, _other_serial, _packed, _without_one, _padded, _no_successor],
)
def test_odd_files_are_read_as_by_whole_readings(
    change: Callable[[dict[str, bytes]], None], tmp_path: Path
) -> None:
    files = regular()
    change(files)
    store(tmp_path, files)
    log = reading_in(tmp_path)
    ends = (*range(0, FILES * BLOCKS + 1, BLOCKS), BLOCKS - 4, BLOCKS - 1, BLOCKS + 1)
    for after in ends:
        for until in (after + 2, FILES * BLOCKS):
            assert result(log.changes_between(after, until)) == whole(log, after, until)


def test_a_number_that_no_writer_gave_to_a_known_block_stops_no_later_step(tmp_path: Path) -> None:
    files = regular()
    files[name(1)] = file_of(1, [1, 2, 9999, *range(4, BLOCKS + 1)])
    store(tmp_path, files)
    log = reading_in(tmp_path)
    assert "found block 9999" in str(result(log.changes_between(2, 9999))[-1])
    read = log.changes_between(3 * BLOCKS, 4 * BLOCKS)
    assert [one.commit_sequence for one in read] == [*range(3 * BLOCKS + 1, 4 * BLOCKS + 1)]
