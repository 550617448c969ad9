"""Random histories of many threads, checked against what the page store promises.

Every row holds its version and the transaction that wrote it. From what the threads saw follows:

* no update is lost, and nothing that was rolled back is ever seen
* transactions that lock what they read are serialised, in the order of real time
* a read sees what was committed when it began or later, and never an older state
* one batch of a scan sees every transaction whole or not at all
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tallystick.errors import BusyError
from tallystick.services.page_store import PageStore, Session, Table
from tests.services.page_store.test_concurrency import in_threads

SYSTEMS = ["tally", "h2"]
ROWS = 12
WRITERS = 5
LOOKS = 10
"""What each reader has seen before the writers end."""
NO_WRITER = "none"


@dataclass
class Done:
    """A transaction that committed: versions written by row, and when it ran."""

    name: str
    writes: dict[int, int]
    begun: float
    asked: float
    acknowledged: float


@dataclass
class Seen:
    """One read of a reader: version and writer by row."""

    rows: dict[int, tuple[int, str]]
    begun: float
    ended: float


@dataclass
class History:
    """Every commit and read; ``busy`` counts deadlocks that ended."""

    done: list[Done] = field(default_factory=list)
    seen: list[list[Seen]] = field(default_factory=list)
    busy: int = 0


def packed(version: int, writer: str) -> bytes:
    return f"{version} {writer} ".encode().ljust(200)


def unpacked(row: bytes) -> tuple[int, str]:
    version, writer, *_ = row.decode().split()
    return int(version), writer


def write(tx: Session, chance: random.Random, name: str) -> dict[int, int]:
    """Lock some rows in any order, and write the next version of each."""
    table, writes = tx.table("t"), dict[int, int]()
    for key in chance.sample(range(ROWS), chance.randrange(1, 5)):
        writes[key] = unpacked(table.for_update(key))[0] + 1
        table[key] = packed(writes[key], name)
    point = tx.savepoint()
    table[next(iter(writes))] = packed(10**6, "undone")
    table[ROWS + chance.randrange(50)] = b"undone"
    tx.rollback_to(point)
    return writes


def work(store: PageStore, history: History, seed: int, count: int) -> None:
    """Run transactions that commit in one phase or two, roll back, or conflict."""
    chance = random.Random(seed)
    for number in range(count):
        name, begun, tx = f"{seed}.{number}", time.perf_counter(), store.begin()
        try:
            writes = write(tx, chance, name)
        except BusyError:
            tx.rollback()
            history.busy += 1
            continue
        end = chance.randrange(8)
        if end == 0:
            tx.rollback()
            continue
        if end < 4:
            tx.prepare(name)
        if end == 1:
            store.settle(name, commit=False)
            continue
        asked = time.perf_counter()
        if end == 2:
            store.settle(name, commit=True)
        else:
            tx.commit()
        history.done.append(Done(name, writes, begun, asked, time.perf_counter()))


def look(table: Table, chance: random.Random) -> Seen:
    begun = time.perf_counter()
    if chance.random() < 0.5:
        rows = dict(table.range(0, ROWS))
    else:
        key = chance.randrange(ROWS)
        rows = {key: table[key]}
    ended = time.perf_counter()
    return Seen({key: unpacked(row) for key, row in rows.items()}, begun, ended)


def read(store: PageStore, over: threading.Event, seed: int, seen: list[Seen]) -> None:
    chance = random.Random(seed)
    while not over.is_set():
        with store.begin() as tx:
            seen.append(look(tx.table("t"), chance))
        time.sleep(0.0005)


def recorded(store: PageStore, seed: int, count: int) -> History:
    """Run writers, readers and a thread that makes checkpoints at the same time."""
    history, over = History(seen=[[], []]), threading.Event()
    running = threading.Semaphore(0)

    def writer(number: int) -> None:
        try:
            for again in range(100 // WRITERS):  # until the readers have looked, too
                work(store, history, seed * 100 + number + again * WRITERS, count)
                if all(len(seen) > LOOKS for seen in history.seen):
                    break
        finally:
            running.release()

    def checkpoints() -> None:
        while not over.wait(0.01):
            store.checkpoint()

    def stop() -> None:
        for _ in range(WRITERS):
            running.acquire()
        over.set()

    failures = in_threads(
        *[lambda number=number: writer(number) for number in range(WRITERS)],
        *[lambda n=n, one=one: read(store, over, n, one) for n, one in enumerate(history.seen)],
        checkpoints,
        stop,
    )
    assert failures == []
    return history


def check_writers(history: History) -> dict[int, dict[int, Done]]:
    """Check that no version is repeated or missing, and that one order in time explains all."""
    versions: dict[int, dict[int, Done]] = defaultdict(dict)
    for one in history.done:
        for key, version in one.writes.items():
            assert version not in versions[key], "an update was lost"
            versions[key][version] = one
    order: TopologicalSorter[str] = TopologicalSorter()
    for written in versions.values():
        assert sorted(written) == list(range(1, len(written) + 1)), "rolled back, but seen"
        for version in range(2, len(written) + 1):
            before, after = written[version - 1], written[version]
            assert before.begun < after.acknowledged, "against the order of time"
            order.add(after.name, before.name)
    order.prepare()  # raises CycleError if no serial order exists
    return versions


def check_reader(seen: list[Seen], versions: dict[int, dict[int, Done]]) -> None:
    last: dict[int, int] = defaultdict(int)
    for one in seen:
        for key, (version, writer) in one.rows.items():
            author = versions[key].get(version)
            assert writer == (author.name if author else NO_WRITER), "never committed"
            assert author is None or author.asked < one.ended, "seen before it was committed"
            assert version >= last[key], "a reader went back"
            following = versions[key].get(version + 1)
            assert following is None or following.acknowledged > one.begun, "an old version"
            last[key] = version


def check_whole(seen: Seen, history: History) -> None:
    """Check that a scan of every row saw each transaction whole or not at all."""
    if len(seen.rows) == ROWS:
        for one in history.done:
            there = {seen.rows[key][0] >= version for key, version in one.writes.items()}
            assert len(there) == 1, f"{one.name} was seen in part"


def run(path: Path, system: str, seed: int, count: int) -> History:
    options = {"system": system, "cache_bytes": 0, "checkpoint_bytes": 50_000, "lock_timeout": 0.02}
    with PageStore(path, **options) as store:  # type: ignore[arg-type]
        store.create_table("t")
        with store.begin() as tx:
            for key in range(ROWS):
                tx.table("t")[key] = packed(0, NO_WRITER)
        history = recorded(store, seed, count)
    versions = check_writers(history)
    for seen in history.seen:
        check_reader(seen, versions)
        for one in seen:
            check_whole(one, history)
    with PageStore(path, system=system) as store, store.begin() as tx:
        rows = {key: unpacked(row)[0] for key, row in tx.table("t").items()}
        assert rows == {key: len(versions[key]) for key in range(ROWS)}
        assert not store.check()
    return history


@pytest.mark.parametrize("system", SYSTEMS)
def test_histories_of_many_threads_keep_every_promise(tmp_path: Path, system: str) -> None:
    history = run(tmp_path / "s", system, seed=1, count=25)
    assert len(history.done) > 10
    assert min(map(len, history.seen)) > LOOKS


@pytest.mark.soak
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("seed", range(10))
def test_long_histories_of_many_threads(tmp_path: Path, system: str, seed: int) -> None:
    history = run(tmp_path / "s", system, seed=seed, count=300)
    print(system, seed, len(history.done), history.busy)  # noqa: T201 - the figures of the run
