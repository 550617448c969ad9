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


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9))))
def test_a_range_adds_what_its_numbers_add(pairs: list[tuple[int, int]]) -> None:
    found, expected = IntervalSet(), IntervalSet()
    for start, count in pairs:
        found.add_range(range(start, start + count))
        for number in range(start, start + count):
            expected.add(number)
    assert len(found) == len(expected)
    assert list(found.gaps()) == list(expected.gaps())
    assert [number in found for number in range(60)] == [number in expected for number in range(60)]


@given(st.lists(st.integers(1, 40)), st.integers(0, 45), st.integers(1, 9))
def test_a_set_meets_a_range_with_which_it_shares_a_number(
    numbers: list[int], start: int, count: int
) -> None:
    found, wanted = IntervalSet(), range(start, start + count)
    for number in numbers:
        found.add(number)
    assert found.meets(wanted) == any(number in found for number in wanted)
    assert {number for one in found.ranges() for number in one} == set(numbers)
