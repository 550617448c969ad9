"""What every undo/redo log must do, whatever system it stands on.

Derive a test class from `UndoRedoLogContract` and give it `open_log`.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import (
    LogClosedError,
    LogLockedError,
    TallystickError,
    TransactionUsageError,
)
from tallystick.roles import UndoRedoLog
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.testing import (
    CrashState,
    FaultyFileSystem,
    MemoryFileSystem,
    RecordingFileSystem,
)
from tests.roles.durability import SurvivalContract, becomes_done_by_start_flush

FOLDER = "/log"
TABLE = 16


@dataclass
class Store:
    """What recovery makes of a store: pages put back, rows of tables."""

    pages: dict[int, bytes | None] = field(default_factory=dict)
    rows: dict[tuple[int, int], bytes] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def undo_page(self, page: int, image: bytes | None) -> None:
        self.calls.append("undo")
        self.pages[page] = image

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        self.calls.append("redo")
        self.rows[table, key] = row

    def redo_remove(self, table: int, key: int) -> None:
        self.calls.append("redo")
        self.rows.pop((table, key), None)

    def redo_truncate(self, table: int) -> None:
        self.calls.append("redo")
        self.rows = {place: row for place, row in self.rows.items() if place[0] != table}


def recovered(log: UndoRedoLog) -> Store:
    """What a recovery of this log gives."""
    store = Store()
    log.recover(store)
    return store


class UndoRedoLogContract(SurvivalContract):
    """The contract; each test opens logs below a folder of its own."""

    page_size = 512

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> UndoRedoLog:
        """A log with small files, opened or created in ``folder``."""
        raise NotImplementedError

    def _image(self, letter: bytes) -> bytes:
        return letter * self.page_size

    def _reopened(self, log: UndoRedoLog, folder: Path) -> UndoRedoLog:
        log.close()
        return self.open_log(str(folder / "log"))

    # -- rows ------------------------------------------------------------------------------

    def test_committed_rows_are_redone_and_others_are_not(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.log_row(7, TABLE, 1, b"one")
        log.log_row(8, TABLE, 2, b"never")
        log.log_row(7, TABLE, -3, b"")
        log.log_row(7, TABLE, 1, None)
        log.log_row(7, TABLE, 1, b"again" * 100)
        log.commit(7).wait()
        log = self._reopened(log, tmp_path)
        assert recovered(log).rows == {(TABLE, 1): b"again" * 100, (TABLE, -3): b""}
        log.close()

    def test_commit_is_durable_by_start_flush_alone(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.log_row(7, TABLE, 1, b"one")
        assert becomes_done_by_start_flush(log.commit(7))
        log.close()

    def test_rows_logged_together_are_as_if_logged_one_by_one(self, tmp_path: Path) -> None:
        rows: dict[tuple[int, int], bytes | None] = {(TABLE, 2): b"two", (TABLE + 1, -9): b""}
        rows |= {(TABLE, 1): None, (TABLE, 3): b"long" * 500, (TABLE, 4): b"last"}
        log = self.open_log(str(tmp_path / "log"))
        log.log_row(7, TABLE, 1, b"one")
        log.log_rows(7, rows)
        log.log_rows(8, {(TABLE, 2): b"never"})
        log.log_rows(7, {})
        log.commit(7).wait()
        log = self._reopened(log, tmp_path)
        assert recovered(log).rows == {place: row for place, row in rows.items() if row is not None}
        log.close()

    def test_rows_committed_together_are_as_if_logged_one_by_one(self, tmp_path: Path) -> None:
        rows: dict[tuple[int, int], bytes | None] = {(TABLE, 2): b"two", (TABLE + 1, -9): b""}
        rows |= {(TABLE, 1): None, (TABLE, 3): b"long" * 500, (TABLE, 4): b"last"}
        log = self.open_log(str(tmp_path / "log"))
        log.commit_rows(6, {(TABLE, 1): b"one", (TABLE, 5): b"five"})
        log.commit_rows(6, {})
        log.log_row(8, TABLE, 2, b"never")
        log.log_row(7, TABLE, 5, None)
        log.commit_rows(7, rows)
        large = {(TABLE + 2, key): bytes([key]) * 900 for key in range(100)}
        log.commit_rows(9, large)
        log = self._reopened(log, tmp_path)
        expected = {place: row for place, row in rows.items() if row is not None} | large
        assert recovered(log).rows == expected
        log.close()

    def test_rows_committed_by_threads_at_once_are_all_redone(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))

        def run(session: int) -> None:
            for step in range(20):
                rows = {(TABLE, session * 100 + step): b"%d" % step, (TABLE, session): b"s"}
                log.commit_rows(session, {**rows, (TABLE, session * 100 + step - 1): None})

        threads = [threading.Thread(target=run, args=(number,)) for number in range(3, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log = self._reopened(log, tmp_path)
        last = {(TABLE, session * 100 + 19): b"19" for session in range(3, 9)}
        assert recovered(log).rows == last | {(TABLE, session): b"s" for session in range(3, 9)}
        log.close()

    def test_rows_longer_than_a_group_are_one_transaction(self, tmp_path: Path) -> None:
        rows = {(TABLE, key): bytes([key]) * 900 for key in range(100)}
        log = self.open_log(str(tmp_path / "log"))
        log.log_rows(7, rows)
        log.prepare_commit(7, "all").wait()
        log = self._reopened(log, tmp_path)
        assert not recovered(log).rows
        log.settle("all", commit=True).wait()
        log = self._reopened(log, tmp_path)
        assert recovered(log).rows == rows
        log.close()

    def test_truncate_empties_its_own_table(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        for table in (TABLE, TABLE + 1):
            log.log_row(7, table, 1, b"x")
        log.log_truncate(7, TABLE)
        log.log_row(7, TABLE, 2, b"y")
        log.commit(7).wait()
        log = self._reopened(log, tmp_path)
        assert recovered(log).rows == {(TABLE + 1, 1): b"x", (TABLE, 2): b"y"}
        log.close()

    def test_session_number_is_free_again_after_rollback(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.log_row(7, TABLE, 1, b"given up")
        log.rollback(7).wait()
        log.log_row(7, TABLE, 2, b"kept")
        log.commit(7).wait()
        log = self._reopened(log, tmp_path)
        assert recovered(log).rows == {(TABLE, 2): b"kept"}
        log.close()

    def test_work_open_at_a_crash_does_not_commit_with_later_work(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.log_row(7, TABLE, 1, b"open")
        log.flush().wait()
        log = self._reopened(log, tmp_path)
        log.log_row(7, TABLE, 2, b"later")
        log.commit(7).wait()
        log = self._reopened(log, tmp_path)
        assert recovered(log).rows == {(TABLE, 2): b"later"}
        log.close()

    def test_threads_share_the_log(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))

        def work(session: int) -> None:
            for number in range(20):
                log.log_row(session, TABLE, session * 100 + number, b"%d" % number)
                log.commit(session).wait()

        threads = [threading.Thread(target=work, args=(session,)) for session in range(3, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log = self._reopened(log, tmp_path)
        assert len(recovered(log).rows) == 6 * 20
        log.close()

    # -- pages and sections ----------------------------------------------------------------

    def test_first_image_of_a_page_wins_over_all_kept_sections(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.add_undo(9, self._image(b"a"))
        log.add_undo(10, None)
        log.add_undo(9, self._image(b"b"))
        assert log.has_undo(9)
        assert not log.has_undo(11)
        log.checkpoint()
        assert not log.has_undo(9)
        log.add_undo(9, self._image(b"c"))
        log.flush().wait()
        log = self._reopened(log, tmp_path)
        assert recovered(log).pages == {9: self._image(b"a"), 10: None}
        log.close()

    def test_removed_sections_are_forgotten_and_later_ones_are_not(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        for number in range(60):
            log.add_undo(number, random.Random(number).randbytes(self.page_size))
            log.log_row(3, TABLE, number, b"before")
            log.commit(3).wait()
        section = log.checkpoint()
        log.add_undo(9, self._image(b"n"))
        log.log_row(3, TABLE, 1, b"after")
        log.commit(3).wait()
        log.remove_until(section)
        log.log_row(3, TABLE, 2, b"last")
        log.commit(3).wait()
        log = self._reopened(log, tmp_path)
        store = recovered(log)
        assert store.pages[9] == self._image(b"n")
        assert store.rows == {(TABLE, 1): b"after", (TABLE, 2): b"last"}
        log.close()

    def test_sections_with_rows_of_an_open_session_stay(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.log_row(4, TABLE, 3, b"committed")
        log.commit(4).wait()
        log.log_row(3, TABLE, 1, b"open")
        log.remove_until(log.checkpoint())
        log.log_row(4, TABLE, 2, b"after")
        log.commit(4).wait()
        log.remove_until(log.checkpoint())
        log.commit(3).wait()
        log = self._reopened(log, tmp_path)
        rows = recovered(log).rows
        assert (rows[TABLE, 1], rows[TABLE, 2]) == (b"open", b"after")
        log.close()

    def test_section_ids_grow(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        sections = [log.checkpoint() for _ in range(4)]
        assert sections == sorted(set(sections))
        log.close()

    def test_log_stays_small_when_sections_go(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        sizes = []
        for round_ in range(12):
            for number in range(20):
                log.add_undo(number, random.Random(number + round_).randbytes(self.page_size))
                log.log_row(3, TABLE, number, b"x" * 100)
                log.commit(3).wait()
            log.remove_until(log.checkpoint())
            sizes.append(sum(file.stat().st_size for file in (tmp_path / "log").iterdir()))
        assert sizes[-1] <= 2 * max(sizes[:4])
        log.close()

    def test_recovery_undoes_before_it_redoes_and_may_be_repeated(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.log_row(3, TABLE, 1, b"x")
        log.add_undo(5, self._image(b"p"))
        log.commit(3).wait()
        log = self._reopened(log, tmp_path)
        first, second = recovered(log), recovered(log)
        assert first == second
        assert first.calls == ["undo", "redo"]
        log.close()

    def test_log_goes_on_after_recovery(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        for round_ in range(4):
            log.log_row(3, TABLE, round_, b"x")
            log.commit(3).wait()
            log = self._reopened(log, tmp_path)
            assert len(recovered(log).rows) == round_ + 1
        log.remove_until(log.checkpoint())
        log = self._reopened(log, tmp_path)
        assert recovered(log).rows == {}
        log.close()

    # -- in doubt --------------------------------------------------------------------------

    def test_prepared_transactions_wait_over_restarts(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        for session, name in ((3, "one"), (4, "zwei é €"), (5, "three")):
            log.log_row(session, TABLE, session, b"x")
            log.prepare_commit(session, name).wait()
        for _ in range(2):
            log = self._reopened(log, tmp_path)
            assert sorted(one.name for one in log.in_doubt()) == ["one", "three", "zwei é €"]
            assert recovered(log).rows == {}
        log.close()

    @pytest.mark.parametrize("restart", [False, True])
    def test_settled_transactions_stay_settled(self, tmp_path: Path, restart: bool) -> None:
        log = self.open_log(str(tmp_path / "log"))
        for session, name in ((3, "yes"), (4, "no")):
            log.log_row(session, TABLE, session, b"x")
            log.prepare_commit(session, name).wait()
        if restart:
            log = self._reopened(log, tmp_path)
        log.settle("yes", commit=True).wait()
        log.settle("no", commit=False).wait()
        with pytest.raises(KeyError):
            log.settle("nobody", commit=True)
        assert not log.in_doubt()
        log = self._reopened(log, tmp_path)
        assert not log.in_doubt()
        assert recovered(log).rows == {(TABLE, 3): b"x"}
        log.close()

    def test_live_prepared_session_ends_by_commit_or_rollback(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        for session, name in ((3, "yes"), (4, "no")):
            log.log_row(session, TABLE, session, b"x")
            log.prepare_commit(session, name).wait()
        log.commit(3).wait()
        log.rollback(4).wait()
        log = self._reopened(log, tmp_path)
        assert not log.in_doubt()
        assert recovered(log).rows == {(TABLE, 3): b"x"}
        log.close()

    @pytest.mark.parametrize("at_once", [False, True])
    def test_session_with_the_number_of_one_in_doubt_decides_nothing_of_it(
        self, tmp_path: Path, at_once: bool
    ) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.log_row(3, TABLE, 1, b"in doubt")
        log.prepare_commit(3, "branch").wait()
        log = self._reopened(log, tmp_path)
        with contextlib.suppress(TransactionUsageError):  # or it has another number in the log
            if at_once:
                log.commit_rows(3, {(TABLE, 2): b"of another"})
            else:
                log.log_truncate(3, TABLE + 1)
                log.log_row(3, TABLE, 2, b"of another")
                log.commit(3).wait()
        with contextlib.suppress(TransactionUsageError):
            log.rollback(3).wait()
        for _ in range(2):
            assert [one.name for one in log.in_doubt()] == ["branch"]
            assert (TABLE, 1) not in recovered(log).rows
            log = self._reopened(log, tmp_path)
        log.settle("branch", commit=True).wait()
        assert recovered(log).rows[TABLE, 1] == b"in doubt"
        log.commit_rows(3, {(TABLE, 3): b"free again"})
        assert recovered(log).rows[TABLE, 3] == b"free again"
        log.close()

    def test_settled_session_of_this_run_commits_later_what_it_logs_later(
        self, tmp_path: Path
    ) -> None:
        log = self.open_log(str(tmp_path / "log"))
        for number, commit in enumerate((False, True)):
            log.log_row(3, TABLE, 10 * number, b"x")
            log.prepare_commit(3, "branch").wait()
            log.settle("branch", commit=commit).wait()
            log.log_row(3, TABLE, 10 * number + 1, b"later")
            log.commit(3).wait()
        assert recovered(log).rows.keys() == {(TABLE, 1), (TABLE, 10), (TABLE, 11)}
        log = self._reopened(log, tmp_path)
        assert recovered(log).rows.keys() == {(TABLE, 1), (TABLE, 10), (TABLE, 11)}
        log.close()

    def test_prepared_work_survives_the_dropping_of_sections(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.log_row(3, TABLE, 1, b"prepared")
        log.prepare_commit(3, "branch").wait()
        for number in range(60):
            log.log_row(4, TABLE, 100 + number, b"x" * 200)
            log.commit(4).wait()
        log.remove_until(log.checkpoint())
        log = self._reopened(log, tmp_path)
        log.settle("branch", commit=True).wait()
        assert recovered(log).rows[TABLE, 1] == b"prepared"
        log.close()

    # -- life ------------------------------------------------------------------------------

    def test_one_owner_at_a_time(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        with pytest.raises(LogLockedError):
            self.open_log(str(tmp_path / "log"))
        log.close()
        self.open_log(str(tmp_path / "log")).close()

    def test_closed_log_refuses(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.close()
        log.close()
        with pytest.raises(LogClosedError):
            log.commit(3)

    # -- crashes ---------------------------------------------------------------------------

    def test_every_crash_state_keeps_what_was_acknowledged(self) -> None:
        fs = RecordingFileSystem()
        self._run(fs, fs.submitted, fs.acknowledged)
        for state in fs.crash_states(limit=60, seed=7):
            self._check(state)

    def test_every_crash_of_a_reopened_log_keeps_what_was_acknowledged(self) -> None:
        before = RecordingFileSystem()
        self._run(before, before.submitted, before.acknowledged, close=False)
        fs = RecordingFileSystem(before.contents())
        for mark in _kept_marks(before):
            fs.submitted(mark)
            fs.acknowledged(mark)
        self.open_log(FOLDER, fs).close()
        for state in fs.crash_states(limit=40, seed=3):
            self._check(state)

    def _appender(self, folder: str) -> Callable[[int], object]:
        log = self.open_log(folder)

        def append(index: int) -> None:
            log.log_row(3, TABLE, index, b"row")
            log.commit(3).wait()

        return append

    def _items(self, folder: str) -> list[int]:
        log = self.open_log(folder)
        found = sorted(key for _, key in recovered(log).rows)
        log.close()
        return found

    def _run(
        self,
        fs: FileSystem,
        submitted: Callable[[Any], None],
        acknowledged: Callable[[Any], None],
        *,
        close: bool = True,
    ) -> None:
        log = self.open_log(FOLDER, fs)
        for number in range(10):
            log.add_undo(number % 4, self._image(b"%d" % (number % 10)))
            log.log_row(3, TABLE, number, b"row" * number)
            submitted(number)
            log.commit(3).wait()
            acknowledged(number)
        log.log_row(4, TABLE, 100, b"prepared")
        submitted("branch")
        log.prepare_commit(4, "branch").wait()
        acknowledged("branch")
        section = log.checkpoint()
        log.log_row(3, TABLE, 11, b"after")
        submitted(11)
        log.commit(3).wait()
        acknowledged(11)
        log.remove_until(section)
        submitted("settled")
        log.settle("branch", commit=True).wait()
        acknowledged("settled")
        if close:
            log.close()

    def _check(self, state: CrashState) -> None:
        self._check_marks(state.fs(), set(state.submitted), set(state.acknowledged))

    def _check_marks(self, fs: FileSystem, submitted: set[Any], acknowledged: set[Any]) -> None:
        log = self.open_log(FOLDER, fs)
        rows = {key for _, key in recovered(log).rows}
        doubtful = [one.name for one in log.in_doubt()]
        log.close()
        numbers = {mark for mark in submitted if isinstance(mark, int)}
        assert rows - {100} <= numbers
        assert {mark for mark in acknowledged if isinstance(mark, int)} <= rows
        assert doubtful in ([], ["branch"])
        if 100 in rows:
            assert "settled" in submitted
        if "branch" in acknowledged and "settled" not in submitted:
            assert doubtful == ["branch"]
        if "settled" in acknowledged:
            assert 100 in rows
            assert not doubtful

    def _run_until_error(self, faulty: FaultyFileSystem) -> None:
        tried: list[Any] = []
        sure: list[Any] = []
        with contextlib.suppress(TallystickError, OSError):
            self._run(faulty, tried.append, sure.append)
        assert isinstance(faulty.inner, MemoryFileSystem)
        self._check_marks(MemoryFileSystem(faulty.inner.contents()), set(tried), set(sure))


def _kept_marks(fs: RecordingFileSystem) -> list[Any]:
    last = list(fs.crash_states(limit=1, seed=0))[-1]
    return sorted(last.submitted, key=str)
