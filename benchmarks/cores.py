"""The compiled core against its pure twin, in turns: rate, processor time and syncs per commit.

``python benchmarks/cores.py [--seconds 1] [--turns 5] [--threads 64] [--tasks 1000]
[--delay 0 2]``. Each turn runs every kind of work once with each core, in processes of their own,
in an order that changes; the table shows medians. ``above bare`` is the processor time of one
caller less that of a loop that writes and syncs the same bytes in the same turn. ``--delay`` adds
that many milliseconds to each sync of ours: a simulated slow disk, one table each. Where it is 0
and cargo is there, two logs in Rust (folder rust_peers) take their turns too, with as many threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tallystick.services.journal import AsyncJournal, Journal
from tallystick.storage.files import File
from tallystick.storage.local import LocalFile, LocalFileSystem

BODY = bytes(256)
SIZE = 1024
"""Bytes of a group with one such record."""

OPTIONS: dict[str, Any] = {}
"""Of the journals: their file system, where the disk is to be slow."""
RUST = ("okaywal", "wal-db")

Row = dict[str, float]


def bare(folder: Path, seconds: float, _: int) -> Row:
    """Write and sync the same number of bytes, to a file of written zeros, and no more."""
    data = bytes(SIZE)
    fd = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, bytes(16 << 20), 0)
    os.fsync(fd)
    count = 0
    begin, used = time.perf_counter(), time.process_time()
    while time.perf_counter() < begin + seconds:
        os.pwrite(fd, data, count % (16 << 10) * SIZE)
        os.fdatasync(fd)
        count += 1
    return _row(count, begin, used, count)


def threads(folder: Path, seconds: float, callers: int) -> Row:
    """Commit from so many threads, each as fast as it can."""
    counts = [0] * callers
    with Journal(str(folder), **OPTIONS) as journal:
        journal.append(BODY)
        before = journal.counters.fsyncs
        begin, used = time.perf_counter(), time.process_time()

        def work(caller: int) -> None:
            append, now, count = journal.append, time.perf_counter, 0
            while now() < begin + seconds:
                append(BODY)
                count += 1
            counts[caller] = count

        if callers == 1:
            work(0)
        else:
            crew = [threading.Thread(target=work, args=[one]) for one in range(callers)]
            for thread in crew:
                thread.start()
            for thread in crew:
                thread.join()
        return _row(sum(counts), begin, used, journal.counters.fsyncs - before)


def tasks(folder: Path, seconds: float, callers: int) -> Row:
    """Commit from so many tasks of one event loop."""

    async def run() -> Row:
        async with await AsyncJournal.open(str(folder), **OPTIONS) as journal:
            begin, used = time.perf_counter(), time.process_time()

            async def work() -> int:
                count = 0
                while time.perf_counter() < begin + seconds:
                    await journal.append(BODY)
                    count += 1
                return count

            counts = await asyncio.gather(*(work() for _ in range(callers)))
            return _row(sum(counts), begin, used, journal.counters.fsyncs)

    return asyncio.run(run())


WORK: dict[str, Callable[[Path, float, int], Row]] = {
    "bare": bare,
    "threads": threads,
    "tasks": tasks,
}


def _row(count: int, begin: float, used: float, syncs: int) -> Row:
    return {
        "rate": count / (time.perf_counter() - begin),
        "processor_us": (time.process_time() - used) / count * 1e6,
        "syncs_per_commit": syncs / count,
    }


class SlowFile(LocalFile):
    """A file whose syncs take longer; the core hands it all writes and syncs."""

    __slots__ = ()
    delay = 0.0

    def datasync(self) -> None:
        super().datasync()
        if self.delay:
            time.sleep(self.delay)


class SlowFileSystem(LocalFileSystem):
    """The real files, as `SlowFile`."""

    def open(self, path: str, *, write: bool = True) -> File:
        return SlowFile(path, os.O_RDWR if write else os.O_RDONLY)

    def create(self, path: str) -> File:
        return SlowFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


def _child(given: argparse.Namespace) -> None:
    (delay,) = given.delay
    if delay:
        SlowFile.delay = delay / 1000
        OPTIONS["fs"] = SlowFileSystem()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        print(json.dumps(WORK[given.work](Path(folder), given.seconds, given.callers)))


def _rust(given: argparse.Namespace, name: str, threads: int) -> Row:
    """Measure a log in Rust, which is built first if it has to be."""
    manifest = str(Path(__file__).parent / "rust_peers" / "Cargo.toml")
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        command = ["cargo", "run", "--release", "--quiet", "--manifest-path", manifest, "--"]
        command += [name, folder, str(threads), str(given.seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    row: Row = json.loads(done.stdout)
    return row


def _measure(given: argparse.Namespace, delay: float, work: str, callers: int, core: str) -> Row:
    if core == "rust":
        return _rust(given, work, callers)
    command = [sys.executable, __file__, "--work", work, "--callers", str(callers)]
    command += ["--seconds", str(given.seconds), "--delay", str(delay)]
    if given.dir:
        command += ["--dir", given.dir]
    environment = {**os.environ, "TALLYSTICK_PURE": "1" if core == "pure" else ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    row: Row = json.loads(done.stdout)
    return row


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--delay", type=float, nargs="+", default=[0.0, 2.0])
    parser.add_argument("--dir", help="where the logs are made")
    parser.add_argument("--work", choices=list(WORK), help=argparse.SUPPRESS)
    parser.add_argument("--callers", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        _child(given)
        return
    for delay in given.delay:
        if delay:
            print(f"\neach sync takes {delay:g} ms longer: simulated")
        _table(given, delay)


def _table(given: argparse.Namespace, delay: float) -> None:
    works = [("threads", 1), ("threads", given.threads), ("tasks", given.tasks)]
    runs = [(*work, core) for work in works for core in ("compiled", "pure")]
    runs.append(("bare", 1, "pure"))
    if shutil.which("cargo") and not delay:
        runs += [(name, given.threads, "rust") for name in RUST]
    found: dict[tuple[str, int, str], list[Row]] = {run: [] for run in runs}
    for _ in range(given.turns):
        for run in random.sample(runs, len(runs)):
            found[run].append(_measure(given, delay, *run))
    _show(found, works)


def _show(found: dict[tuple[str, int, str], list[Row]], works: list[tuple[str, int]]) -> None:
    def median(run: tuple[str, int, str], name: str) -> float:
        return statistics.median(row[name] for row in found[run])

    loop = median(("bare", 1, "pure"), "processor_us")
    rate = median(("bare", 1, "pure"), "rate")
    print(f"{'bare loop':14}{'':10}{rate:>10,.0f}/s {loop:6.1f} us of processor")
    for run in (one for one in found if one[2] == "rust"):
        line = f"{run[1]:5} threads {run[0]:10}{median(run, 'rate'):>10,.0f}/s"
        print(f"{line} {median(run, 'processor_us'):6.1f} us")
    for work in works:
        for core in ("compiled", "pure"):
            run = (*work, core)
            used = median(run, "processor_us")
            line = f"{work[1]:5} {work[0]:8}{core:10}{median(run, 'rate'):>10,.0f}/s {used:6.1f} us"
            line += f"  {median(run, 'syncs_per_commit'):.4f} syncs per commit"
            if work == ("threads", 1):
                line += f"  {used - loop:5.1f} us above bare"
            print(line)
        pairs = zip(found[(*work, "compiled")], found[(*work, "pure")], strict=True)
        both = [
            (one["rate"] / two["rate"], two["processor_us"] / one["processor_us"])
            for one, two in pairs
        ]
        rate, used = map(statistics.median, zip(*both, strict=True))
        print(f"{'':24}compiled beside pure: rate {rate:.2f}, processor {used:.2f}")


if __name__ == "__main__":
    main()
