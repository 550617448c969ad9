"""Following logs under adverse conditions: held, disposed of, unreadable for a while, recycled."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tallystick.disposal.disposers import DeleteDisposer
from tallystick.disposal.retention import KeepForReader
from tallystick.disposal.worker import Disposal
from tallystick.errors import CorruptLogError, LogUnreadableError, UnsupportedFormatError
from tallystick.pipeline.options import Limit, SourceOptions
from tallystick.pipeline.planning import find
from tallystick.pipeline.source import file_ranges as ranges
from tallystick.pipeline.source import followed_log as following
from tallystick.pipeline.source import tailer as tailing
from tallystick.pipeline.source.file_ranges import FileRange, file_ranges, read
from tallystick.pipeline.source.followed_log import Ends, FollowedLog
from tallystick.pipeline.source.positions import Position, reader_offset
from tallystick.pipeline.source.tailer import Tailer
from tallystick.records import Outcome
from tallystick.roles import Operation, OperationCode
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.protocol import LogSource, ReadOptions, Split
from tallystick.systems.registry import system
from tallystick.systems.tally.format.layout import segment_name
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import TallyPersistLog
from tallystick.systems.tally.live.settings import Settings
from tests.fixtures import cases, fixture_dir
from tests.sweeps import Sweep

SMALL = Settings(segment_size=64 << 10, preallocate=False, idle_mark_s=None)

OPERATIONS = (Operation(OperationCode.OPAQUE, "t", b"k", bytes(10_000)),)


class SlowStream:
    """The data source as Spark drives it, a step at a time; ``seen`` has what it handed on."""

    def __init__(self, log: Path, hold: Path, rows: int) -> None:
        self.options = SourceOptions((str(log),), limit=Limit(rows=rows), hold_folder=str(hold))
        self.position: Position = {}
        self.seen: list[int] = []
        self.restart()

    def restart(self) -> None:
        """Begin anew from what was committed, as after a crash."""
        from tallystick.pipeline.source.stream import LogStreamReader

        self.reader = LogStreamReader(self.options)

    def step(self) -> bool:
        """Read and commit one step; False if there was nothing new."""
        from pyspark.sql.streaming.datasource import ReadMaxRows

        limit = ReadMaxRows(self.options.limit.rows or 1)
        end = self.reader.latestOffset(self.position, limit)
        if end == self.position:
            return False
        for partition in self.reader.partitions(self.position, end):
            for batch in self.reader.read(partition):
                self.seen += _numbers(batch)
        self.reader.commit(end)
        self.position = json.loads(json.dumps(end))
        return True


def _numbers(batch: Any) -> list[int]:
    rows = batch.select(["type", "record_id"]).to_pylist()
    return [row["record_id"] for row in rows if row["type"] == "persisting"]


@pytest.mark.parametrize("recycle", [False, True])
def test_a_slow_stream_over_a_native_log_that_is_reclaimed_and_disposed_of_loses_nothing(
    tmp_path: Path, recycle: bool
) -> None:
    path, hold = tmp_path / "log", tmp_path / "hold"
    settings = Settings(segment_size=64 << 10, preallocate=False, recycle=recycle)
    log = TallyPersistLog(TallyLog(str(path), settings=settings))
    disposer = KeepForReader(reader_offset(str(hold), str(path)), DeleteDisposer())
    disposal = Disposal(log, disposer, poll_seconds=0.001)
    stream = SlowStream(path, hold, rows=3)
    written = []
    for turn in range(60):
        number, ticket = log.persisting(("a",), OPERATIONS)
        ticket.wait()
        written.append(number)
        log.persisted(number, ("a",))  # nothing is pending: only the hold keeps a segment
        if turn % 7 == 6:
            log.roll()
            disposal.prompt()
        if turn % 4 == 3:
            stream.step()
        if turn % 20 == 19:
            stream.restart()
    assert len(stream.seen) < len(written)
    log.sync().wait()
    while stream.step():
        disposal.prompt()
    disposal.close(1)
    log.close()
    assert stream.seen == written
    assert log.log.first_segment > 3


def test_a_log_whose_folder_was_away_for_a_step_is_not_handed_on_again(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    with TallyLog(str(volume / "log"), settings=SMALL) as plain:
        log = TallyPersistLog(plain)
        written = [log.persisting(("a",), OPERATIONS)[0] for _ in range(3)]
        log.sync().wait()
    stream = SlowStream(volume, tmp_path / "hold", rows=100)
    stream.options = replace(stream.options, hold_folder=None)
    stream.restart()
    while stream.step():
        pass
    assert stream.seen == written
    (volume / "log").rename(tmp_path / "away")
    while stream.step():
        pass
    (tmp_path / "away").rename(volume / "log")
    while stream.step():
        pass
    assert stream.seen == written


def test_a_file_is_let_go_once_records_of_the_next_one_were_read(tmp_path: Path) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    path, hold = tmp_path / "log", tmp_path / "hold"
    with TallyLog(str(path), settings=SMALL) as log:
        for segment in range(2):
            for number in range(3):
                log.append(b"%d %d" % (segment, number)).wait()
            log.roll()
    stream = LogStreamReader(SourceOptions((str(path),), hold_folder=str(hold)))
    offset = reader_offset(str(hold), str(path))
    position = stream.tailer.advance({}, Limit(rows=2))
    stream.commit(position)
    assert offset() is None
    stream.commit(stream.tailer.advance(position))
    assert offset() == segment_name(1)


def test_a_log_that_cannot_be_read_for_a_while_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TallyLog(str(tmp_path / "log"), settings=SMALL) as log:
        log.append(b"one").wait()
    options = SourceOptions((str(tmp_path / "log"),))
    position = Tailer(options).advance({})
    assert position

    class Refusing:
        def read(self, *_: object) -> None:
            raise LogUnreadableError("cannot read: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(following, "system", lambda _name: Refusing())
        assert Tailer(options).advance(position) == position
    assert Tailer(options).advance(position) == position
    assert file_ranges(options, position, Tailer(options).advance(position)) == []


def _ids(found: Iterable[FileRange], options: SourceOptions) -> list[int]:
    return [
        number for batch in read(found, options) for number in batch.column("record_id").to_pylist()
    ]


def _journal(path: Path) -> None:
    """Make a journal with six records in the first of its two files."""
    journal = JBossRecordJournal(str(path), JournalSettings(file_size=16 << 10))
    for number in range(6):
        journal.add(number, b"body").wait()
    journal.journal.close()


@pytest.mark.parametrize("mode", ["permissive", "failfast"])
def test_another_file_of_the_log_that_goes_takes_no_records_with_it(
    tmp_path: Path, mode: str
) -> None:
    _journal(tmp_path / "log")
    options = SourceOptions((str(tmp_path / "log"),), mode=mode)
    planned = file_ranges(options, {}, Tailer(options).advance({}))
    (tmp_path / "log" / "activemq-data-2.amq").unlink()
    assert _ids(planned, options) == list(range(6))


def test_records_that_cannot_be_read_for_a_while_are_read_then_or_the_step_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _journal(tmp_path / "log")
    options = SourceOptions((str(tmp_path / "log"),))
    planned = file_ranges(options, {}, Tailer(options).advance({}))
    refused: list[str] = []

    def refuse_once(name: str) -> Any:
        if not refused:
            refused.append(name)
            raise LogUnreadableError("cannot read: Input/output error")
        return system(name)

    monkeypatch.setattr(following, "system", refuse_once)
    assert _ids(planned, options) == list(range(6))
    assert refused

    def refuse(_name: str) -> Any:
        raise LogUnreadableError("cannot read: Input/output error")

    monkeypatch.setattr(following, "system", refuse)
    with pytest.raises(LogUnreadableError):
        _ids(planned, options)


def test_a_log_that_is_not_listed_for_a_moment_takes_no_records_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _journal(tmp_path / "log")
    options = SourceOptions((str(tmp_path / "log"),))
    end = Tailer(options).advance({})
    looks = [find(options.paths), replace(find(options.paths), logs=[])]
    monkeypatch.setattr(ranges, "find", lambda _paths, **_: looks.pop() if looks else None)
    assert _ids(file_ranges(options, {}, end), options) == list(range(6))
    monkeypatch.setattr(ranges, "find", lambda _paths, **_: replace(find(options.paths), logs=[]))
    with pytest.raises(LogUnreadableError, match="not found"):
        file_ranges(options, {}, end)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose records were read, where every change shows at once."""
    names: list[str] = []
    ends = FollowedLog.ends

    def noting(log: FollowedLog, path: str, begin: int = 0) -> Ends:
        names.append(Path(path).name)
        return ends(log, path, begin)

    monkeypatch.setattr(FollowedLog, "ends", noting)
    monkeypatch.setattr(tailing, "QUIET_NS", -1)
    return names


