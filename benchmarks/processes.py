"""Commits of many processes to one shared journal, beside those of one process alone.

Usage: python benchmarks/processes.py [--turns 3] [--seconds 2] [--shapes 16x16 4x16 2x32]

Each commit is durable before its thread makes the next one. The first row, one process of 64
threads that has the journal alone, is measured in turns with the others; its ratio stands beside
each. Processor time is that of all processes, in microseconds per commit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from tallystick import Journal
from tallystick.systems.tally.live.roles.journal import SharedTallyJournal

BODY = bytes(256)
ALONE = (1, 64, False)


class Turn(NamedTuple):
    """Commits, commits per second, processor time and syncs per commit of one turn."""

    rate: float
    processor_us: float
    per_sync: float


def work(path: str, threads: int, shared: bool) -> None:
    """Commit from so many threads between two lines on standard input; print what was done."""
    with Journal(path, shared=shared) as journal:
        counts = [0] * threads
        ending = threading.Event()

        def run(index: int) -> None:
            while not ending.is_set():
                journal.append(BODY)
                counts[index] += 1

        running = [threading.Thread(target=run, args=(index,)) for index in range(threads)]
        print("ready", flush=True)
        sys.stdin.readline()
        cpu, syncs = time.process_time(), _syncs(journal)
        for one in running:
            one.start()
        sys.stdin.readline()
        ending.set()
        for one in running:
            one.join()
        print(sum(counts), time.process_time() - cpu, _syncs(journal) - syncs, flush=True)
        sys.stdin.readline()


def _syncs(journal: Journal) -> int:
    engine = journal._engine
    if isinstance(engine, SharedTallyJournal):
        return engine.log.syncs
    return journal.counters.fsyncs


def turn(processes: int, threads: int, seconds: float, shared: bool) -> Turn:
    """Measure so many processes with so many threads each."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        command = [sys.executable, __file__, "--work", f"{folder}/log", str(threads), str(shared)]
        pipe = subprocess.PIPE
        running = [
            subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(processes)
        ]
        for one in running:
            _read(one)
        _tell(running)
        began = time.perf_counter()
        time.sleep(seconds)
        _tell(running)
        found = [_read(one).split() for one in running]
        took = time.perf_counter() - began
        _tell(running)
        for one in running:
            one.communicate(timeout=60)
    commits = sum(int(one[0]) for one in found)
    processor = sum(float(one[1]) for one in found)
    syncs = max(int(one[2]) for one in found)
    return Turn(commits / took, processor / commits * 1e6, commits / max(syncs, 1))


def _tell(running: Sequence[subprocess.Popen[str]]) -> None:
    for one in running:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()


def _read(one: subprocess.Popen[str]) -> str:
    assert one.stdout is not None
    return one.stdout.readline()


def _shape(text: str) -> tuple[int, int, bool]:
    processes, threads = text.split("x")
    return int(processes), int(threads), True


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "True")
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--shapes", nargs="+", default=["1x1", "1x64", "2x32", "4x16", "16x16"])
    options = parser.parse_args()
    shapes = [_shape(text) for text in options.shapes]
    found: dict[tuple[int, int, bool], list[Turn]] = {}
    for _ in range(options.turns):
        for processes, threads, shared in (ALONE, *shapes):
            one = turn(processes, threads, options.seconds, shared)
            found.setdefault((processes, threads, shared), []).append(one)
    print("processes x threads    commits/s  ratio  us/commit  commits/sync")
    for shape, turns in found.items():
        name = f"{shape[0]} x {shape[1]}, {'shared' if shape[2] else 'alone'}"
        ratio = statistics.median(
            one.rate / alone.rate for one, alone in zip(turns, found[ALONE], strict=True)
        )
        rate, processor, per_sync = (statistics.median(one) for one in zip(*turns, strict=True))
        print(f"{name:<22}{rate:>10,.0f}{ratio:>7.2f}{processor:>11.1f}{per_sync:>14.1f}")


if __name__ == "__main__":
    main()
