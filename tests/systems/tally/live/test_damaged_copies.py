"""Damage to one of two copies is reported while the other is whole, and mended at the opening."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from tallystick.reading import scrub, verify
from tallystick.reading.scrubbing import Scrub
from tallystick.records import Answer
from tallystick.services.journal import Journal
from tallystick.systems.tally.format.layout import (
    CONTROL_NAME,
    COPY_OFFSET,
    DATA_OFFSET,
    SECTOR_SIZE,
    segment_name,
)
from tests.systems.tally.build import TINY

SEGMENT = segment_name(1)
GROUP = SECTOR_SIZE
"""Bytes of the group of one short record."""
MENDED: Mapping[str, tuple[str, int, int]] = {
    "control block": (CONTROL_NAME, 100, COPY_OFFSET + 100),
    "control block, second copy": (CONTROL_NAME, COPY_OFFSET + 100, 100),
    "segment header": (SEGMENT, 60, COPY_OFFSET + 60),
    "segment header, second copy": (SEGMENT, COPY_OFFSET + 60, 60),
}
"""File, offset of a byte to flip, and offset of the same byte in the other copy."""
KEPT: Mapping[str, tuple[str, int]] = {
    "group header": (SEGMENT, DATA_OFFSET + 60),
    "group header, second copy": (SEGMENT, DATA_OFFSET + GROUP - 60),
}


def _flip(folder: Path, name: str, offset: int) -> None:
    path = folder / name
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def _written(folder: Path) -> None:
    with Journal(folder, settings=TINY) as log:
        for number in range(5):
            log.append(b"%d" % number)


def _codes(found: Scrub) -> set[str]:
    return {finding.code for log in found.logs for finding in log.findings}


@pytest.mark.parametrize("place", [*MENDED, *KEPT])
def test_one_damaged_copy_is_damage_to_verify_and_scrub_and_loses_nothing(
    place: str, tmp_path: Path
) -> None:
    _written(tmp_path)
    name, offset = {**KEPT, **{key: value[:2] for key, value in MENDED.items()}}[place]
    _flip(tmp_path, name, offset)
    code = {"control-repaired" if name == CONTROL_NAME else "header-repaired"}
    found, scrubbed = verify(tmp_path), scrub(tmp_path, rate=0)
    assert {one.code for one in found.findings} == code
    assert _codes(scrubbed) == code
    assert (found.exit_code, scrubbed.exit_code) == (1, 1)
    assert scrubbed.logs[0].judgement.answer is Answer.SAFE


@pytest.mark.parametrize("place", MENDED)
def test_opening_mends_a_copy_and_says_so_and_so_survives_damage_to_the_other_one(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _written(tmp_path)
    name, first, second = MENDED[place]
    _flip(tmp_path, name, first)
    with caplog.at_level(logging.WARNING), Journal(tmp_path, settings=TINY) as log:
        assert "one copy" in str(log.recovered)
        assert log.recovered.answer is Answer.SAFE
    assert [name in one.getMessage() for one in caplog.records] == [True]
    assert verify(tmp_path).exit_code == 0
    _flip(tmp_path, name, second)
    with Journal(tmp_path, settings=TINY) as log:
        assert [one.body for one in log.replay()] == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("place", KEPT)
def test_opening_says_that_a_copy_among_records_stays_damaged(place: str, tmp_path: Path) -> None:
    _written(tmp_path)
    _flip(tmp_path, *KEPT[place])
    before = (tmp_path / SEGMENT).read_bytes()
    with Journal(tmp_path, settings=TINY) as log:
        assert "a group is not" in str(log.recovered)
    assert (tmp_path / SEGMENT).read_bytes()[: len(before)] == before
    assert verify(tmp_path).exit_code == 1
