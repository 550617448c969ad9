"""When a disposer is called: oldest file first, again after a failure, never twice done."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tallystick.disposal.disposers import (
    CommandDisposer,
    DeleteDisposer,
    FunctionDisposer,
)
from tallystick.disposal.worker import Disposal, Postponed
from tallystick.errors import LogClosedError, LogWriteError
from tests.disposal.kit import Log, run, until


def test_files_go_oldest_first_on_a_thread_of_their_own(tmp_path: Path) -> None:
    log = Log(tmp_path, 3)
    seen = []

    def take(path: str) -> None:
        seen.append((path, threading.current_thread().name))
        Path(path).unlink()

    disposal = run(log, FunctionDisposer(take))
    until(lambda: len(log.gone) == 3)
    disposal.close(1)
    assert seen == [(path, "log disposal") for path in log.paths]


def test_failure_keeps_the_file_and_the_later_ones_until_it_succeeds(tmp_path: Path) -> None:
    log = Log(tmp_path, 3)
    calls: list[str] = []
    broken = threading.Event()
    broken.set()

    def take(path: str) -> None:
        calls.append(path)
        if broken.is_set():
            raise RuntimeError("the archive is away")
        Path(path).unlink()

    disposal = run(log, FunctionDisposer(take))
    until(lambda: disposal.counters.failed >= 3)
    assert set(calls) == {log.paths[0]}
    assert "archive is away" in disposal.counters.last_error
    broken.clear()
    until(lambda: len(log.gone) == 3)
    disposal.close(1)
    assert log.gone == log.paths


def test_what_is_refused_is_logged_once_and_noted_until_it_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, note = Log(tmp_path, 2), tmp_path / "refused"
    note.write_text("of an earlier process")
    broken = threading.Event()
    broken.set()

    def take(path: str) -> None:
        if broken.is_set():
            raise RuntimeError("the archive is away")
        Path(path).unlink()

    disposal = Disposal(
        log, FunctionDisposer(take), retry_seconds=0.001, poll_seconds=0.001, note=str(note)
    )
    until(lambda: disposal.counters.failed >= 5)
    assert "the archive is away" in json.loads(note.read_text())["refused"]
    broken.clear()
    until(lambda: len(log.gone) == 2)
    disposal.close(1)
    assert not note.exists()
    assert sum("the archive is away" in one.getMessage() for one in caplog.records) == 1


def test_file_that_is_still_there_counts_as_failure(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    disposal = run(log, FunctionDisposer(lambda path: None))  # noqa: ARG005 - it does nothing
    until(lambda: disposal.counters.failed > 0)
    disposal.close(0)
    assert log.gone == []
    assert "left" in disposal.counters.last_error


def test_file_that_is_gone_already_is_fine_and_not_offered(tmp_path: Path) -> None:
    log = Log(tmp_path, 2)
    Path(log.paths[0]).unlink()
    seen: list[str] = []

    def take(path: str) -> None:
        seen.append(path)
        Path(path).unlink()
        raise FileNotFoundError(path)  # gone during the call

    disposal = run(log, FunctionDisposer(take))
    until(lambda: len(log.gone) == 2)
    disposal.close(1)
    assert seen == [log.paths[1]]
    assert disposal.counters.failed == 0


def test_a_disposer_that_misses_something_else_has_failed(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    disposal = run(log, CommandDisposer(["no-such-command-anywhere"]))
    until(lambda: disposal.counters.failed > 0)
    disposal.close(0)
    assert log.gone == []
    assert "FileNotFoundError" in disposal.counters.last_error


def test_prompts_do_not_shorten_the_delay_after_a_failure(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    calls = []

    def take(path: str) -> None:
        calls.append(time.monotonic())
        raise ConnectionError(path)

    disposal = Disposal(log, FunctionDisposer(take), retry_seconds=0.02, poll_seconds=0.001)
    while len(calls) < 5:
        disposal.prompt()
        time.sleep(0.002)
    disposal.close(0)
    gaps = [later - earlier for earlier, later in pairwise(calls[:5])]
    assert all(gap >= 0.04 * 2**index for index, gap in enumerate(gaps))


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_disposer_that_wants_to_end_the_program_has_only_failed(
    tmp_path: Path, error: BaseException
) -> None:
    log = Log(tmp_path, 1)

    def take(path: str) -> None:
        if disposal.counters.failed < 2:
            raise error
        Path(path).unlink()

    disposal = run(log, FunctionDisposer(take))
    until(lambda: log.gone == log.paths)
    disposal.close(1)
    assert disposal.counters.failed == 2


def test_log_that_cannot_tell_is_asked_again_and_it_shows(tmp_path: Path) -> None:
    class Broken(Log):
        failures = 3

        def disposable(self) -> Sequence[str]:
            if self.failures:
                self.failures -= 1
                raise LogWriteError("not now")
            return super().disposable()

    log = Broken(tmp_path, 2)
    disposal = run(log, DeleteDisposer())
    until(lambda: log.gone == log.paths)
    disposal.close(1)
    assert disposal.counters.failed == 3
    assert "not now" in disposal.counters.last_error


def test_disposer_that_returns_after_the_log_is_closed_ends_silently(tmp_path: Path) -> None:
    entered, release = threading.Event(), threading.Event()

    class Closing(Log):
        def disposed(self, path: str) -> None:
            raise LogClosedError("closed", file=path)

    def take(path: str) -> None:
        entered.set()
        assert release.wait(30)
        Path(path).unlink()

    log = Closing(tmp_path, 1)
    disposal = run(log, FunctionDisposer(take))
    assert entered.wait(5)
    disposal.close(0)
    release.set()
    until(lambda: disposal.counters.failed > 0)  # and no thread ended by an exception


def test_postponed_file_is_asked_for_again_and_is_no_failure(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    ready = threading.Event()

    def take(path: str) -> None:
        if not ready.is_set():
            raise Postponed
        Path(path).unlink()

    disposal = run(log, FunctionDisposer(take))
    until(lambda: disposal.counters.postponed > 2)
    ready.set()
    until(lambda: log.gone == log.paths)
    disposal.close(1)
    assert disposal.counters.failed == 0


def test_close_does_not_wait_for_a_disposer_that_hangs(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    entered, release = threading.Event(), threading.Event()

    def take(path: str) -> None:
        entered.set()
        release.wait(30)
        Path(path).unlink()

    disposal = run(log, FunctionDisposer(take))
    assert entered.wait(5)
    began = time.monotonic()
    disposal.close(0.05)
    assert time.monotonic() - began < 20
    release.set()
