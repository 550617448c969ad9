"""A disk that is full from the n-th call on, for every n, and has space again later.

While it is full commits fail with an error, or succeed; targets get what is in the log. Once there
is space again the service continues, or reports that it has to be opened again, and then continues:
no acknowledged transaction is missing in the target, and those of one key are in order.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from tallystick.errors import IncompleteLogError, LogClosedError, LogPoisonedError, TallystickError
from tallystick.services.write_behind import WriteBehind
from tallystick.storage.files import FileSystem
from tallystick.testing import Fault, FaultyFileSystem, MemoryFileSystem, every_fault
from tests.services.write_behind.kit import SYSTEMS, Recorder, put, quick, small_log

BODY = bytes(60_000)
COMMITS = 12


class Store(Recorder):
    """A target that outlives the service."""

    def references(self) -> list[str]:
        first: dict[int, str] = {}
        for entry in self.applied:
            first.setdefault(entry.number, entry.reference)
        return list(first.values())


def open_service(system: str, fs: FileSystem, store: Store) -> WriteBehind:
    return WriteBehind(
        "/spool",
        {"store": store},
        log=small_log(system, "/spool", fs),
        settings=quick(close_timeout=10.0),
        on_incomplete="replay",
        fs=fs,
    )


def commit_some(behind: WriteBehind, start: int) -> list[str]:
    """Commit; return what was acknowledged. Ignore the errors that a full disk causes."""
    acknowledged = []
    for index in range(start, start + COMMITS):
        try:
            behind.commit([put(b"%d" % (index % 2), BODY)], str(index))
        except (LogPoisonedError, LogClosedError):
            break
        except TallystickError:
            continue
        acknowledged.append(str(index))
    return acknowledged


def run(system: str, fs: FaultyFileSystem) -> None:
    store = Store()
    acknowledged: list[str] = []
    try:
        behind = open_service(system, fs, store)
    except (TallystickError, OSError):
        fs.fault = None
        behind = open_service(system, fs, store)
    acknowledged += commit_some(behind, 0)
    behind.drain(0.05)
    fs.fault = None  # the disk has space again
    acknowledged += commit_some(behind, 1000)
    _close(behind)
    with open_service(system, fs, store) as behind:
        acknowledged += commit_some(behind, 2000)
        assert len(acknowledged) >= COMMITS
        assert behind.drain(10)
    assert set(acknowledged) <= set(store.references())
    for key in range(2):
        own = [int(one) for one in store.references() if int(one) % 2 == key]
        assert own == sorted(own)
    # with everything applied and space on the disk nothing is left for the next start
    WriteBehind("/spool", {"store": store}, log=small_log(system, "/spool", fs), fs=fs).close()


def _close(behind: WriteBehind) -> None:
    with suppress(TallystickError, OSError):  # a poisoned log raises again
        behind.close()


def faults(every: int) -> Callable[[int], Fault]:
    return lambda n: Fault(1 + (n - 1) * every, error=errno.ENOSPC, partial=0.5, lasting=True)


@pytest.mark.parametrize("system", SYSTEMS)
def test_disk_that_fills_up_at_some_call_loses_nothing(system: str) -> None:
    for fs in every_fault(MemoryFileSystem, faults(5)):
        run(system, fs)


@pytest.mark.soak
@pytest.mark.parametrize("system", SYSTEMS)
def test_disk_that_fills_up_at_every_call_loses_nothing(
    system: str, record_property: Callable[[str, object], None]
) -> None:
    calls = 0
    for fs in every_fault(MemoryFileSystem, faults(1)):
        run(system, fs)
        calls += 1
    record_property("figure", f"{calls} calls")


@pytest.mark.parametrize("system", SYSTEMS)
def test_marks_refused_by_a_full_disk_are_written_once_there_is_space(system: str) -> None:
    """The disk is full exactly while targets apply; then the service closes normally."""
    for nth in range(1, 4):
        fs = FaultyFileSystem(MemoryFileSystem())
        store = Store()
        behind = open_service(system, fs, store)
        store.gate.clear()
        commit_some(behind, 0)
        fs.fault = Fault(nth, calls={"create"}, error=errno.ENOSPC, lasting=True)
        store.gate.set()
        behind.drain(1)
        commit_some(behind, 100)
        fs.fault = None
        behind.commit([put(b"k")])
        behind.drain(1)
        behind.close()
        try:
            WriteBehind(
                "/spool", {"store": store}, log=small_log(system, "/spool", fs), fs=fs
            ).close()
        except IncompleteLogError as error:
            pytest.fail(f"marks are missing: {error}")
