"""Every log and service over real file systems that are shut down at random moments.

``SHUTDOWNS`` is their number for each subject and file system (12).
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tallystick.errors import TallystickError
from tallystick.roles.decision_log import DecisionOutcome
from tallystick.services.journal import Journal
from tallystick.services.transactions.coordinator_dir import open_coordinator_dir
from tallystick.services.write_behind import WriteBehind
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.testing import Reporter, run_and_kill
from tests.need import need
from tests.services.page_store.test_crash_states import small_store
from tests.services.write_behind.kit import put, quick, small_log
from tests.services.write_behind.test_crashes import FileTarget
from tests.systems.live_logs import LIVE, Live
from tests.systems.tally.build import TINY, say
from tests.systems.test_live_logs import check
from tests.testing.shutdowns import MAKE, Disk

DISK_EVERY = 6
"""Shutdowns of one disk, whose logs are opened again and go on after each."""
HELD_MAX = 12


class JournalRecords:
    """Live records of a journal."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.log = Journal(folder, fs=fs, settings=TINY)

    def put(self, number: int) -> None:
        if number % 2:
            self.log.add(number, bytes(90))
        else:
            with self.log.transaction() as tx:
                tx.add(number, bytes(90))

    def drop(self, number: int) -> None:
        self.log.delete(number)
        if number % 20 == 0:
            self.log.compact(force=True)

    def numbers(self) -> set[int]:
        return {one.record_id for one in self.log.live_records()}

    def close(self) -> None:
        self.log.close()


class StoreRows:
    """Rows of a page store, whose every structure is checked."""

    def __init__(self, system: str, fs: FileSystem, folder: str) -> None:
        self.store = small_store(folder, system, fs=fs, cache_bytes=0)
        self.store.create_table("t")

    def put(self, number: int) -> None:
        with self.store.begin() as tx:
            tx.table("t")[number] = b"%d" % number * 100
        if number % 7 == 0:
            self.store.checkpoint()

    def drop(self, number: int) -> None:
        with self.store.begin() as tx:
            tx.table("t").pop(number)

    def numbers(self) -> set[int]:
        assert self.store.check() == []
        with self.store.begin() as tx:
            return {key for key, _ in tx.table("t").range()}

    def close(self) -> None:
        self.store.close()


class Behind:
    """Transactions of write-behind in its target, a file of the same disk."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.target = FileTarget(fs, f"{os.path.dirname(folder)}/target")  # noqa: PTH120 - as text
        log = small_log("tally", folder, fs)
        self.service = WriteBehind(
            folder, {"one": self.target}, log=log, settings=quick(), fs=fs, on_incomplete="replay"
        )

    def put(self, number: int) -> None:
        self.service.commit([put(b"%d" % number, bytes(90))], str(number))

    def drop(self, number: int) -> None:
        """What was committed stays."""

    def numbers(self) -> set[int]:
        assert self.service.drain(60)
        found = [int(one) for one in self.target.references]
        assert len(found) == len(set(found)), "applied twice"
        return set(found)

    def close(self) -> None:
        self.service.close()


class Coordinator:
    """Decisions: open, or closed and remembered as that."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        del fs  # it knows one file system
        self.directory = open_coordinator_dir(folder, "node-1", None)
        self._known = Path(folder).parent / "known"

    def put(self, number: int) -> None:
        self.directory.decisions.decide(b"g%d" % number, ("a", "b")).wait()

    def drop(self, number: int) -> None:
        self.directory.closed.add(b"g%d" % number)
        self.directory.closed.sync()
        self.directory.decisions.finish(b"g%d" % number, ("a", "b"), DecisionOutcome.COMMITTED)

    def numbers(self) -> set[int]:
        return {int(gtrid[1:]) for gtrid in self.directory.decisions.open_decisions()}

    def close(self) -> None:
        self.directory.close()


SUBJECTS: dict[str, Callable[[FileSystem, str], Live]] = {
    **{f"log of {name}": made for name, made in LIVE.items()},
    "journal": JournalRecords,
    "page store": partial(StoreRows, "tally"),
    "page store on h2": partial(StoreRows, "h2"),
    "write-behind": Behind,
    "coordinator": Coordinator,
}


def _until_stopped(name: str, folder: str, reporter: Reporter) -> None:
    rng = random.Random(reporter.run)
    with contextlib.suppress(TallystickError, OSError):
        log = SUBJECTS[name](LOCAL, folder)
        held = sorted(log.numbers())
        for number in range(1 + 10_000 * reporter.run, 10_000 * (reporter.run + 1)):
            reporter.submitted(("put", number))
            log.put(number)
            reporter.acknowledged(("put", number))
            held.append(number)
            while len(held) > HELD_MAX:
                gone = held.pop(rng.randrange(len(held)))
                reporter.submitted(("drop", gone))
                log.drop(gone)
                reporter.acknowledged(("drop", gone))


def _stop(disk: Disk, rng: random.Random) -> None:
    if rng.random() < 0.3:
        disk.write_back()
    disk.shut_down(rng)


def _held(name: str, folder: str) -> set[int]:
    log = SUBJECTS[name](LOCAL, folder)
    try:
        return log.numbers()
    finally:
        log.close()


def _shut_down(kind: str, name: str, rng: random.Random, shutdowns: int) -> Iterator[int]:
    """Yield the items acknowledged until each shutdown, when they were found again."""
    with Disk(kind) as disk:
        folder = str(disk.folder / "log")
        submitted, acknowledged = [], []
        for run in range(shutdowns):
            killed = run_and_kill(
                partial(_until_stopped, name, folder),
                after=rng.randrange(120),
                seconds=rng.uniform(0, 0.01),
                run=run,
                timeout=900,
                before=partial(_stop, disk, rng),
            )
            submitted += killed.submitted
            acknowledged += killed.acknowledged
            disk.restart()
            check(submitted, acknowledged, _held(name, folder), f"shutdown {run}")
            yield len(killed.acknowledged)


@pytest.mark.soak
@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("kind", MAKE)
def test_a_file_system_that_is_shut_down_keeps_what_was_acknowledged(
    kind: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    need(kind)
    shutdowns = int(os.environ.get("SHUTDOWNS", "12"))
    seed = random.SystemRandom().getrandbits(31)
    rng, counts = random.Random(seed), list[int]()
    say(capsys, f"{kind}, {name}: seed {seed}")
    while len(counts) < shutdowns:
        counts += _shut_down(kind, name, rng, min(DISK_EVERY, shutdowns - len(counts)))
    say(capsys, f"{len(counts)} shutdowns, {sum(counts)} acknowledged items")
    assert sum(counts) > len(counts)
