"""A stream hands on what is durable and stays so: blocked syncs, crashes, histories taken back."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tallystick
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.source import followed_log
from tallystick.pipeline.source import tailer as tailer_module
from tallystick.pipeline.source.file_ranges import file_ranges, read
from tallystick.pipeline.source.positions import HistoryRewrittenError, Position
from tallystick.pipeline.source.tailer import Tailer
from tallystick.records import Outcome
from tallystick.roles import Operation, OperationCode
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL, LocalFile
from tallystick.systems.bitronix.format.layout import COMMITTING
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.registry import open_persist_log
from tallystick.systems.tally.format.layout import SEGMENT_SIZE_MIN
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing import RecordingFileSystem
from tests.systems.derby.live.test_log import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Settings(
    segment_size=2 * SEGMENT_SIZE_MIN, preallocate=False, idle_mark_s=None, recycle=False, spares=0
)


def _native(path: str, numbers: range, fs: FileSystem = LOCAL, salt: str = "") -> None:
    with TallyLog(path, settings=SMALL, fs=fs) as log:
        for number in numbers:
            log.append(f"record {number} {salt}".encode()).wait()


def _jboss(path: str, numbers: range, fs: FileSystem = LOCAL, salt: str = "") -> None:
    journal = JBossRecordJournal(path, JournalSettings(file_size=64 << 10), fs=fs)
    for number in numbers:
        journal.add(number + 1, f"record {number} {salt}".encode()).wait()
    journal.close()


def _bitronix(path: str, numbers: range, fs: FileSystem = LOCAL, salt: str = "") -> None:
    journal = DiskJournal(path, max_log_size=64 << 10, fs=fs)
    for number in numbers:
        gtrid = f"record {number} {salt}".encode().ljust(20, b".")
        journal.log_forced(COMMITTING, gtrid, {"jdbc/a"}).wait()
    journal.close()


WRITERS: dict[str, Callable[..., None]] = {
    "native": _native,
    "jboss": _jboss,
    "bitronix": _bitronix,
}
WRITTEN = {"native": "append", "jboss": "ADD", "bitronix": "COMMITTING"}


def _rows(options: SourceOptions, start: Position, end: Position) -> list[str]:
    """What the records between two positions say, in the order of the log."""
    return [
        text
        for one in file_ranges(options, start, end)
        for batch in read([one], options)
        for row in batch.select(["type", "body", "gtrid"]).to_pylist()
        if row["type"] in WRITTEN.values() and (text := _text(row["body"], row["gtrid"]))
    ]


def _text(body: bytes | None, gtrid: bytes | None) -> str:
    return (gtrid or body or b"").decode("latin-1").rstrip(".")


def _recorded(path: Path) -> list[str]:
    return [
        text
        for record in tallystick.scan(str(path))
        if record.outcome is Outcome.VALID and record.type in WRITTEN.values()
        if (text := _text(record.body, record.gtrid))
    ]


# -- what is not durable ------------------------------------------------------------------


def test_a_record_that_its_writer_could_not_sync_yet_is_not_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path)
    options = SourceOptions((path,))
    tailer, synced = Tailer(options), threading.Event()
    sync = LocalFile.datasync

    def datasync(file: LocalFile) -> None:
        assert synced.wait(20)
        sync(file)

    def bodies(start: Position, end: Position) -> list[bytes]:
        found = file_ranges(options, start, end)
        return [body for b in read(found, options) for body in b["body"].to_pylist()]

    log = TallyLog(path, settings=SMALL)
    log.append(b"durable").wait()
    log.mark()
    monkeypatch.setattr(LocalFile, "datasync", datasync)
    writer = threading.Thread(target=lambda: log.append(b"not yet").wait())
    writer.start()
    try:
        until = time.monotonic() + 10
        while not any(record.body == b"not yet" for record in tallystick.scan(path)):
            assert time.monotonic() < until
        first = tailer.advance({})
        assert bodies({}, first) == [b"durable"]
    finally:
        synced.set()
        writer.join()
    log.append(b"next").wait()  # its group says that the one before is durable
    second = tailer.advance(first)
    assert bodies(first, second) == [b"not yet"]
    log.close()
    assert bodies(second, tailer.advance(second)) == [b"next"]


class Stepping(RecordingFileSystem):
    """Lets a stream take a step after every call of the writer; ``given`` has what it was handed,
    with the number of calls before."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.home, self.options = home, SourceOptions((str(home / "log"),))
        self.tailer = Tailer(self.options)
        self.position: Position = {}
        self.given: list[tuple[int, str]] = []
        self.stepping = False

    def apply(self, call: str, *arguments: object) -> None:
        super().apply(call, *arguments)
        with self._mutex:
            if not self.stepping:
                self.step()

    def step(self) -> None:
        self.stepping = True
        shutil.rmtree(self.home / "log", ignore_errors=True)
        self.write_to(self.home)
        (self.home / "log").mkdir(
            parents=True, exist_ok=True
        )  # not in its parent yet: an empty log
        end = self.tailer.advance(self.position)
        rows = _rows(self.options, self.position, end)
        self.given += [(self.points, row) for row in rows]
        self.position = end
        self.stepping = False

    def sync_for_reading(self, path: str, _begin: int, _end: int) -> None:
        """What the reader's own sync does."""
        inode = self.disk.inode(path.removeprefix(str(self.home)))
        self.apply("sync", inode.number)


