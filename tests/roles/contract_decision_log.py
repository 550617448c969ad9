"""What every decision log must do, whatever system it stands on.

Derive a test class from `DecisionLogContract` and give it `open_log`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import LogClosedError, LogLockedError, TallystickError
from tallystick.records import State
from tallystick.roles import DecisionLog, DecisionOutcome
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.testing import (
    CrashState,
    FaultyFileSystem,
    MemoryFileSystem,
    RecordingFileSystem,
    Reporter,
    run_and_kill,
)
from tests.roles.durability import SurvivalContract, becomes_done_by_start_flush

COMMITTED, ROLLED_BACK = DecisionOutcome.COMMITTED, DecisionOutcome.ROLLED_BACK
HEURISTIC = DecisionOutcome.HEURISTIC
NAMES = ("jdbc/a", "jms/b")
ONE, TWO = b"node-1\x00\x01\xff", b"node-1\x00\x02\x80"
FOLDER = "/log"


def gtrid(number: int) -> bytes:
    return b"node" + number.to_bytes(12, "big")


class DecisionLogContract(SurvivalContract):
    """The contract; each test opens logs below a folder of its own."""

    one_order = True
    """Whether a forced record makes every earlier record durable (not so over several logs)."""

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> DecisionLog:
        """A decision log with small files, opened or created in ``folder``."""
        raise NotImplementedError

    def _reopened(self, log: DecisionLog, folder: Path) -> DecisionLog:
        log.close()
        return self.open_log(str(folder / "log"))

    def _open_names(self, log: DecisionLog) -> dict[bytes, frozenset[str]]:
        return {key: one.resources for key, one in log.open_decisions().items()}

    # -- the role --------------------------------------------------------------------------

    def test_decision_stays_open_over_a_restart(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.decide(ONE, NAMES).wait()
        assert self._open_names(log) == {ONE: frozenset(NAMES)}
        log = self._reopened(log, tmp_path)
        assert self._open_names(log) == {ONE: frozenset(NAMES)}
        assert log.open_decisions()[ONE].gtrid == ONE
        log.close()

    def test_decision_is_durable_by_start_flush_alone(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        assert becomes_done_by_start_flush(log.decide(ONE, NAMES))
        log.close()

    def test_finish_closes_resource_by_resource(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.decide(ONE, NAMES).wait()
        log.finish(ONE, NAMES[:1], COMMITTED)
        assert self._open_names(log) == {ONE: frozenset(NAMES[1:])}
        log = self._reopened(log, tmp_path)
        assert self._open_names(log) == {ONE: frozenset(NAMES[1:])}
        log.finish(ONE, NAMES[1:], COMMITTED)
        assert self._open_names(log) == {}
        log = self._reopened(log, tmp_path)
        assert self._open_names(log) == {}
        log.close()

    def test_finish_of_what_is_not_open_does_nothing(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.decide(ONE, NAMES).wait()
        log.finish(TWO, NAMES, COMMITTED)
        log.finish(ONE, ["somebody else"], ROLLED_BACK)
        assert self._open_names(log) == {ONE: frozenset(NAMES)}
        log.close()

    @pytest.mark.parametrize("state", [State.ACTIVE, State.UNDECIDED, State.ROLLING_BACK])
    def test_notes_decide_nothing(self, tmp_path: Path, state: State) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.note(state, ONE, NAMES)
        log.decide(TWO, NAMES).wait()
        log.note(state, TWO, NAMES)
        log = self._reopened(log, tmp_path)
        assert list(log.open_decisions()) == [TWO]
        log.close()

    def test_heuristic_outcome_is_kept_until_it_is_settled(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.decide(ONE, NAMES).wait()
        log.finish(ONE, NAMES[:1], HEURISTIC)
        log.finish(ONE, NAMES[1:], COMMITTED)
        assert dict(log.heuristics()) == {ONE: frozenset(NAMES[:1])}
        log = self._reopened(log, tmp_path)
        assert self._open_names(log) == {}
        assert dict(log.heuristics()) == {ONE: frozenset(NAMES[:1])}
        log.settle(ONE).wait()
        assert dict(log.heuristics()) == {}
        log = self._reopened(log, tmp_path)
        assert dict(log.heuristics()) == {}
        log.close()

    def test_open_decisions_and_heuristics_outlive_many_others(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.decide(ONE, NAMES).wait()
        log.finish(ONE, NAMES[:1], COMMITTED)
        log.decide(TWO, NAMES).wait()
        log.finish(TWO, NAMES, HEURISTIC)
        for number in range(300):
            log.decide(gtrid(number), NAMES)
            log.finish(gtrid(number), NAMES, COMMITTED)
        log = self._reopened(log, tmp_path)
        assert self._open_names(log) == {ONE: frozenset(NAMES[1:])}
        assert dict(log.heuristics()) == {TWO: frozenset(NAMES)}
        log.close()

    def test_second_decision_adds_resources(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.decide(ONE, NAMES[:1]).wait()
        log.decide(ONE, NAMES[1:]).wait()
        log = self._reopened(log, tmp_path)
        assert self._open_names(log) == {ONE: frozenset(NAMES)}
        log.close()

    # -- threads, tasks, owners ------------------------------------------------------------

    def test_decisions_of_many_threads_are_all_there(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))

        def decide(first: int) -> None:
            for number in range(first, first + 20):
                log.decide(gtrid(number), NAMES).wait()
                if number % 2:
                    log.finish(gtrid(number), NAMES, COMMITTED)

        threads = [threading.Thread(target=decide, args=(100 * one,)) for one in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log = self._reopened(log, tmp_path)
        expected = {gtrid(100 * one + number) for one in range(4) for number in range(0, 20, 2)}
        assert set(log.open_decisions()) == expected
        log.close()

    async def test_decisions_can_be_awaited(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))

        async def decide(number: int) -> int:
            return await log.decide(gtrid(number), NAMES)

        async def all_of_them() -> list[int]:
            return await asyncio.gather(*map(decide, range(50)))

        numbers = await all_of_them()
        assert len(numbers) == 50
        assert len(log.open_decisions()) == 50
        log.close()

    def test_a_log_has_one_owner(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))

        def second(reporter: Reporter) -> None:
            try:
                self.open_log(str(tmp_path / "log"))
            except LogLockedError:
                reporter.acknowledged("refused")

        killed = run_and_kill(second, after=2)
        assert killed.acknowledged == ["refused"]
        log.close()

    def test_a_closed_log_refuses(self, tmp_path: Path) -> None:
        log = self.open_log(str(tmp_path / "log"))
        log.close()
        log.close()
        with pytest.raises(LogClosedError):
            log.decide(ONE, NAMES).wait()

    # -- crashes ---------------------------------------------------------------------------

    def test_every_crash_state_keeps_what_was_acknowledged(self) -> None:
        fs = RecordingFileSystem()
        self._run(fs, fs.submitted, fs.acknowledged, 24)
        for state in fs.crash_states(limit=40, seed=7):
            self._check_state(state)

    def _appender(self, folder: str) -> Callable[[int], object]:
        log = self.open_log(folder)
        return lambda index: log.decide(gtrid(index), NAMES).wait()

    def _items(self, folder: str) -> list[int]:
        log = self.open_log(folder)
        found = sorted(_numbers(log))
        log.close()
        return found

    def _run(
        self,
        fs: FileSystem,
        submitted: Callable[[tuple[str, int]], None],
        acknowledged: Callable[[tuple[str, int]], None],
        count: int,
    ) -> None:
        log = self.open_log(FOLDER, fs)
        for number in range(count):
            submitted(("decide", number))
            log.decide(gtrid(number), NAMES).wait()
            acknowledged(("decide", number))
            if number % 5:
                submitted(("finish", number))
                log.finish(gtrid(number), NAMES, COMMITTED)
            if number % 5 != 1 and number:  # what was finished before this decision is durable
                acknowledged(("finish", number - 1))
        log.close()

    def _check_state(self, state: CrashState) -> None:
        log = self.open_log(FOLDER, state.fs())
        found = _numbers(log)
        log.close()
        decided, finished = (_marked(state.submitted, kind) for kind in ("decide", "finish"))
        durably_decided = _marked(state.acknowledged, "decide")
        durably_finished = _marked(state.acknowledged, "finish") & finished
        assert found <= decided, state.describe()
        assert durably_decided - finished <= found, state.describe()
        if self.one_order:
            assert not found & durably_finished, state.describe()

    def _run_until_error(self, faulty: FaultyFileSystem) -> None:
        tried: list[tuple[str, int]] = []
        sure: list[tuple[str, int]] = []
        with contextlib.suppress(TallystickError, OSError):
            self._run(faulty, tried.append, sure.append, 14)
        assert isinstance(faulty.inner, MemoryFileSystem)
        log = self.open_log(FOLDER, MemoryFileSystem(faulty.inner.contents()))
        found = _numbers(log)
        log.close()
        assert _marked(sure, "decide") - _marked(tried, "finish") <= found
        assert found <= _marked(tried, "decide")


def _numbers(log: DecisionLog) -> set[int]:
    return {int.from_bytes(key[4:], "big") for key in log.open_decisions()}


def _marked(marks: Iterable[Any], kind: str) -> set[int]:
    return {number for name, number in marks if name == kind}
