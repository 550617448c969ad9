"""Durable commits per second: ours beside its peers, in one alternating run.

``python benchmarks/engine_commit.py [--seconds 1] [--rounds 3] [--callers 1 16 64] [--json]``.
256-byte bodies. Each round runs every engine once, so that a noisy disk is noisy for all; the
table shows medians of the rounds. Rates vary with the machine: compare only what one run prints.
Syncs of the peers are counted by strace, in runs of their own after the timed ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from engine_peers import BODY, PEERS, Peer
from engine_syncs import syncs_per_commit

from tallystick.services.journal import AsyncJournal

Row = dict[str, Any]


def measure(peer: Peer, callers: int, seconds: float) -> Row:
    """Rate, latencies and syncs of ``callers`` threads that commit as fast as they can."""
    peer.commit()
    latencies: list[list[float]] = [[] for _ in range(callers)]
    syncs = peer.syncs()
    begin = time.perf_counter()
    end = begin + seconds

    def work(own: list[float]) -> None:
        now = time.perf_counter()
        while now < end:
            peer.commit()
            before, now = now, time.perf_counter()
            own.append(now - before)

    if callers == 1:
        work(latencies[0])
    else:
        threads = [threading.Thread(target=work, args=(own,)) for own in latencies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return _row(peer, latencies, time.perf_counter() - begin, syncs)


def _row(peer: Peer, latencies: list[list[float]], seconds: float, syncs: int | None) -> Row:
    every = sorted(one for own in latencies for one in own)
    now = peer.syncs()
    return {
        "engine": peer.name,
        "durability": peer.durability,
        "rate": len(every) / seconds,
        "p50_ms": every[len(every) // 2] * 1000,
        "p99_ms": every[len(every) * 99 // 100] * 1000,
        "syncs_per_commit": None if now is None or syncs is None else (now - syncs) / len(every),
    }


def measure_tasks(folder: Path, tasks: int, seconds: float) -> Row:
    """Ours with that many asyncio tasks."""

    async def run() -> Row:
        latencies: list[list[float]] = [[] for _ in range(tasks)]
        async with await AsyncJournal.open(str(folder / "tasks")) as journal:
            begin = time.perf_counter()

            async def work(own: list[float]) -> None:
                now = time.perf_counter()
                while now < begin + seconds:
                    await journal.append(BODY)
                    before, now = now, time.perf_counter()
                    own.append(now - before)

            await asyncio.gather(*map(work, latencies))
            counters = journal.counters
            peer = Peer("tallystick", "fdatasync", lambda: None, lambda: counters.fsyncs)
            return _row(peer, latencies, time.perf_counter() - begin, 0)

    return asyncio.run(run())


def rounds(
    callers: int, engines: Sequence[Callable[[Path], AbstractContextManager[Peer]]],
    count: int, seconds: float,
) -> list[Row]:  # fmt: skip
    """The median row of each engine over alternating rounds."""
    rows: dict[str, list[Row]] = {}
    for _ in range(count):
        for engine in engines:
            with tempfile.TemporaryDirectory() as folder, engine(Path(folder)) as peer:
                rows.setdefault(engine.__name__, []).append(measure(peer, callers, seconds))
    medians = {name: _median(every) for name, every in rows.items()}
    for name, row in medians.items():
        if row["syncs_per_commit"] is None:
            row["syncs_per_commit"] = syncs_per_commit(name, callers)
    return list(medians.values())


def _median(rows: list[Row]) -> Row:
    row = dict(rows[0])
    for name in ("rate", "p50_ms", "p99_ms", "syncs_per_commit"):
        values = [one[name] for one in rows if one[name] is not None]
        row[name] = statistics.median(values) if values else None
    return row


def show(title: str, rows: list[Row]) -> None:
    """A table, with each rate beside ours."""
    ours = next(row["rate"] for row in rows if row["engine"] == "tallystick")
    print(f"\n{title}")
    print(f"  {'':26}{'commits/s':>11}{'ours is':>10}{'p50 ms':>9}{'p99 ms':>9}  syncs/commit")
    for row in rows:
        syncs = (
            "not counted" if row["syncs_per_commit"] is None else f"{row['syncs_per_commit']:.3f}"
        )
        print(
            f"  {row['engine']:26}{row['rate']:>11,.0f}{ours / row['rate']:>9.2f}x"
            f"{row['p50_ms']:>9.2f}{row['p99_ms']:>9.2f}  {syncs} ({row['durability']})"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--callers", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    tables = {
        f"{callers} caller{'s' if callers > 1 else ''}": rounds(
            callers, PEERS, given.rounds, given.seconds
        )
        for callers in given.callers
    }
    if given.tasks:
        tables[f"{given.tasks} tasks beside one caller of SQLite"] = _tasks(given)
    if given.json:
        print(json.dumps(tables))
        return
    for title, rows in tables.items():
        show(title, rows)


def _tasks(given: argparse.Namespace) -> list[Row]:
    sqlite = [peer for peer in PEERS if peer.__name__ == "sqlite_full"]
    ours, theirs = [], []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            ours.append(measure_tasks(Path(folder), given.tasks, given.seconds))
        theirs += rounds(1, sqlite, 1, given.seconds)
    return [_median(ours), _median(theirs)]


if __name__ == "__main__":
    main()
