"""`testing.checks`: a right log passes, and every usual defect is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tallystick.errors import CorruptLogError
from tallystick.storage.files import FileSystem
from tallystick.testing import RecordingFileSystem, check_items, check_recovery
from tests.testing.toy import ToyLog, recover, recover_reading

SIZES = (10, 600, 10, 1500, 5)


def _recorded(defects: Sequence[str] = (), sizes: Sequence[int] = SIZES) -> RecordingFileSystem:
    fs = RecordingFileSystem()
    log = ToyLog(fs, defects=defects)
    for number, size in enumerate(sizes):
        body = bytes([65 + number]) * size
        fs.submitted(body)
        log.append(body).wait()
        fs.acknowledged(body)
    log.close()
    return fs


@pytest.mark.parametrize("recovery", [recover, recover_reading])
def test_a_right_log_survives_every_crash_twice(
    recovery: Callable[[FileSystem], list[bytes]], record_property: Callable[[str, object], None]
) -> None:
    report = check_recovery(_recorded(), recovery, writer_of=lambda _item: 0, again=50)
    assert report.sampled_points == 0
    assert report.states > 100
    assert (report.recoveries_crashed > report.states) == (recovery is recover)
    assert "exhaustive" in str(report)
    record_property("figure", str(report))


AGAIN = "a crash of the recovery (again=10)"


@pytest.mark.parametrize(
    ("calls", "never"),
    [
        ([], ["a file removed", "a file renamed (used again)", "a file replaced by a rename"]),
        ([("/a", "/c")], ["a file removed", "a file replaced by a rename"]),
        ([("/a", "/b")], ["a file removed", "a file renamed (used again)"]),
        ([("/a", "/b"), ("/b",), ("/old", "/b")], ["nothing"]),
    ],
)
def test_a_report_tells_what_the_run_has_never_done(
    calls: list[tuple[str, ...]], never: list[str]
) -> None:
    fs = RecordingFileSystem({"/old": b""})
    for name in ("/a", "/b"):
        fs.create(name).close()
    for one in calls:
        fs.rename(*one) if len(one) == 2 else fs.remove(*one)
    report = check_recovery(fs, lambda _: [])
    assert [*report.never] == [one for one in never if one != "nothing"] + [AGAIN]
    assert str(report).endswith(f"never happened: {', '.join(report.never)}")
    assert AGAIN not in check_recovery(fs, lambda _: [], again=2).never


def test_a_failure_cuts_long_items_and_tells_the_crash_early() -> None:
    with pytest.raises(AssertionError) as caught:
        check_recovery(_recorded(["no sync"], sizes=(3000,) * 4), recover)
    text = str(caught.value)
    assert text.index("crash at call") < 600
    assert "A" * 100 not in text


def test_a_sample_says_so_and_names_its_seed() -> None:
    report = check_recovery(_recorded(), recover, limit=8, seed=5)
    assert report.sampled_points > 0
    assert "seed 5" in str(report)


@pytest.mark.parametrize(
    ("defect", "complaint"),
    [("no sync", "acknowledged but lost"), ("no directory sync", "acknowledged but lost")],
)
def test_a_defect_of_the_writer_is_found(defect: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=rf"{complaint}.*crash at call \d+, state \d+.*seed"):
        check_recovery(_recorded([defect]), recover)


def _second_lives(defects: Sequence[str]) -> int:
    """Crash a run everywhere, write on from each state, crash that everywhere too."""
    states = 0
    for state in _recorded(sizes=(10, 700)).crash_states():
        fs = state.recording()
        for body in (*state.submitted, b"second life"):
            fs.submitted(body)
        log = ToyLog(fs, defects=defects)
        log.append(b"second life").wait()
        for body in (*log.bodies, b"second life"):
            fs.acknowledged(body)
        states += check_recovery(fs, recover_reading).states
    return states


def test_a_right_log_survives_crashes_of_its_second_life() -> None:
    assert _second_lives([]) > 100


def test_records_appended_after_a_torn_tail_are_found_to_be_lost() -> None:
    with pytest.raises(AssertionError, match=r"acknowledged but lost: \[b'second life'\]"):
        _second_lives(["keeps torn tail"])


def test_a_recovery_that_changes_its_mind_is_found() -> None:
    def forgetful(fs: FileSystem) -> list[bytes]:
        log = ToyLog(fs)
        log.append(b"restarted").wait()
        return log.bodies

    with pytest.raises(AssertionError, match="interrupted and run again"):
        check_recovery(_recorded(), forgetful, again=50)


def test_a_recovery_that_fails_is_reported_with_its_state() -> None:
    def refusing(_fs: FileSystem) -> list[bytes]:
        raise CorruptLogError("no")

    with pytest.raises(AssertionError, match=r"recovery failed: CorruptLogError.*crash at call 0"):
        check_recovery(_recorded(), refusing)


@pytest.mark.parametrize(
    ("recovered", "complaint"),
    [
        ([], "acknowledged but lost"),
        (["a1", "a2", "b1", "zz"], "never submitted"),
        (["a1", "a2", "a2", "b1"], "recovered twice"),
        (["a1", "b1", "a3"], "no prefix"),
        (["a2", "a1", "b1"], "no prefix"),
        (["a1", "b1"], None),
        (["b1", "a1", "a2", "b2"], None),
    ],
)
def test_items_are_compared_as_promised(recovered: list[str], complaint: str | None) -> None:
    def check() -> None:
        check_items(
            ["a1", "b1", "a2", "a3", "b2"],
            ["a1"],
            recovered,
            writer_of=lambda item: str(item)[0],
            where="here",
        )

    if complaint is None:
        check()
    else:
        with pytest.raises(AssertionError, match=complaint):
            check()
