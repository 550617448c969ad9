"""Derby's log: durable commits per second, ours beside the real one's, in one run.

``python benchmarks/derby_commit.py [--seconds 2] [--rounds 3] [--callers 1 64] [--derby]``. Each
caller begins, logs one insert with a row of 96 bytes, and commits; every commit is on the disk
when it counts. Callers are threads, and separately asyncio tasks, which only ours knows. Beside:

* *log alone*: Derby 10.14.2.0's raw store, ``Transaction.logAndDo`` and ``commit`` in 64 threads:
  its LogToFile and LogAccessFile with their defaults, without SQL, pages and locks;
* *database*: its embedded database, one-row inserts by JDBC, which does all of that too.

Rates are medians of alternating rounds and vary with the machine; compare only what one run
prints. Derby is fetched by Maven coordinates.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from callers import arguments, table, task_rate, thread_rate

from tallystick.roles import Ticket
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import (
    compressed_int,
    compressed_long,
    format_id,
)
from tallystick.systems.derby.live.log import LogToFile

ORIGINALS = {"Derby's log alone": "RawLog", "Derby's database": "Commits"}
PAGE = b"".join(map(compressed_long, (0, 1168, 1, 0)))
INSERT = format_id(operations.INSERT) + PAGE + compressed_int(6) + b"\0\0\0\1"
IMAGE = b"\0\6\1\x20\0\x60" + bytes(96)


def our_rate(folder: str, callers: int, seconds: float, *, tasks: bool) -> tuple[float, float]:
    """Commits per second, and commits per write, each of which is synced."""
    with LogToFile(folder) as log:

        def commit(_caller: int, _count: int) -> Ticket:
            number = log.begin()
            log.log(number, INSERT, IMAGE)
            return log.submit_commit(number)

        rate = (task_rate if tasks else thread_rate)(commit, callers, seconds)
        return rate, log.counters.records / max(log.counters.groups, 1)


def original_rate(program: str, folder: str, callers: int, seconds: float) -> float:
    """Commits per second of Derby 10.14.2.0 with its defaults."""
    root = Path(__file__).parents[1]
    sys.path.insert(0, str(root))
    from tests.interop.java import classpath, compile_java, run_java

    jars = classpath(["org.apache.derby:derby:10.14.2.0"])
    classes = compile_java(root / "tests" / "interop" / "derby", jars)
    printed = run_java(
        program,
        folder,
        callers,
        seconds,
        classpath=f"{jars}:{classes}",
        options=["-Dderby.stream.error.file=/dev/null"],
        timeout_s=2 * seconds + 120,
    )
    return float(printed.split()[-1])


def one_round(place: str, callers: int, seconds: float, *, derby: bool) -> dict[str, float]:
    """One turn of everything, in a folder of its own."""
    threads, per_write = our_rate(f"{place}/threads", callers, seconds, tasks=False)
    rates = {"ours, threads": threads, "ours, threads: commits per sync": per_write}
    rates["ours, tasks"], _ = our_rate(f"{place}/tasks", callers, seconds, tasks=True)
    for name, program in ORIGINALS.items() if derby else ():
        rates[name] = original_rate(program, f"{place}/{program}", callers, seconds)
    return rates


def main() -> None:
    """Measure."""
    chosen = arguments(__doc__, "derby").parse_args()
    for callers in chosen.callers:
        rounds = []
        for _ in range(chosen.rounds):
            with tempfile.TemporaryDirectory() as place:
                rounds.append(one_round(place, callers, chosen.seconds, derby=chosen.derby))
        table(callers, rounds, list(ORIGINALS))


if __name__ == "__main__":
    main()
