"""Parts of a log that cannot hold what is asked for are not read, and nothing else changes."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallystick
from tallystick import Journal
from tallystick.arrow import schemas
from tallystick.arrow.schemas import plain
from tallystick.reading.filters import Filter
from tallystick.reading.survey import Survey, read_arrow, survey
from tallystick.records import Kind, Record
from tallystick.storage.source import ByteSource, open_source, read_head, read_part
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.read.files import FileAccess
from tallystick.systems.tally.reader import TallyReading
from tests.fixtures import fixture_dir

SMALL = Settings(segment_size=1 << 20, preallocate=False, idle_mark_s=None)
RECORDS = 15_000
BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of some 20 segments."""
    path, draw = tmp_path_factory.mktemp("pushed") / "log", random.Random(37)
    with Journal(path, settings=SMALL) as journal:
        left = RECORDS
        while left:
            count = min(draw.choice((1, 3, 10, 30)), left)
            journal.append_many([draw.randbytes(draw.randrange(2600)) for _ in range(count)])
            left -= count
    return path


@pytest.fixture(scope="module")
def found(log: Path) -> Survey:
    return survey(log)


@pytest.fixture(scope="module")
def every(found: Survey) -> list[Record]:
    return list(found.read(found.logs[0]).records())


def moment(time_us: int) -> datetime:
    return BEGIN + timedelta(microseconds=time_us)


BOUNDS = st.tuples(
    st.none() | st.integers(-5, RECORDS + 200), st.none() | st.integers(-5, RECORDS + 200)
)


@settings(deadline=None, max_examples=8)
@given(lsns=BOUNDS, times=BOUNDS, kinds=st.sampled_from([frozenset(), frozenset({Kind.CONTROL})]))
def test_a_filter_gives_the_same_with_and_without_push_down(
    found: Survey,
    every: list[Record],
    lsns: tuple[int | None, int | None],
    times: tuple[int | None, int | None],
    kinds: frozenset[Kind],
) -> None:
    def at(place: int | None) -> datetime | None:
        if place is None:
            return None
        one = every[min(max(place, 0), len(every) - 1)]
        return moment((one.time or 0) + (place % 3 - 1))

    wanted = Filter(
        from_lsn=lsns[0], to_lsn=lsns[1], since=at(times[0]), until=at(times[1]), kinds=kinds
    )
    reading = found.read(found.logs[0])
    fits = wanted.of_records(reading.clock)
    assert list(found.selected(reading, wanted)) == [one for one in every if fits(one)]


def test_batches_and_sql_give_the_same(log: Path, every: list[Record]) -> None:
    for least, most in ((1, 1), (5_000, 5_200), (RECORDS - 3, RECORDS + 9), (9, 8)):
        wanted = Filter(from_lsn=least, to_lsn=most)
        table = read_arrow(log, "records", wanted=wanted).read_all()
        numbers = [one.sequence for one in every if least <= (one.sequence or 0) <= most]
        assert table["sequence"].to_pylist() == numbers
        with tallystick.sql(log) as connection:
            query = f"SELECT sequence FROM records WHERE sequence BETWEEN {least} AND {most}"
            assert sorted(one for (one,) in connection.sql(query).fetchall()) == numbers


@pytest.mark.parametrize(
    "case",
    [
        "bitronix/all-dangling",
        "cloudtran/compressed",
        "derby/halted",
        "jboss/g1a-jbm2-2008-08/basic",
    ],
)
def test_columns_of_records_that_are_not_asked_for_are_not_made(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, _, name = case.partition("/")
    folder = fixture_dir(system) / name
    every = read_arrow(folder, "records", problems=[]).read_all()
    made = 0

    def counted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        nonlocal made
        made += batch.num_rows if "body" in schema.names else 0
        return plain(batch, schema)

    monkeypatch.setattr(schemas, "plain", counted)
    kinds = frozenset([Kind(every["kind"][len(every) // 2].as_py())])
    found = read_arrow(folder, "records", wanted=Filter(kinds=kinds), problems=[]).read_all()
    fits = pc.is_in(every["kind"], pa.array([*kinds]))
    assert found.equals(every.filter(fits))
    first, last = (np.flatnonzero(fits)[at] for at in (0, -1))
    assert len(found) <= made <= last + 1 - first


class Counting:
    """Access to files that counts the bytes that are read."""

    def __init__(self) -> None:
        self.bytes = 0
        self.access = FileAccess(self.head, self.part, self.open)

    def head(self, path: str, size: int) -> bytes:
        return self.counted(read_head(path, size))

    def part(self, path: str, offset: int, size: int) -> bytes:
        return self.counted(read_part(path, offset, size))

    def open(self, path: str) -> ByteSource:
        source = open_source(path)
        self.bytes += source.size
        return source

    def counted(self, data: bytes) -> bytes:
        self.bytes += len(data)
        return data


@pytest.mark.parametrize("part", [0, 0.37, 0.8])
@pytest.mark.parametrize("by_time", [False, True])
def test_few_bytes_are_read_where_few_records_fit(
    found: Survey, every: list[Record], part: float, by_time: bool
) -> None:
    (source,) = found.logs
    heads = 8192 * len(source.files)  # of segments of 16 MiB they are next to nothing
    total = sum(Path(path).stat().st_size for path in source.files)
    first = int(part * RECORDS)
    some = every[first : first + RECORDS // 100]
    if by_time:
        wanted = Filter(since=moment(some[0].time or 0), until=moment(some[-1].time or 0))
    else:
        wanted = Filter(from_lsn=some[0].sequence, to_lsn=some[-1].sequence)
    counting = Counting()
    got = list(found.selected(TallyReading(source, None, counting.access), wanted))
    assert {one.sequence for one in some} <= {one.sequence for one in got}
    assert len(got) < 0.12 * RECORDS  # groups of one time have up to 30
    assert counting.bytes - heads < total * (0.12 if by_time else 0.05)


def test_damage_in_a_part_is_judged_as_in_the_whole_log(found: Survey, every: list[Record]) -> None:
    """What tells whether it was acknowledged stands after the part."""
    (source,) = found.logs
    target = next(one for one in every[7_000:] if one.length > 100)
    path = Path(target.file)
    content = path.read_bytes()
    at = target.offset + 1
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    try:
        wanted = Filter(from_lsn=every[6_990].sequence, to_lsn=target.sequence)
        told = [(one.outcome, one.offset) for one in found.selected(found.read(source), wanted)]
        whole = list(found.read(source).records())
        fits = wanted.of_records(found.read(source).clock)
        assert told == [(one.outcome, one.offset) for one in whole if fits(one)]
        assert any(one.outcome == "corrupt" for one in whole)
    finally:
        path.write_bytes(content)