def _places(position: Position) -> dict[str, tuple[str, int, str]]:
    return {key: (one["file"], one["offset"], one["digests"]) for key, one in position.items()}


def _segments(log: TallyLog, count: int) -> None:
    for number in range(count):
        log.append(b"%d" % number).wait()
        log.append(b"%d" % number).wait()
        log.roll()


def test_of_a_log_of_many_files_only_those_that_changed_are_read_again(
    tmp_path: Path, looked_at: list[str]
) -> None:
    tailer = Tailer(SourceOptions((str(tmp_path),)))
    with TallyLog(str(tmp_path), settings=SMALL) as log:
        _segments(log, 8)
        position = tailer.advance({})
        assert looked_at == [segment_name(number) for number in range(1, 10)]
        looked_at.clear()
        log.append(b"one more").wait()
        log.mark()
        after = tailer.advance(position)
        assert _places(tailer.latest()) == _places(after) != _places(position)
        assert looked_at == [segment_name(9)]


def _copies(name: str, home: Path) -> Iterator[LogSource]:
    """The logs of all cases of a system, unpacked into folders of their own."""
    for case in cases(name):
        copy = shutil.copytree(fixture_dir(name) / case, home / case)
        for packed in copy.rglob("*.gz"):
            packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
            packed.unlink()
        yield from find([str(copy)]).logs


