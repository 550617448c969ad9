"""Streams killed at random while their logs are appended to, roll, are used again or disposed of.

What they wrote in the end is what the writers wrote, each record once, and what a batch read
finds in the files that were moved away or copied aside and those that are left.

``TALLYSTICK_KILLS`` and ``TALLYSTICK_SEED`` give the number of kills and their moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import dataset

import tallystick
from tallystick.records import Outcome
from tests.pipeline.streaming import failed, failures, follow, tables
from tests.pipeline.writers import DecisionWriter, JournalWriter, NativeWriter, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]

KILLS = int(os.environ.get("TALLYSTICK_KILLS", "50"))
FEW = 2
SEED = int(os.environ.get("TALLYSTICK_SEED", "1"))

WRITERS: dict[str, type[NativeWriter | JournalWriter | DecisionWriter]] = {
    "native": NativeWriter,
    "jboss": JournalWriter,
    "bitronix": DecisionWriter,
}

NUMBERED = {"native": "append", "jboss": "ADD", "bitronix": "ACTIVE"}
"""The type of the record that each number of a writer gives exactly one of."""

COLUMNS = ("file", "offset", "type", "sequence", "time", "record_id", "gtrid", "body")

Row = tuple[Any, ...]


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[dict[str, Writer]]:
    """A writer of each system at work in a thread."""
    made: dict[str, Writer] = {name: writer(tmp_path / name) for name, writer in WRITERS.items()}
    for one in made.values():
        one.start()
    yield made
    for one in made.values():
        one.stop()


def _kill_after(homes: list[Path], steps: int, seconds: float) -> None:
    """Follow the logs for some steps, and SIGKILL Python, Java and all workers at once."""
    command = [sys.executable, "-m", "tests.pipeline.streaming", *map(str, homes)]
    reported = homes[0] / "stderr"
    with reported.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    assert process.stdout is not None
    goal = _steps(homes) + steps
    while _steps(homes) < goal:
        assert process.stdout.readline(), reported.read_text()[-4_000:]
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _steps(homes: list[Path]) -> int:
    """Steps that the streams have finished."""
    return sum(len(list(home.glob("checkpoint*/commits/[0-9]*"))) for home in homes)


def _streamed(home: Path) -> list[Row]:
    """The rows that were streamed."""
    return [_row(list(row.values())) for row in _written(home / "rows", COLUMNS)]


def _written(folder: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows in the files that Spark's sink vouches for: a killed step leaves others, which
    its next try writes again."""
    files = {
        json.loads(line)["path"].removeprefix("file://")
        for entry in (folder / "_spark_metadata").glob("[0-9]*")
        for line in entry.read_text().splitlines()[1:]
    }
    rows: list[dict[str, Any]] = (
        dataset.dataset(sorted(files)).to_table(columns=list(columns)).to_pylist()
    )
    return rows


def _in_batch(writer: Writer) -> set[Row]:
    """The rows of all files, wherever they are now. Segments that were moved away lack the
    control block that would vouch for them."""
    moved = isinstance(writer, NativeWriter)
    folders = [(writer.path, False), *((str(path), moved) for path in writer.archives())]
    return {
        _row([getattr(record, name) for name in COLUMNS])
        for folder, salvage in folders
        for record in tallystick.scan(folder, salvage=salvage)
        if record.outcome is Outcome.VALID
    }


def _row(values: list[Any]) -> Row:
    """A record without the folder that its file lies in."""
    return (PurePath(values[0]).name, *values[1:])


def _check(spark: SparkSession, writers: dict[str, Writer], kills: int) -> str:
    choice = random.Random(SEED)
    homes = [one.home for one in writers.values()]
    for kill in range(kills):
        _kill_after(homes, choice.randint(1, 8), choice.random())
        print(f"kill {kill + 1} of {kills}, {_steps(homes)} steps", flush=True)  # noqa: T201
    reported = []
    for name, one in writers.items():
        one.stop()
        for table in tables(one.home):
            _drain(spark, one.home, table)
        if isinstance(one, NativeWriter):
            one.dispose()
        reported.append(_compare(name, one))
    errors = [error for home in homes for error in failures(home)]
    figure = f"{kills} kills: " + ", ".join(reported)
    assert errors == [], "\n".join([figure, *errors])
    return figure


def _drain(spark: SparkSession, home: Path, table: str) -> None:
    """Read everything that is there, in this process."""
    while True:
        query = follow(spark, home, table, drain=True)
        while query.isActive:
            time.sleep(0.1)
        assert len(failures(home)) <= KILLS, failures(home)[-1]
        if not failed(query, home):
            return


def _compare(name: str, writer: Writer) -> str:
    rows = _streamed(writer.home)
    twice = [row for row, count in Counter(rows).items() if count > 1]
    assert twice == []
    assert set(rows) == _in_batch(writer)
    numbered = [row for row in rows if row[2] == NUMBERED[name]]
    assert len(numbered) == writer.written
    if isinstance(writer, NativeWriter):
        names = ("after", "_commit_version", "_change_type")
        changes = sorted(_written(writer.home / "changes", names), key=itemgetter(names[1]))
        assert {row["_change_type"] for row in changes} == {"insert"}
        bodies = [f"record {number}".encode() for number in range(writer.written)]
        assert [row["after"] for row in changes] == bodies
    return f"{name} {len(rows)} rows, {writer.changed} files given up"


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_streams_that_are_killed_write_each_record_once(
    spark: SparkSession,
    writers: dict[str, Writer],
    record_property: Callable[[str, object], None],
) -> None:
    record_property("figure", _check(spark, writers, KILLS))
    assert all(one.changed for one in writers.values())


@pytest.mark.timeout(900)
def test_a_few_kills_leave_every_record_and_every_change_once(
    spark: SparkSession, writers: dict[str, Writer]
) -> None:
    _check(spark, writers, FEW)
