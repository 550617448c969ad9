"""Reading native logs: spans, batches, splits, verdicts, and hostile bytes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.arrow.schemas import RECORDS, plain, record_batches
from tallystick.errors import TallystickError
from tallystick.reading.discovery import discover
from tallystick.records import Answer, Fate, Outcome, Record, State
from tallystick.storage.crc import crc32
from tallystick.storage.files import Bytes
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import system
from tallystick.systems.tally import reader
from tallystick.systems.tally.format import sealing
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.headers import (
    decode_segment_header,
    doubled,
    encode_segment_header,
)
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    GROUP_MAGIC,
    HEADER_SIZE,
    LENGTH_MAX,
    ZSTD,
    GroupHeader,
    encode_group_header,
    group_length,
)
from tallystick.systems.tally.format.sealing import decompress
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.journal import open_journal
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.sharded import ShardedLog, merged
from tallystick.systems.tally.read.header_search import magic_places
from tallystick.systems.tally.read.records import step_records
from tallystick.systems.tally.read.scan import Step
from tallystick.systems.tally.read.walk import Expected, Place, SegmentView
from tallystick.systems.tally.reader import TallyReading
from tallystick.testing import MemoryFileSystem, check_tiling
from tests.kit import read_in_runs, same_rows, untouched
from tests.systems.tally.build import (
    FOLDER,
    TINY,
    bodies,
    every_kind,
    reading,
    segments_of_plain,
    tiny_log,
)

pytestmark = pytest.mark.both_cores

SEGMENT = f"{FOLDER}/0000000000000001.tally"


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    batches = [plain(batch) for batch in batches]
    return pa.Table.from_batches(batches, RECORDS).drop(["attributes"])


@pytest.mark.parametrize("make", [every_kind, segments_of_plain])
@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_batches_agree_with_records(make: type[MemoryFileSystem], rows: int) -> None:
    one = reading(make())
    plain_table = _table(list(record_batches(one.records(), FOLDER, "wall_us")))
    batches = list(one.batches(rows=rows))
    assert all(batch.num_rows <= rows for batch in batches)
    assert _table(batches).equals(plain_table)


@pytest.mark.parametrize("make", [every_kind, segments_of_plain])
@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_batches_with_attributes_are_those_of_the_records(
    make: type[MemoryFileSystem], rows: int
) -> None:
    one = reading(make())
    expected = pa.Table.from_batches(record_batches(one.records(), FOLDER, "wall_us"), RECORDS)
    batches = list(one.attribute_batches(None, rows))
    assert all(batch.num_rows <= rows for batch in batches)
    assert pa.Table.from_batches(map(plain, batches), RECORDS).equals(expected)
    parts = [batch for part in one.splits(1) for batch in one.attribute_batches(part, rows)]
    assert pa.Table.from_batches(map(plain, parts), RECORDS).equals(expected)


def test_batches_of_large_groups_agree_with_records() -> None:
    fs = MemoryFileSystem()
    log = TallyLog(FOLDER, settings=Settings(segment_size=1 << 20, preallocate=False), fs=fs)
    tickets = [log.append(b"%d" % number * (number % 9)) for number in range(5000)]
    tickets[-1].wait()
    log.close()
    one = reading(fs)
    oracle = _table(list(record_batches(one.records(), FOLDER, "wall_us")))
    assert _table(list(one.batches())).equals(oracle)


@pytest.mark.parametrize("damaged", [False, True])
def test_large_groups_in_a_row_share_a_batch(damaged: bool) -> None:
    fs = MemoryFileSystem()
    with contextlib.closing(
        open_journal(FOLDER, settings=Settings(segment_size=16 << 20, preallocate=False), fs=fs)
    ) as journal:
        for count in (700, 650, 800, 3000, 900, 700, 10, 750, 700):
            journal.append_many([b"%d" % number * 60 for number in range(1000, 1000 + count)])
    if damaged:
        content = bytearray(fs.contents()[SEGMENT])
        content[1_600_000] ^= 1
        fs = MemoryFileSystem({**fs.contents(), SEGMENT: content})
    one = reading(fs)
    oracle = _table(list(record_batches(one.records(), FOLDER, "wall_us")))
    batches = list(one.batches())
    whole = [2150, 3000, 900, 1] if damaged else [2150, 3000, 1600, 10, 1450]
    assert [batch.num_rows for batch in batches] == whole
    assert _table(batches).equals(oracle)


def test_large_groups_that_columns_cannot_hold_are_verified_twice_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs, looked = MemoryFileSystem(), list[int]()
    with contextlib.closing(
        TallyLog(FOLDER, settings=Settings(segment_size=16 << 20, preallocate=False), fs=fs)
    ) as log:
        for number in range(1, 21):
            for key in range(600):
                log.submit(UnplacedRecord(Code.ADD, b"%d" % key * 80, number, key))
            log.submit(UnplacedEnding(Code.COMMIT, number)).wait()
    look = SegmentView.look

    def counted(view: SegmentView, due: Expected) -> Place:
        looked.append(due.offset)
        return look(view, due)

    monkeypatch.setattr(SegmentView, "look", counted)
    rows = sum(batch.num_rows for batch in reading(fs).attribute_batches(None, 10_000))
    assert rows == 20 * 601
    assert max(map(looked.count, looked)) <= 2


@pytest.mark.parametrize("target", [1, 5000, 1 << 30])
@pytest.mark.parametrize("make", [every_kind, segments_of_plain])
def test_splits_give_every_record_once(make: type[MemoryFileSystem], target: int) -> None:
    one = reading(make())
    parts = [batch for split in one.splits(target) for batch in one.batches(split)]
    assert _table(parts).equals(_table(list(one.batches())))


def test_sealed_segments_are_split_inside() -> None:
    one = reading(segments_of_plain())
    assert len(one.splits(4000)) > len(one.catalog.segments)


@pytest.mark.parametrize("make", [every_kind, segments_of_plain, MemoryFileSystem])
def test_spans_tile_every_file(make: type[MemoryFileSystem]) -> None:
    for file in reading(make()).files():
        check_tiling(file)


def test_whole_groups_next_to_each_other_share_a_span() -> None:
    files = reading(segments_of_plain()).files()
    groups = [[one for one in file.spans if one.what == "groups"] for file in files]
    assert max(map(len, groups)) == 1
    assert sum(map(len, groups)) > 2


@pytest.mark.parametrize("size", [1, 511, 2971, 4096, 8191, 8192, 8193])
def test_spans_tile_a_file_cut_before_its_first_group(size: int) -> None:
    fs = every_kind()
    fs.open(SEGMENT).truncate(size)
    for file in reading(fs).files():
        check_tiling(file)


def test_spans_tile_a_segment_cut_inside_its_header_before_another() -> None:
    fs = segments_of_plain()
    fs.open(f"{FOLDER}/0000000000000002.tally").truncate(2971)
    one = reading(fs)
    for file in one.files():
        check_tiling(file)
    assert any(finding.code == "corrupt-group" for finding in one.findings())


def test_recycled_file_shows_its_earlier_life_as_stale() -> None:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    for _ in range(6):
        for _ in range(6):
            log.append(bytes(1000)).wait()
        log.reclaim(log.next_lsn)
    log.append(b"last").wait()
    log.close()
    one = reading(fs)
    for file in one.files():
        check_tiling(file)
    assert any(file.bytes_by_outcome()[Outcome.STALE] for file in one.files())
    assert bodies(one.records())[-1] == b"last"


def test_verdict_has_the_keys_and_tells_open_work() -> None:
    engine = reading(every_kind()).verdict().engine
    assert list(engine) == [
        "opened", "first_lsn", "last_lsn", "segments", "live_records", "prepared",
        "open_decisions", "pending", "findings",
    ]  # fmt: skip
    assert engine["opened"]
    assert engine["prepared"] == [8]
    assert engine["open_decisions"] == {b"g1".hex(): ["b"]}


def test_transactions_tell_states_and_evidence() -> None:
    found = {one.key: one for one in reading(every_kind()).transactions()}
    assert found["7"].state is State.COMMITTED
    assert found["8"].state is State.PREPARED
    assert (found["8"].gtrid, found["8"].format_id, found["8"].bqual) == (
        b"node\x00\x01",
        77,
        b"branch",
    )
    assert found["9"].state is State.ROLLED_BACK
    assert found[f"gtrid:{b'g1'.hex()}"].state is State.COMMITTING
    assert found[f"gtrid:{b'g1'.hex()}"].open_participants == ("b",)
    assert found[f"gtrid:{b'g2'.hex()}"].state is State.HEURISTIC
    assert all(one.evidence is not None for one in found.values())


def test_changes_come_in_commit_order_and_leave_out_what_was_rolled_back() -> None:
    changes = list(reading(every_kind()).changes())
    orders = [(one.commit_sequence, one.ordinal) for one in changes]
    assert orders == sorted(orders)
    afters = [one.after for one in changes]
    assert b"in" in afters
    assert b"row" in afters
    assert b"doubt" not in afters
    assert b"back" not in afters


def test_missing_segment_is_seen_in_the_middle_and_at_the_end() -> None:
    for victim in ("0000000000000001.tally", "0000000000000002.tally", None):
        fs = segments_of_plain()
        names = [name for name in fs.list(FOLDER) if name[:1].isdigit()]
        fs.remove(f"{FOLDER}/{victim or names[-1]}")
        one = reading(fs)
        assert "missing-segment" in {finding.code for finding in one.findings()}
        assert not one.verdict().engine["opened"]
        with pytest.raises(TallystickError, match="missing"):
            TallyLog(FOLDER, settings=TINY, fs=fs)


@pytest.mark.parametrize(
    ("sectors", "without_header"), [(1, False), (5, True)], ids=["a sector", "a group and more"]
)
def test_damage_is_a_record_wherever_it_is(sectors: int, without_header: bool) -> None:
    """A hole of which no header tells, too, but for the end; the answer counts as many."""
    size = segments_of_plain().size(SEGMENT)
    told = set()
    for place in range(DATA_OFFSET, size - sectors * 512, 512):
        fs = segments_of_plain()
        fs.open(SEGMENT).pwrite(bytes(sectors * 512), place)
        one = reading(fs)
        found = [each for each in one.records(salvage=True) if each.outcome is Outcome.CORRUPT]
        assert [(each.offset, each.length) for each in found] == [
            (each.offset, each.length)
            for file in one.files()
            for each in file.spans
            if file.path == SEGMENT and each.outcome is Outcome.CORRUPT and each.end < size
        ]
        assert one.verdict().strict["records"]["corrupt"] == len(found)
        in_parts = [each for part in one.splits(size) for each in one.records_of(part)]
        assert [each for each in in_parts if each.outcome is Outcome.CORRUPT] == found
        told |= {each.attributes["reason"] for each in found}
    assert ("no whole header" in told) is without_header


def test_transaction_with_a_hole_is_reported_and_not_applied() -> None:
    from tallystick.systems.tally.format.bodies import Ending, encode_ending

    fs = MemoryFileSystem()
    log = tiny_log(fs)
    log.submit(UnplacedRecord(Code.ADD, b"only", 5, 1)).wait()
    log.submit(UnplacedRecord(Code.COMMIT, encode_ending(Ending(((1, 2),))), 5)).wait()
    log.close()
    one = reading(fs)
    assert "incomplete-transaction" in {finding.code for finding in one.findings()}
    (transaction,) = one.transactions()
    assert (transaction.state, transaction.complete) == (State.INCOMPLETE, False)
    assert transaction.holes == "segment 1: 1 of 2 elements"
    assert list(one.changes()) == []


def test_the_answer_alone_counts_what_is_at_stake_as_the_whole_verdict_does() -> None:
    fs = every_kind()
    content = _segment(fs)
    content[DATA_OFFSET + 200] ^= 1  # of the first group
    fs.open(SEGMENT).pwrite(bytes(content), 0)
    one, again = reading(fs), reading(fs)
    assert one.judgement == again.verdict().judgement
    assert one.judgement.answer is not Answer.SAFE
    assert one.judgement.at_stake.transactions is not None


def test_unknown_code_that_may_be_ignored_is_skipped_and_any_other_refused() -> None:

    for code, opened in ((0x80 | 5, True), (5 + 100, False)):
        fs = MemoryFileSystem()
        log = tiny_log(fs)
        log.append(b"known").wait()
        log.submit(UnplacedRecord(code, b"new")).wait()
        log.close()
        assert reading(fs).verdict().engine["opened"] is opened
        if opened:
            tiny_log(fs).close()
        else:
            with pytest.raises(TallystickError, match="later version"):
                tiny_log(fs)


def test_reading_changes_nothing_and_finds_the_log_by_content(tmp_path: Path) -> None:
    every_kind().write_to(tmp_path)
    with untouched(tmp_path):
        (log,) = discover(tmp_path).logs
        one = system(log.system).read(log, ReadOptions())
        assert len(list(one.records())) > 20
        one.verdict()
        one.files()
    assert log.system == "tally"


def test_shards_merge_into_one_order() -> None:
    fs = MemoryFileSystem()
    folders = ["/a", "/b", "/c"]
    with ShardedLog(folders, settings=TINY, fs=fs) as log:
        for number in range(60):
            log.append(b"%d" % number, b"%d" % number).wait()
    records = list(merged(reading(fs, folder=folder) for folder in folders))
    assert [one.body for one in records] == [b"%d" % number for number in range(60)]
    assert len({one.attributes["shard"] for one in records}) == 3


def _segment(fs: MemoryFileSystem) -> bytearray:
    file = fs.open(SEGMENT)
    return bytearray(file.pread(file.size(), 0))


def _read_all(content: bytes, fs: MemoryFileSystem | None = None) -> None:
    """Read a log of one segment that has these bytes."""
    fs = fs or segments_of_plain(5)
    file = fs.open(SEGMENT)
    file.truncate(0)
    file.pwrite(content, 0)
    file.close()
    one = reading(fs)
    try:
        for found in one.files():
            check_tiling(found)
        list(one.records(salvage=True))
        same_rows(one)
        one.verdict()
    except TallystickError:
        return


def _hostile_segment(claimed: int, fs: MemoryFileSystem) -> bytes:
    """A signed segment whose one group unpacks to ``claimed`` zeros, packed by zstd."""
    known = decode_segment_header(_segment(fs))
    assert known is not None
    header = replace(known, size=LENGTH_MAX)
    stream = zstandard.ZstdCompressor().compressobj()
    piece = bytes(1 << 20)
    packed = b"".join(stream.compress(piece) for _ in range(claimed >> 20)) + stream.flush()
    length = group_length(len(packed), header.sector_size)
    content = packed.ljust(length - 2 * HEADER_SIZE, b"\0")
    group = encode_group_header(
        GroupHeader(
            flags=ZSTD, length=length, segment=1, offset=DATA_OFFSET, first_lsn=1, count=1,
            columns=0, stored=len(packed), raw=claimed, time_us=1, durable_lsn=0,
            payload_crc=crc32(content), chain=header.checksum(), tag=header.tag,
        )
    )  # fmt: skip
    head = doubled(encode_segment_header(header)).ljust(DATA_OFFSET, b"\0")
    return head + group + content + group


@pytest.mark.parametrize(("claimed", "is_unpacked"), [(32 << 20, True), (512 << 20, False)])
def test_a_group_is_not_unpacked_to_more_than_a_writer_can_have_packed(
    claimed: int, is_unpacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, unpacked = segments_of_plain(5), list[int]()
    content = _hostile_segment(claimed, fs)
    assert len(content) < 64 << 10

    def counting(data: Bytes, flag: int, raw: int) -> Bytes:
        unpacked.append(raw)
        return decompress(data, flag, raw)

    monkeypatch.setattr(sealing, "decompress", counting)
    _read_all(content, fs)
    assert set(unpacked) == ({claimed} if is_unpacked else set())


@given(st.data())
@settings(max_examples=60)
def test_any_damage_is_judged_without_a_traceback(data: st.DataObject) -> None:
    content = _segment(segments_of_plain(5))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=600))
        content[start : start + len(piece)] = piece
    _read_all(bytes(content[: data.draw(st.integers(0, len(content)))]))


def _resealed(content: bytearray, place: int) -> None:
    """Make a header's own checksum fit again, as a hostile writer would."""
    content[place + 124 : place + 128] = crc32(bytes(content[place : place + 124])).to_bytes(
        4, "little"
    )


