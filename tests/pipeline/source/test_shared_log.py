"""Reading a log that several processes write, while their leader is killed or stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tallystick import Journal
from tallystick.pipeline.options import Limit, SourceOptions
from tallystick.pipeline.source.positions import Position
from tallystick.services.journal import Journal as SharedJournal
from tests.systems.tally.live.shared.kit import Worker, leader_of, wait_for, workers
from tests.systems.tally.live.shared.worker import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORKERS = 3
_KILLS = 4


def _begin(start: Callable[..., Worker]) -> Worker:
    one = start(2, 0)
    one.ready()
    one.tell("go")
    return one


def _change_leaders(home: Path, start: Callable[..., Worker], chance: random.Random) -> set[bytes]:
    """Kill and stop leaders while processes write; return what was acknowledged."""
    log = home / "log"
    everyone = [_begin(start) for _ in range(_WORKERS)]
    running = list(everyone)
    for turn in range(_KILLS):
        time.sleep(chance.uniform(0.1, 0.4))
        wait_for(lambda: leader_of(log))
        leader = leader_of(log)
        victim = next((one for one in running if one.pid == leader), running[0])
        survivor = next(one for one in running if one is not victim)
        before = survivor.notes.stat().st_size
        if turn % 2:
            os.kill(victim.pid, signal.SIGSTOP)
        else:
            running.remove(victim)
            victim.kill()
        wait_for(lambda: survivor.notes.stat().st_size > before + 100)  # noqa: B023 - called here
        if turn % 2:
            os.kill(victim.pid, signal.SIGCONT)
        else:
            running.append(_begin(start))
            everyone.append(running[-1])
    for one in running:
        one.end()
    return {body for one in everyone for body in one.acknowledged()}


def _whole(log: Path) -> list[bytes]:
    with Journal(log) as journal:
        return [(record.body or b"").rstrip(b"\0") for record in journal.replay()]


def _check(seen: list[bytes], log: Path, acknowledged: set[bytes]) -> None:
    twice = [body for body, count in Counter(seen).items() if count > 1]
    assert not twice, f"{len(twice)} records came twice: {twice[:3]}"
    lost = acknowledged.difference(seen)
    assert not lost, f"{len(lost)} acknowledged records did not come: {sorted(lost)[:3]}"
    assert sorted(seen) == sorted(_whole(log)), "others came than the log holds"


class _Stream(threading.Thread):
    """The data source as Spark drives it, step after step, until it is told to end."""

    def __init__(self, home: Path) -> None:
        from tallystick.pipeline.source.stream import LogStreamReader

        super().__init__(daemon=True)
        limit = Limit(rows=200)
        self._options = SourceOptions(
            (str(home / "log"),), limit=limit, hold_folder=str(home / "hold")
        )
        self._reader = LogStreamReader(self._options)
        self._position: Position = {}
        self._ending = threading.Event()
        self.seen: list[bytes] = []
        self.errors: list[Exception] = []

    def run(self) -> None:
        try:
            while self._step() or not self._ending.wait(0.005):
                pass
            while self._step():
                pass
        except Exception as error:
            self.errors.append(error)

    def end(self) -> None:
        self._ending.set()
        self.join()
        assert not self.errors, self.errors

    def _step(self) -> bool:
        from pyspark.sql.streaming.datasource import ReadMaxRows

        end = self._reader.latestOffset(self._position, ReadMaxRows(200))
        if end == self._position:
            return False
        for partition in self._reader.partitions(self._position, end):
            for batch in self._reader.read(partition):
                self.seen += _bodies(batch)
        self._reader.commit(end)
        self._position = json.loads(json.dumps(end))
        return True


def _bodies(batch: Any) -> list[bytes]:
    rows = batch.select(["type", "body"]).to_pylist()
    return [row["body"].rstrip(b"\0") for row in rows if row["type"] == "append"]


@pytest.mark.long
def test_a_stream_hands_on_every_record_once_while_leaders_change(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with workers(tmp_path) as start:
        begun = _begin(start)
        stream = _Stream(tmp_path)
        stream.start()
        acknowledged = _change_leaders(tmp_path, start, random.Random(5))
        begun.end()
        acknowledged |= set(begun.acknowledged())
    stream.end()
    _check(stream.seen, tmp_path / "log", acknowledged)


def test_a_reader_that_follows_gets_every_record_once_while_leaders_change(
    tmp_path: Path,
) -> None:
    seen: list[bytes] = []
    with SharedJournal(tmp_path / "log", shared=True, settings=SETTINGS) as journal:

        def read() -> None:
            seen.extend((one.body or b"").rstrip(b"\0") for one in journal.follow())

        reading = threading.Thread(target=read)
        reading.start()
        with workers(tmp_path) as start:
            acknowledged = _change_leaders(tmp_path, start, random.Random(6))
        journal.append(b"end")
        wait_for(lambda: b"end" in seen)
    reading.join()
    assert seen == _whole(tmp_path / "log"), "in order, and each once"
    assert acknowledged < set(seen)


@pytest.mark.long
@pytest.mark.usefixtures("streams")
def test_spark_writes_every_record_once_while_leaders_are_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    log, rows = tmp_path / "log", str(tmp_path / "rows")
    with SharedJournal(log, shared=True, settings=SETTINGS) as journal:
        journal.append(b"first")
        query = (
            spark.readStream.format("tallystick")
            .load(str(log))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(rows)
        )
        with workers(tmp_path) as start:
            acknowledged = _change_leaders(tmp_path, start, random.Random(7))
    query.processAllAvailable()
    query.stop()
    appended = spark.read.parquet(rows).where("type = 'append'").select("body").collect()
    _check([bytes(row.body).rstrip(b"\0") for row in appended], log, {b"first", *acknowledged})
