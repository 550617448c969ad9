"""Finalizers run in the middle of any call: what they write is written or refused, never hangs."""

from __future__ import annotations

import gc
import itertools
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick import Journal, TallystickError, WriteBehind
from tallystick.errors import LogWriteError
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error

CALLS = 80


class Cycle:
    """Garbage that only the collector finds, and that writes as it goes."""

    def __init__(self, write: Callable[[], object], failed: list[TallystickError]) -> None:
        self.me, self.write, self.failed = self, write, failed

    def __del__(self) -> None:
        try:
            self.write()
        except TallystickError as error:
            self.failed.append(error)


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def _added(log: Journal) -> Callable[[], object]:
    ids = itertools.count(1)
    return lambda: log.add(next(ids), b"x")


def _in_transactions(log: Journal) -> Callable[[], object]:
    ids = itertools.count(1)

    def write() -> None:
        with log.transaction() as transaction:
            transaction.add(next(ids), b"x")

    return write


def _sent(service: WriteBehind) -> Callable[[], object]:
    def write() -> None:
        with service.begin() as transaction:
            transaction.send("name", b"x", key=b"key")

    return write


WRITERS: dict[str, Callable[[str], tuple[Any, Callable[[], object]]]] = {
    "append": lambda path: (log := Journal(path), lambda: log.append(b"x")),
    "add": lambda path: (log := Journal(path), _added(log)),
    "transactions": lambda path: (log := Journal(path), _in_transactions(log)),
    "jboss": lambda path: (log := Journal(path, system="jboss"), _added(log)),
    "shared": lambda path: (log := Journal(path, shared=True), lambda: log.append(b"x")),
    "shared-add": lambda path: (log := Journal(path, shared=True), _added(log)),
    "write-behind": lambda path: (
        one := WriteBehind(path, {"t": lambda _: None}),
        _sent(one),
    ),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", WRITERS)
def test_what_the_collector_runs_in_the_middle_of_a_call_hangs_nothing(
    tmp_path: Path, kind: str
) -> None:
    service, write = WRITERS[kind](str(tmp_path / "log"))
    failed = list[TallystickError]()
    chance = random.Random(1)
    with service:
        for _ in range(CALLS):
            Cycle(write, failed)
            gc.set_threshold(chance.randint(1, 60))
            write()
        gc.set_threshold(700)
        gc.collect()
    assert all(isinstance(one, LogWriteError) for one in failed), failed
    assert len(failed) < CALLS


AT_THE_END = """
import sys, threading, time, tallystick
log = tallystick.Journal(sys.argv[1], shared=sys.argv[2] == "shared")

def write():
    while True:
        log.append(b"x")

class Last:
    def __del__(self, write=lambda: log.append(b"last")):
        try:
            write()
        except Exception:
            pass  # what is refused then is told nobody

for _ in range(4):
    threading.Thread(target=write, daemon=True).start()
time.sleep(0.2)
sys.last = Last()
"""


@pytest.mark.both_cores
@pytest.mark.parametrize("how", ["alone", "shared"])
def test_a_finalizer_that_writes_as_the_interpreter_ends_waits_for_no_stopped_thread(
    tmp_path: Path, how: str
) -> None:
    command = [sys.executable, "-c", AT_THE_END, str(tmp_path / "log"), how]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_a_lock_refuses_its_owner_and_goes_on() -> None:
    lock = OwnedLock(nested_call_error)
    with lock:
        assert lock.owned
        assert lock.locked()
        with pytest.raises(LogWriteError, match="in the middle of another"):
            lock.acquire()
    assert not lock.locked()
    assert lock.try_acquire()
    lock.release()
