"""A backup of an open log is the log of one moment, whatever happens to it meanwhile."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tallystick
from tallystick.errors import (
    CorruptLogError,
    LogFullError,
    LogLockedError,
    LogUnreadableError,
    LogWriteError,
    TallystickError,
)
from tallystick.records import Answer
from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.format.layout import CONTROL_NAME, segment_name
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.salvage import salvage
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing import (
    CHANGES,
    READS,
    CrashState,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    RecordingFileSystem,
    every_fault,
)
from tests.systems.tally.build import FOLDER, TINY, reading, say
from tests.systems.tally.script import Script, live_of, recover, short_script

TARGET = "/copy"
SMALL = Settings(segment_size=32 << 10, preallocate=False, idle_mark_s=None)


def _opened(fs: FileSystem, folder: str = TARGET) -> Any:
    """Live records of a journal, and the bodies of all plain ones."""
    with Journal(folder, fs=fs, settings=TINY) as journal:
        return live_of(journal), [one.body for one in journal.replay()]


# -- what is copied -----------------------------------------------------------------------------


def test_a_backup_opens_as_the_log_of_its_moment(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with Journal(tmp_path / "log", settings=SMALL) as journal:
        journal.append_many([bytes([number]) * 900 for number in range(100)])
        journal.add(7, b"live")
        before = [one.body for one in journal.replay()]
        journal.backup(tmp_path / "copy", progress=lambda *pair: told.append(pair))
        lsn = journal.append(b"later")
    assert told[-1][0] == told[-1][1] > 90_000
    assert tallystick.explain(tmp_path / "copy").logs[0].judgement.reason == "durable-mark"
    with Journal(tmp_path / "copy", settings=SMALL) as copy:
        assert [one.body for one in copy.replay()] == before
        assert [one.body for one in copy.live_records()] == [b"live"]
        assert copy.append(b"its own way") == lsn
    with Journal(tmp_path / "log", settings=SMALL) as journal:
        assert [one.body for one in journal.replay()] == [*before, b"later"]


@pytest.mark.parametrize("settings", [{"compression": "zlib"}, {"sector_size": 4096}])
def test_empty_encrypted_and_packed_logs_are_copied(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    own = replace(SMALL, **settings)
    key = b"k" * 32
    with Journal(tmp_path / "log", settings=own, key=lambda: key) as journal:
        journal.backup(tmp_path / "empty")
        journal.append_many([b"x" * 3000] * 50)
        journal.backup(tmp_path / "full")
    for name, count in (("empty", 0), ("full", 50)):
        with Journal(tmp_path / name, settings=own, key=lambda: key) as copy:
            assert len(list(copy.replay())) == count


def test_prepared_and_open_transactions_come_along(tmp_path: Path) -> None:
    with Journal(tmp_path / "log", settings=SMALL) as journal:
        tx, prepared = journal.transaction(), journal.transaction()
        tx.add(1, b"open")
        prepared.add(2, b"prepared")
        prepared.prepare()
        journal.backup(tmp_path / "copy")
        tx.commit()
    with Journal(tmp_path / "copy", settings=SMALL) as copy:
        assert [one.records[0].body for one in copy.prepared()] == [b"prepared"]
        assert list(copy.live_records()) == []


# -- meanwhile ----------------------------------------------------------------------------------


@pytest.mark.parametrize("recycle", [True, False])
def test_no_segment_is_given_up_meanwhile_and_all_are_free_afterwards(
    tmp_path: Path, recycle: bool
) -> None:
    log = TallyLog(str(tmp_path / "log"), settings=replace(SMALL, recycle=recycle))
    for number in range(60):
        log.append(b"%d" % number + bytes(2000)).wait()
    freed: list[int] = []

    def meanwhile(*_: int) -> None:
        log.append(b"meanwhile" + bytes(9000)).wait()
        freed.extend(log.reclaim(log.next_lsn))

    log.backup(str(tmp_path / "copy"), meanwhile)
    assert freed == []
    assert log.reclaim(log.next_lsn)[0] == 1
    log.close()
    found = [one.body or b"" for one in tallystick.scan(tmp_path / "copy")]
    assert [int(body.rstrip(b"\0")) for body in found] == list(range(60))


def test_writers_and_checkpoints_at_work_do_not_tear_a_backup(tmp_path: Path) -> None:
    stop = threading.Event()
    journal = Journal(tmp_path / "log", settings=SMALL)

    def work(thread: int) -> None:
        number = 0
        while not stop.is_set():
            journal.append(b"%d %d " % (thread, number) + bytes(number * 7 % 1500))
            number += 1
            if number % 50 == 0:
                journal.checkpoint()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(8):
            time.sleep(0.03)
            before = journal.next_lsn
            journal.backup(tmp_path / f"copy{number}")
            after = journal.next_lsn
            answer = tallystick.explain(tmp_path / f"copy{number}")
            assert answer.exit_code == 0, answer.to_dict()
            with Journal(tmp_path / f"copy{number}", settings=SMALL) as copy:
                assert before <= copy.next_lsn <= after
                lsns = [one.sequence or 0 for one in copy.replay()]
                assert lsns == list(range(copy.next_lsn - len(lsns), copy.next_lsn))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        journal.close()


# -- crashes ------------------------------------------------------------------------------------


def _run() -> tuple[RecordingFileSystem, Any]:
    """A recorded run in whose middle a backup is made, and what the backup must hold."""
    fs = RecordingFileSystem()
    script = Script(Journal(FOLDER, fs=fs, settings=TINY), fs.submitted, fs.acknowledged)
    short_script(script)
    journal, copied = script.journal, script.models[-1]
    plain = [one.body for one in journal.replay()]
    fs.submitted("backup")
    journal.backup(TARGET, progress=lambda *_: journal.append(b"meanwhile"))
    fs.acknowledged("backup")
    journal.append(b"after")
    journal.close()
    return fs, (copied, plain)


def _check(state: CrashState, expected: Any, live: Any) -> str:
    """Open log and copy of a crash state; return what the copy is: whole, refused, absent."""
    assert recover(state.fs()) == live, state.describe()
    done = "backup" in state.acknowledged
    fs = state.fs()
    if not [name for name in fs.list(TARGET) if name in (CONTROL_NAME,) or name[0].isdigit()]:
        assert not done, state.describe()
        return "absent"
    found: list[Any] = []
    if (error := _error_of(lambda: found.append(_opened(fs)))) is None:
        assert found == [expected], state.describe()
        return "whole"
    assert "backup was never finished" in str(error), state.describe()
    assert not done, state.describe()
    assert reading(state.fs(), folder=TARGET).judgement.answer is Answer.REFUSES
    return "refused"


@pytest.mark.long
@pytest.mark.parametrize("limit", [12, pytest.param(200, marks=pytest.mark.soak)])
def test_a_crash_leaves_the_log_unharmed_and_a_copy_that_is_whole_or_refused(
    limit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    fs, expected = _run()
    counts = {"whole": 0, "refused": 0, "absent": 0}
    for state in fs.crash_states(limit=limit):
        if "backup" in state.submitted:
            counts[_check(state, expected, expected[0])] += 1
    say(capsys, f"journal backup: crash states by what the copy is: {counts}")
    assert all(counts.values())


def _error_of(action: Callable[[], object]) -> TallystickError | None:
    try:
        action()
    except TallystickError as error:
        return error
    return None


@pytest.mark.parametrize("calls", [CHANGES, READS], ids=["changes", "reads"])
def test_each_failing_call_leaves_the_log_working_and_no_copy_that_opens_in_part(
    calls: frozenset[str], capsys: pytest.CaptureFixture[str]
) -> None:
    failed = 0
    for faulty in every_fault(MemoryFileSystem, lambda nth: Fault(nth, calls)):
        log = TallyLog(FOLDER, fs=faulty.inner, settings=TINY)
        for _ in range(40):
            log.append(bytes(900)).wait()
        log.fs = faulty  # only what the backup does can fail
        error = _error_of(partial(log.backup, TARGET))
        failed += error is not None
        assert isinstance(error, None | LogWriteError | LogUnreadableError | CorruptLogError)
        left = [name for name in faulty.inner.list(TARGET) if not name.endswith(".new")]
        refusal = _error_of(partial(_opened, faulty.inner)) if left else error
        if refusal is None:  # also where only the last sync of its folder failed
            assert len(_opened(faulty.inner)[1]) == 40
        elif left:
            assert "never finished" in str(refusal)
        log.append(b"goes on").wait()
        log.close()
    say(capsys, f"journal backup: {failed} failing calls")
    assert failed > 5


# -- targets and damage -------------------------------------------------------------------------


def test_a_target_that_is_not_empty_or_taken_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "log", settings=SMALL) as journal:
        journal.append(b"x")
        (tmp_path / "full").mkdir()
        (tmp_path / "full/mine").write_text("keep")
        monkeypatch.chdir(tmp_path / "full")
        for target in (tmp_path / "full", tmp_path / "log", Path()):
            before = sorted(path.name for path in target.iterdir())
            with pytest.raises(LogWriteError, match=r"absent or empty|inside the log"):
                journal.backup(target)
            assert sorted(path.name for path in target.iterdir()) == before
        with pytest.raises(ValueError, match="a path is empty"):
            journal.backup("")
        inner: list[Exception] = []

        def again(*_: int) -> None:
            with pytest.raises(LogWriteError) as caught:
                journal.backup(tmp_path / "copy")
            inner.append(caught.value)

        journal.backup(tmp_path / "copy", progress=again)
        with pytest.raises(LogWriteError):
            journal.backup(tmp_path / "copy")
    assert inner


def test_a_copy_cannot_be_opened_while_it_is_made(tmp_path: Path) -> None:
    def peek(*_: int) -> None:
        with pytest.raises(LogLockedError):
            Journal(tmp_path / "copy")

    with Journal(tmp_path / "log", settings=SMALL) as journal:
        journal.append(b"x")
        journal.backup(tmp_path / "copy", progress=peek)


@pytest.mark.parametrize("kind", [Journal, PageStore])
@pytest.mark.parametrize("what", ["file", "link", "in a file"])
def test_a_target_that_is_no_folder_is_refused_and_not_to_be_removed(
    tmp_path: Path, kind: Any, what: str
) -> None:
    target = place = tmp_path / "target"
    if what == "link":
        place.symlink_to("nowhere")
    else:
        place.write_text("mine")
        target = place / "copy" if what == "in a file" else place
    with (
        kind(tmp_path / "log") as service,
        pytest.raises(LogWriteError, match="it is no folder") as caught,
    ):
        service.backup(target)
    assert "Remove" not in str(caught.value)
    assert "Choose another folder" in str(caught.value)
    assert place.is_symlink() or place.read_text() == "mine"


def test_a_progress_that_raises_ends_the_backup_which_is_then_refused(tmp_path: Path) -> None:
    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    with Journal(tmp_path / "log", settings=SMALL) as journal:
        journal.append_many([bytes(900)] * 100)
        with pytest.raises(KeyboardInterrupt):
            journal.backup(tmp_path / "copy", progress=stop)
        assert journal.checkpoint() > 1, "nothing is held any more"
    with pytest.raises(CorruptLogError, match="this backup was never finished") as caught:
        Journal(tmp_path / "copy")
    assert "Remove this folder and take another backup" in str(caught.value)
    assert "acknowledged" not in str(caught.value)
    report = salvage(str(tmp_path / "copy"), str(tmp_path / "salvaged"))
    assert [one.code for one in report.findings] == ["unfinished-backup"]
    answer = tallystick.explain(tmp_path / "copy")
    assert [one.judgement.answer for one in answer.logs] == [Answer.REFUSES]


def test_rot_in_the_log_is_told_and_the_copy_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "log", settings=SMALL) as journal:
        journal.append_many([bytes([number]) * 900 for number in range(100)])
        path = tmp_path / "log" / segment_name(2)
        content = bytearray(path.read_bytes())
        content[12_000] ^= 1
        path.write_bytes(content)
        with pytest.raises(CorruptLogError, match="does not hold the whole log") as caught:
            journal.backup(tmp_path / "copy")
        assert segment_name(2) in str(caught.value) or "acknowledged record" in str(caught.value)
    with pytest.raises(CorruptLogError, match="never finished"):
        Journal(tmp_path / "copy")


def test_a_full_disk_is_told_as_that() -> None:
    memory = MemoryFileSystem()
    log = TallyLog(FOLDER, fs=memory, settings=TINY)
    log.fs = FaultyFileSystem(memory, Fault(3, {"pwrite"}, errno.ENOSPC, lasting=True))
    with pytest.raises(LogFullError, match="No space left"):
        log.backup(TARGET)
    log.append(b"goes on").wait()
    log.close()
