"""Syncs per commit of engines that do not count their own, counted by ``strace``.

In: the name of a function of `engine_peers` and a number of callers. Out: calls of ``fsync`` and
``fdatasync`` per commit, in a process of its own, outside of every timing; None without strace.
Two runs of different length are compared, so what opening and closing sync does not count.

``python benchmarks/engine_syncs.py PEER CALLERS COMMITS`` is the traced run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

import engine_peers

COMMITS = (4, 24)
"""Commits of each caller in the shorter and in the longer run."""
_CALLS = ("fsync", "fdatasync")


@cache
def syncs_per_commit(peer: str, callers: int) -> float | None:
    """Counted now; None if there is no strace, or it is not allowed to trace."""
    counts = [_traced(peer, callers, commits) for commits in COMMITS]
    if None in counts:
        return None
    few, many = (count or 0 for count in counts)
    return (many - few) / (callers * (COMMITS[1] - COMMITS[0]))


def _traced(peer: str, callers: int, commits: int) -> int | None:
    strace = shutil.which("strace")
    if strace is None:
        return None
    command = [strace, "-f", "-c", "-e", f"trace={','.join(_CALLS)}"]
    command += [sys.executable, __file__, peer, str(callers), str(commits)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    # share of time, seconds, microseconds per call, calls, errors (if any), name
    rows = [line.split() for line in done.stderr.splitlines()]
    return sum(int(row[3]) for row in rows if len(row) >= 5 and row[-1] in _CALLS)


def commit_all(peer: str, callers: int, commits: int) -> None:
    """So many commits of each of so many threads."""
    with (
        tempfile.TemporaryDirectory() as folder,
        getattr(engine_peers, peer)(Path(folder)) as engine,
    ):

        def work() -> None:
            for _ in range(commits):
                engine.commit()

        threads = [threading.Thread(target=work) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    commit_all(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