@pytest.mark.parametrize("name", ["cloudtran", "jboss"])
def test_a_file_that_did_not_change_is_not_read_again_for_another_of_its_log(
    tmp_path: Path, looked_at: list[str], name: str
) -> None:
    source = max(_copies(name, tmp_path), key=lambda one: len(one.files))
    tailer = Tailer(SourceOptions((source.path,)))
    position = tailer.advance({})
    (entry,) = position.values()
    changed = entry["file"]
    looked_at.clear()
    os.utime(changed, (1, 1))
    assert tailer.advance(position) == position
    assert looked_at == [Path(changed).name]


@pytest.mark.parametrize("name", ["cloudtran", "jboss"])
def test_a_file_alone_tells_what_the_whole_log_tells_of_it(
    tmp_path: Path, name: str, sweep: Sweep
) -> None:
    """Whole logs, and logs with bytes changed at random."""
    for number, source in sweep.of(list(enumerate(_copies(name, tmp_path))), 5):
        choice = random.Random(number)
        for change in range(3):
            for file in source.files if change else ():
                data = bytearray(Path(file).read_bytes())
                for place in [choice.randrange(len(data) + 1) for _ in range(2)]:
                    data[place : place + 3] = choice.randbytes(3)
                Path(file).write_bytes(data)
            _compare(source)


def _compare(source: LogSource) -> None:
    log = FollowedLog(source, ReadOptions())
    files = system(source.system).read(source, ReadOptions()).files()
    assert {file.path: (file.identity, file.generation) for file in files} == {
        path: life[:2] for path, life in log.lives.items()
    }
    for file in files:
        torn = [span.offset for span in file.spans if span.outcome is Outcome.TORN]
        assert log.ends(file.path).tolist() == _ends(log, file.path, min([*torn, file.size]))


def _ends(log: FollowedLog, path: str, size: int) -> list[int]:
    """Where the valid records of a file end, up to ``size``."""
    found = []
    for batch in (
        system(log.source.system).read(log.source, ReadOptions()).batches(Split(path, 0, size))
    ):
        for row in batch.select(["offset", "length", "outcome"]).to_pylist():
            if row["outcome"] == Outcome.VALID and row["offset"] + row["length"] <= size:
                found.append(row["offset"] + row["length"])
    return sorted(found)


