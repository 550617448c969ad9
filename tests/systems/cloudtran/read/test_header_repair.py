"""Flipped bits are repaired, reported or harmless; hostile headers cost linear time."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from tallystick.systems.cloudtran.format import layout
from tallystick.systems.cloudtran.read.scan import BlockState
from tests.systems.cloudtran.blocks import NAME, blocks, content, reading, sample


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
