"""The circular journal: durable adds per second, ours beside the real Artemis journal.

``python benchmarks/jboss_commit.py [--seconds 3] [--threads 1 64] [--body 200] [--original]``.
Every add is on the disk when it returns. Artemis has its NIO defaults: timed buffer of 490 KiB and
3.33 ms; so do we but for the timer, which our group writer does not need.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

from tallystick.systems.jboss.log import CircularJournal, JournalSettings


def our_rate(folder: Path, threads: int, seconds: float, body: int) -> tuple[float, float]:
    """Adds per second, and adds per sync."""
    payload = bytes(body)
    counts = [0] * threads
    with CircularJournal(str(folder), JournalSettings()) as journal:
        end = time.perf_counter() + seconds

        def work(number: int) -> None:
            while time.perf_counter() < end:
                journal.append_add_record(number + threads * counts[number], 1, payload).wait()
                counts[number] += 1

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        rate = sum(counts) / (time.perf_counter() - begin)
        return rate, sum(counts) / max(journal.counters.fsyncs, 1)


def original_rate(folder: Path, threads: int, seconds: float, body: int) -> float:
    """Adds per second of the real journal, after a warm-up of a second."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.interop.jboss.original import real_journal

    with real_journal("artemis", folder, buffered=True) as journal:
        journal.load()
        journal.tell(f"bench {threads} 1 {body}")
        (line,) = journal.tell(f"bench {threads} {seconds} {body}")
        return float(line.split()[1])


def main() -> None:
    """Print one line per number of callers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--body", type=int, default=200)
    parser.add_argument("--original", action="store_true")
    chosen = parser.parse_args()
    for threads in chosen.threads:
        with tempfile.TemporaryDirectory() as name:
            ours, per_sync = our_rate(Path(name), threads, chosen.seconds, chosen.body)
        text = f"{threads:4} callers: ours {ours:10,.0f} adds/s, {per_sync:6.1f} per sync"
        if chosen.original:
            with tempfile.TemporaryDirectory() as name:
                theirs = original_rate(Path(name), threads, chosen.seconds, chosen.body)
            text += f"; Artemis {theirs:10,.0f}; {ours / theirs:.1f} x"
        print(text)


if __name__ == "__main__":
    main()