@pytest.mark.parametrize("system", WRITERS)
def test_after_a_crash_at_any_moment_there_is_all_that_a_stream_was_given(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = Stepping(tmp_path / "live")
    monkeypatch.setattr(followed_log, "sync_for_reading", fs.sync_for_reading)
    WRITERS[system]("/log", range(12), fs)
    fs.step()
    assert [row for _, row in fs.given] == [f"record {number} " for number in range(12)]
    crashed = tmp_path / "crashed"
    checked = 0
    for state in fs.crash_states(limit=6):
        given = {row for point, row in fs.given if point <= state.point}
        if not given:
            continue
        shutil.rmtree(crashed, ignore_errors=True)
        state.fs().write_to(crashed)
        assert given <= set(_recorded(crashed / "log")), state.describe()
        checked += 1
    assert checked > 12


# -- what goes back -----------------------------------------------------------------------


def _taken_back(system: str, home: Path, follow: Callable[[Path], None], salt: str) -> None:
    """A log of 100 records is copied, goes on by 50, is followed, put back, and goes on by 80."""
    write, path = WRITERS[system], home / "log"
    write(str(path), range(100))
    shutil.copytree(path, home / "copy")
    write(str(path), range(100, 150))
    follow(path)
    shutil.rmtree(path)
    shutil.copytree(home / "copy", path)
    write(str(path), range(100, 180), salt=salt)


@pytest.mark.parametrize("system", WRITERS)
def test_a_history_that_was_taken_back_is_an_error_or_a_new_life(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SourceOptions((str(tmp_path / "log"),))
    again = SourceOptions(options.paths, on_rewrite="restart")
    tailers = [Tailer(options), Tailer(again)]
    before: list[Position] = []
    _taken_back(
        system, tmp_path, lambda _: before.extend(one.advance({}) for one in tailers), "other"
    )
    position = before[0]
    assert len(_rows(options, {}, {})) == 0
    for tailer in (tailers[0], Tailer(options)):
        with pytest.raises(HistoryRewrittenError, match=r"were taken back.*onRewrite=restart"):
            tailer.advance(position)
    with pytest.raises(HistoryRewrittenError):
        _rows(options, {}, position)  # a step that was planned before, and is tried again
    monkeypatch.setattr(tailer_module, "QUIET_NS", -1 << 62)  # as if all were long ago
    target = Tailer(again)
    target.latest()  # what is looked at without a position proves nothing of it
    for tailer in (tailers[1], target, Tailer(again)):
        after = tailer.advance(position)
        rows = _rows(again, position, after)
        assert set(rows) >= {f"record {number} other" for number in range(100, 180)}
        assert len(rows) == len(set(rows))
        assert Tailer(again).advance(after) == after


def test_a_log_that_lost_its_newest_file_was_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    _native(str(path), range(5))
    shutil.copytree(path, tmp_path / "copy")
    with TallyLog(str(path), settings=SMALL) as log:
        log.roll()
        log.append(b"in the second segment").wait()
    options = SourceOptions((str(path),))
    position = Tailer(options).advance({})
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "copy", path)
    with pytest.raises(HistoryRewrittenError, match="newest file is gone"):
        Tailer(options).advance(position)
    assert Tailer(SourceOptions(options.paths, on_rewrite="restart")).advance(position)


def _derby(path: str, numbers: range) -> None:
    """Files of 16 KiB, with a checkpoint now and then."""
    with LogToFile(path, buffer_size=512, switch_interval=16 << 10, archive=True) as log:
        for number in numbers:
            put(log, f"record {number}", number)


def _cloudtran(path: str, numbers: range) -> None:
    log = open_persist_log(Path(path), "cloudtran")
    for _ in numbers:
        operation = Operation(OperationCode.OPAQUE, "t", b"k", bytes(300))
        number, ticket = log.persisting(("a",), (operation,))
        ticket.wait()
        log.persisted(number, ("a",))
    log.sync().wait()
    log.close()


GROWING: dict[str, Callable[..., None]] = {**WRITERS, "derby": _derby, "cloudtran": _cloudtran}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", GROWING)
def test_a_history_that_only_grows_is_never_taken_for_another(system: str, tmp_path: Path) -> None:
    """Opened and closed again and again, followed by one that remembers and by fresh ones."""
    path = tmp_path / "log"
    options = SourceOptions((str(path),), mode="failfast")
    tailer = Tailer(options)
    position: Position = {}
    for turn in range(12):
        GROWING[system](str(path), range(turn * 40, turn * 40 + 40))
        end = tailer.advance(position)
        assert end == Tailer(options).advance(position)
        assert any(list(read([one], options)) for one in file_ranges(options, position, end))
        position = end


@pytest.mark.long
@pytest.mark.parametrize("system", WRITERS)
@pytest.mark.usefixtures("streams")
def test_through_spark_a_history_that_was_taken_back_stops_the_query(
    system: str, spark: SparkSession, tmp_path: Path
) -> None:
    def follow(path: Path, **options: Any) -> None:
        stream = spark.readStream.format("tallystick").options(**options).load(str(path))
        writer = stream.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.start(str(tmp_path / "rows")).awaitTermination()

    _taken_back(system, tmp_path, follow, "other")
    with pytest.raises(Exception, match="were taken back") as raised:
        follow(tmp_path / "log")
    assert "Traceback" not in str(raised.value)
    follow(tmp_path / "log", onRewrite="restart")
    rows = spark.read.parquet(str(tmp_path / "rows")).where(f"type = '{WRITTEN[system]}'")
    texts = Counter(_text(row.body, row.gtrid) for row in rows.select("body", "gtrid").collect())
    added = {f"record {number} other" for number in range(100, 180)}
    assert set(texts) == {f"record {number} " for number in range(150)} | added
    assert {texts[name] for name in added} == {1}
    assert max(texts.values()) == 2  # what stands before the new records in their file
