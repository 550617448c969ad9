"""Damage of every kind: what is right is found, what is lost is told, nothing goes unnoticed."""

from __future__ import annotations

import random
import shutil
import time
import tracemalloc
import zlib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.errors import LogFormatError
from tallystick.reading.discovery import discover
from tallystick.records import Outcome
from tallystick.systems.cloudtran import SYSTEM
from tallystick.systems.cloudtran.format import layout
from tallystick.systems.cloudtran.format.entries import (
    Entry,
    EntryKind,
    Operation,
    OperationKind,
    encode_entry,
    parse_entries,
)
from tallystick.systems.cloudtran.format.layout import Prologue, encode_block, encode_data
from tallystick.systems.cloudtran.read.block_format import find_block_size
from tallystick.systems.cloudtran.read.header_repair import BlockFinder
from tallystick.systems.cloudtran.read.scan import Block, BlockState, FileScan
from tallystick.systems.cloudtran.reader import CloudtranReading
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.testing.spans import check_tiling
from tests.fixtures import fixture_dir

NAME = "translog-0000000001-20130701T100000Z.ctlog"


def sample(case: str) -> bytes:
    (path, *_) = sorted((fixture_dir("cloudtran") / case / "log").iterdir())
    return path.read_bytes()


def blocks(data: bytes, block_size: int = 512) -> list[Block]:
    finder = BlockFinder(memoryview(data), layout.SIGNATURE, block_size)
    return list(FileScan(finder).blocks())


def content(found: list[Block]) -> list[list[tuple[int, int]]]:
    return [
        [(one.entry.kind, one.entry.number) for one in block.entries]
        for block in found
        if block.readable
    ]


def reading(folder: Path, **options: str) -> CloudtranReading:
    files = tuple(sorted(str(path) for path in folder.iterdir()))
    source = LogSource("cloudtran", str(folder), files)
    return CloudtranReading(source, ReadOptions(settings=options))


def entry(number: int, value: bytes = b"v", kind: EntryKind = EntryKind.PERSISTING) -> Entry:
    if kind is EntryKind.PERSISTED:
        return Entry(kind, number, 1, ("a",))
    return Entry(
        kind, number, 1, ("a",), (Operation(None, OperationKind.INSERT, "t", b"k", value),)
    )


def block(offset: int, sequence: int, *entries: Entry, serial: int = 1, codec: int = 0) -> bytes:
    body = b"".join(map(encode_entry, entries))
    data = encode_data(Prologue(serial, sequence, codec), body)
    return encode_block(offset, len(entries), data, 512)


def _part_of(place: int, spans: list[tuple[int, int, str]]) -> str:
    return next(what for start, end, what in spans if start <= place < end)


def test_every_single_bit_flip_is_repaired_reported_or_harmless(tmp_path: Path) -> None:
    data = sample("normal")
    whole = content(blocks(data))
    (tmp_path / NAME).write_bytes(data)
    (file,) = reading(tmp_path).files()
    spans = [(one.offset, one.end, one.what) for one in file.spans]
    counts: Counter[tuple[str, str]] = Counter()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        found = blocks(bytes(flipped))
        states = [one.state for one in found if one.state is not BlockState.OK]
        if content(found) == whole:
            result = "repaired" if states else "harmless"
        else:
            assert states == [BlockState.PAYLOAD_DAMAGED]
            result = "lost"
        counts[_part_of(bit >> 3, spans), result] += 1
    assert counts == {
        ("header", "repaired"): 4032,
        ("data", "lost"): 7240,
        ("padding", "harmless"): 5112,
    }


def test_a_bit_in_each_header_is_repaired_unless_it_is_the_same_one() -> None:
    data = sample("normal")
    whole = content(blocks(data))
    rng = random.Random(20130701)
    seconds = {0: 1024 - 84, 1024: 1536 - 84, 1536: 2048 - 84}
    for _ in range(600):
        first = rng.choice(list(seconds))
        one, two = rng.randrange(84 * 8), rng.randrange(84 * 8)
        flipped = bytearray(data)
        flipped[first + (one >> 3)] ^= 1 << (one & 7)
        flipped[seconds[first] + (two >> 3)] ^= 1 << (two & 7)
        found = blocks(bytes(flipped))
        if content(found) != whole:
            assert one == two
            assert any(not block.readable for block in found)


@pytest.mark.parametrize("case", ["normal", "compressed", "torn-tail", "block-4096"])
@pytest.mark.parametrize("fill", ["cut", "zeros"])
def test_cut_anywhere_leaves_the_blocks_whose_data_is_complete(case: str, fill: str) -> None:
    data = sample(case)
    size = find_block_size([memoryview(data)], layout.SIGNATURE) or 0
    whole = [one for one in blocks(data, size) if one.readable]
    ends = [one.entries_at + one.content.size - 16 for one in whole if one.content is not None]
    step = 1 if len(data) < 4096 else 37
    for place in range(0, len(data), step):
        cut = data[:place] + (bytes(len(data) - place) if fill == "zeros" else b"")
        kept = _survives if fill == "zeros" else _is_before
        expected = sum(kept(data, end, place) for end in ends)
        assert len(content(blocks(cut, size))) == expected


