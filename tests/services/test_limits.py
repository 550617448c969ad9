"""Too little memory, too few descriptors, no further thread: a documented error, and no harm."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tallystick.errors import TallystickError
from tests.services.leaks import ROOT, usage
from tests.services.limits import DONE, STARTING, SUBJECTS, WRONG

LASTING = tuple(name for name in SUBJECTS if not name.startswith("read-"))


def tries(kind: str, subject: str, folder: Path) -> list[tuple[int, str, str]]:
    """What came of the work with more and more left, in a process of its own."""
    command = [sys.executable, "-m", "tests.services.limits", kind, subject, str(folder)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=900, check=False)
    assert answer.returncode == 0, answer.stderr.decode()
    return [tuple(json.loads(line)) for line in answer.stdout.splitlines()]


def _check(found: list[tuple[int, str, str]]) -> Counter[str]:
    wrong = [one for one in found if one[1] in WRONG]
    assert not wrong, "\n".join(f"{left} left: {outcome}: {text}" for left, outcome, text in wrong)
    assert found[-1][1] == DONE, "it is never done"
    return Counter(outcome for _, outcome, _ in found)


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_with_any_number_of_descriptors_the_work_is_done_or_refused_without_harm(
    subject: str, tmp_path: Path
) -> None:
    assert sum(_check(tries("descriptors", subject, tmp_path)).values()) > 1


SHORT = ("journal", "page_store", "write_behind", "transactions", "read-tally")
"""Subjects that are always tried; the long form tries all."""


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "subject", [name if name in SHORT else pytest.param(name, marks=pytest.mark.soak)
                for name in SUBJECTS]
)  # fmt: skip
def test_with_any_memory_the_work_is_done_or_refused_without_harm(
    subject: str, tmp_path: Path, record_property: Any
) -> None:
    found = _check(tries("memory", subject, tmp_path))
    record_property("figure", dict(found))
    # Which tries meet it depends on what else is running; that it ends is what counts.
    assert found[STARTING] <= 4, "it stops at threads of any size"


ENDING_S = 60.0
"""Time that a thread may take to end after its owner was closed; none waits for the reaper's."""


class Refused:
    """Has the n-th thread not start, nor any after it."""

    def __init__(self, nth: int) -> None:
        self.left = nth
        self.struck = False
        self._start = threading.Thread.start

    def start(self, thread: threading.Thread) -> None:
        self.left -= 1
        if self.left < 0:
            self.struck = True
            raise RuntimeError("can't start new thread")
        self._start(thread)


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("subject", LASTING)
def test_whichever_thread_cannot_be_started_the_work_is_done_or_refused_without_harm(
    subject: str, tmp_path: Path
) -> None:
    """As where memory or the number of threads is limited."""
    work, found = SUBJECTS[subject].work, SUBJECTS[subject].found
    (tmp_path / "first").mkdir()
    SUBJECTS[subject].prepare(tmp_path / "first")
    work(tmp_path / "first", lambda _: None)
    for nth in range(100):
        folder, acknowledged, refused = tmp_path / str(nth), list[int](), Refused(nth)
        folder.mkdir()
        SUBJECTS[subject].prepare(folder)
        gc.collect()
        before, threads = usage()[1], threading.enumerate()
        with mock.patch.object(threading.Thread, "start", lambda self: refused.start(self)):  # noqa: B023 - as a method
            _do(lambda: work(folder, acknowledged.append))  # noqa: B023
        gc.collect()
        for thread in set(threading.enumerate()) - set(threads):
            thread.join(ENDING_S)
        assert usage()[1] <= before, f"descriptors after the start of thread {nth}"
        left = set(threading.enumerate()) - set(threads)
        assert not left, f"threads after the start of thread {nth}"
        assert set(acknowledged) <= found(folder)
        if not refused.struck:
            return
    raise AssertionError("it is never done")


def _do(work: Any) -> None:
    try:
        work()
    except (TallystickError, MemoryError):
        gc.collect()