def test_a_damaged_file_id_keeps_changes_back_and_no_record(tmp_path: Path) -> None:
    with CircularJournal(str(tmp_path), JournalSettings(file_size=16 << 10)) as journal:
        journal.append_add_record(1, 1, b"one").wait()
    file = next(Path(one) for one in sorted(map(str, tmp_path.iterdir())))
    data = bytearray(file.read_bytes())
    data[8] ^= 0x40  # the first byte of the file id: records carry its last four
    file.write_bytes(data)
    options = SourceOptions((str(tmp_path),), mode="failfast")
    end = Tailer(options).advance({})
    assert [batch.num_rows for batch in read(file_ranges(options, {}, end), options)] == [1]
    with pytest.raises(CorruptLogError, match="the id in the header of a file is damaged"):
        Tailer(replace(options, table="changes")).advance({})


def test_a_step_looks_at_no_file_behind_its_limit(tmp_path: Path, looked_at: list[str]) -> None:
    tailer = Tailer(SourceOptions((str(tmp_path),)))
    with TallyLog(str(tmp_path), settings=SMALL) as log:
        _segments(log, 8)
    position = tailer.advance({}, Limit(rows=3))
    assert looked_at == [segment_name(1), segment_name(2)]
    tailer.advance(position, Limit(files=1))
    assert looked_at == [segment_name(1), segment_name(2)]


def test_a_stream_that_starts_again_goes_on_where_it_was(tmp_path: Path) -> None:
    options = SourceOptions((str(tmp_path),))
    with TallyLog(str(tmp_path), settings=SMALL) as log:
        _segments(log, 4)
        position = Tailer(options).advance({})
        assert _places(Tailer(options).latest()) == _places(position)
        log.append(b"one more").wait()
        log.mark()
        after = Tailer(options).advance(position)
        assert _places(after) == _places(Tailer(options).latest())
        assert _places(after) == _places(Tailer(options).advance({}))
    (one,) = file_ranges(options, position, after)
    assert [row for batch in read([one], options) for row in batch["body"].to_pylist()] == [
        b"one more"
    ]


def test_what_a_stream_has_read_takes_no_memory(tmp_path: Path) -> None:
    tailer = Tailer(SourceOptions((str(tmp_path),)))
    with TallyLog(str(tmp_path), settings=SMALL) as log:
        _segments(log, 4)
    position = tailer.advance({})
    assert sum(len(seen.ends) for seen in tailer.seen.values()) == 2
    assert tailer.advance(position) == position
    assert sum(len(seen.ends) for seen in tailer.seen.values()) == 0
    assert len(tailer.seen) <= 2


@pytest.mark.parametrize(
    ("limit", "counts"), [(1 << 20, [5]), (1, [1] * 5)], ids=["together", "alone"]
)
def test_small_ranges_of_a_log_travel_together(
    tmp_path: Path, limit: int, counts: list[int]
) -> None:
    from tallystick.pipeline.source.stream import LogStreamReader

    options = SourceOptions((str(tmp_path),), split_bytes=limit)
    with TallyLog(str(tmp_path), settings=SMALL) as log:
        _segments(log, 5)
    reader = LogStreamReader(options)
    end = reader.tailer.advance({})
    parts = reader.partitions({}, end)
    assert [len(part.ranges) for part in parts] == counts
    bodies = [
        body
        for part in parts
        for batch in reader.read(part)
        for body in batch.column("body").to_pylist()
    ]
    assert bodies == [b"%d" % (number // 2) for number in range(10)]


H2_CASE = next(name for name in cases("h2") if list((fixture_dir("h2") / name).glob("*.h2.db*")))


def test_an_h2_log_is_refused_with_the_reason() -> None:
    tailer = Tailer(SourceOptions((str(fixture_dir("h2") / H2_CASE),)))
    with pytest.raises(UnsupportedFormatError, match=r"given back at each checkpoint.*--stream"):
        tailer.advance({})


def test_an_h2_log_among_others_is_left_out_unless_failfast_is_asked_for(tmp_path: Path) -> None:
    with TallyLog(str(tmp_path / "log"), settings=SMALL) as log:
        log.append(b"one").wait()
    paths = (str(tmp_path / "log"), str(fixture_dir("h2") / H2_CASE))
    options = SourceOptions(paths)
    position = Tailer(options).advance({})
    systems = {
        name
        for one in file_ranges(options, {}, position)
        for batch in read([one], options)
        for name in batch.column("system").to_pylist()
    }
    assert systems == {"tally"}
    with pytest.raises(UnsupportedFormatError):
        Tailer(SourceOptions(paths, mode="failfast")).advance({})
