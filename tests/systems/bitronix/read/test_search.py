"""The search in large files that are mostly zeros: what bytes themselves find, in any window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.bitronix.read.search import _WINDOW_MIN, find, find_last

SIGN = b"\0\0\0\x1c"


@given(
    st.lists(st.integers(0, 8 * _WINDOW_MIN), max_size=6),
    st.integers(0, 9 * _WINDOW_MIN),
    st.integers(0, 9 * _WINDOW_MIN),
)
def test_what_is_found_is_what_bytes_find(places: list[int], begin: int, end: int) -> None:
    data = bytearray(8 * _WINDOW_MIN + 3)
    for place in places:
        data[place : place + len(SIGN)] = SIGN[: len(data) - place]
    assert find(memoryview(data), SIGN, begin, end) == data.find(SIGN, begin, end)
    assert find_last(memoryview(data), SIGN, begin, end) == data.rfind(SIGN, begin, end)


@given(st.integers(1, 40), st.integers(0, 300))
def test_signs_across_windows_are_found(windows: int, before: int) -> None:
    data = bytearray(windows * _WINDOW_MIN)
    for place in range(before % 7, len(data) - len(SIGN), _WINDOW_MIN - 1):
        data[place : place + len(SIGN)] = SIGN
        assert find(memoryview(data), SIGN, place, len(data)) == place
        assert find_last(memoryview(data), SIGN, 0, len(data)) == place
