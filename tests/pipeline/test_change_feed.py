"""Changes as a change feed: in batch, and followed: committed only, in order, exactly once."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tallystick.arrow.schemas import CHANGES, batch_of
from tallystick.errors import LogUnreadableError, UnsupportedFormatError
from tallystick.pipeline.change_feed import FEED, feed
from tallystick.pipeline.options import Limit, SourceOptions
from tallystick.pipeline.planning import find
from tallystick.pipeline.source.file_ranges import file_ranges, read
from tallystick.pipeline.source.positions import Position
from tallystick.pipeline.source.tailer import Tailer
from tallystick.pipeline.task import fed
from tallystick.reading.tables import Condition
from tallystick.records import Change, Xid
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import system
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import SEGMENT_SIZE_MIN
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import TallyRecordJournal
from tallystick.systems.tally.live.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Settings(
    segment_size=2 * SEGMENT_SIZE_MIN, preallocate=False, idle_mark_s=None, recycle=False, spares=0
)


def _row(kind: str, key: str, **given: Any) -> dict[str, Any]:
    row = {"system": "h2", "log": "/l", "commit_sequence": 1, "ordinal": 0, "collection": "T"}
    return row | {"kind": kind, "key": key, "clock": "wall_ms", "file": "f", "offset": 0} | given


def _fed(rows: list[dict[str, Any]], size: int) -> list[tuple[str, str, bytes | None, Any]]:
    batches = [batch_of(rows[at : at + size], CHANGES) for at in range(0, len(rows), size)]
    fed = list(feed(batches))
    assert all(batch.schema == FEED for batch in fed)
    return [
        (row["_change_type"], row["key"], row["before"], row["after"])
        for batch in fed
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_delete_and_an_add_of_a_key_in_one_transaction_are_an_update(size: int) -> None:
    rows = [
        _row("delete", "1"),
        _row("add", "1", after=b"new"),
        _row("delete", "2"),
        _row("add", "3", after=b"three"),
        _row("delete", "3", commit_sequence=2, before=b"three"),
        _row("add", "3", commit_sequence=2, after=b"3"),
        _row("update", "4", commit_sequence=2, before=b"4", after=b"four"),
        _row("update", "5", commit_sequence=2, after=b"five"),
        _row("delete", "6", commit_sequence=2),
        _row("add", "6", commit_sequence=3, after=b"six"),
        _row("truncate", "", commit_sequence=4),
        _row("delete", "7", commit_sequence=5),
    ]
    assert _fed(rows, size) == [
        ("update_postimage", "1", None, b"new"),
        ("delete", "2", None, None),
        ("insert", "3", None, b"three"),
        ("update_preimage", "3", b"three", None),
        ("update_postimage", "3", b"three", b"3"),
        ("update_preimage", "4", b"4", None),
        ("update_postimage", "4", b"4", b"four"),
        ("update_postimage", "5", None, b"five"),
        ("delete", "6", None, None),
        ("insert", "6", None, b"six"),
        ("truncate", "", None, None),
        ("delete", "7", None, None),
    ]


@pytest.mark.parametrize(("column", "value"), [("key", "1"), ("collection", "T"), ("kind", "add")])
@pytest.mark.parametrize("size", [2, 8])
def test_a_condition_takes_no_row_of_an_update_away(size: int, column: str, value: str) -> None:
    """A delete and an add are an update only where they follow each other in the whole log."""
    drawn, seen = random.Random(size), Counter[str]()
    for _ in range(5):
        rows = [
            _row(drawn.choice(["add", "delete"]), drawn.choice("12"), collection=drawn.choice("TU"),
                 commit_sequence=1 + number // 9)
            for number in range(40)
        ]  # fmt: skip
        batches = [batch_of(rows[at : at + size], CHANGES) for at in range(0, len(rows), size)]
        wanted = pc.field(column) == value
        condition = Condition([column], partial(pa.RecordBatch.filter, mask=wanted))
        options = SourceOptions((), table="changes")
        whole = list(fed(batches, options))
        left = list(fed(batches, replace(options, condition=condition)))
        expected = [row for one in whole for row in one.filter(wanted).to_pylist()]
        assert [row for one in left for row in one.filter(wanted).to_pylist()] == expected
        seen["updates"] += sum("update" in row["_change_type"] for row in expected)
        seen["fewer"] += sum(one.num_rows for one in left) < sum(one.num_rows for one in whole)
    assert seen["updates"]
    assert size < 8 or (column != "kind") == bool(seen["fewer"])


@pytest.mark.parametrize(
    ("clock", "time", "wanted"),
    [
        ("wall_ms", 1_500, 1_500_000),
        ("wall_us", 1_500, 1_500),
        ("wall_ns", 1_500, 1),
        ("wall_us", -62_135_596_800_000_000, -62_135_596_800_000_000),
        ("wall_us", 253_402_300_799_999_999, 253_402_300_799_999_999),
        ("wall_us", 253_402_300_800_000_000, None),  # in the year 10000
        ("wall_ms", 2**63 - 1, None),
        ("wall_ms", -(2**63), None),
        ("boot_ms", 1_500, None),
        ("none", None, None),
    ],
)
def test_times_of_day_are_timestamps(clock: str, time: int | None, wanted: int | None) -> None:
    (batch,) = feed([batch_of([_row("add", "1", clock=clock, time=time)], CHANGES)])
    (row,) = batch.to_pylist()
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    expected = None if wanted is None else start + datetime.timedelta(microseconds=wanted)
    assert row["_commit_timestamp"] == expected
    assert row["_commit_version"] == 1


class Writer:
    """Transactions side by side, some over many segments, some prepared and ended much later."""

    def __init__(self, path: Path, seed: int) -> None:
        self.log = TallyLog(str(path), settings=SMALL)
        self.journal = TallyRecordJournal(self.log)
        self.choice = random.Random(seed)
        self.open: dict[int, bool] = {}
        self.number = 0

    def step(self) -> None:
        """Write one thing."""
        self.number += 1
        roll = self.choice.random()
        if roll < 0.2 and len(self.open) < 5:
            self.open[self.number] = False
            self.journal.add_in(self.number, self.number, self._body())
        elif roll < 0.7 and any(not prepared for prepared in self.open.values()):
            ours = self.choice.choice([n for n, prepared in self.open.items() if not prepared])
            self.journal.add_in(ours, self.number, self._body())
            if self.choice.random() < 0.3:
                self.journal.update_in(ours, self.number, self._body())
        elif roll < 0.75 and self.open:
            ours = self.choice.choice(list(self.open))
            xid = Xid(7, b"gtrid-%d" % ours, b"b")
            if not self.open[ours]:
                self.log.submit(UnplacedEnding(Code.PREPARE, ours, xid)).wait()
                self.open[ours] = True
        elif roll < 0.85 and self.open:
            ours = self.choice.choice(list(self.open))
            del self.open[ours]
            end = Code.COMMIT if self.choice.random() < 0.7 else Code.ROLLBACK
            if end is Code.COMMIT:
                self.log.submit(UnplacedEnding(end, ours)).wait()
            else:
                self.journal.rollback(ours).wait()
        elif roll < 0.9:
            self.log.roll()
        else:
            self.journal.add(self.number, self._body()).wait()

    def _body(self) -> bytes:
        return b"%d " % self.number + bytes(self.choice.randint(0, 900))


def _expected(path: Path) -> list[Change]:
    (source,) = find([str(path)]).logs
    return list(system(source.system).read(source, ReadOptions()).changes())


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("commit_sequence", "ordinal", "kind", "key", "after"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", [Limit(), Limit(rows=1), Limit(rows=7), Limit(bytes=3_000)])
def test_committed_changes_come_once_and_in_order_at_any_pace(
    tmp_path: Path, seed: int, limit: Limit
) -> None:
    options = SourceOptions((str(tmp_path),), table="changes")
    writer, tailer = Writer(tmp_path, seed), Tailer(options)
    position: Position = {}
    rows: list[dict[str, Any]] = []

    def follow(limit: Limit) -> bool:
        nonlocal position
        end = tailer.advance(position, limit)
        found = file_ranges(options, position, end)
        rows.extend(row for batch in read(found, options) for row in batch.to_pylist())
        moved, position = end != position, json.loads(json.dumps(end))
        return moved

    for number in range(150):
        writer.step()
        if number % 10 == 9:
            follow(limit)
        if number == 75:
            tailer = Tailer(options)
    writer.log.close()
    while follow(limit):
        pass
    expected = _expected(tmp_path)
    assert len({change.file for change in expected}) > 2
    assert any(change.gtrid for change in expected)
    assert [_key(row) for row in rows] == [
        (one.commit_sequence, one.ordinal, one.kind.value, one.key, one.after) for one in expected
    ]
    assert {row["gtrid"] for row in rows} == {one.gtrid for one in expected}


def test_changes_of_a_log_without_lasting_numbers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = replace(system("jboss"), change_feed=False)
    monkeypatch.setattr("tallystick.pipeline.source.tailer.system", lambda _name: without)
    journal = JBossRecordJournal(str(tmp_path))
    journal.add(1, b"one").wait()
    journal.close()
    with pytest.raises(UnsupportedFormatError, match="changes of this log cannot be followed"):
        Tailer(SourceOptions((str(tmp_path),), table="changes")).advance({})


@pytest.mark.long
@pytest.mark.usefixtures("streams")
def test_through_spark_a_stream_of_changes_gives_what_a_batch_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = Writer(tmp_path / "log", 1)
    for turn in range(4):
        for _ in range(60 if turn < 3 else 0):
            writer.step()
        writer.log.mark() if turn < 3 else writer.log.close()
        stream = spark.readStream.format("tallystick").option("table", "changes")
        rows = stream.option("maxRowsPerTrigger", "50").load(str(tmp_path / "log"))
        rows = rows.withWatermark("_commit_timestamp", "1 hour")
        query = rows.writeStream.format("parquet").trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.start(str(tmp_path / "rows")).awaitTermination()
    batch = spark.read.format("tallystick").option("table", "changes").load(str(tmp_path / "log"))
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert found.count() == len(_expected(tmp_path / "log"))
    assert found.columns == batch.columns == FEED.names
    assert found.exceptAll(batch).isEmpty()
    assert batch.exceptAll(found).isEmpty()


def _appended(log: TallyLog, count: int) -> None:
    for _ in range(count):
        log.append(bytes(900))
    log.roll()
    log.mark()


def _changes(options: SourceOptions, start: Position, end: Position) -> list[int]:
    batches = read(file_ranges(options, start, end), options)
    return [row["commit_sequence"] for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("from_the_first_step", [False, True])
def test_changes_that_were_given_up_before_they_were_read_end_the_stream_or_are_left_out(
    tmp_path: Path, from_the_first_step: bool
) -> None:
    options = SourceOptions((str(tmp_path),), table="changes")
    with TallyLog(str(tmp_path), settings=SMALL) as log:
        _appended(log, 40)
        position = Tailer(options).advance({}, Limit(rows=7) if from_the_first_step else Limit())
        _appended(log, 40)
        assert log.reclaim(81)
        _appended(log, 1)
        with pytest.raises(LogUnreadableError, match="given up before they were read"):
            Tailer(options).advance(position)
        goes_on = replace(options, fail_on_data_loss=False)
        end = Tailer(goes_on).advance(position)
    assert _changes(goes_on, position, end) == [81]
    assert [entry["losses"] for entry in end.values()] == [1]


def test_what_was_read_is_known_after_its_files_were_given_up(tmp_path: Path) -> None:
    options = SourceOptions((str(tmp_path),), table="changes")
    with TallyLog(str(tmp_path), settings=SMALL) as log:
        _appended(log, 40)
        position = Tailer(options).advance({})
        assert [entry["place"] for entry in position.values()] == [40]
        _appended(log, 1)
        assert log.reclaim(41)
        for entry in position.values():
            Path(entry["file"]).unlink()
        waiting = Tailer(options).advance(position, Limit(files=0))
        assert waiting == position
        end = Tailer(options).advance(waiting)
        assert _changes(options, waiting, end) == [41]
        assert len(Tailer(options).advance(end)) == 1
