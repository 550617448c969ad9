"""A transaction whose commit was destroyed is not calmly open."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.records import Answer
from tests.systems.jboss.build import add, add_tx, commit_of, image, read, write


@pytest.mark.parametrize("shape", ["g1a", "g1b", "g1c", "g3"])
@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_destroyed_commit_leaves_the_outcome_unknown(
    shape: str, place: int, tmp_path: Path
) -> None:
    elements = [add_tx(9, 8), add_tx(9, 7)]
    before = len(image(shape, 1, elements, 0))
    end = len(image(shape, 1, [*elements, commit_of(shape, 9, (1, 2))], 0))
    content = bytearray(image(shape, 1, [*elements, commit_of(shape, 9, (1, 2)), add(3)]))
    content[place + (end if place < 0 else before)] ^= 0x40
    write(tmp_path, shape, {1: bytes(content)})
    reading = read(tmp_path)
    assert [(one.transaction, one.state.value) for one in reading.transactions()] == [
        (9, "unknown")
    ]
    codes = [one.code for one in reading.findings()]
    assert codes == ["damaged-end", "damaged-record"]
    assert [one.what for one in reading.verdict().differences] == ["damaged-end"]


def test_damage_before_the_elements_says_nothing_of_the_end(tmp_path: Path) -> None:
    content = bytearray(image("g3", 1, [add(3), add_tx(9, 8), add(4)]))
    content[len(image("g3", 1, [add(3)], 0)) - 1] ^= 0x40
    write(tmp_path, "g3", {1: bytes(content)})
    reading = read(tmp_path)
    assert [one.code for one in reading.findings()] == ["damaged-record", "open-transaction"]


@pytest.mark.parametrize("shape", ["g1a", "g1b", "g1c", "g1d", "g2", "g3", "hash"])
@pytest.mark.parametrize("bit", [0x01, 0x40])
def test_no_damage_of_the_last_commit_is_taken_for_a_crash(
    shape: str, bit: int, tmp_path: Path
) -> None:
    """No crash leaves its last byte written and another one of it wrong.

    Only the type, the file id and the check of a record are protected, unless it has a CRC.
    """
    elements = [add_tx(9, 8), add_tx(9, 7)]
    before = len(image(shape, 1, elements, 0))
    whole = image(shape, 1, [*elements, commit_of(shape, 9, (1, 2))])
    end = len(image(shape, 1, [*elements, commit_of(shape, 9, (1, 2))], 0))
    write(tmp_path, shape, {1: whole, 2: image(shape, 2, [])})
    assert read(tmp_path).verdict().judgement.answer is Answer.SAFE
    ends = [*range(before, before + 5), *range(end - 4, end)]
    protected = range(before, end) if shape == "hash" else ends
    for place in protected:
        content = bytearray(whole)
        content[place] ^= bit
        write(tmp_path, shape, {1: bytes(content)})
        assert read(tmp_path).verdict().judgement.answer is not Answer.SAFE, place - before
