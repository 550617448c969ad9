"""Zeros, and other fill, are found where they begin and end, also where windows meet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.storage.mapped import NEAR
from tallystick.storage.source import open_source
from tallystick.storage.zeros import (
    first_nonzero,
    first_other,
    is_zero,
    last_nonzero_end,
    last_other_end,
)

SIZE = 200_000
EDGES = [3, 7, 65_535, 65_536, 65_538, 65_539, 131_071, 131_074, 199_990, 199_999]


@pytest.mark.parametrize("place", EDGES)
def test_one_byte_in_zeros_is_found_from_both_sides(place: int) -> None:
    data = bytearray(SIZE)
    data[place] = 1
    view = memoryview(data)
    assert first_nonzero(view, 3, SIZE) == place
    assert last_nonzero_end(view, 3, SIZE) == place + 1
    assert not is_zero(view, 3, SIZE)
    assert is_zero(view, 3, place)
    assert is_zero(view, place + 1, SIZE)


@pytest.mark.parametrize("place", EDGES)
@pytest.mark.parametrize("fill", [b"J", b"J\0", b"\0J"])
def test_one_byte_in_fill_is_found_from_both_sides(place: int, fill: bytes) -> None:
    data = bytearray(fill[:1] * SIZE)
    data[SIZE // 2 : SIZE // 2 + 9] = fill[-1:] * 9
    data[place] = 1
    view = memoryview(data)
    assert first_other(view, 3, SIZE, fill) == place
    assert last_other_end(view, 3, SIZE, fill) == place + 1
    assert first_other(view, place + 1, SIZE, fill) == SIZE
    assert last_other_end(view, 3, place, fill) == 3


def test_zeros_alone_end_where_the_range_ends() -> None:
    view = memoryview(bytes(SIZE))
    assert first_nonzero(view, 5, SIZE - 5) == SIZE - 5
    assert last_nonzero_end(view, 5, SIZE - 5) == 5
    assert is_zero(view, 9, 9)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("search", [first_nonzero, last_nonzero_end])
def test_a_search_over_a_mapped_file_does_not_hold_its_pages(
    search: Callable[[memoryview, int, int], int], tmp_path: Path
) -> None:
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.truncate(16 * NEAR + 21)
    with open_source(str(path)) as opened:
        before = _resident()
        search(opened.data, 0, opened.size)
        assert _resident() < before + 6 * NEAR


def _resident() -> int:
    """Return the bytes of files that are mapped into this process."""
    text = Path("/proc/self/status").read_text("utf-8")
    (line,) = (one for one in text.splitlines() if one.startswith("RssFile"))
    return int(line.split()[1]) << 10
