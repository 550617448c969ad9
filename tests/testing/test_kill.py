"""`testing.kill`: children are killed, failures are distinguished, a right log loses nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.storage.local import LOCAL
from tallystick.testing import Reporter, check_kills, run_and_kill
from tests.testing.toy import ToyLog, recover


def test_a_child_is_killed_after_so_many_acknowledgements() -> None:
    def work(reporter: Reporter) -> None:
        for number in range(10_000_000):
            reporter.submitted(["a", number])
            reporter.acknowledged(["a", number])

    killed = run_and_kill(work, after=20)
    assert not killed.finished
    assert len(killed.acknowledged) >= 20
    assert killed.submitted[:2] == [("a", 0), ("a", 1)]
    assert len(killed.submitted) - len(killed.acknowledged) in (0, 1)


def test_a_child_that_ends_first_is_noticed() -> None:
    killed = run_and_kill(lambda reporter: reporter.acknowledged({"b": 1}), after=2, seconds=0.1)
    assert killed.finished
    assert killed.acknowledged == [(("b", 1),)]


def test_a_child_that_fails_by_itself_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError, match="failed by itself"):
        run_and_kill(lambda _reporter: 1 / 0, after=1, seconds=0.1)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_child_that_hangs_is_killed_and_reported() -> None:
    with pytest.raises(TimeoutError, match="acknowledged 0 items"):
        run_and_kill(lambda _reporter: time.sleep(60), after=1, timeout=0.1)


def test_a_report_larger_than_a_pipe_takes_whole_is_refused() -> None:
    reading, writing = os.pipe()
    with pytest.raises(ValueError, match="at most 4096"):
        Reporter(writing).submitted("x" * 5000)
    os.close(reading)
    os.close(writing)


def _kills(folder: Path, kills: int, seed: int) -> int:
    """Children that write from one thread each go on where the last one ended."""

    def work(reporter: Reporter) -> None:
        log = ToyLog(LOCAL, str(folder))
        for number in range(1_000_000):
            reporter.submitted([reporter.run, number])
            log.append(b"%d %d" % (reporter.run, number)).wait()
            reporter.acknowledged([reporter.run, number])

    def recovered() -> list[tuple[int, ...]]:
        return [tuple(map(int, body.split())) for body in recover(LOCAL, str(folder))]

    return check_kills(
        work,
        recovered,
        kills=kills,
        seed=seed,
        writer_of=lambda item: item[0] if isinstance(item, tuple) else None,
    )


def test_a_right_log_loses_nothing_to_kills(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    acknowledged = _kills(tmp_path, 20, seed=1)
    record_property("figure", f"20 SIGKILLs, {acknowledged} acknowledged records, none lost")


@pytest.mark.soak
def test_a_right_log_loses_nothing_to_a_thousand_kills(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    acknowledged = 0
    for round_number in range(50):
        acknowledged += _kills(tmp_path / str(round_number), 20, seed=round_number)
    record_property("figure", f"1,000 SIGKILLs, {acknowledged} acknowledged records, none lost")


def test_a_log_that_acknowledges_before_it_writes_is_found(tmp_path: Path) -> None:
    def work(reporter: Reporter) -> None:
        log = ToyLog(LOCAL, str(tmp_path))
        for number in range(100):
            reporter.submitted(number)
            log.append(b"%d" % number)
            reporter.acknowledged(number)
        time.sleep(60)

    with pytest.raises(AssertionError, match="acknowledged but lost"):
        check_kills(work, lambda: map(int, recover(LOCAL, str(tmp_path))), kills=2)


def test_what_is_acknowledged_after_the_disk_was_taken_away_does_not_count(tmp_path: Path) -> None:
    gone, told = tmp_path / "gone", tmp_path / "told"

    def work(reporter: Reporter) -> None:
        for number in range(3):
            reporter.submitted(number)
            reporter.acknowledged(number)
        while not gone.exists():
            time.sleep(0.001)
        reporter.acknowledged(3)
        told.touch()
        time.sleep(60)

    def take_away() -> None:
        gone.touch()
        while not told.exists():
            time.sleep(0.001)

    killed = run_and_kill(work, after=1, before=take_away)
    # What the child sent before may have been under way still.
    assert killed.acknowledged == [0, 1, 2][: len(killed.acknowledged)]
    assert killed.submitted == [0, 1, 2]
