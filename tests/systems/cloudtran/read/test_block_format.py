"""Signature and disk block size: configured, or inferred from the files."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.errors import LogFormatError
from tallystick.records import Answer
from tallystick.systems.cloudtran.format import layout
from tallystick.systems.cloudtran.format.entries import encode_entry
from tallystick.systems.cloudtran.format.layout import Prologue, encode_block
from tests.systems.cloudtran.blocks import (
    NAME,
    block_data,
    entry,
    found_block_size,
    reading,
    sample,
)


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
        body = block_data(Prologue(1, sequence), encode_entry(entry(sequence, bytes(9))))
        data += encode_block(len(data), 1, body, size)
    assert found_block_size(data) == size


def test_later_blocks_decide_the_block_size_where_the_first_fit_several() -> None:
    data = b""
    for sequence in range(1, 100):
        length = 3700 if sequence < 90 else 9
        body = block_data(Prologue(1, sequence), encode_entry(entry(sequence, bytes(length))))
        data += encode_block(len(data), 1, body, 4096)
    assert found_block_size(data) == 4096


def log_of(sizes: list[int], block_size: int, *, closed: bool = False) -> bytes:
    """Return a file of one block for each number of bytes in ``sizes``."""
    data = b""
    for sequence, length in enumerate(sizes, 1):
        body = block_data(Prologue(1, sequence), encode_entry(entry(sequence, bytes(length))))
        data += encode_block(len(data), 1, body, block_size)
    if closed:
        prologue = Prologue(1, len(sizes) + 1, closing=True)
        data += encode_block(len(data), 0, block_data(prologue, b""), block_size)
    return data


def found_in(folder: Path, data: bytes) -> list[str]:
    (folder / NAME).write_bytes(data)
    return [finding.code for finding in reading(folder).findings()]


def test_one_large_block_and_small_ones_are_no_damage(tmp_path: Path) -> None:
    assert found_in(tmp_path, log_of([7900, *[9] * 6], 1024, closed=True)) == []


def test_two_blocks_and_a_crash_are_no_damage(tmp_path: Path) -> None:
    data = log_of([3700, 9], 4096)
    assert found_in(tmp_path, data[: 4096 + 2000]) == ["unfinished-tail"]


def test_blocks_behind_the_beginning_decide(tmp_path: Path) -> None:
    data = log_of([*[65300] * 40, *[9] * 3], 4096)
    assert found_in(tmp_path, data) == []
    assert reading(tmp_path).block_format.block_size == 4096


def test_a_later_file_decides(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(log_of([3700], 4096))
    body = block_data(Prologue(2, 2), encode_entry(entry(2, b"")))
    later = NAME.replace("0001", "0002")
    (tmp_path / later).write_bytes(encode_block(0, 1, body, 4096))
    assert reading(tmp_path).block_format.block_size == 4096
    assert reading(tmp_path).findings() == []


def test_damage_under_every_size_that_is_left_is_said(tmp_path: Path) -> None:
    data = bytearray(log_of([3700, 3700, 3700], 4096))
    data[2 * 4096 - 1] ^= 1
    assert "block-size-open" in found_in(tmp_path, bytes(data))
    assert "second-header-damaged" in found_in(tmp_path, bytes(data))


@pytest.mark.sampled(17)
@pytest.mark.parametrize("cut", [1, 84, 85, 511, 513, 4000])
@pytest.mark.parametrize("block_size", layout.BLOCK_SIZES)
def test_a_cut_inside_a_sector_is_never_safe(tmp_path: Path, cut: int, block_size: int) -> None:
    data = log_of([3700, 9, 5000], block_size)
    (tmp_path / NAME).write_bytes(data[:-cut])
    assert reading(tmp_path).judgement.answer is Answer.CANNOT_TELL
    (tmp_path / NAME).write_bytes(data[: len(data) - cut // 512 * 512])
    assert reading(tmp_path).judgement.answer is Answer.SAFE


@pytest.mark.parametrize("cut", [0, 1, 600])
def test_a_closed_log_is_safe_whatever_its_closing_block_lost(tmp_path: Path, cut: int) -> None:
    data = log_of([9, 9], 1024, closed=True)
    (tmp_path / NAME).write_bytes(data[: len(data) - cut])
    assert reading(tmp_path).judgement.answer is Answer.SAFE


_LENGTHS = st.lists(
    st.one_of(st.integers(0, 20), st.sampled_from([310, 3700, 7900, 65300]), st.integers(0, 9000)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150)
@given(st.sampled_from(layout.BLOCK_SIZES), _LENGTHS, st.booleans(), st.floats(0, 1), st.booleans())
def test_healthy_logs_have_no_damage(
    block_size: int, lengths: list[int], closed: bool, kept: float, zeros: bool
) -> None:
    data = log_of(lengths, block_size, closed=closed)
    last = len(log_of(lengths[:-1], block_size)) if not closed else len(data)
    place = last + int((len(data) - last) * kept)
    if zeros:
        place = place // 512 * 512
        data = data[:place] + bytes(len(data) - place)
    with TemporaryDirectory() as folder:
        (Path(folder) / NAME).write_bytes(data if zeros else data[:place])
        found = reading(Path(folder)).findings()
    assert {one.code for one in found} <= {"unfinished-tail", "torn-tail"}
