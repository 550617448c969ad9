"""Streams killed at random while their logs are appended to, roll, are used again or disposed of.

Each life of a driver follows records and changes of one log, or a typed table, into Parquet, the
sink or Delta. Half of the drivers are killed after a batch can be seen in its target and before
Spark has noted that the batch is done, the others at any moment. What they wrote in the end is what
the writers wrote, each record once, and what a batch read finds in the files that were moved away
or copied aside and those that are left.

``TALLYSTICK_KILLS`` gives the number of kills of each stream, ``TALLYSTICK_SEED`` their moments.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any

import pytest
from pyarrow import dataset

import tallystick
from tallystick.pipeline.options import parse
from tallystick.pipeline.planning import tasks
from tallystick.pipeline.source.batch import with_collection
from tallystick.pipeline.task import execute
from tallystick.records import Outcome
from tests.need import need
from tests.pipeline.streaming import COLUMNS, Stream
from tests.pipeline.test_into import spark_with
from tests.pipeline.writers import (
    LIVE_RECORDS,
    DecisionWriter,
    JournalWriter,
    NativeWriter,
    StatesWriter,
    Writer,
)

ROOT = Path(__file__).parents[3]

KILLS = int(os.environ.get("TALLYSTICK_KILLS", "5"))
SEED = int(os.environ.get("TALLYSTICK_SEED", "1"))

WRITERS: dict[str, type[NativeWriter | JournalWriter | DecisionWriter | StatesWriter]] = {
    "native": NativeWriter,
    "jboss": JournalWriter,
    "bitronix": DecisionWriter,
    "states": StatesWriter,
}

FOLLOWED = [f"{log}/{table}" for log in WRITERS for table in ("records", "changes")]
FOLLOWED = [one for one in FOLLOWED if not one.startswith("states")] + ["states/typed"]
"""Logs and what of them is followed."""

NUMBERED = {"native": "append", "jboss": "ADD", "bitronix": "ACTIVE"}
"""The type of the record that each number of a writer gives exactly one of."""

FEW = ["native/records/sink", "native/changes/parquet", "jboss/records/parquet"]
FEW += ["jboss/changes/sink", "bitronix/records/sink"]
"""One life of a driver per system."""

LIFE_RECORDS = 150

START_SECONDS, QUIET_SECONDS = 300.0, 20.0
"""How long a driver may take for its first step, and for each later one, before it is killed."""

CHANGES = 100
"""Changes of files that a driver without Spark makes in its longest life."""

FORKS = int(os.environ.get("TALLYSTICK_FORKS", "2000"))
FEW_FORKS = 20

BYTES = ("gtrid", "body", "after", "state")

Row = dict[str, Any]


@dataclass
class Drivers:
    """Lives of drivers, each following streams of one log, with options of `streaming`."""

    writers: list[Writer]
    environment: dict[str, str]
    options: Sequence[str] = ()
    python: str = sys.executable
    records: int = LIFE_RECORDS
    """What a log gets for each life of a driver that follows it."""
    together: int = 2
    """Streams of a log that one life follows."""
    steps_max: int = 4
    """Steps of a life before it is killed, at most."""
    killed: int = 0
    between: int = 0
    """Kills after a batch was written and before it was noted."""

    def kill(self, kills: int) -> None:
        """Follow one log after the other for some steps, and kill its driver."""
        choice = random.Random(SEED)
        lives = [(one, some) for one in self.writers for some in self._lives(one.streams)]
        for _, (writer, some) in zip(range(kills), cycle(lives), strict=False):
            writer.limit += self.records
            at_note, seconds = choice.random() < 0.5, choice.random()
            steps = choice.randint(0, self.steps_max)
            self._kill_after(some, steps, None if at_note else seconds)
            self.killed += 1
            told = f"kill {self.killed} of {kills}, {self.between} between write and note"
            print(f"{told}, {_steps(some)} steps", flush=True)  # noqa: T201

    def _lives(self, streams: list[Stream]) -> list[list[Stream]]:
        """What each life of a driver follows."""
        return [streams[at : at + self.together] for at in range(0, len(streams), self.together)]

    @property
    def streams(self) -> list[Stream]:
        """All streams of all logs."""
        return [stream for one in self.writers for stream in one.streams]

    def drain(self) -> None:
        """Read everything that is there."""
        self._run([*self._command(self.streams), "--drain"], self.environment)

    @staticmethod
    def _run(command: list[str], environment: dict[str, str]) -> None:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-4_000:]

    def _kill_after(self, streams: list[Stream], steps: int, seconds: float | None) -> None:
        """Follow for some steps, and SIGKILL Python, Java and all workers at once.

        That is so many seconds later, or with None once a batch is written and not yet noted.
        """
        reported = streams[0].home / "stderr"
        with reported.open("wb") as errors:
            process = subprocess.Popen(
                self._command(streams), cwd=ROOT, env=self.environment,
                stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
        try:
            self._follow(process, streams, steps, reported)
            noted = _wait_for_write(streams) if seconds is None else None
            time.sleep(seconds or 0)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        if noted is not None:
            stream, done = noted
            self.between += stream.steps == done

    def _follow(
        self, process: subprocess.Popen[bytes], streams: list[Stream], steps: int, reported: Path
    ) -> None:
        """Wait until the driver has made so many steps and is at the next one, or its writer waits
        for other streams."""
        assert process.stdout is not None
        begun = done = _steps(streams)
        goal, moved = begun + steps, 0.0
        while True:
            assert process.stdout.readline(), reported.read_text()[-4_000:]
            if done >= goal and any(one.begun > one.steps for one in streams):
                return
            before, done = done, _steps(streams)
            moved = time.monotonic() if done > before or not moved else moved
            quiet = START_SECONDS if done == begun else QUIET_SECONDS
            if time.monotonic() - moved > quiet:
                return

    def _command(self, streams: list[Stream]) -> list[str]:
        command = [self.python, "-m", "tests.pipeline.streaming", *self.options]
        return [*command, *(str(one.folder) for one in streams)]


@dataclass
class Forks(Drivers):
    """Drivers without Spark: forked from a process that has imported everything."""

    nursery: subprocess.Popen[str] | None = None

    def __enter__(self) -> Forks:
        self.nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.batches"], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"NUMBA_DISABLE_JIT": "1"},  # each would compile for itself
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self.nursery is not None
        self.nursery.communicate(timeout=60)

    def drain(self) -> None:
        """Read everything that is there."""
        assert self._answer(0, self.streams) == 0

    def _kill_after(self, streams: list[Stream], steps: int, seconds: float | None) -> None:
        """Kill the driver at one of its changes of files, wherever that is in a batch."""
        part = steps / 5 if seconds is None else seconds
        killed = self._answer(1 + int(part * CHANGES), streams)
        assert killed == -signal.SIGKILL
        self.between += any(one.unnoted for one in streams)

    def _answer(self, number: int, streams: list[Stream]) -> int:
        assert self.nursery is not None
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        words = [str(number), *(str(one.folder) for one in streams)]
        self.nursery.stdin.write(" ".join(words) + "\n")
        self.nursery.stdin.flush()
        return int(self.nursery.stdout.readline())


def _steps(streams: Sequence[Stream]) -> int:
    """Steps that the streams have finished."""
    return sum(one.steps for one in streams)


def _wait_for_write(streams: Sequence[Stream]) -> tuple[Stream, int] | None:
    """Return a stream that has written a batch which is not noted yet, and how many are.

    None if none writes: its writer waits for other streams.
    """
    begun, known = time.monotonic(), dict[Stream, tuple[int, int]]()
    while time.monotonic() - begun < START_SECONDS:
        for one in streams:
            written, steps = one.written, one.steps
            before, done = known.setdefault(one, (written, steps))
            if steps == done and written > before:
                return one, done
            known[one] = written, steps
        time.sleep(0.0005)
    return None


@contextmanager
def at_work(home: Path, names: list[str]) -> Iterator[dict[str, Writer]]:
    """Threads that write the logs that the streams of these names follow."""
    made: dict[str, Writer] = {}
    for name, writer in WRITERS.items():
        if ours := [Stream.of(home / one) for one in names if one.startswith(name)]:
            made[name] = writer(home / name, ours)
    try:
        for one in made.values():
            one.start()
            for stream in one.streams:
                stream.folder.mkdir(parents=True)
        yield made
    finally:
        for one in made.values():
            one.stop()


def check(writers: dict[str, Writer], drivers: Drivers, drain: Callable[[], None]) -> str:
    """Stop, read everything that is left, and compare what every stream wrote."""
    for one in writers.values():
        one.stop()
    drain()
    reported = []
    for name, one in writers.items():
        if isinstance(one, NativeWriter):
            one.dispose()
        there = _in_batch(one)
        for stream in one.streams:
            reported.append(_compare(name, one, stream, there))
    errors = [error for stream in drivers.streams for error in stream.failures]
    figure = f"seed {SEED}, {drivers.killed} kills, {drivers.between} between write and note: "
    figure += ", ".join(reported)
    assert errors == [], "\n".join([figure, *errors])
    return figure


def _compare(name: str, writer: Writer, stream: Stream, there: set[tuple[Any, ...]]) -> str:
    """Compare what a stream wrote with what the writer did and with what a batch reads."""
    rows = _streamed(stream)
    if stream.table == "changes":
        _compare_changes(name, writer, stream, rows)
    elif stream.table == "typed":
        _compare_typed(writer, stream, rows)
    else:
        found = Counter(map(_named, rows))
        assert [row for row, count in found.items() if count > 1] == []
        assert set(found) == there
        assert sum(row["type"] == NUMBERED[name] for row in rows) == writer.written
    left = [path.name for path in stream.folder.glob("rows._staging*")]
    assert left == [], "shards of killed steps are left"
    where = stream.folder.relative_to(writer.home)
    return f"{name}/{where} {len(rows)} rows, {_steps([stream])} steps, {writer.changed} given up"


def _compare_changes(name: str, writer: Writer, stream: Stream, rows: list[Row]) -> None:
    wanted = []
    for number in range(writer.written if name != "bitronix" else 0):
        body = f"record {number}".encode()
        wanted.append(("insert", body))
        if name == "jboss" and number >= LIVE_RECORDS:
            wanted.append(("delete", f"record {number - LIVE_RECORDS}".encode()))
    if stream.target == "delta":  # the newest row of every key
        gone = {body for kind, body in wanted if kind == "delete"}
        left = sorted(body for kind, body in wanted if kind == "insert" and body not in gone)
        if name == "native":  # appended records have no key: they are one row
            left = [wanted[-1][1]]
        assert sorted(row["after"] for row in rows) == left
        return
    rows.sort(key=itemgetter("_commit_version", "ordinal"))
    keys = {row["key"]: row["after"] for row in rows if row["_change_type"] == "insert"}
    found = [(row["_change_type"], row["after"] or keys.get(row["key"])) for row in rows]
    assert found == wanted


def _compare_typed(writer: Writer, stream: Stream, rows: list[Row]) -> None:
    """Compare with a batch of the table, and its new rows with the numbers of the writer."""
    options = with_collection(parse(stream.options))
    found = (row for one in tasks(options) for batch in execute(one, options)
             for row in batch.to_pylist())  # fmt: skip
    place = itemgetter("_commit_version", "_ordinal", "_change_type")
    there = [{name: row[name] for name in COLUMNS["typed"]} for row in found]
    assert sorted(rows, key=place) == sorted(there, key=place)
    new = [row["record_id"] for row in there if row["_change_type"] == "insert"]
    assert new == [number + 1 for number in range(writer.written)]


def _streamed(stream: Stream) -> list[Row]:
    """The rows that were streamed."""
    if stream.target == "parquet":
        return _vouched_for(stream)
    if stream.target == "delta":
        lines = (stream.folder / "rows.json").read_bytes().splitlines()
    elif stream.rows.exists():
        lines = [record.body or b"" for record in tallystick.scan(stream.rows)]
    else:
        lines = []
    rows = [dict.fromkeys(COLUMNS[stream.table]) | json.loads(line) for line in lines if line]
    for row in rows:
        row |= {one: base64.b64decode(row[one]) for one in BYTES if row.get(one) is not None}
    return rows


def _vouched_for(stream: Stream) -> list[Row]:
    """The rows in the files that Spark's sink vouches for: a killed step leaves others, which
    its next try writes again."""
    files = {
        json.loads(line)["path"].removeprefix("file://")
        for entry in (stream.rows / "_spark_metadata").glob("[0-9]*")
        for line in entry.read_text().splitlines()[1:]
    }
    columns = list(COLUMNS[stream.table])
    rows: list[Row] = dataset.dataset(sorted(files)).to_table(columns=columns).to_pylist()
    return rows


def _in_batch(writer: Writer) -> set[tuple[Any, ...]]:
    """The rows of all files, wherever they are now. Segments that were moved away lack the
    control block that would vouch for them."""
    moved = isinstance(writer, NativeWriter)
    folders = [(writer.path, False), *((str(path), moved) for path in writer.archives())]
    return {
        _named({name: getattr(record, name) for name in COLUMNS["records"]})
        for folder, salvage in folders
        for record in tallystick.scan(folder, salvage=salvage)
        if record.outcome is Outcome.VALID
    }


def _named(row: Row) -> tuple[Any, ...]:
    """A record without the folder that its file lies in."""
    return (PurePath(row["file"]).name, *(row[name] for name in COLUMNS["records"][1:]))


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("target", ["sink", "parquet", "delta"])
@pytest.mark.parametrize("followed", FOLLOWED)
def test_a_stream_that_is_killed_writes_each_record_once(
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    followed: str,
    target: str,
) -> None:
    environment, jars = spark_with("delta") if target == "delta" else (dict(os.environ), "")
    options = ["--jars", jars] if jars else []
    with at_work(tmp_path, [f"{followed}/{target}"]) as working:
        drivers = Drivers([*working.values()], environment, options, steps_max=1)
        drivers.kill(KILLS)
        figure = check(working, drivers, drivers.drain)
    record_property("figure", figure)
    print(figure, flush=True)  # noqa: T201 - it is a result, whatever comes after it


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("streams")
def test_a_few_kills_leave_every_record_and_every_change_once(tmp_path: Path) -> None:
    need("java")
    with at_work(tmp_path, FEW) as working:
        drivers = Drivers([*working.values()], dict(os.environ))
        drivers.kill(len(working))
        check(working, drivers, drivers.drain)


def _forked(home: Path, kills: int) -> str:
    names = [f"{one}/sink" for one in FOLLOWED]
    with (
        at_work(home, names) as working,
        Forks([*working.values()], {}, records=15) as drivers,
    ):
        drivers.kill(kills)
        return check(working, drivers, drivers.drain)


@pytest.mark.long
def test_batches_are_written_once_wherever_their_driver_is_killed(tmp_path: Path) -> None:
    _forked(tmp_path, FEW_FORKS)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_batches_are_written_once_wherever_many_drivers_are_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("figure", _forked(tmp_path, FORKS))
