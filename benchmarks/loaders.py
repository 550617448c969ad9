"""Each historic log read by us and by its original's own loader or tool: the same files, one run.

``python benchmarks/loaders.py [--mib 64] [--only NAME ...]``. Ours is `LogReading.batches`, every
checksum verified, every record in a row. The originals, fetched by Maven coordinates, run in a
virtual machine of their own; its start is not counted, and of several runs the fastest counts.

* bitronix: the cursor of 2.1.4, which its recovery and its console read with, over one file;
* jboss: the load of the Artemis journal (2.40), which keeps every live record in memory;
* h2: opening the database (1.4.200), which recovers from the log, and its Recover tool, which
  writes what it finds as SQL;
* derby: booting the database (10.14.2.0), which redoes the log.

CloudTran has no original that could be run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import bitronix_scan  # noqa: E402 - the path is set above
import jboss_scan  # noqa: E402
from tests.interop.bitronix.original import read_records  # noqa: E402
from tests.interop.java import classpath, compile_java, run_java  # noqa: E402

from tallystick.reading.discovery import discover  # noqa: E402
from tallystick.storage.zeros import last_nonzero_end  # noqa: E402
from tallystick.systems.protocol import ReadOptions  # noqa: E402
from tallystick.systems.registry import system  # noqa: E402

H2 = "com.h2database:h2:1.4.200"
DERBY = "org.apache.derby:derby:10.14.2.0"
ROUNDS = 3
LIMIT_S = 300
BITRONIX_MIB = 8
"""Its cursor takes seconds for each."""

Line = tuple[str, str, float, float, int]
"""Log, what the original does, its seconds, ours, bytes of the log."""


def our_seconds(folder: Path) -> float:
    """The fastest of some readings of the only log there; the first compiles."""
    (source,) = discover(folder).logs
    seconds = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        for _batch in system(source.system).read(source, ReadOptions()).batches():
            pass
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def run(name: str, jar: str, program: str, *arguments: object) -> dict[str, float]:
    """The fewest seconds that the program printed for each word."""
    jars = classpath([jar])
    classes = compile_java(ROOT / "tests" / "interop" / name, jars)
    printed = run_java(
        program,
        *arguments,
        classpath=f"{jars}:{classes}",
        options=["-Dderby.stream.error.file=/dev/null"],
        timeout_s=LIMIT_S,
    )
    found: dict[str, float] = {}
    for line in printed.splitlines():
        word, nanoseconds = line.split()
        found[word] = min(found.get(word, float("inf")), int(nanoseconds) / 1e9)
    return found


def bitronix(folder: Path, mib: int) -> Iterator[Line]:
    bitronix_scan.generate(folder / "journal", min(mib, BITRONIX_MIB))
    theirs, _ = read_records(folder / "journal" / "btm1.tlog", timeout_s=LIMIT_S)
    size = bitronix_scan.used_bytes(folder / "journal")
    yield "bitronix", "cursor", theirs, our_seconds(folder / "journal"), size


def jboss(folder: Path, mib: int) -> Iterator[Line]:
    for body in (200, 1000):
        place = folder / str(body)
        place.mkdir()
        jboss_scan.generate(place, mib, body)
        size = sum(path.stat().st_size for path in place.glob("*.amq"))
        ours = our_seconds(place)
        theirs = jboss_scan.original_seconds(place)
        yield f"jboss, bodies of {body}", "load", theirs, ours, size


def h2(folder: Path, mib: int) -> Iterator[Line]:
    path = folder / "db.h2.db"
    run("h2", H2, "LoadLog", "make", path, mib)
    ours = our_seconds(folder)
    for word, seconds in run("h2", H2, "LoadLog", "time", path, ROUNDS).items():
        yield "h2", word, seconds, ours, path.stat().st_size


def derby(folder: Path, mib: int) -> Iterator[Line]:
    run("derby", DERBY, "BootLog", "make", folder / "db", min(mib, 100))
    ours = our_seconds(folder / "db" / "log")
    contents = [path.read_bytes() for path in (folder / "db" / "log").glob("log*.dat")]
    size = sum(last_nonzero_end(memoryview(data), 0, len(data)) for data in contents)
    copies = [folder / f"copy{number}" for number in range(ROUNDS)]
    for copy in copies:
        shutil.copytree(folder / "db", copy)
    yield "derby", "boot", run("derby", DERBY, "BootLog", "boot", *copies)["boot"], ours, size


LOGS: dict[str, Callable[[Path, int], Iterator[Line]]] = {
    one.__name__: one for one in (bitronix, jboss, h2, derby)
}


def main() -> None:
    """Print one line per original."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=LOGS, default=list(LOGS))
    chosen = parser.parse_args()
    for name in chosen.only:
        with tempfile.TemporaryDirectory() as folder:
            for log, what, theirs, ours, size in LOGS[name](Path(folder), chosen.mib):
                print(
                    f"{log:24}{size / 1e6:7.0f} MB  ours {size / ours / 1e6:6.0f} MB/s  "
                    f"original's {what:8}{size / theirs / 1e6:7.1f} MB/s  {theirs / ours:7.1f} x",
                    flush=True,
                )


if __name__ == "__main__":
    main()
