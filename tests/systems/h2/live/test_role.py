"""The H2 page log fulfils the contract of undo/redo logs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.errors import LogLockedError
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.h2.live.role import FILE, H2UndoRedoLog
from tallystick.systems.h2.live.writer import Item, LogWriter
from tallystick.testing import MemoryFileSystem
from tests.roles.contract_undo_redo_log import Store, UndoRedoLogContract, recovered

Ending = Callable[[H2UndoRedoLog], object]
ENDINGS: dict[str, tuple[Ending, bool]] = {
    "rolled back": (lambda log: log.rollback(3), False),
    "settled by a rollback": (lambda log: log.settle("branch", commit=False), False),
    "settled by a commit": (lambda log: log.settle("branch", commit=True), True),
}


class TestH2UndoRedoLog(UndoRedoLogContract):
    """See `UndoRedoLogContract`."""

    def test_rows_logged_together_are_the_same_bytes(self) -> None:
        rows: dict[tuple[int, int], bytes | None] = {(16, 1): b"x" * 600, (17, 2): None}
        one, together = MemoryFileSystem(), MemoryFileSystem()
        for fs in (one, together):
            log = self.open_log("/log", fs)
            if fs is one:
                for (table, key), row in rows.items():
                    log.log_row(3, table, key, row)
            else:
                log.log_rows(3, rows)
            log.commit(3).wait()
            log.close()
        assert one.contents() == together.contents()

    def test_opening_takes_no_longer_after_very_many_transactions(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log._next = 2_000_000_000  # so many transactions later
        log.log_row(3, 16, 1, b"x")
        log.commit(3).wait()
        again = self._reopened(log, tmp_path)
        assert recovered(again).rows == {(16, 1): b"x"}
        again.close()

    def test_a_prepared_session_without_rows_keeps_its_section(self) -> None:
        fs = MemoryFileSystem()
        log = self.open_log("/log", fs)
        log.prepare_commit(3, "branch").wait()
        for number in range(40):
            log.log_row(4, 16, number, b"x" * 600)
            log.commit(4).wait()
        log.remove_until(log.checkpoint())
        assert [one.name for one in log.in_doubt()] == ["branch"]
        log.close()
        again = self.open_log("/log", fs)
        assert [one.name for one in again.in_doubt()] == ["branch"]
        again.settle("branch", commit=True).wait()
        again.remove_until(again.checkpoint())
        again.close()
        assert not self.open_log("/log", fs).in_doubt()

    @pytest.mark.parametrize("name", ENDINGS)
    def test_a_prepared_session_can_end_before_its_ticket_was_waited_for(self, name: str) -> None:
        end, committed = ENDINGS[name]
        fs = MemoryFileSystem()
        log = self.open_log("/log", fs)
        log.log_row(3, 16, 1, b"x")
        log.prepare_commit(3, "branch")
        end(log)
        log.log_row(4, 16, 2, b"y")
        log.commit(4).wait()
        log.close()
        again = self.open_log("/log", fs)
        assert not again.in_doubt()
        assert ((16, 1) in recovered(again).rows) is committed
        assert (16, 2) in recovered(again).rows

    def test_a_session_that_was_prepared_twice_is_rolled_back_for_good(self) -> None:
        fs = MemoryFileSystem()
        log = self.open_log("/log", fs)
        log.log_row(3, 16, 1, b"x")
        log.prepare_commit(3, "first").wait()
        log.prepare_commit(3, "second").wait()
        log.rollback(3).wait()
        assert not log.in_doubt()
        log.close()
        again = self.open_log("/log", fs)
        assert recovered(again).rows == {}
        assert not again.in_doubt()

    def test_a_name_that_a_rollback_leaves_in_doubt_is_so_at_once_and_after_opening(self) -> None:
        fs = MemoryFileSystem()
        log = self.open_log("/log", fs)
        log.prepare_commit(3, "first").wait()
        log.prepare_commit(3, "second").wait()
        log.settle("second", commit=False).wait()
        assert [one.name for one in log.in_doubt()] == ["first"]
        log.close()
        again = self.open_log("/log", fs)
        assert [one.name for one in again.in_doubt()] == ["first"]
        again.recover(Store())
        assert [one.name for one in again.in_doubt()] == ["first"]

    def test_two_threads_that_free_the_same_sections_free_them_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fs = MemoryFileSystem()
        log = H2UndoRedoLog("/log", batch=4, fs=fs)
        for number in range(6):
            log.log_row(number, 16, number, b"x" * 3000)
            log.commit(number).wait()
        section = log.checkpoint()
        for number in range(100, 160):
            log.log_row(number, 16, number, b"x" * 3000)
            log.commit(number).wait()
        both, submit = threading.Barrier(2), LogWriter.submit

        def together(self: LogWriter, item: Item | bytes) -> object:
            if isinstance(item, Item) and item.action is not None:
                with contextlib.suppress(threading.BrokenBarrierError):  # one at a time
                    both.wait(0.2)
            return submit(self, item)

        monkeypatch.setattr(LogWriter, "submit", together)
        threads = [threading.Thread(target=log.remove_until, args=(section,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        monkeypatch.undo()
        log.close()
        found = recovered(H2UndoRedoLog("/log", fs=fs)).rows
        assert {key for _, key in found} >= {*range(100, 160)}

    def test_two_that_make_the_log_at_once_do_not_overwrite_it(self) -> None:
        made: list[H2UndoRedoLog] = []

        class Overtaken(MemoryFileSystem):
            asked = False

            def exists(self, path: str) -> bool:
                found = super().exists(path)
                if path.endswith(FILE) and not self.asked:
                    self.asked = True
                    made.append(H2UndoRedoLog("/log", fs=self))
                    made[0].log_row(3, 16, 1, b"x")
                    made[0].commit(3).wait()
                return found

        fs = Overtaken()
        with pytest.raises(LogLockedError):
            H2UndoRedoLog("/log", fs=fs)
        made[0].close()
        assert recovered(H2UndoRedoLog("/log", fs=fs)).rows == {(16, 1): b"x"}

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> H2UndoRedoLog:
        return H2UndoRedoLog(folder, page_size=self.page_size, batch=12, fs=fs)
