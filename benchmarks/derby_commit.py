"""Durable commits per second: our live log and, with ``--derby``, the real database beside it.

``python benchmarks/derby_commit.py [--seconds 3] [--derby]``. Each caller begins, logs one insert
of 100 bytes and commits; every commit is on the disk when it returns. Derby does more for each
(SQL, pages, locks); its log is the part that waits. Derby is fetched by Maven coordinates.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

from tallystick.systems.derby import operations
from tallystick.systems.derby.encodings import compressed_int, compressed_long, format_id
from tallystick.systems.derby.log import LogToFile

CALLERS = (1, 8, 64)


def ours(folder: str, callers: int, seconds: float) -> tuple[float, float]:
    """Commits per second, and flushes per commit; each flush is durable when it ends."""
    page = b"".join(map(compressed_long, (0, 1168, 1, 0)))
    insert = format_id(operations.INSERT) + page + compressed_int(6) + b"\0\0\0\1"
    image = b"\0\6\1\x20\0\x60" + bytes(96)
    done = [0] * callers
    with LogToFile(folder, archive=True, switch_interval=64 << 20) as log:
        end = time.monotonic() + seconds

        def work(caller: int) -> None:
            while time.monotonic() < end:
                number = log.begin()
                log.log(number, insert, image)
                log.commit(number)
                done[caller] += 1

        threads = [threading.Thread(target=work, args=(caller,)) for caller in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        flushes = log.counters.groups
    return sum(done) / seconds, flushes / max(sum(done), 1)


def derbys(folder: str, callers: int, seconds: float) -> float:
    """Commits per second of Derby 10.14.2.0 with its defaults."""
    root = Path(__file__).parents[1]
    sys.path.insert(0, str(root))
    from tests.interop.java import classpath, compile_java, run_java

    jars = classpath(["org.apache.derby:derby:10.14.2.0"])
    classes = compile_java(root / "tests" / "interop" / "derby", jars)
    printed = run_java(
        "Commits",
        folder,
        callers,
        seconds,
        classpath=f"{jars}:{classes}",
        options=["-Dderby.stream.error.file=/dev/null"],
        timeout_s=seconds + 120,
    )
    return float(printed.split()[-1])


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--derby", action="store_true", help="the real database too")
    options = parser.parse_args()
    for callers in CALLERS:
        with tempfile.TemporaryDirectory() as folder:
            rate, share = ours(f"{folder}/log", callers, options.seconds)
            line = f"{callers:3} callers: ours {rate:8,.0f} commits/s, {share:.3f} flushes each"
            if options.derby:
                theirs = derbys(f"{folder}/db", callers, options.seconds)
                line += f"; Derby {theirs:8,.0f} commits/s; ratio {rate / theirs:.1f}"
            print(line)


if __name__ == "__main__":
    main()
