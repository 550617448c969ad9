"""What the findings advise can be done: salvage of a log whose control block is gone."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError, LogFullError, LogUnreadableError
from tallystick.storage.local import LOCAL
from tallystick.systems.tally import SYSTEM
from tallystick.systems.tally.format.layout import CONTROL_NAME, DATA_OFFSET, segment_name
from tallystick.systems.tally.format.sealing import KeyMissingError, WrongKeyError
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.persist_log import TallyPersistLog
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.salvage import salvage
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.files import read_folder
from tallystick.testing import Fault, FaultyFileSystem, MemoryFileSystem
from tests.roles.contract_undo_redo_log import recovered
from tests.systems.tally.build import TINY

BODIES = [b"one", b"two", b"three"]


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_log_without_control_block_is_refused_and_can_be_salvaged(
    tmp_path: Path, how: str
) -> None:
    source, target = tmp_path / "log", tmp_path / "new"
    with TallyLog(str(source)) as log:
        for body in BODIES:
            log.append_durably(body)
    control = source / CONTROL_NAME
    if how == "missing":
        control.unlink()
    else:
        control.write_bytes(bytes(control.stat().st_size))
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    with pytest.raises(CorruptLogError, match="control block"):
        TallyLog(str(source))
    target.mkdir()
    report = salvage(str(source), str(target))
    assert (report.records, report.lost) == (len(BODIES), 0)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    with TallyLog(str(target)):
        pass
    (finding,) = read_folder(LOCAL, str(source))[0].findings
    assert finding.code == "corrupt-control"
    assert finding.advice == SYSTEM.code_table["corrupt-control"].advice
    assert "tallystick salvage LOG" in (finding.advice or "")


@pytest.mark.parametrize(
    "damaged", [range(DATA_OFFSET), range(DATA_OFFSET, DATA_OFFSET + 64)], ids=["header", "group"]
)
def test_what_has_lost_its_control_block_is_not_begun_anew_over_records(
    damaged: range, tmp_path: Path
) -> None:
    with TallyLog(str(tmp_path), settings=TINY) as log:
        log.append_durably(b"one")
    (tmp_path / CONTROL_NAME).unlink()
    segment = tmp_path / segment_name(1)
    data = bytearray(segment.read_bytes())
    data[damaged.start : damaged.stop] = bytes(len(damaged))
    segment.write_bytes(data)
    with pytest.raises((CorruptLogError, LogUnreadableError)):
        TallyLog(str(tmp_path), settings=TINY)
    assert segment.read_bytes() == data


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_what_cannot_be_decrypted_is_not_salvaged_as_an_empty_log(
    tmp_path: Path, key: bytes | None
) -> None:
    with TallyLog(str(tmp_path / "log"), key=lambda: b"k" * 32) as log:
        log.append_durably(b"one")
    provider = None if key is None else lambda: key
    with pytest.raises((KeyMissingError, WrongKeyError)):
        salvage(str(tmp_path / "log"), str(tmp_path / "new"), key=provider)


def test_a_number_of_which_records_are_missing_is_rolled_back_that_once(tmp_path: Path) -> None:
    log = TallyUndoRedoLog(str(tmp_path / "log"))
    for row in (b"first", b"missing", b"third", b"last"):
        log.log_row(3, 16, row[0], row)
        log.flush().wait()
        log.commit(3).wait()
    log.close()
    (segment,) = (path for path in (tmp_path / "log").iterdir() if b"missing" in path.read_bytes())
    segment.write_bytes(segment.read_bytes().replace(b"missing", b"Missing"))
    report = salvage(str(tmp_path / "log"), str(tmp_path / "new"))
    assert (report.lost, report.rolled_back) == (1, [3])
    again = TallyUndoRedoLog(str(tmp_path / "new"))
    assert sorted(recovered(again).rows.values()) == [b"first", b"last", b"third"]
    again.close()


def test_a_salvage_onto_a_disk_that_is_full_for_a_while_says_so() -> None:
    fs, settings = MemoryFileSystem(), Settings(segment_size=4 << 20, preallocate=False)
    with TallyLog("/log", settings=settings, fs=fs) as log:
        for _ in range(91):  # so many that some are written before all were handed over
            log.append(bytes(100_000))
        for _ in range(5):  # for which there is room in the last segment
            log.append(b"small")
    full = FaultyFileSystem(fs, Fault(3, {"create"}, errno.ENOSPC, lasting=True))
    with pytest.raises(LogFullError):
        salvage("/log", "/new", settings=settings, fs=full)


def test_numbers_that_were_given_are_not_given_again_after_a_salvage(tmp_path: Path) -> None:
    log = TallyPersistLog(str(tmp_path / "log"))
    number, ticket = log.persisting(["target"], [])
    ticket.wait()
    log.persisted(number, ["target"])
    log.roll()
    log.log.reclaim()
    log.close()
    salvage(str(tmp_path / "log"), str(tmp_path / "new"))
    again = TallyPersistLog(str(tmp_path / "new"))
    assert again.last_number == number
    again.close()


def test_what_a_checkpoint_has_given_up_stays_so_in_a_salvaged_log(tmp_path: Path) -> None:
    log = TallyUndoRedoLog(str(tmp_path / "log"))
    log.add_undo(1, b"before the checkpoint")
    log.commit_rows(1, {(16, 1): b"old"})
    log.remove_until(log.checkpoint(7))
    log.add_undo(1, b"after it")
    log.commit_rows(1, {(16, 2): b"new"})
    log.close()
    report = salvage(str(tmp_path / "log"), str(tmp_path / "new"))
    logs = [TallyUndoRedoLog(str(tmp_path / name)) for name in ("log", "new")]
    before, after = map(recovered, logs)
    assert (after.pages, after.rows) == (before.pages, before.rows)
    assert [one.marks() for one in logs] == [[7], [7]]
    assert report.records == logs[1].log.next_lsn - 1
    for one in logs:
        one.close()
