"""A stream killed at random while its log is appended to, rolls and is disposed of.

What it wrote in the end is what the writer wrote, each record once, and what a batch read
finds in the files that were moved away and those that are left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import pytest
from pyarrow import dataset

import tallystick
from tallystick.pipeline.stream import reader_offset
from tallystick.services.disposal import Postponed
from tallystick.services.disposers import MoveDisposer
from tallystick.services.holding import KeepForReader
from tallystick.systems.tally.layout import SEGMENT_SIZE_MIN, segment_name, segment_number
from tallystick.systems.tally.log import TallyLog
from tallystick.systems.tally.settings import Settings
from tests.pipeline.streaming import follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

SETTINGS = Settings(segment_size=4 * SEGMENT_SIZE_MIN, recycle=False, spares=0)


@dataclass
class Writer:
    """Appends numbered records, rolls, and moves segments away once the stream has read them."""

    home: Path
    written: int = 0
    moved: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def path(self) -> str:
        return str(self.home / "log")

    def start(self) -> None:
        """Write in a thread until stopped."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Leave the log closed."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, pause: float = 0.1) -> None:
        choice = random.Random(1)
        with TallyLog(self.path, settings=SETTINGS) as log:
            while not self._stopped.wait(pause):
                for _ in range(choice.randint(1, 5)):
                    log.append(f"record {self.written}".encode()).wait()
                    self.written += 1
                if choice.random() < 0.1:
                    log.roll()
                    self._dispose(log)

    def dispose(self) -> None:
        """Move away what the stream has read in the meantime."""
        with TallyLog(self.path, settings=SETTINGS) as log:
            self._dispose(log)

    def _dispose(self, log: TallyLog) -> None:
        offset = reader_offset(str(self.home / "hold"), self.path)
        disposer = KeepForReader(offset, MoveDisposer(str(self.home / "archive")))
        # What the log gives up is read no more, wherever it lies: so that waits, too.
        done = segment_number(offset() or "")
        log.reclaim(log.next_lsn, keep_from=log.first_segment if done is None else done + 1)
        for number in range(log.first_segment):
            path = Path(self.path, segment_name(number))
            if path.exists():
                try:
                    disposer.dispose(str(path))
                except Postponed:
                    return
                self.moved += 1


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A writer at work in a thread."""
    writer = Writer(tmp_path)
    writer.start()
    yield writer
    writer.stop()


def _kill_after(writer: Writer, steps: int, seconds: float) -> None:
    """Follow the log for some steps, and SIGKILL Python, Java and all workers at once."""
    command = [sys.executable, "-m", "tests.pipeline.streaming", writer.path, str(writer.home)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdout is not None
    goal = _steps(writer.home) + steps
    while _steps(writer.home) < goal:
        assert process.stdout.readline(), "the stream ended by itself"
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _steps(home: Path) -> int:
    """Steps that the stream has finished."""
    return len(list((home / "checkpoint" / "commits").glob("[0-9]*")))


def _streamed(home: Path) -> list[tuple[str, int, bytes]]:
    """File, offset and body of every appended record in the files that Spark's sink vouches for:
    a killed step leaves others, which its next try writes again."""
    files = {
        json.loads(line)["path"].removeprefix("file://")
        for entry in (home / "rows" / "_spark_metadata").glob("[0-9]*")
        for line in entry.read_text().splitlines()[1:]
    }
    table = dataset.dataset(sorted(files)).to_table(
        columns=["file", "offset", "type", "body"], filter=dataset.field("type") == "append"
    )
    return [(PurePath(row["file"]).name, row["offset"], row["body"]) for row in table.to_pylist()]


def _in_batch(writer: Writer) -> list[tuple[str, int, bytes]]:
    """The same from all files, wherever they are now. Segments that were moved away lack the
    control block that would vouch for them."""
    return [
        (PurePath(record.file).name, record.offset, record.body or b"")
        for folder, salvage in ((writer.path, False), (str(writer.home / "archive"), True))
        for record in tallystick.scan(folder, salvage=salvage)
        if record.type == "append"
    ]


def _check(spark: SparkSession, writer: Writer, kills: int) -> None:
    choice = random.Random(kills)
    for _ in range(kills):
        _kill_after(writer, choice.randint(1, 4), choice.random())
    writer.stop()
    assert follow(spark, writer.path, str(writer.home), drain=True).awaitTermination(300)
    writer.dispose()
    streamed = _streamed(writer.home)
    expected = [f"record {number}".encode() for number in range(writer.written)]
    assert sorted(body for _, _, body in streamed) == sorted(expected)
    assert sorted(streamed) == sorted(_in_batch(writer))
    assert writer.moved > 0


@pytest.mark.soak
def test_a_stream_that_is_killed_writes_each_record_once(
    spark: SparkSession, writer: Writer
) -> None:
    _check(spark, writer, kills=1)


@pytest.mark.soak
def test_fifty_kills(spark: SparkSession, writer: Writer) -> None:
    _check(spark, writer, kills=50)
