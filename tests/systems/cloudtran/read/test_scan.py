"""Files that are cut, random or nested, block by block."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tallystick.records import Outcome
from tallystick.systems.cloudtran.format import layout
from tallystick.systems.cloudtran.format.entries import encode_entry
from tallystick.testing.spans import check_tiling
from tests.fixtures import fixture_dir
from tests.systems.cloudtran.blocks import (
    NAME,
    block,
    blocks,
    content,
    entry,
    found_block_size,
    reading,
    sample,
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", ["normal", "compressed", "torn-tail", "block-4096"])
@pytest.mark.parametrize("fill", ["cut", "zeros"])
def test_cut_anywhere_leaves_the_blocks_whose_data_is_complete(case: str, fill: str) -> None:
    data = sample(case)
    size = found_block_size(data)
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


def test_salvage_brings_what_damaged_headers_hide(tmp_path: Path) -> None:
    shutil.copytree(fixture_dir("cloudtran") / "both-headers-damaged" / "log", tmp_path / "log")
    one = reading(tmp_path / "log")
    plain = {record.transaction for record in one.records()}
    salvaged = [record for record in one.records(salvage=True) if record.transaction not in plain]
    assert sorted(record.transaction or 0 for record in salvaged) == [3, 4]
    assert all(record.outcome is Outcome.CORRUPT for record in salvaged)
