"""The mark: files that are gone, emptied or exchanged at either end of the log are missed."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError
from tallystick.reading import explain
from tallystick.records import Answer
from tallystick.storage.crc import crc32
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.cloudtran.format.high_water_mark import (
    HighWaterMark,
    decode_mark,
    encode_mark,
)
from tallystick.systems.cloudtran.live.high_water_mark import read_mark
from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.testing import Fault, FaultyFileSystem, MemoryFileSystem

MARK = "log.mark"

Damage = Callable[[Path], object]


def opened(
    folder: Path | str, on_damage: str = "stop", *, zap: bool = False, fs: FileSystem = LOCAL
) -> BlockLog:
    chosen = LogSettings(
        disk_block_size=512,
        on_incomplete="replay",
        file_base_name="log",
        on_damage=on_damage,
        zap_log_files=zap,
        zap_log_files_confirmed=zap,
    )
    return BlockLog(str(folder), chosen, disposer=None, fs=fs)


def write(log: BlockLog, count: int = 1) -> list[int]:
    """Write as many transactions, each in a block of its own; return their numbers."""
    found = []
    for _ in range(count):
        number, ticket = log.persisting(["a"], [])
        ticket.wait()
        found.append(number)
    return found


def log_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ctlog"))


def numbers(log: BlockLog) -> list[int]:
    return [entry.number for entry, _ in log.pending()]


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A log of three files, each with transactions that are pending."""
    folder = tmp_path / "log"
    for _ in range(3):
        with opened(folder) as log:
            write(log, 2)
    return folder


@pytest.fixture
def left(closed: Path, tmp_path: Path) -> Path:
    """The same, and one more file, of an owner that was killed after its first commit."""
    with opened(closed) as log:
        write(log)
        shutil.copytree(closed, tmp_path / "left")
    return tmp_path / "left"


def first(change: Damage) -> Damage:
    return lambda folder: change(log_files(folder)[0])


def last(change: Damage) -> Damage:
    return lambda folder: change(log_files(folder)[-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def last_block_zeroed(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-512] + bytes(512))


def last_block_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-512])


def other_over(path: Path) -> None:
    """Put the neighbour of a file in its place."""
    files = log_files(path.parent)
    shutil.copyfile(files[1 if path == files[0] else -2], path)


ANY_END: dict[str, Damage] = {
    "gone": Path.unlink,
    "emptied": emptied,
    "zeroed": zeroed,
    "exchanged": other_over,
}


@pytest.mark.parametrize("change", ANY_END.values(), ids=ANY_END)
@pytest.mark.parametrize("end", [first, last])
@pytest.mark.parametrize("state", ["closed", "left"])
def test_a_file_that_is_lost_at_an_end_is_missed(
    request: pytest.FixtureRequest, state: str, end: Callable[[Damage], Damage], change: Damage
) -> None:
    folder: Path = request.getfixturevalue(state)
    end(change)(folder)
    (log,) = explain(folder).logs
    assert log.judgement.answer is Answer.REFUSES, log.judgement
    with pytest.raises(CorruptLogError, match="acknowledged blocks are lost"):
        opened(folder)


@pytest.mark.parametrize("change", [last_block_zeroed, last_block_cut])
def test_a_log_that_was_closed_misses_its_last_block(closed: Path, change: Damage) -> None:
    last(change)(closed)
    assert explain(closed).logs[0].judgement.answer is Answer.REFUSES
    with pytest.raises(CorruptLogError, match="lost-at-end"):
        opened(closed)


def test_all_files_lost_are_missed_although_no_log_is_left(closed: Path) -> None:
    for path in log_files(closed):
        path.unlink()
    with pytest.raises(CorruptLogError, match="lost-at-end"):
        opened(closed)


@pytest.mark.parametrize("change", [first(Path.unlink), last(Path.unlink)])
def test_an_operator_may_go_on_without_what_is_lost(closed: Path, change: Damage) -> None:
    change(closed)
    with opened(closed, "report") as log:
        assert len(numbers(log)) == 4
        assert log.judgement.answer is not Answer.SAFE
        (more,) = write(log)
    with opened(closed, "report") as log:
        assert more in numbers(log)


def test_files_that_were_offered_for_disposal_are_not_missed(closed: Path, tmp_path: Path) -> None:
    with opened(closed) as log:
        log.persisted_all(numbers(log)[:4], ["a"])
        log.sync().wait()
        offered = log.disposable()
        assert len(offered) == 2
        shutil.copytree(closed, tmp_path / "left")
    for gone in range(3):  # by a disposer that was killed in between
        folder = tmp_path / str(gone)
        shutil.copytree(tmp_path / "left", folder)
        for path in log_files(folder)[:gone]:
            path.unlink()
        assert explain(folder).logs[0].judgement.answer is Answer.SAFE
        with opened(folder) as log:
            assert len(numbers(log)) == 2
            assert log.judgement.answer is Answer.SAFE
        for path in log_files(folder)[: 2 - gone]:  # by one that works later, on its own
            path.unlink()
        with opened(folder) as log:
            assert len(numbers(log)) == 2