def _is_before(_: bytes, end: int, place: int) -> bool:
    return end <= place


def _survives(data: bytes, end: int, place: int) -> bool:
    """True if the cut at ``place`` leaves all bytes of the data before ``end`` as they were."""
    return place >= end or not any(data[place:end])


@pytest.mark.parametrize("size", [0, 1, 83, 84, 167, 511, 5000])
@pytest.mark.parametrize("kind", ["zeros", "random", "signatures"])
def test_nonsense_is_no_block_and_no_error(tmp_path: Path, size: int, kind: str) -> None:
    made = {
        "zeros": bytes(size),
        "random": random.Random(size).randbytes(size),
        "signatures": (layout.SIGNATURE * (size // 64 + 1))[:size],
    }[kind]
    (tmp_path / NAME).write_bytes(made)
    one = reading(tmp_path)
    assert list(one.records(salvage=True)) == []
    for file in one.files():
        check_tiling(file)
    assert one.verdict().engine["stop_policy"] == {"ok": True}


def test_hostile_headers_cost_linear_time() -> None:
    """Each of many headers claims all that follows as its data."""

    def seconds(count: int) -> float:
        size = 512 * count
        data = bytearray(size)
        for place in range(0, size, 512):
            rest = size - place - 168
            header = layout.SIGNATURE + bytes(20)
            data[place : place + 84] = header
            layout._HEADER.pack_into(data, place, layout.SIGNATURE, place, 1, max(rest, 16), 7)
        began = time.process_time()
        blocks(bytes(data))
        return time.process_time() - began

    small = min(seconds(500) for _ in range(3))
    assert seconds(4000) < 40 * small + 1


def test_length_fields_are_checked_before_anything_is_allocated() -> None:
    huge = encode_entry(entry(1))
    body = bytearray(huge)
    body[-13:-9] = (0xFFFFFFF0).to_bytes(4, "little")
    tracemalloc.start()
    with pytest.raises(LogFormatError):
        parse_entries(bytes(body))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_zlib_bomb_is_bounded() -> None:
    bomb = zlib.compress(bytes(50 << 20))
    with pytest.raises(LogFormatError, match="at most 1048576"):
        layout.unpack_entries(Prologue(1, 1, 1), bytes(16) + bomb, 1 << 20)


def test_block_within_a_value_is_not_taken_for_a_block(tmp_path: Path) -> None:
    inner = block(1024, 9, entry(99))
    # the inner block lies on a block boundary, under the offset that it claims
    head = len(encode_entry(entry(2, b""))) + 84 + 16
    outer = block(512, 2, entry(2, bytes(512 - head) + inner + b"end"))
    data = block(0, 1, entry(1)) + outer
    data += block(len(data), 3, entry(3))
    assert data.index(inner) == 1024
    (tmp_path / NAME).write_bytes(data)
    for place in (None, 520):
        if place is not None:
            broken = bytearray(data)
            broken[place] ^= 1
            (tmp_path / NAME).write_bytes(broken)
        assert [one.transaction for one in reading(tmp_path).records()] == [1, 2, 3]


def test_repeated_blocks_at_the_head_of_a_file_are_not_left_overs(tmp_path: Path) -> None:
    """What a writer does after a failed sync: the unacknowledged blocks again, same numbers."""
    (tmp_path / NAME).write_bytes(block(0, 1, entry(1)) + block(512, 2, entry(2)))
    second = block(0, 2, entry(2), serial=2) + block(512, 3, entry(3), serial=2)
    (tmp_path / NAME.replace("0001-", "0002-")).write_bytes(second)
    report = reading(tmp_path).verdict().engine["report_policy"]
    assert [one["txid"] for one in report["pending"]] == [1, 2, 3]
    assert (report["lost"], report["warnings"]) == ([], [])


def test_missing_file_and_missing_blocks_are_told(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(block(0, 1, entry(1)))
    later = tmp_path / NAME.replace("0001-", "0003-")
    later.write_bytes(block(0, 4, entry(9), serial=3))
    verdict = reading(tmp_path).verdict()
    report = verdict.engine["report_policy"]
    assert [one["code"] for one in report["warnings"]] == ["missing-file"]
    assert [(one["state"], one["blocks"]) for one in report["lost"]] == [("missing-blocks", 2)]
    assert {"transactions": [2, 8]} in verdict.strict["lost"]


def test_file_of_another_serial_is_stale(tmp_path: Path) -> None:
    (tmp_path / NAME.replace("0001-", "0007-")).write_bytes(block(0, 1, entry(1)))
    one = reading(tmp_path)
    assert list(one.records()) == []
    (record,) = one.records(salvage=True)
    assert (record.outcome, record.attributes["salvaged"]) == (Outcome.STALE, True)
    assert one.verdict().engine["report_policy"]["warnings"][0]["code"] == "stale-tail"


def test_salvage_brings_what_damaged_headers_hide(tmp_path: Path) -> None:
    shutil.copytree(fixture_dir("cloudtran") / "both-headers-damaged" / "log", tmp_path / "log")
    one = reading(tmp_path / "log")
    plain = {record.transaction for record in one.records()}
    salvaged = [record for record in one.records(salvage=True) if record.transaction not in plain]
    assert sorted(record.transaction or 0 for record in salvaged) == [3, 4]
    assert all(record.outcome is Outcome.CORRUPT for record in salvaged)


# -- recognition -------------------------------------------------------------------------


def found(folder: Path) -> list[tuple[str, str]]:
    logs = discover(folder, known=[SYSTEM]).logs
    return [(log.name, " ".join(Path(file).name for file in log.files)) for log in logs]


def test_log_is_found_by_content_beside_strangers(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(sample("normal"))
    (tmp_path / "readme.txt").write_text("nothing")
    (tmp_path / "empty").touch()
    assert found(tmp_path) == [("", NAME)]


def test_log_is_found_though_its_first_header_is_gone(tmp_path: Path) -> None:
    data = block(0, 1, entry(1, bytes(6000)))
    (tmp_path / NAME.replace(".ctlog", ".log")).write_bytes(bytes(84) + data[84:])
    assert found(tmp_path) == [("", NAME.replace(".ctlog", ".log"))]
    assert [one.transaction for one in reading(tmp_path).records()] == [1]


def test_signature_of_another_writer_is_learned_or_given(tmp_path: Path) -> None:
    foreign = bytes(range(100, 164))
    body = encode_data(Prologue(1, 1), encode_entry(entry(5)))
    (tmp_path / NAME).write_bytes(encode_block(0, 1, body, 512, foreign))
    assert found(tmp_path) == [("", NAME)]
    assert [one.transaction for one in reading(tmp_path).records()] == [5]
    given_so = reading(tmp_path, signature=foreign.hex(), disk_block_size="512")
    assert [one.transaction for one in given_so.records()] == [5]


@pytest.mark.parametrize(
    "setting", [{"signature": "xx"}, {"signature": "00"}, {"disk_block_size": "500"}]
)
def test_setting_that_does_not_fit_is_refused(tmp_path: Path, setting: dict[str, str]) -> None:
    (tmp_path / NAME).write_bytes(sample("normal"))
    with pytest.raises(LogFormatError, match="setting"):
        list(reading(tmp_path, **setting).records())


@pytest.mark.parametrize("size", layout.BLOCK_SIZES)
def test_disk_block_size_is_found_by_trial(size: int) -> None:
    data = b""
    for sequence in range(1, 6):
        body = encode_data(Prologue(1, sequence), encode_entry(entry(sequence, bytes(9))))
        data += encode_block(len(data), 1, body, size)
    assert find_block_size([memoryview(data)], layout.SIGNATURE) == size


# -- the layout under random input ---------------------------------------------------------

names = st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable())
operations = st.builds(
    Operation,
    st.none() | st.just(0),
    st.sampled_from(OperationKind),
    names,
    st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
)
entries = st.builds(
    Entry,
    st.just(EntryKind.PERSISTING),
    st.integers(1, 2**64 - 1),
    st.integers(0, 2**62),
    st.lists(names, min_size=1, max_size=3).map(tuple),
    st.lists(operations, max_size=3).map(tuple),
    st.text(max_size=10).filter(str.isprintable),
    st.sampled_from([0, 1]),
)


@given(st.lists(entries, max_size=5), st.sampled_from([0, 1]), st.sampled_from([512, 4096]))
def test_block_comes_back_as_it_was_written(made: list[Entry], codec: int, size: int) -> None:
    data = encode_data(Prologue(3, 7, codec), b"".join(map(encode_entry, made)))
    raw = encode_block(0, len(made), data, size)
    assert len(raw) % size == 0
    assert raw[:84] == raw[-84:]
    (one,) = blocks(raw, size)
    assert one.state is BlockState.OK
    assert [placed.entry for placed in one.entries] == made


@settings(max_examples=200)
@given(st.lists(entries, min_size=1, max_size=4), st.data())
def test_changed_entries_parse_or_raise_the_documented_error(
    made: list[Entry], data: st.DataObject
) -> None:
    raw = bytearray(b"".join(map(encode_entry, made)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        parsed = parse_entries(bytes(raw))
    except LogFormatError:
        return
    assert b"".join(encode_entry(one.entry) for one in parsed) == raw


def test_block_size_is_told_by_later_blocks_where_the_first_leave_it_open() -> None:
    data = b""
    for sequence in range(1, 100):
        length = 3700 if sequence < 90 else 9
        body = encode_data(Prologue(1, sequence), encode_entry(entry(sequence, bytes(length))))
        data += encode_block(len(data), 1, body, 4096)
    assert find_block_size([memoryview(data)], layout.SIGNATURE) == 4096
