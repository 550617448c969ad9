"""A transaction whose commit was destroyed is not calmly open."""

from __future__ import annotations

from pathlib import Path

import pytest

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
