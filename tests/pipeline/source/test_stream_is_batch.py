"""A stream gives what a batch gives: all systems and tables, healthy logs and damaged ones.

Logs are the same for a seed. A healthy log is followed while it is written, at any pace; of a
damaged one the stream begins with the damage. Rows are compared one by one and in order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallystick import Journal
from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.pipeline.options import MODES, Limit, SourceOptions, parse
from tallystick.pipeline.planning import RecordsLostError, tasks
from tallystick.pipeline.source.batch import with_collection
from tallystick.pipeline.source.file_ranges import file_ranges, packed, read
from tallystick.pipeline.source.positions import Position
from tallystick.pipeline.source.tailer import Tailer
from tallystick.pipeline.task import execute
from tallystick.systems.bitronix.format.layout import COMMITTED, COMMITTING
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.tally.format.layout import SEGMENT_SIZE_MIN
from tests.fixtures import fixture_dir
from tests.pipeline.derby_steps import Steps
from tests.pipeline.test_followed_changes import MAKERS
from tests.systems.derby.logs import reading_of, unpacked

Row = dict[str, Any]
STEPS = 120
SEEDS = range(25)


class NativeSteps:
    """Records alone and in transactions, of which some are given up, over small segments."""

    def __init__(self, path: Path) -> None:
        settings = {"segment_size": 2 * SEGMENT_SIZE_MIN, "idle_mark_s": None, "spares": 0}
        self.log = Journal(str(path), settings=settings)

    def step(self, number: int, choice: random.Random) -> None:
        body = b"%d" % number + bytes(choice.randrange(300))
        if choice.random() < 0.5:
            self.log.append(body)
            return
        transaction = self.log.transaction()
        transaction.add(number, body)
        (transaction.commit if choice.random() < 0.8 else transaction.rollback)()

    def close(self) -> None:
        self.log.close()


class DecisionSteps:
    """Decisions, of which some are carried out."""

    def __init__(self, path: Path) -> None:
        self.log = DiskJournal(str(path), max_log_size=64 << 10)

    def step(self, number: int, choice: random.Random) -> None:
        gtrid = (b"%d" % number).ljust(20, b".")
        self.log.log_forced(COMMITTING, gtrid, {"jdbc/a"}).wait()
        if choice.random() < 0.7:
            self.log.log_forced(COMMITTED, gtrid, {"jdbc/a"}).wait()

    def close(self) -> None:
        self.log.close()


SYSTEMS: dict[str, Callable[[Path], Steps]] = {
    **MAKERS,
    "native": NativeSteps,
    "bitronix": DecisionSteps,
}
ONCE_WRONG = [
    ("jboss", 20),
    ("derby", 48),
    ("derby", 51),
    ("derby", 54),
    ("derby", 121),
    ("native", 55),
]
"""Damaged logs of which a stream once gave other rows than a batch, or stopped without need."""
LOG_FILES = {".tally", ".amq", ".ctlog", ".dat", ".tlog"}


class Stream:
    """A stream as far as it came; its position is kept as a checkpoint keeps it."""

    def __init__(self, options: SourceOptions, limit: Limit) -> None:
        self.options, self.limit = options, limit
        self.tailer, self.position = Tailer(options), Position()
        self.rows: list[Row] = []

    def step(self) -> bool:
        """Take one step; return whether it moved."""
        end = self.tailer.advance(self.position, self.limit)
        ranges = file_ranges(self.options, self.position, end)
        for bundle in packed(ranges, 1 << 12, whole_logs=self.options.history):
            self.rows += _listed(read(bundle, self.options))
        moved, self.position = end != self.position, json.loads(json.dumps(end))
        return moved

    def drain(self) -> list[Row]:
        """Read everything; return all rows."""
        while self.step():
            pass
        return self.rows


def _listed(batches: Iterator[Any]) -> list[Row]:
    return [row for one in batches for row in one.to_pylist()]


def _batch(options: SourceOptions) -> list[Row]:
    """The rows of a batch, in the order of the log; of records those that are valid."""
    rows = [row for task in tasks(options) for row in _listed(execute(task, options))]
    if options.table == "records":
        return [row for row in rows if row["outcome"] == "valid"]
    return rows


def _ordered(rows: list[Row]) -> list[str]:
    """The rows of a stream of records come file by file, as those of a batch need not."""
    found = [json.dumps(row, default=repr, sort_keys=True) for row in rows]
    return sorted(found) if rows and "outcome" in rows[0] else found


def _limit(choice: random.Random) -> Limit:
    return choice.choice([Limit(), Limit(rows=7), Limit(bytes=2_000), Limit(files=1)])


def _write(system: str, path: Path, seed: int, pause: Callable[[], object]) -> None:
    """Write a log by random steps, with a pause after some of them."""
    steps, choice = SYSTEMS[system](path), random.Random(seed)
    for number in range(1, STEPS + 1):
        steps.step(number, choice)
        if choice.random() < 0.1:
            pause()
    steps.close()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table", ["records", "changes"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_stream_that_follows_a_log_gives_what_a_batch_gives_in_the_end(
    tmp_path: Path, system: str, table: str, seed: int
) -> None:
    path, choice = tmp_path / "log", random.Random(seed)
    options = SourceOptions(
        (str(path),), table, mode=choice.choice(MODES), fail_on_data_loss=choice.random() < 0.5
    )
    stream = Stream(options, _limit(choice))
    path.mkdir()
    _write(system, path, seed, stream.step)
    if choice.random() < 0.3:
        stream.tailer = Tailer(options)
    whole = replace(options, split_bytes=choice.choice([1 << 12, 1 << 27]))
    assert _ordered(stream.drain()) == _ordered(_batch(whole))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table", ["records", "changes"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_stream_that_begins_with_a_damaged_log_gives_what_a_batch_gives_or_fails(
    tmp_path: Path, system: str, table: str, seed: int
) -> None:
    _begin_with_damage(tmp_path, system, table, seed)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("table", ["records", "changes"])
@pytest.mark.parametrize(("system", "seed"), ONCE_WRONG)
def test_damaged_logs_that_a_stream_once_read_otherwise_are_read_as_by_a_batch(
    tmp_path: Path, system: str, seed: int, table: str
) -> None:
    _begin_with_damage(tmp_path, system, table, seed)


def _begin_with_damage(tmp_path: Path, system: str, table: str, seed: int) -> None:
    path, choice = tmp_path / "log", random.Random(seed)
    path.mkdir()
    _write(system, path, seed, lambda: None)
    _damage({one: _used(data) for one, data in _contents(path).items()}, choice)
    options = SourceOptions((str(path),), table)
    there, limit = _ordered(_batch(options)), _limit(choice)
    lenient = Stream(replace(options, fail_on_data_loss=False), limit)
    _compare(Stream(options, limit), lenient, there)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table", ["records", "changes"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_stream_that_comes_to_damage_gives_what_a_batch_gives_or_fails(
    tmp_path: Path, system: str, table: str, seed: int
) -> None:
    """What was written since the last look is damaged."""
    path, choice = tmp_path / "log", random.Random(seed)
    path.mkdir()
    options, limit = SourceOptions((str(path),), table), _limit(choice)
    strict = Stream(options, limit)
    lenient = Stream(replace(options, fail_on_data_loss=False), limit)
    read: dict[Path, bytes] = {}
    pauses, last = count(), choice.randrange(STEPS // 10)

    def look() -> None:
        if next(pauses) == last:
            strict.drain()
            lenient.drain()
            read.update(_contents(path))

    _write(system, path, seed, look)
    new = {
        one: places
        for one, data in _contents(path).items()
        if (places := _written_since(read.get(one, b""), data))
        and one.name != "control.tally"  # without it a log is waited for
    }
    _damage(new, choice, read)
    _compare(strict, lenient, _ordered(_batch(options)))


def _compare(strict: Stream, lenient: Stream, there: list[str]) -> None:
    """Read both streams to their ends: one may fail, and gives nothing that is not there."""
    try:
        assert _ordered(strict.drain()) == there
    except (RecordsLostError, CorruptLogError, LogUnreadableError):
        assert set(_ordered(strict.rows)) <= set(there)
    assert _ordered(lenient.drain()) == there


def _contents(path: Path) -> dict[Path, bytes]:
    """Return the bytes of the files of a log."""
    files = sorted(one for one in path.rglob("*") if one.suffix in LOG_FILES)
    return {one: one.read_bytes() for one in files}


def _damage(
    places: Mapping[Path, Sequence[int]], choice: random.Random, kept: Collection[Path] = ()
) -> None:
    """Change bytes of a file from one of its places on, or cut it there, or take it away."""
    file = choice.choice([*places])
    data, at = bytearray(file.read_bytes()), choice.choice(places[file])
    match choice.choice(["bit", "zeros", "noise", "cut", "gone"]):
        case "bit":
            data[at] ^= 1 << choice.randrange(8)
        case "zeros":
            data[at : at + 512] = bytes(len(data[at : at + 512]))
        case "noise":
            data[at : at + 40] = choice.randbytes(len(data[at : at + 40]))
        case "cut":
            del data[at:]
        case _ if len(places) > 1 and file not in kept:
            file.unlink()
            return
    file.write_bytes(data)


def _used(data: bytes) -> Sequence[int]:
    return range(max(len(data.rstrip(b"\0")), 1))


def _written_since(read: bytes, data: bytes) -> Sequence[int]:
    """Return where bytes are others than when they were read; a new file had zeros."""
    was = np.frombuffer(read.ljust(len(data), b"\0")[: len(data)], np.uint8)
    places: list[int] = np.flatnonzero(was != np.frombuffer(data, np.uint8)).tolist()
    return places


TYPED = [one / "db" for one in sorted(fixture_dir("typed").iterdir()) if (one / "db").is_dir()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("database", TYPED, ids=lambda one: one.parent.name)
def test_a_stream_of_a_table_gives_what_a_batch_gives(tmp_path: Path, database: Path) -> None:
    """Tables that are dropped and made again, and rows from before the log, are among them."""
    log = reading_of(database)
    ends = {one.place: one.offset + one.length for one in log.scan.ranges()}
    name = next(one.name for one in log.collections() if one.name.startswith("APP."))
    commits = sorted({one.commit_sequence for one in log.changes_of(name)})
    copy = tmp_path / "db"
    for part in sorted(one for one in database.rglob("*") if one.is_file()):
        target = copy / part.relative_to(database).with_suffix(part.suffix.removesuffix(".gz"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(unpacked(part))
    whole = copy / "log" / "log1.dat"
    data = whole.read_bytes()
    given = {"path": str(copy), "table": "changes", "collection": name}
    options = with_collection(parse(given | {"imagesFolder": str(tmp_path / "images")}))
    stream = Stream(options, Limit())
    for end in (*(ends[commit] for commit in commits), None):
        whole.write_bytes(data[:end].ljust(len(data), b"\0"))
        stream.drain()
    assert _ordered(stream.rows) == _ordered(_batch(options))
    assert stream.rows
