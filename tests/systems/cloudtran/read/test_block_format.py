"""Signature and disk block size: configured, or inferred from the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import LogFormatError
from tallystick.systems.cloudtran.format import layout
from tallystick.systems.cloudtran.format.entries import encode_entry
from tallystick.systems.cloudtran.format.layout import Prologue, encode_block
from tallystick.systems.cloudtran.read.block_format import find_block_size
from tests.systems.cloudtran.blocks import NAME, block_data, entry, reading, sample


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
    assert find_block_size([memoryview(data)], layout.SIGNATURE) == size


def test_later_blocks_decide_the_block_size_where_the_first_fit_several() -> None:
    data = b""
    for sequence in range(1, 100):
        length = 3700 if sequence < 90 else 9
        body = block_data(Prologue(1, sequence), encode_entry(entry(sequence, bytes(length))))
        data += encode_block(len(data), 1, body, 4096)
    assert find_block_size([memoryview(data)], layout.SIGNATURE) == 4096
