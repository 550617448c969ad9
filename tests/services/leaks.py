"""Open, append, checkpoint, reclaim and close, over and over: what grows is a leak.

``python -m tests.services.leaks SECONDS FOLDER [SUBJECT...]`` prints, per subject, by how much the
memory of its own, the descriptors and the threads of its process grow in 1,000 cycles.

Memory of its own is what is mapped without a file (``RssAnon``): pages of libraries come and go
with the load of the machine. A folder in memory (``/dev/shm``) gives many more cycles in that time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import linear_regression

from tallystick.services.journal import AsyncJournal, Journal
from tallystick.services.transactions import TransactionManager
from tallystick.services.write_behind import WriteBehind
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.decision_log import TallyDecisionLog
from tests.services.page_store.test_crash_states import small_store
from tests.services.write_behind.kit import Recorder, put, quick, small_log
from tests.systems.live_logs import H2, LIVE, CloudTran, Derby
from tests.systems.tally.build import TINY

SAMPLES = 40
CYCLES_MIN = 2_000
"""Cycles of a run that is limited by time: of fewer, a few pages look like a growth."""
WARM = 0.3
"""Share of the cycles that fill caches and pools of the interpreter; not measured."""
ROOT = Path(__file__).parents[2]

Cycle = Callable[[Path, int], None]


@dataclass(frozen=True)
class Growth:
    """What one subject did, and its growth per 1,000 cycles after the warm-up."""

    subject: str
    cycles: int
    own_kib: float
    descriptors: float
    threads: float
    last: tuple[int, int, int]
    """KiB of memory of its own, descriptors and threads at the end."""
    first: tuple[int, int, int]
    """The same when the warm-up was over."""

    def __str__(self) -> str:
        return (
            f"{self.subject}: {self.cycles} cycles; per 1,000 cycles {self.own_kib:+.0f} KiB, "
            f"{self.descriptors:+.2f} descriptors, {self.threads:+.2f} threads"
        )


def journal(folder: Path, number: int) -> None:
    with Journal(folder / "log", settings=TINY) as log:
        log.append_many([bytes(900)] * 20)
        log.add(number, b"live")
        with log.transaction() as tx:
            tx.add(-number - 1, b"x")
        if number:
            log.delete(number - 1)
            log.delete(-number)
        assert len(list(log.live_records())) == 2
        log.checkpoint()
        log.compact(force=True)
        if number % 10 == 0:
            log.backup(folder / "copy")
    shutil.rmtree(folder / "copy", ignore_errors=True)


def tasks(folder: Path, number: int) -> None:
    async def work() -> None:
        async with await AsyncJournal.open(folder / "log", settings=TINY) as log:
            await asyncio.gather(*(log.append(b"%d" % number) for _ in range(20)))
            assert len([one async for one in log.replay(log.next_lsn - 20)]) == 20
            await log.checkpoint()

    asyncio.run(work())


def page_store(folder: Path, number: int) -> None:
    with small_store(folder / "store", "tally") as store:
        store.create_table("t")
        with store.begin() as tx:
            tx.table("t")[number % 50] = b"%d" % number * 50
        store.checkpoint()


def write_behind(folder: Path, number: int) -> None:
    log = small_log("tally", str(folder / "spool"))
    with WriteBehind(folder / "spool", {"one": Recorder()}, log=log, settings=quick()) as behind:
        for _ in range(5):
            behind.commit([put(b"%d" % number, bytes(3000))])
        assert behind.drain(30)


def transactions(folder: Path, number: int) -> None:
    journals = [Journal(folder / name, settings=TINY) for name in "ab"]
    resources = {name: one.as_resource(name) for name, one in zip("ab", journals, strict=True)}
    decisions = TallyDecisionLog(TallyLog(str(folder / "decisions"), settings=TINY))
    with TransactionManager(
        folder / "tm",
        resources,
        node="node-1",
        log=decisions,  # in small segments: all of its first one is read at each opening
        orphan_interval=0.0,
        recovery_interval=None,
    ) as manager:
        with manager.begin() as tx:
            for name in "ab":
                tx[name].add(number, b"x")
                if number:
                    tx[name].delete(number - 1)
        assert manager.recover().clean
    for one in journals:
        one.reclaim()
        one.close()


class _ShortDerby(Derby):
    """Removes its files at checkpoints: what an archive is opened with grows with it."""

    ARCHIVE = False

    def close(self) -> None:
        self.log.checkpoint()
        super().close()


class _ShortCloudTran(CloudTran):
    """Deletes its files when they are redundant, for the same reason."""

    DISPOSER = "delete"


_MADE = LIVE | {"derby": _ShortDerby, "cloudtran": _ShortCloudTran}


def live(name: str, folder: Path, number: int) -> None:
    log = _MADE[name](LOCAL, str(folder / name))
    for one in range(20):
        log.put(number * 20 + one + 1)
    if number:
        for one in range(20):
            log.drop((number - 1) * 20 + one + 1)
    if isinstance(log, H2):
        log.log.remove_until(log.log.checkpoint())
    log.close()


SUBJECTS: dict[str, Cycle] = {
    **{one.__name__: one for one in (journal, tasks, page_store, write_behind, transactions)},
    **{f"live-{name}": partial(live, name) for name in LIVE},
}


def usage() -> tuple[int, int, int]:
    """Return KiB of memory of its own, descriptors and threads of this process."""
    gc.collect()
    kib = int(Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0])
    return kib, len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208


def measure(subject: str, folder: Path, *, cycles: int = 0, seconds: float = 0) -> Growth:
    """Run a subject for so many cycles, or so long and `CYCLES_MIN` cycles."""
    cycle, number, start = SUBJECTS[subject], 0, time.monotonic()
    samples: list[tuple[int, tuple[int, int, int]]] = []
    due = 0.0

    def share() -> float:
        timed = (time.monotonic() - start) / seconds if seconds else 1.0
        return min(timed, number / (cycles or CYCLES_MIN))

    while (done := share()) < 1:
        cycle(folder, number)
        number += 1
        if done >= max(due, WARM):
            samples.append((number, usage()))
            due = max(due, WARM) + (1 - WARM) / SAMPLES
    at = [one for one, _ in samples]
    kib, descriptors, threads = (
        linear_regression(at, [used[part] for _, used in samples]).slope * 1000 for part in range(3)
    )
    return Growth(
        subject, number, kib, descriptors, threads, last=samples[-1][1], first=samples[0][1]
    )


def in_child(subject: str, folder: Path, **limit: float) -> Growth:
    """Measure a subject in a process of its own."""
    code = "import sys,json; from tests.services import leaks; leaks.report(*sys.argv[1:])"
    command = [sys.executable, "-c", code, subject, str(folder), json.dumps(limit)]
    answer = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    found = json.loads(answer.stdout)
    return Growth(**found | {"last": tuple(found["last"]), "first": tuple(found["first"])})


def report(subject: str, folder: str, limit: str) -> None:
    """Print the growth as JSON."""
    sys.stdout.write(json.dumps(asdict(measure(subject, Path(folder), **json.loads(limit)))))


def main(seconds: str, folder: str, subjects: Sequence[str]) -> None:
    """Measure all subjects, each in its share of the time."""
    chosen = subjects or tuple(SUBJECTS)
    for name in chosen:
        own = Path(folder) / name
        own.mkdir(parents=True)
        sys.stdout.write(f"{in_child(name, own, seconds=float(seconds) / len(chosen))}\n")
        sys.stdout.flush()
        shutil.rmtree(own)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
