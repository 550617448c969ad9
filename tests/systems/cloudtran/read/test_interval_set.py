"""An interval set holds what a set holds, and gives the gaps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.cloudtran.read.interval_set import IntervalSet


@given(st.lists(st.integers(1, 40)))
def test_it_holds_what_a_set_holds_and_gives_the_gaps(numbers: list[int]) -> None:
    found, expected = IntervalSet(), set(numbers)
    for number in numbers:
        found.add(number)
    assert len(found) == len(expected)
    assert {number for number in range(45) if number in found} == expected
    missing = set(range(min(expected, default=1), max(expected, default=0))) - expected
    assert {number for gap in found.gaps() for number in gap} == missing