@given(st.integers(8, 123), st.integers(0, 255))
@settings(max_examples=80)
def test_hostile_headers_with_good_checksums_are_judged(offset: int, value: int) -> None:
    content = _segment(segments_of_plain(5))
    for place in (8192, 8192 + 1536 - 128):
        content[place + offset] = value
        _resealed(content, place)
    _read_all(bytes(content))


def test_a_file_full_of_magic_bytes_takes_linear_time() -> None:
    fs = segments_of_plain(5)
    content = _segment(fs)
    good = content[:8192]
    header = bytes(content[8192 : 8192 + 128])
    assert header.startswith(GROUP_MAGIC)
    size = 4 << 20
    _read_all(bytes(good) + (header * (size // 128)))
    _read_all(os.urandom(64) + bytes(size))


def test_group_headers_are_found_at_every_place_that_one_can_have() -> None:
    size = 3 << 16
    for place in (0, 128, (1 << 16) - 128, 1 << 16, (2 << 16) + 128, size - 128):
        data = bytearray(size)
        data[place : place + 8] = GROUP_MAGIC
        assert list(magic_places(data, 0)) == [place]
        assert list(magic_places(data, 1)) == ([place] if place else [])
        assert list(magic_places(data, 0, place)) == []
    assert list(magic_places(bytes(64) + GROUP_MAGIC + bytes(size), 0)) == []


@pytest.mark.parametrize("after", [None, 0])
@pytest.mark.parametrize("known", [False, True], ids=["before its head", "after its head"])
def test_changes_of_a_segment_that_cannot_be_read_are_never_left_out(
    known: bool, after: int | None, tmp_path: Path
) -> None:
    with TallyLog(str(tmp_path), settings=TINY) as log:
        for _ in range(30):
            log.append(bytes(900)).wait()
    (source,) = discover(tmp_path).logs
    segments = [path for path in source.files if path.endswith(".tally")]
    assert len(segments) > 4
    for path in (segments[0], segments[3], segments[-1]):
        read = system("tally").read(source, ReadOptions())
        assert isinstance(read, TallyReading)
        assert len(list(read.changes_between(after, 30))) == 30
        if not known:
            read = TallyReading(source, ReadOptions())
        os.rename(path, tmp_path / "away")  # noqa: PTH104
        with contextlib.suppress(TallystickError):
            found = len(list(read.changes_between(after, 30)))
            assert found == 30, path
        os.rename(tmp_path / "away", path)  # noqa: PTH104


def test_changes_need_no_file_that_a_writer_had_not_finished(tmp_path: Path) -> None:
    with TallyLog(str(tmp_path), settings=TINY) as log:
        for _ in range(10):
            log.append(bytes(900)).wait()
    spare = tmp_path / "spare-7.new"
    spare.write_bytes(bytes(4096))
    (source,) = discover(tmp_path).logs
    read = TallyReading(source, ReadOptions())
    spare.unlink()
    assert len(list(read.changes_between(None, 10))) == 10


def test_a_step_that_follows_changes_decodes_the_groups_of_new_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TallyLog(str(tmp_path)) as log:
        for _ in range(60):
            log.append(b"one").wait()
    (source,) = discover(tmp_path).logs
    decoded: list[int] = []

    def records(step: Step, key: bytes | None) -> Iterator[Record]:
        decoded.append(step.place.lsn)
        yield from step_records(step, key)

    monkeypatch.setattr(reader, "step_records", records)
    read = TallyReading(source, ReadOptions())
    assert [one.commit_sequence for one in read.changes_between(57, 60)] == [58, 59, 60]
    assert min(decoded) >= 57


@pytest.mark.parametrize("in_runs", [True, False])
def test_a_whole_transaction_under_the_number_of_one_with_a_hole_is_committed(
    in_runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sessions of a page store have the same numbers after each opening."""
    from tallystick.systems.tally.format.bodies import Ending, encode_ending

    read_in_runs(monkeypatch, always=in_runs)
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    log.submit(UnplacedRecord(Code.ADD, b"before", 5, 1)).wait()
    log.submit(UnplacedEnding(Code.COMMIT, 5)).wait()
    log.submit(UnplacedRecord(Code.ADD, b"only", 5, 2)).wait()
    log.submit(UnplacedRecord(Code.COMMIT, encode_ending(Ending(((1, 2),))), 5)).wait()
    for number in range(3, 40):
        log.submit(UnplacedRecord(Code.ADD, b"after", 5, number)).wait()
        log.submit(UnplacedEnding(Code.COMMIT, 5)).wait()
    log.close()
    one = reading(fs)
    assert [each.state for each in one.transactions()].count(State.COMMITTED) == 38
    assert len([each for each in one.transactions() if not each.complete]) == 1
    kept = [str(number) for number in (1, *range(3, 40))]
    assert [each.key for each in one.changes()] == kept
    last = max(each.sequence or 0 for each in one.records())
    assert [each.key for each in one.changes_between(0, last)] == kept
    in_parts = (batch for part in one.splits(1 << 30) for batch in one.changes_in(part, 1000))
    for batches in (one.change_batches(1000), in_parts):
        assert [key for batch in batches for key in batch["key"].to_pylist()] == kept
    lost = [each.change.key for each in one.fated_changes() if each.fate is Fate.LOST]
    assert lost == ["2"]
