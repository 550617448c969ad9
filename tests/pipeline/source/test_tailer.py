"""Following logs: every record of every life once, at whatever pace."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tallystick.errors import LogUnreadableError, TallystickError, UnsupportedFormatError
from tallystick.pipeline.options import Limit, OptionError, SourceOptions, parse
from tallystick.pipeline.planning import RecordsLostError
from tallystick.pipeline.source import tailer as module
from tallystick.pipeline.source.batch import with_collection
from tallystick.pipeline.source.file_ranges import file_ranges, read
from tallystick.pipeline.source.positions import (
    Position,
    digests,
    reader_offset,
    require_unchanged,
)
from tallystick.pipeline.source.tailer import Tailer
from tallystick.services.journal import Journal
from tallystick.storage.source import ByteSource, open_source
from tallystick.systems import known
from tallystick.systems.bitronix import reader
from tallystick.systems.bitronix.format.layout import ACTIVE, COMMITTED
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.bitronix.read import spans
from tallystick.systems.jboss.format.participants import MARK, TRANSACTION
from tests.fixtures import fixture_dir
from tests.systems.jboss.applications.test_tables import write_bindings, write_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(known, "PACKAGES", {"fake": "tests.pipeline.fake"})
    return tmp_path


def _append(path: Path, first: int, count: int) -> None:
    if not path.exists():
        path.write_text("FAKE\n")
    with path.open("a") as out:
        out.writelines(f"committed {number}\n" for number in range(first, first + count))


def _numbers(options: SourceOptions, start: Position, end: Position) -> list[int]:
    return [
        number
        for one in file_ranges(options, start, end)
        for batch in read([one], options)
        for number in batch.column("transaction").to_pylist()
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "limit", [Limit(), Limit(rows=3), Limit(bytes=40), Limit(files=1), Limit(rows=1, files=1)]
)
def test_every_record_comes_once_while_files_grow_roll_and_go(home: Path, limit: Limit) -> None:
    options = SourceOptions((str(home),))
    tailer = Tailer(options)
    choice = random.Random(str(limit))
    position: Position = {}
    seen: list[int] = []
    written = 0
    for step in range(60):
        if step < 30 and choice.random() < 0.7:
            count = choice.randint(1, 5)
            _append(home / f"{step // 10}.fake", written, count)
            written += count
        after = tailer.advance(json.loads(json.dumps(position)), limit)
        seen += _numbers(options, position, after)
        position = after
    while (after := tailer.advance(position, limit)) != position:
        seen += _numbers(options, position, after)
        position = after
    assert sorted(seen) == list(range(written))


@pytest.mark.parametrize("mode", ["permissive", "failfast"])
def test_a_file_may_go_between_the_look_at_it_and_its_digest(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    _append(home / "1.fake", 1, 3)
    _append(home / "2.fake", 4, 3)
    options = SourceOptions((str(home),), mode=mode)
    whole = Tailer(options).latest()
    going: list[Path] = []

    def late(path: str, first: int, end: int) -> str:
        if Path(path) in going:
            Path(path).unlink()
        return digests(path, first, end)

    monkeypatch.setattr(module, "digests", late)
    going = [home / "1.fake"]
    assert Tailer(options).latest() == whole
    assert (position := Tailer(options).advance({})) == {}
    assert _numbers(options, {}, Tailer(options).advance(position)) == [4, 5, 6]
    going = [home / "2.fake"]
    assert Tailer(options).latest() == {}


def test_limits_are_kept_and_a_step_takes_at_least_one_record(home: Path) -> None:
    _append(home / "1.fake", 1, 10)
    options = SourceOptions((str(home),))
    for limit, expected in ((Limit(rows=4), 4), (Limit(bytes=1), 1), (Limit(bytes=30), 2)):
        assert len(_numbers(options, {}, Tailer(options).advance({}, limit))) == expected


def test_a_replayed_step_gives_the_same_rows(home: Path) -> None:
    options = SourceOptions((str(home),))
    _append(home / "1.fake", 0, 5)
    middle = Tailer(options).advance({}, Limit(rows=2))
    end = Tailer(options).advance(middle)
    _append(home / "1.fake", 5, 5)
    assert _numbers(options, middle, end) == [2, 3, 4]


def test_a_position_grows_with_logs_not_with_files_or_time(home: Path) -> None:
    options = SourceOptions((str(home),))
    tailer = Tailer(options)
    position: Position = {}
    for number in range(20):
        _append(home / f"{number}.fake", number, 1)
        position = tailer.advance(position)
        (home / f"{number - 3}.fake").unlink(missing_ok=True)
    (entry,) = position.values()
    assert (entry["number"], entry["file"]) == (19, str(home / "19.fake"))
    assert len(json.dumps(position)) < 500


@pytest.mark.parametrize("mode", ["permissive", "failfast"])
def test_records_that_go_between_planning_and_reading_fail_the_step_unless_it_may_go_on(
    home: Path, mode: str
) -> None:
    options = SourceOptions((str(home),), mode=mode)
    _append(home / "1.fake", 0, 2)
    end = Tailer(options).advance({})
    (one,) = file_ranges(options, {}, end)
    (home / "1.fake").unlink()
    goes_on = replace(options, fail_on_data_loss=False)
    with pytest.raises((TallystickError, OSError)):
        list(read([one], options))
    assert list(read([one], goes_on)) == []
    with pytest.raises(RecordsLostError):
        file_ranges(options, {}, end)
    assert file_ranges(goes_on, {}, end) == []


def test_available_now_stops_at_what_was_there(home: Path) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    _append(home / "1.fake", 0, 4)
    options = SourceOptions((str(home),), limit=Limit(rows=3))
    reader = LogStreamReader(options)
    reader.prepareForTriggerAvailableNow()
    _append(home / "1.fake", 4, 4)
    _append(home / "2.fake", 8, 4)
    position: Position = {}
    seen: list[int] = []
    while (after := reader.latestOffset(position, reader.getDefaultReadLimit())) != position:
        seen += _numbers(options, position, after)
        position = after
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("put_back_later", [False, True])
def test_available_now_reads_a_log_that_was_put_back_and_goes_on(
    tmp_path: Path, put_back_later: bool
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from tallystick.pipeline.source.stream import LogStreamReader

    path, copy = tmp_path / "log", tmp_path / "copy"
    options = SourceOptions((str(path),), on_rewrite="restart")

    def write(first: int, count: int, salt: str) -> None:
        with Journal(path) as log:
            for number in range(first, first + count):
                log.append(f"{number} {salt}".encode())

    def followed(
        position: Position, prepared: Callable[[], object]
    ) -> tuple[Position, list[bytes]]:
        reader, rows = LogStreamReader(options), list[bytes]()
        reader.prepareForTriggerAvailableNow()
        prepared()
        while (after := reader.latestOffset(position, ReadAllAvailable())) != position:
            for partition in reader.partitions(position, after):
                for batch in reader.read(partition):
                    rows += batch.column("body").to_pylist()
            position = after
        return position, rows

    def put_back(count: int) -> None:
        shutil.rmtree(path)
        shutil.copytree(copy, path)
        write(100, count, "other")

    write(0, 100, "first")
    shutil.copytree(path, copy)
    write(100, 50, "first")
    position, _ = followed({}, lambda: None)
    if put_back_later:
        position, rows = followed(position, lambda: put_back(100))
    else:
        put_back(20)
        position, rows = followed(position, lambda: write(120, 80, "other"))
    position, more = followed(position, lambda: None)
    rows += more
    assert rows == [
        *(b"%d first" % at for at in range(100)),
        *(b"%d other" % at for at in range(100, 200)),
    ]
    assert [entry["rewrites"] for entry in position.values()] == [1]


def test_a_pattern_finds_logs_that_are_made_after_the_stream_began(home: Path) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    paths = [f"{home}/*", f"{home}/*/not-yet/*"]
    reader = LogStreamReader(parse({"paths": json.dumps(paths)}))
    position: Position = reader.initialOffset()
    seen: list[int] = []

    def step() -> None:
        nonlocal position, seen
        after: Any = reader.latestOffset(position, reader.getDefaultReadLimit())
        seen += _numbers(reader.options, position, after)
        reader.commit(after)
        position = after

    step()  # nothing is there yet
    assert (position, reader.reportLatestOffset(), reader.tailer.latest()) == ({}, {}, {})
    (home / "a").mkdir()
    _append(home / "a" / "1.fake", 0, 2)
    step()
    (home / "b").mkdir()
    _append(home / "b" / "1.fake", 2, 2)
    step()
    assert seen == [0, 1, 2, 3]
    (home / "a").rename(home.parent / f"{home.name}-away")  # not mounted for a while
    _append(home / "b" / "1.fake", 4, 1)
    step()
    (home.parent / f"{home.name}-away").rename(home / "a")
    _append(home / "a" / "1.fake", 5, 1)
    step()
    assert seen == [0, 1, 2, 3, 4, 5]
    (home / "a").rename(home.parent / f"{home.name}-away")
    (home / "b").rename(home.parent / f"{home.name}-gone")
    with pytest.raises(LogUnreadableError, match=r"/\*: "):
        step()


@pytest.mark.parametrize("earlier", [False, True])
def test_a_checkpoint_of_another_path_is_refused(home: Path, earlier: bool) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    for name in ("one", "oneself"):
        (home / name).mkdir()
        _append(home / name / "1.fake", 0, 4)
    end: Any = Tailer(SourceOptions((str(home / "one"),))).advance({})
    if earlier:
        end = {str(home / "one" / "1.fake"): [None, None, 4]}
    other = LogStreamReader(SourceOptions((str(home / "oneself"),)))
    with pytest.raises(OptionError, match="checkpoint is that of a stream over other paths"):
        other.latestOffset(end, other.getDefaultReadLimit())
    with pytest.raises(OptionError, match="checkpoint is that of a stream over other paths"):
        other.partitions({}, end)
    for path in (home / "one", home, home / "one" / "1.fake", home / "o*", home / "*" / "1.fake"):
        same = LogStreamReader(SourceOptions((str(path),)))
        assert same.latestOffset(end, same.getDefaultReadLimit())


@pytest.mark.parametrize("latest", [False, True])
def test_a_checkpoint_of_another_table_is_refused(tmp_path: Path, latest: bool) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    with Journal(str(tmp_path / "log")) as log:
        log.append(b"one")
    options = SourceOptions((str(tmp_path),), latest=latest)
    stream = LogStreamReader(options)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end == stream.latestOffset(end, stream.getDefaultReadLimit())
    for other in (
        LogStreamReader(replace(options, table="changes")),
        LogStreamReader(replace(options, table="changes", collection="T")),
    ):
        with pytest.raises(OptionError, match="checkpoint is that of a stream of another table"):
            other.latestOffset(end, other.getDefaultReadLimit())
        with pytest.raises(OptionError, match="checkpoint is that of a stream of another table"):
            other.partitions(start, end)


def test_a_checkpoint_of_another_collection_is_refused_unless_it_was_renamed(
    tmp_path: Path,
) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    write_bindings(tmp_path / "bindings")
    write_messages(tmp_path / "journal")

    def of(collection: str) -> LogStreamReader:
        given = {"path": str(tmp_path), "table": "changes", "collection": collection}
        return LogStreamReader(with_collection(parse(given | {"beforeImages": "log"})))

    messages, references = of("messages"), of("References")
    end: Any = messages.latestOffset({}, messages.getDefaultReadLimit())
    assert end == messages.latestOffset(end, messages.getDefaultReadLimit())
    problem = "another collection; expected references; found messages"
    with pytest.raises(OptionError, match=problem):
        references.latestOffset(end, references.getDefaultReadLimit())
    with pytest.raises(OptionError, match=problem):
        references.partitions({}, end)
    renamed = {key: {**entry, "collection": "before"} for key, entry in end.items()}
    assert references.latestOffset(renamed, references.getDefaultReadLimit()) == renamed


def test_a_checkpoint_without_the_name_of_its_table_is_read_on(tmp_path: Path) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    with Journal(str(tmp_path / "log")) as log:
        log.append(b"one")
    stream = LogStreamReader(SourceOptions((str(tmp_path),)))
    earlier: Any = stream.tailer.advance({})
    assert stream.latestOffset(earlier, stream.getDefaultReadLimit()) == earlier


def test_what_was_read_to_its_end_may_be_disposed_of(home: Path) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    for log, files in (("one", 3), ("other", 1)):
        (home / log).mkdir()
        for number in range(1, files + 1):
            _append(home / log / f"{number}.fake", number, 1)
    paths = (str(home / "one"), str(home / "other"))
    options = SourceOptions(paths, hold_folder=str(home / "hold"))
    reader = LogStreamReader(options)
    reader.commit(json.loads(json.dumps(reader.tailer.advance({}))))
    assert reader_offset(str(home / "hold"), paths[0])() == "2.fake"
    assert reader_offset(str(home / "hold"), paths[1])() is None


def test_only_records_stream() -> None:
    from tallystick.pipeline.source.batch import TallystickDataSource

    source = TallystickDataSource({"path": "/x", "table": "files"})
    with pytest.raises(OptionError, match="only records"):
        source.streamReader(source.schema())
    assert parse({"path": "/x", "maxRowsPerTrigger": "5"}).limit == Limit(rows=5)


def test_a_step_reads_only_the_file_of_a_bitronix_journal_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SourceOptions((str(tmp_path),))
    tailer = Tailer(options)
    journal = DiskJournal(str(tmp_path), max_log_size=1 << 20)
    journal.log_forced(COMMITTED, b"first", ()).wait()
    os.utime(tmp_path / "btm2.tlog", (0, 0))
    position, seen = tailer.advance({}), set()

    def opened(path: str) -> ByteSource:
        seen.add(Path(path).name)
        return open_source(path)

    for reading in (reader, spans):
        monkeypatch.setattr(reading, "open_source", opened)
    for number in range(3):
        journal.log_forced(COMMITTED, b"%d" % number, ()).wait()
        after = tailer.advance(position)
        rows = [
            row
            for one in file_ranges(options, position, after)
            for batch in read([one], options)
            for row in batch.column("gtrid").to_pylist()
        ]
        assert (rows, seen) == ([b"%d" % number], {"btm1.tlog"})
        position = after
    journal.close()


@pytest.mark.long
@pytest.mark.usefixtures("streams")
def test_a_stream_gives_what_a_batch_gives(spark: SparkSession, tmp_path: Path) -> None:
    """Two queries with one checkpoint, in three steps, over a real journal."""
    path = str(fixture_dir("bitronix") / "rollover-2")
    expected = spark.read.format("tallystick").load(path).where("outcome = 'valid'").count()
    step = str(expected // 3 + 1)
    for _ in range(2):
        stream = spark.readStream.format("tallystick").option("maxRowsPerTrigger", step).load(path)
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        assert query.awaitTermination(120)
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert rows.count() == expected
    assert rows.select("file", "offset").distinct().count() == expected


@pytest.mark.parametrize("limit", [Limit(rows=1), Limit(rows=4), Limit(bytes=1), Limit(files=1)])
def test_a_busy_log_does_not_starve_the_others(home: Path, limit: Limit) -> None:
    """In every step the busy log has as much as the limit again."""
    for name in ("busy", "quiet", "rare"):
        (home / name).mkdir()
    _append(home / "quiet" / "1.fake", 0, 2)
    _append(home / "rare" / "1.fake", 0, 1)
    options = SourceOptions((str(home),))
    tailer, numbers = Tailer(options), 0
    position: Position = {}
    for step in range(8):
        _append(home / "busy" / "1.fake", numbers, numbers + 5)
        numbers += 5
        after = tailer.advance(position, limit)
        assert after != position, f"step {step} took nothing"
        position = after
    for name in ("quiet", "rare"):
        path = home / name / "1.fake"
        assert position[f"fake {path.parent}"]["offset"] == path.stat().st_size


def test_a_limit_that_a_quiet_log_leaves_goes_to_the_busy_one(home: Path) -> None:
    for name in ("busy", "quiet"):
        (home / name).mkdir()
    _append(home / "busy" / "1.fake", 0, 10)
    _append(home / "quiet" / "1.fake", 0, 1)
    options = SourceOptions((str(home),))
    position = Tailer(options).advance({}, Limit(rows=8))
    assert len(_numbers(options, {}, position)) == 8


def test_a_stream_that_fails_fast_names_a_log_that_it_cannot_read(home: Path) -> None:
    _append(home / "1.fake", 0, 2)
    (home / "2.fake.gz").write_bytes(b"\x1f\x8b\x08garbage")
    assert len(Tailer(SourceOptions((str(home),))).latest()) == 1
    with pytest.raises(LogUnreadableError, match=r"2\.fake\.gz"):
        Tailer(SourceOptions((str(home),), mode="failfast")).latest()


def test_a_file_that_is_recycled_while_it_is_looked_at_was_not_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SourceOptions((str(tmp_path),), fail_on_data_loss=False)
    position: Position = {}
    with DiskJournal(str(tmp_path), max_log_size=4096) as journal:
        for number in range(30):
            journal.log(ACTIVE, b"%d" % number, {"jdbc/a"})
        journal.force()
        position = Tailer(options).advance(position)

        def recycling(*given: Any) -> None:
            for number in range(300):  # both files are used again after the headers were read
                journal.log(ACTIVE, b"new %d" % number, {"jdbc/a"})
                journal.log(COMMITTED, b"new %d" % number, {"jdbc/a"})
            journal.force()
            monkeypatch.undo()
            require_unchanged(*given)

        monkeypatch.setattr(module, "require_unchanged", recycling)
        tailer = Tailer(options)
        after = tailer.advance(position)
        assert tailer.advance(after)


def test_a_log_that_cannot_be_followed_is_left_out_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = fixture_dir("estate") / "mid-phase-two"
    tailer = Tailer(SourceOptions((str(folder),)))
    for _ in range(2):
        position = tailer.latest()
    assert position
    assert not any(key.startswith("h2 ") for key in position)
    (said,) = (one.getMessage() for one in caplog.records if "left out" in one.getMessage())
    assert f"{folder}/h2" in said
    assert "Read it in batch" in said


@pytest.mark.parametrize("table", ["records", "changes"])
def test_a_store_of_files_is_refused_alone_and_told_beside_other_logs(
    table: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "store/defaultStore" / TRANSACTION.lstrip("/") / "0_ffff7f000001_a661_6b_17"
    state.parent.mkdir(parents=True)
    state.write_bytes(MARK)
    options = replace(parse({"path": str(tmp_path)}), table=table)
    with pytest.raises(UnsupportedFormatError, match="each transaction is a file"):
        Tailer(options).advance({})
    with Journal(tmp_path / "log") as log:
        log.append(b"one")
    assert len(Tailer(options).advance({})) == 1
    assert "left out of the stream" in caplog.text
