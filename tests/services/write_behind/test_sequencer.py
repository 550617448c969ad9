"""The sequencer passes entries on in order, once durable, and forces no write of the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence

import pytest

from tallystick.errors import LogFullError
from tallystick.roles import PersistEntry
from tallystick.services.write_behind import sequencer
from tallystick.services.write_behind.sequencer import Sequencer


class Promise:
    """A ticket that is done when the test sets it, or when a caller waits for it."""

    def __init__(self, *, refused: bool = False) -> None:
        self.waited = False
        self.refused = refused
        self.finished = False

    def wait(self, timeout: float | None = None) -> int:  # noqa: ARG002 - done at once
        self.waited = self.waited or not self.finished
        self.finished = True
        if self.refused:
            raise LogFullError("no space")
        return 1

    def done(self) -> bool:
        return self.finished

    def start_flush(self) -> None:
        raise AssertionError("this would have the log write")

    def __await__(self) -> Generator[object, None, int]:
        yield from ()
        return self.wait()


class Line:
    """A sequencer, and the entries it passes on."""

    def __init__(self, *, alone: bool) -> None:
        self.durable: list[int] = []
        self.lost: list[int] = []
        self.broken = threading.Event()
        self.sequencer = Sequencer(
            self._take, self.lost.append, lambda _: self.broken.set(), alone=alone
        )

    def _take(self, entries: Sequence[PersistEntry]) -> None:
        self.durable += [one.number for one in entries]

    def append(self, *promises: Promise) -> None:
        for number, one in enumerate(promises, 1):
            self.sequencer.append(PersistEntry(number, ("one",), ()), one)


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


def test_no_write_is_forced_for_entries_that_a_committer_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequencer, "IDLE_MAX", 1 << 60)
    line = Line(alone=False)
    first, second, third = promises = [Promise() for _ in range(3)]
    line.append(*promises)
    second.finished = True
    time.sleep(0.05)
    assert line.durable == [], "what comes later does not overtake"
    first.finished = True
    assert soon(lambda: line.durable == [1, 2])
    assert not any(one.waited for one in promises)
    line.sequencer.close()
    assert (line.durable, third.waited) == ([1, 2, 3], True)


@pytest.mark.parametrize("alone", [True, False])
def test_entries_without_a_waiting_committer_are_waited_for(alone: bool) -> None:
    line = Line(alone=alone)
    line.append(Promise(), Promise())
    assert soon(lambda: line.durable == [1, 2])
    line.sequencer.close()


def test_entry_refused_by_the_log_is_lost_and_the_rest_is_passed_on() -> None:
    line = Line(alone=True)
    line.append(Promise(), Promise(refused=True), Promise())
    assert soon(lambda: line.durable == [1, 3])
    line.sequencer.close()
    assert line.lost == [2]
    assert not line.broken.is_set()
