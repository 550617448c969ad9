"""What a verdict on a log costs, by system: processor time per GB, and the peak of memory.

``python benchmarks/verdicts.py [SYSTEM ...] [--mib 64] [--live 10] [--damage]`` writes a log of
each system by its own writer, and asks `explain`, `triage`, `inspect` and `verify` about it, each
in a process of its own that has loaded its compiled code by a small log first. ``--live`` is the
share of its work, in percent, that stays open. ``--damage`` asks `explain` again with one bit
flipped in the first and in the last percent of the bytes in use, and with one file missing.
``--beside PATH ...`` writes nothing: it asks `explain` about what is there (`databases.py`), in
turn with and without what a restart opens besides the logs, and prints the least time of each.
``resident`` is the peak of the process with the pages of files that it has mapped, its libraries'
too, ``private`` the one without them, as the system counts them. The last column is the share of
the records that were read in runs.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import bitronix_scan
import cloudtran_scan
import h2_scan
import jboss_scan
from tables_scan import ROWS, WRITERS

from tallystick.reading.discovery import discover
from tallystick.reading.survey import explain, inspect, verify
from tallystick.reading.triaging import triage
from tallystick.services.journal import Journal
from tallystick.storage.zeros import last_nonzero_end
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import system

Answer = TypeVar("Answer")

ASKED: dict[str, Callable[[str], object]] = {
    "explain": explain,
    "triage": triage,
    "inspect": inspect,
    "verify": verify,
}


def _native(folder: Path, mib: int, live: int) -> None:
    """Write a journal of which each transaction deletes most of what the one before has added."""
    added: deque[int] = deque()
    with Journal(str(folder)) as journal:
        for number in range((mib << 20) // (ROWS * 400)):
            with journal.transaction() as transaction:
                for row in range(ROWS):
                    transaction.add(number * ROWS + row, bytes(200))
                while added:
                    transaction.delete(added.popleft())
            rows = range(number * ROWS, (number + 1) * ROWS)
            added.extend(row for row in rows if row % 100 >= live)


LIVE: dict[str, Callable[[Path, int, int], object]] = {
    "bitronix": lambda folder, mib, live: bitronix_scan.generate(folder, mib, live=live),
    "cloudtran": lambda folder, mib, live: cloudtran_scan.generate(
        folder, mib, 200, compress=False, live=live, file_mb=16
    ),
    "jboss": lambda folder, mib, live: jboss_scan.generate(folder, mib, 200, live),
    "h2": lambda folder, mib, live: h2_scan.make(folder / "test.h2.db", mib << 20, 200, live),
    "tally": _native,
}
"""Writers that leave a share of what they write live, in percent."""
SMALL_MIB = 3
"""Size of the log that is asked about first: large enough to load what the large one needs."""
SAMPLE_S = 0.02
ROUNDS = 10


def ask(command: str, small: str, large: str) -> None:
    """Ask about both logs and print what the second one cost."""
    ASKED[command](small)
    _, seconds, peak = measured(lambda: ASKED[command](large))
    print(json.dumps([seconds, peak, status("VmHWM")]))


def measured(call: Callable[[], Answer]) -> tuple[Answer, float, int]:
    """Make a call; return its answer, the seconds of processors, and the peak of ``RssAnon``."""
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(SAMPLE_S):
            peak = max(peak, status("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.process_time()
    answer = call()
    seconds = time.process_time() - begin
    done.set()
    watcher.join()
    return answer, seconds, max(peak, status("RssAnon"))


def status(name: str) -> int:
    """Return a size of this process, in KiB, by its name in ``/proc``."""
    text = Path("/proc/self/status").read_text("utf-8")
    (line,) = (one for one in text.splitlines() if one.startswith(f"{name}:"))
    return int(line.split()[1])


def cost(command: str, small: Path, large: Path) -> tuple[float, int, int]:
    """Return what `ask` prints, in a process of its own."""
    call = [sys.executable, __file__, "--ask", command, str(small), str(large)]
    answer = subprocess.run(call, check=True, capture_output=True, text=True)
    seconds, private, resident = json.loads(answer.stdout.splitlines()[-1])
    return seconds, private, resident


def share(folder: Path) -> str:
    """Return the share of the records that a verdict on the log below a folder read in runs."""
    (log,) = discover(folder).logs
    reading = system(log.system).read(log, ReadOptions())
    reading.verdict()
    count = getattr(reading, "run_count", None)
    return "" if count is None else f"{count.share:7.1%}"


def used(folder: Path) -> int:
    """Return how many bytes of the log below a folder are in use."""
    (log,) = discover(folder).logs
    return sum(_content_end(Path(file)) for file in log.files)


def _content_end(path: Path) -> int:
    data = memoryview(path.read_bytes())
    return last_nonzero_end(data, 0, len(data))


def damages(folder: Path) -> Iterator[str]:
    """Damage the log below a folder in turn, and mend it after each turn."""
    (log,) = discover(folder).logs
    ends = {Path(file): _content_end(Path(file)) for file in log.files}
    total = sum(ends.values())
    for name, part in (("bit in first %", 0.005), ("bit in last %", 0.995)):
        place = int(total * part)
        for path in sorted(ends):
            if place < ends[path]:
                break
            place -= ends[path]
        _flip(path, place)
        yield name
        _flip(path, place)
    if len(ends) > 1:
        gone = sorted(ends, key=lambda one: (ends[one], one))[0]
        kept = gone.rename(folder.parent / "kept")
        yield "file missing"
        kept.rename(gone)


def _flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))


def write(name: str, folder: Path, mib: int, live: int) -> None:
    """Write a log of a system, of which so many percent stay live where its writer can."""
    if live and name in LIVE:
        folder.mkdir()
        LIVE[name](folder, mib, live)
    else:
        WRITERS[name](folder, mib)


def measure(name: str, folder: Path, given: argparse.Namespace) -> None:
    """Write logs of a system and print a line per command."""
    small, large = folder / "small", folder / "large"
    write(name, small, SMALL_MIB, given.live)
    write(name, large, given.mib, given.live)
    size = used(large)
    print(f"{name}: {size / 1e6:.0f} MB in use, {given.live if name in LIVE else 0} % live")
    for command in ASKED:
        _show(command, size, cost(command, small, large), share(large))
    for kind in damages(large) if given.damage else ():
        _show(kind, size, cost("explain", small, large), share(large))


def _show(what: str, size: int, costs: tuple[float, int, int], share: str) -> None:
    seconds, private, resident = costs
    print(
        f"  {what:15}{seconds:8.2f} s{seconds / size * 1e9:8.1f} s/GB"
        f"{private / 1024:7.0f} MiB private{resident / 1024:7.0f} MiB resident {share}",
        flush=True,
    )


def beside(path: str) -> None:
    """Print what `explain` takes with and without what is beside the logs below a path."""
    least = {True: math.inf, False: math.inf}
    for log_only in [True, False] * ROUNDS:
        begin = time.process_time()
        explain(path, options=ReadOptions(log_only=log_only))
        least[log_only] = min(least[log_only], time.process_time() - begin)
    alone, whole = least[True], least[False]
    size = sum(_content_end(Path(file)) for log in discover(path).logs for file in log.files)
    print(f"{path}: {size / 1e6:.0f} MB of logs in use, {alone:.3f} s, {whole:.3f} s with what is")
    print(f"  beside them: {whole / alone:.2f} times, {whole / size * 1e9:.1f} s/GB", flush=True)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("systems", nargs="*", help=", ".join(WRITERS))
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--live", type=int, default=0, help="percent that stay live")
    parser.add_argument("--damage", action="store_true", help="ask about damaged copies, too")
    parser.add_argument("--beside", nargs="+", metavar="PATH", help="ask with and without the rest")
    parser.add_argument("--ask", nargs=3, metavar=("COMMAND", "SMALL", "LARGE"))
    given = parser.parse_args()
    if given.ask:
        ask(*given.ask)
        return
    if given.beside:
        for path in given.beside:
            beside(path)
        return
    for name in given.systems or WRITERS:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, Path(folder), given)


if __name__ == "__main__":
    main()
