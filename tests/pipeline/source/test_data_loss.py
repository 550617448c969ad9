"""Records that go, or are damaged, before a stream has read them: told, and never passed over."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from tallystick import Journal, read_arrow, scan
from tallystick.errors import CorruptLogError
from tallystick.pipeline.options import Limit, SourceOptions
from tallystick.pipeline.planning import RecordsLostError, find
from tallystick.pipeline.source.file_ranges import file_ranges, read
from tallystick.pipeline.source.followed_log import Ends, FollowedLog
from tallystick.pipeline.source.positions import HistoryRewrittenError, Position
from tallystick.pipeline.source.tailer import Tailer
from tallystick.records import Outcome
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.jboss.live.log import CircularJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.systems.registry import system
from tallystick.systems.tally.live.log import TallyLog
from tests.fixtures import fixture_dir
from tests.pipeline.source.test_durable import SMALL, _cloudtran, _derby
from tests.systems.derby.live.test_log import put

LOSING = (True, False)


class Follower:
    """A stream of records, as far as it came."""

    def __init__(
        self,
        path: Path,
        *,
        fails: bool = True,
        table: str = "records",
        on_rewrite: str = "fail",
    ) -> None:
        self.options = SourceOptions(
            (str(path),), fail_on_data_loss=fails, table=table, on_rewrite=on_rewrite
        )
        self.tailer, self.position = Tailer(self.options), Position()
        self.limit = Limit()
        self.count = 0

    def follow(self) -> int:
        """Read everything; return the number of records."""
        while (end := self.tailer.advance(self.position, self.limit)) != self.position:
            found = file_ranges(self.options, self.position, end)
            self.count += sum(batch.num_rows for batch in read(found, self.options))
            self.position = end
        return self.count

    @property
    def losses(self) -> int:
        """How often it went on without records."""
        return sum(entry["losses"] for entry in self.position.values())


def _native(path: str, numbers: range) -> None:
    with TallyLog(path, settings=SMALL) as log:
        for number in numbers:
            log.append(b"%d" % number).wait()
            if number % 5 == 4:
                log.roll()


def _journal(path: str, numbers: range) -> None:
    with CircularJournal(path, JournalSettings(file_size=4096)) as journal:
        for number in numbers:
            journal.append_add_record(number + 1000, 1, bytes(700)).wait()


def _blocks(path: str, numbers: range) -> None:
    for number in numbers:
        if number % 5 == 4:
            _cloudtran(path, range(number - 4, number + 1))


def _log_files(path: str, numbers: range) -> None:
    _derby(path, range(30 * numbers.start, 30 * numbers.stop))


WRITERS: dict[str, tuple[Callable[[str, range], None], str]] = {
    "native": (_native, "*[0-9].tally"),
    "jboss": (_journal, "*.amq"),
    "cloudtran": (_blocks, "*.ctlog"),
    "derby": (_log_files, "log*.dat"),
}


def _valid(path: Path) -> int:
    return sum(record.outcome is Outcome.VALID for record in scan(str(path), problems=[]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("begun", [False, True], ids=["at the first look", "later"])
@pytest.mark.parametrize("system", WRITERS)
def test_a_file_that_goes_unread_ends_the_stream_or_is_counted(
    system: str, tmp_path: Path, begun: bool
) -> None:
    write, pattern = WRITERS[system]
    path = tmp_path / "log"
    write(str(path), range(20))
    streams = [Follower(path, fails=fails) for fails in LOSING]
    read_before = [stream.follow() for stream in streams] if begun else [0, 0]
    before = set(path.glob(pattern)) if begun else set[Path]()
    if begun:
        write(str(path), range(20, 40))
    files = sorted(set(path.glob(pattern)) - before, key=lambda one: (len(one.name), one.name))
    files[len(files) // 2 - 1].unlink()
    with pytest.raises(RecordsLostError, match="before they were read"):
        streams[0].follow()
    assert streams[0].count == read_before[0]
    assert streams[1].follow() == _valid(path)
    assert streams[1].losses == 1
    assert streams[1].follow() == _valid(path)
    assert streams[1].losses == 1


@pytest.mark.parametrize("table", ["records", "changes"])
def test_what_a_native_log_gave_up_unread_is_told(tmp_path: Path, table: str) -> None:
    _native(str(tmp_path), range(20))
    streams = [Follower(tmp_path, fails=fails, table=table) for fails in LOSING]
    for stream in streams:
        stream.follow()
    with TallyLog(str(tmp_path), settings=SMALL) as log:
        for number in range(20):
            log.append(b"more %d" % number).wait()
            if number == 10:
                log.roll()
        given_up = log.reclaim(32)
    assert given_up
    with pytest.raises(RecordsLostError, match="expected record 21"):
        streams[0].follow()
    left = _valid(tmp_path)
    assert streams[1].follow() == 20 + left < 40
    assert streams[1].losses == 1


def test_a_journal_that_was_compacted_is_told_before_its_next_write(tmp_path: Path) -> None:
    """At the first look: a job that runs at night is not green until somebody writes."""
    with CircularJournal(str(tmp_path), JournalSettings(file_size=4096)) as journal:
        stream = Follower(tmp_path)
        for number in range(1, 10):
            journal.append_add_record(number, 1, bytes(300)).wait()
        stream.follow()
        for number in range(10, 60):
            journal.append_add_record(number, 1, bytes(300)).wait()
            journal.append_delete_record(number - 9).wait()
        journal.compact()
        with pytest.raises(RecordsLostError, match="may have been given up"):
            stream.follow()


@pytest.mark.parametrize("table", ["records", "changes"])
def test_ids_that_a_journal_gave_to_empty_files_at_restarts_are_no_loss(
    tmp_path: Path, table: str
) -> None:
    """Each load gives new ids to all files without records: nothing tells what became of those."""
    settings = JournalSettings(file_size=4096, min_files=4)
    streams = [Follower(tmp_path, table=table), Follower(tmp_path, table=table)]
    for begin in range(0, 60, 12):
        for _ in range(3):
            CircularJournal(str(tmp_path), settings).close()
        with CircularJournal(str(tmp_path), settings) as journal:
            for number in range(begin, begin + 12):
                journal.append_add_record(number + 1, 1, bytes(700)).wait()
        assert streams[0].follow() == begin + 12
    assert streams[1].follow() == 60
    assert [stream.losses for stream in streams] == [0, 0]
    assert max(entry["number"] for entry in streams[0].position.values()) > 30


@pytest.mark.parametrize("begun", [False, True])
def test_files_that_a_journal_emptied_and_removed_before_the_stream_began_are_no_loss(
    tmp_path: Path, begun: bool
) -> None:
    settings = JournalSettings(file_size=4096, pool_files=10)
    stream = Follower(tmp_path)
    with CircularJournal(str(tmp_path), settings) as journal:
        journal.append_add_record(1, 1, bytes(700)).wait()
        if begun:
            stream.follow()
        for number in range(2, 100):
            journal.append_add_record(number, 1, bytes(700)).wait()
        for number in range(30, 70):
            journal.append_delete_record(number).wait()
        for number in range(100, 120):
            journal.append_add_record(number, 1, bytes(700)).wait()
        journal.check_and_reclaim_files()
        if begun:
            with pytest.raises(RecordsLostError, match="may have been given up"):
                stream.follow()
        else:
            assert stream.follow() == _valid(tmp_path) < 159
            assert stream.losses == 0


@pytest.mark.parametrize("path", sorted(fixture_dir("jboss").glob("*/circular-reuse-*")), ids=str)
def test_a_journal_that_the_original_reused_is_followed_from_its_first_look(path: Path) -> None:
    stream = Follower(path)
    assert stream.follow() == _valid(path) > 0
    assert stream.losses == 0


@pytest.mark.parametrize("mode", ["permissive", "failfast"])
def test_a_stream_does_not_go_on_behind_damage(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    def write(name: bytes) -> None:
        with Journal(str(tmp_path)) as journal:
            journal.append_many([b"%s%03d" % (name, number) for number in range(50)])

    streams = [Follower(tmp_path, fails=fails) for fails in LOSING]
    write(b"first")
    for stream in streams:
        stream.options = replace(stream.options, mode=mode)
        stream.tailer = Tailer(stream.options)
        assert stream.follow() == 50
    for name in (b"s0", b"s1", b"s2", b"s3"):
        write(name)
    file = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[data.index(b"s1020")] ^= 255
    file.write_bytes(data)
    with pytest.raises(RecordsLostError, match="records are damaged"):
        streams[0].follow()
    with caplog.at_level(logging.WARNING):
        assert streams[1].follow() == _valid(tmp_path) == 100
    assert streams[1].losses == 1
    assert "records are damaged" in caplog.text


@pytest.mark.parametrize(
    ("name", "back", "size"), [("cloudtran", 13, 4), ("cloudtran", 26, 22), ("jboss", 4, 4)]
)
def test_a_damaged_record_is_told_where_its_log_goes_on_in_the_same_file(
    tmp_path: Path, name: str, back: int, size: int
) -> None:
    """A block of CloudTran may be damaged so that no record of it is left."""
    WRITERS[name][0](str(tmp_path), range(10))
    one, _, other = islice(scan(str(tmp_path)), 1, 4)
    assert one.file == other.file
    with Path(one.file).open("r+b") as file:
        file.seek(one.offset + one.length - back)
        file.write(b"\xa5" * size)
    streams = [Follower(tmp_path, fails=fails) for fails in LOSING]
    with pytest.raises(RecordsLostError, match="records are damaged"):
        streams[0].follow()
    assert streams[1].follow() == _valid(tmp_path) > 0
    assert streams[1].losses == 1


def test_a_file_of_which_no_record_that_was_read_is_left_was_rewritten(tmp_path: Path) -> None:
    _blocks(str(tmp_path), range(5))
    stream = Follower(tmp_path)
    stream.position = stream.tailer.advance({}, Limit(rows=1))
    (entry,) = stream.position.values()
    with Path(entry["file"]).open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * (entry["offset"] - 80))
    with pytest.raises(HistoryRewrittenError):
        stream.follow()
    again = Follower(tmp_path, fails=False, on_rewrite="restart")
    again.position = stream.position
    assert again.follow() == _valid(tmp_path) > 0


def test_changes_before_damage_are_not_given_again_by_the_step_that_finds_it(
    tmp_path: Path,
) -> None:
    for name in (b"first", b"second", b"third"):
        with Journal(str(tmp_path)) as journal:
            journal.append_many([b"%s%03d" % (name, number) for number in range(5)])
    file = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[data.index(b"third002")] ^= 255
    file.write_bytes(data)
    stream = Follower(tmp_path, fails=False, table="changes")
    stream.limit = Limit(rows=4)
    assert stream.follow() == _rows(tmp_path, "changes") == 10
    assert stream.losses == 1


@pytest.mark.parametrize("table", ["records", "changes"])
def test_a_native_log_without_its_control_block_is_waited_for(tmp_path: Path, table: str) -> None:
    _native(str(tmp_path), range(6))
    control = tmp_path / "control.tally"
    whole = control.read_bytes()
    control.write_bytes(whole[:200])
    for fails in LOSING:
        stream = Follower(tmp_path, fails=fails, table=table)
        assert stream.follow() == _rows(tmp_path, table) == 0
        control.write_bytes(whole)
        assert stream.follow() == 6
        control.write_bytes(whole[:200])


@pytest.mark.parametrize("fails", LOSING)
def test_a_group_that_its_writer_replaces_while_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    _native(str(tmp_path), range(4))
    (file,) = tmp_path.glob("*[0-9].tally")
    whole = file.read_bytes()
    ends = FollowedLog.ends

    def replaced_after_it(log: FollowedLog, path: str, begin: int) -> Ends:
        found = ends(log, path, begin)
        file.write_bytes(whole)
        return found

    (third,) = (one for one in scan(str(tmp_path)) if one.body == b"2")
    data = bytearray(whole)
    data[(third.offset or 0) + (third.length or 0) - 1] ^= 255
    file.write_bytes(data)
    monkeypatch.setattr(FollowedLog, "ends", replaced_after_it)
    stream = Follower(tmp_path, fails=fails)
    assert (stream.follow(), stream.losses) == (4, 0)


def _flipped(data: bytes, at: Iterable[int]) -> bytes:
    found = bytearray(data)
    for one in at:
        found[one] ^= 1
    return bytes(found)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: data[:0],
    "cut at a tenth": lambda data: data[: len(data.rstrip(b"\0")) // 10],
    "cut in the middle": lambda data: data[: len(data.rstrip(b"\0")) // 2],
    "zeros over its head": lambda data: bytes(16) + data[16:],
    "zeros over its first sector": lambda data: bytes(512) + data[512:],
    "zeros over its first pages": lambda data: bytes(min(len(data), 16384)) + data[16384:],
    "a bit of its head": lambda data: _flipped(data, [0]),
    "a bit in the middle": lambda data: _flipped(data, [len(data.rstrip(b"\0")) // 2]),
    "a bit of each sector": lambda data: _flipped(data, range(0, len(data), 512)),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", [0, 2, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("table", ["records", "changes"])
@pytest.mark.parametrize("system", WRITERS)
def test_a_stream_of_a_damaged_log_gives_what_a_batch_gives_or_fails(
    system: str, table: str, which: int, damage: str, tmp_path: Path
) -> None:
    write, pattern = WRITERS[system]
    path = tmp_path / "log"
    write(str(path), range(30))
    rows = _rows(path, table)
    used = [one for one in path.glob(pattern) if len(one.read_bytes().rstrip(b"\0")) > 100]
    file = sorted(used, key=lambda one: (len(one.name), one.name))[which]
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    left = _rows(path, table)
    strict, lenient = (Follower(path, fails=fails, table=table) for fails in LOSING)
    try:
        assert strict.follow() == left
        # Where a log does not note its end, what that has lost is not told from what never was.
        assert left == rows or (which == -1 and system not in STATE_THEIR_END)
    except (RecordsLostError, CorruptLogError):
        assert strict.count == 0
    assert lenient.follow() == left


@pytest.mark.parametrize("table", ["records", "changes"])
@pytest.mark.parametrize("time", ["19990101T000000Z", "29990101T000000Z"], ids=["older", "newer"])
@pytest.mark.parametrize("limit", [Limit(), Limit(files=1), Limit(rows=9)], ids=repr)
def test_another_file_of_the_number_that_was_read_last_is_another_history(
    tmp_path: Path, table: str, time: str, limit: Limit
) -> None:
    """Its records may end where those of the other one did: a step may end at the same offset."""
    log, copy = tmp_path / "log", tmp_path / "copy"
    _blocks(str(log), range(10))
    shutil.copytree(log, copy)
    streams = [Follower(log, fails=fails, table=table) for fails in LOSING]
    for path, numbers in ((log, range(10, 15)), (copy, range(30, 45))):
        _blocks(str(path), numbers)
    assert len({stream.follow() for stream in streams}) == 1
    for file in list(copy.glob("*.ctlog")):
        base, serial, _ = file.name.split("-")
        if int(serial) > 2:
            file.rename(copy / f"{base}-{serial}-{time}.ctlog")
    shutil.rmtree(log)
    copy.rename(log)
    strict, lenient = streams
    lenient.limit = limit
    with pytest.raises((RecordsLostError, HistoryRewrittenError), match="file 3"):
        strict.follow()
    new = 15 * (2 if table == "records" else 1)
    assert lenient.follow() == strict.count + new
    assert lenient.losses == 1


@pytest.mark.parametrize("table", ["records", "changes"])
@pytest.mark.parametrize("count", [3, 10, 30])
def test_another_native_log_in_the_place_of_one_is_a_loss_that_is_told(
    tmp_path: Path, table: str, count: int
) -> None:
    """It was read from its start without a word: what was not read of the other was lost."""
    _native(str(tmp_path), range(10))
    streams = [Follower(tmp_path, fails=fails, table=table) for fails in LOSING]
    assert len({stream.follow() for stream in streams}) == 1
    again = Follower(tmp_path, table=table)
    again.options = replace(again.options, on_rewrite="restart")
    again.tailer = Tailer(again.options)
    again.follow()
    shutil.rmtree(tmp_path)
    _native(str(tmp_path), range(count))
    strict, lenient = streams
    before = strict.count
    for _ in range(2):
        with pytest.raises(RecordsLostError, match="another log stands in the place of the one"):
            strict.follow()
    assert strict.count == before
    for _ in range(2):
        assert lenient.follow() == before + count
        assert lenient.losses == 1
    assert again.follow() == before + count
    assert again.losses == 0


@pytest.mark.parametrize("table", ["records", "changes"])
def test_a_derby_log_whose_file_ended_before_what_was_read_of_it_is_another(
    tmp_path: Path, table: str
) -> None:
    """The next file tells where the one that was read last ended: it was read on."""
    log = tmp_path / "log"
    _derby(str(log), range(300))
    streams = [Follower(log, fails=fails, table=table) for fails in LOSING]
    before, _ = (stream.follow() for stream in streams)
    ((read, end),) = ((one["number"], one["offset"]) for one in streams[0].position.values())
    shutil.rmtree(log)
    with LogToFile(str(log), buffer_size=512, switch_interval=end // 2, archive=True) as other:
        for number in range(1000, 2000):
            put(other, f"record {number}", number)
    for number in range(1, read + 1):
        (log / f"log{number}.dat").unlink()
    strict, lenient = streams
    with pytest.raises(RecordsLostError, match=f"log file {read} with the log up to .*{end}"):
        strict.follow()
    assert strict.count == before
    assert lenient.follow() > before
    assert lenient.losses == 1


@pytest.mark.parametrize("table", ["records", "changes"])
@pytest.mark.parametrize("left", [0, 40], ids=["where a record ends", "in a record"])
def test_the_last_file_of_a_journal_that_is_cut_behind_the_position_has_lost_records(
    tmp_path: Path, table: str, left: int
) -> None:
    """Files are made as long as they are going to be: nothing was said of one that is shorter."""
    _journal(str(tmp_path), range(12))
    streams = [Follower(tmp_path, fails=fails, table=table) for fails in LOSING]
    read_before, _ = (stream.follow() for stream in streams)
    (entry,) = streams[0].position.values()
    _journal(str(tmp_path), range(12, 14))
    whole = Path(entry["file"]).read_bytes()
    os.truncate(entry["file"], entry["offset"] + left)
    strict, lenient = streams
    for _ in range(2):
        with pytest.raises(RecordsLostError, match=f"expected {len(whole)} bytes .* as of others"):
            strict.follow()
        assert (lenient.follow(), lenient.losses) == (read_before, 1)
    Path(entry["file"]).write_bytes(whole)
    assert strict.follow() == read_before + 2


@pytest.mark.sampled(8)
@pytest.mark.parametrize("table", ["records", "changes"])
@pytest.mark.parametrize("on_rewrite", ["fail", "restart"])
@pytest.mark.parametrize("begun", [False, True], ids=["at the first look", "later"])
@pytest.mark.parametrize(
    ("left", "said"),
    [(0, "as of others"), (1, "as of others"), (40, "damaged")],
    ids=["where a record ends", "after its first byte", "in a record"],
)
def test_a_file_of_a_journal_that_is_cut_before_later_ones_has_lost_records(
    tmp_path: Path, table: str, on_rewrite: str, begun: bool, left: int, said: str
) -> None:
    """Of 22 records, five in a file, two are left of the second file."""
    _journal(str(tmp_path), range(7))
    streams = [Follower(tmp_path, fails=one, table=table, on_rewrite=on_rewrite) for one in LOSING]
    assert not begun or [stream.follow() for stream in streams] == [7, 7]
    _journal(str(tmp_path), range(7, 22))
    (log,) = find((str(tmp_path),)).logs
    sixth = list(system(log.system).read(log, ReadOptions()).records())[6]
    cut = Path(sixth.file)
    whole = cut.read_bytes()
    os.truncate(cut, sixth.offset + sixth.length + left)
    strict, lenient = streams
    with pytest.raises(RecordsLostError, match=said):
        strict.follow()
    for _ in range(2):
        assert (lenient.follow(), lenient.losses) == (19, 1)
    cut.write_bytes(whole)
    assert strict.follow() == 22


def test_a_last_file_that_was_made_shorter_than_the_others_is_whole(tmp_path: Path) -> None:
    """The journal has another size of files since it was opened last."""
    _journal(str(tmp_path), range(11))
    with CircularJournal(str(tmp_path), JournalSettings(file_size=2048)) as journal:
        for number in range(11, 16):
            journal.append_add_record(number + 1000, 1, bytes(700)).wait()
    assert len({file.stat().st_size for file in tmp_path.glob("*.amq")}) == 2
    stream = Follower(tmp_path)
    assert stream.follow() == 16


STATE_THEIR_END = ("native", "cloudtran")

CUTS: dict[str, Callable[[Path], object]] = {
    "cut behind what was read": lambda file: os.truncate(
        file, file.read_bytes().index(b"5" * 40) + 20
    ),
    "emptied": lambda file: os.truncate(file, 0),
    "removed": Path.unlink,
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("begun", [False, True], ids=["at the first look", "later"])
@pytest.mark.parametrize("table", ["records", "changes"])
def test_a_native_log_that_has_less_than_its_control_block_names_has_lost_it(
    tmp_path: Path, table: str, begun: bool, cut: str
) -> None:
    streams = [Follower(tmp_path, fails=fails, table=table) for fails in LOSING]
    for number in range(8):  # each closed, so that the control block names it
        if number == 4 and begun:
            assert [stream.follow() for stream in streams] == [4, 4]
        with TallyLog(str(tmp_path), settings=SMALL) as log:
            if number == 4:
                log.roll()
            log.append(b"%d" % number * 40).wait()
    CUTS[cut](max(tmp_path.glob("*[0-9].tally")))
    strict, lenient = streams
    with pytest.raises(RecordsLostError, match="names record 8"):
        strict.follow()
    assert lenient.follow() == _rows(tmp_path, table) == (5 if "behind" in cut else 4)
    assert lenient.losses == 1


@pytest.mark.parametrize("system", STATE_THEIR_END)
def test_a_file_that_is_made_after_the_log_was_listed_is_not_missing(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, pattern = WRITERS[system]
    write(str(tmp_path), range(20))
    rows, stream, newest = _valid(tmp_path), Follower(tmp_path), sorted(tmp_path.glob(pattern))[-2:]
    found = Tailer._logs

    def stale(tailer: Tailer, *, waits: bool = False) -> list[LogSource]:
        gone = {str(one) for one in newest}
        logs = found(tailer, waits=waits)
        return [replace(one, files=tuple(set(one.files) - gone)) for one in logs]

    with monkeypatch.context() as patched:
        patched.setattr(Tailer, "_logs", stale)
        end = stream.tailer.advance({})
    (entry,) = end.values()
    assert entry["losses"] == 0
    assert stream.follow() == rows


def _rows(path: Path, table: str) -> int:
    if table == "records":
        return _valid(path)
    return int(read_arrow(str(path), table=table, problems=[]).read_all().num_rows)