def test_a_log_whose_files_are_all_disposed_of_is_safe(closed: Path) -> None:
    with opened(closed) as log:
        log.persisted_all(numbers(log), ["a"])
    with opened(closed) as log:
        offered = log.disposable()
        assert len(offered) == 4
        for path in offered:
            Path(path).unlink()
            log.disposed(path)
    assert not log_files(closed)
    with opened(closed) as log:
        assert log.judgement.answer is Answer.SAFE
        write(log)
    with opened(closed) as log:
        assert len(numbers(log)) == 1


def test_no_file_may_go_if_the_mark_cannot_be_written() -> None:
    disk = MemoryFileSystem()
    with opened("/log", fs=disk) as log:
        log.persisted_all(write(log, 3), ["a"])
    faulty = FaultyFileSystem(disk)
    with opened("/log", fs=faulty) as log:
        faulty.fault = Fault(1, frozenset({"create"}), error=errno.ENOSPC, lasting=True)
        assert log.disposable() == []
        faulty.fault = None
        assert len(log.disposable()) == 1


def test_a_commit_does_not_fail_because_the_mark_cannot_be_written() -> None:
    disk = MemoryFileSystem()
    faulty = FaultyFileSystem(disk)
    with opened("/log", fs=faulty) as log:
        faulty.fault = Fault(1, frozenset({"rename"}))
        write(log, 2)
        assert faulty.struck
        assert read_mark(disk, "/log", "log").sequence == 0
    assert read_mark(disk, "/log", "log") == HighWaterMark(1, 3, 0, 1)


def test_zapping_leaves_nothing_to_be_missed(closed: Path) -> None:
    opened(closed, zap=True).close()
    with opened(closed) as log:
        assert not numbers(log)


@pytest.mark.parametrize("killed", [False, True])
def test_zapping_uses_no_number_again(tmp_path: Path, killed: bool) -> None:
    folder, copy = tmp_path / "log", tmp_path / "copy"
    with opened(folder) as log:
        before = write(log, 3)
        shutil.copytree(folder, copy)
    place = copy if killed else folder
    with opened(place, zap=True) as log:
        assert not numbers(log)
        assert write(log) == [max(before) + 1]
    with opened(place) as log:
        assert numbers(log) == [max(before) + 1]
        assert read_mark(LOCAL, str(place), "log").sequence >= 4


def test_a_mark_of_an_earlier_version_misses_nothing(closed: Path) -> None:
    (closed / MARK).write_bytes(_old_mark(3, 9, 6))
    log_files(closed)[0].unlink()
    assert explain(closed).logs[0].judgement.answer is Answer.SAFE
    with opened(closed) as log:
        assert len(numbers(log)) == 4
    log_files(closed)[0].unlink()
    with pytest.raises(CorruptLogError):
        opened(closed)


def _old_mark(serial: int, sequence: int, number: int) -> bytes:
    text = f"serial {serial} sequence {sequence} number {number} ".encode()
    return text + f"{crc32(text):08x}\n".encode()


def test_without_its_mark_a_log_says_no_more_than_its_files(closed: Path) -> None:
    (closed / MARK).unlink()
    log_files(closed)[0].unlink()
    (log,) = explain(closed).logs
    assert (log.judgement.answer, log.judgement.reason) == (Answer.SAFE, "closing-block")


@pytest.mark.parametrize("change", [first(other_over), last(other_over)])
def test_without_its_mark_a_file_in_place_of_another_is_not_safe(
    closed: Path, change: Damage
) -> None:
    (closed / MARK).unlink()
    change(closed)
    assert explain(closed).logs[0].judgement.answer is not Answer.SAFE


@pytest.mark.parametrize("content", [b"", b"x", b"serial 1 sequence 1 number 1 kept 1 00000000\n"])
def test_a_damaged_mark_is_told(closed: Path, content: bytes) -> None:
    (closed / MARK).write_bytes(content)
    assert explain(closed).logs[0].judgement.reason == "mark-damaged"
    with pytest.raises(CorruptLogError, match="mark of used numbers"):
        opened(closed)


@pytest.mark.parametrize("mark", [HighWaterMark(), HighWaterMark(1, 2**64, 3, 4)])
def test_line_is_decoded_as_it_was_encoded(mark: HighWaterMark) -> None:
    line = encode_mark(mark)
    assert decode_mark(line) == mark
    for at in range(len(line) - 1):
        assert decode_mark(line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]) is None
        assert decode_mark(line[:at]) is None


def test_a_number_is_not_given_again_when_the_file_that_had_it_is_gone() -> None:
    fs = MemoryFileSystem()
    with opened("/log", fs=fs) as log:
        assert write(log, 3) == [1, 2, 3]
        log.persisted_all((2, 3), ["a"])
        log.sync().wait()
        log._writer._series._roll()
        log.persisted(1, ["a"])
        log.sync().wait()
        for path in log.disposable():
            fs.remove(path)
            log.disposed(path)
        assert log.last_number == 3
    with opened("/log", fs=fs) as log:
        assert log.last_number == 3
        assert write(log) == [4]
