"""Groups of rows in columns are those that plain Python makes of lists."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tallystick.arrow import neighbours

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1)))
SOME_ROWS = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1)


def _columns(rows: list[tuple[int, int]]) -> list[neighbours.Column]:
    return [np.array([row[at] for row in rows], np.int64) for at in (0, 1)]


def _places(rows: list[tuple[int, int]]) -> list[list[int]]:
    """Return the places of all neighbours."""
    return [[at for at, _ in some] for _, some in groupby(enumerate(rows), lambda one: one[1])]


@given(ROWS)
def test_neighbours_are_equal_in_all_columns(rows: list[tuple[int, int]]) -> None:
    places, columns = _places(rows), _columns(rows)
    starts = neighbours.starts_of(*columns)
    assert starts.tolist() == [some[0] for some in places]
    assert neighbours.lasts_of(starts, len(rows)).tolist() == [some[-1] for some in places]
    assert np.flatnonzero(neighbours.firsts(*columns)).tolist() == starts.tolist()


@given(ROWS)
def test_ordinals_count_from_the_first_row_of_neighbours(rows: list[tuple[int, int]]) -> None:
    expected = [at for some in _places(rows) for at in range(len(some))]
    assert neighbours.ordinals(*_columns(rows)).tolist() == expected


@given(SOME_ROWS)
def test_what_neighbours_come_to_is_found_without_a_loop(rows: list[tuple[int, bool]]) -> None:
    keys = np.array([key for key, _ in rows], np.int64)
    wanted = np.array([mark for _, mark in rows], np.bool_)
    starts = neighbours.starts_of(keys)
    places = _places([(key, 0) for key, _ in rows])
    assert neighbours.sums(wanted, starts).tolist() == [
        sum(rows[at][1] for at in some) for some in places
    ]
    assert neighbours.sums(keys, starts).tolist() == [
        sum(rows[at][0] for at in some) for some in places
    ]
    assert neighbours.last_where(wanted, starts).tolist() == [
        max((at for at in some if rows[at][1]), default=-1) for some in places
    ]


@given(st.lists(st.one_of(st.integers(-5, 5), st.integers(-(1 << 63), (1 << 63) - 1))))
def test_distinct_numbers_come_in_order_with_the_place_of_each(values: list[int]) -> None:
    found, places = neighbours.distinct(np.array(values, np.int64))
    assert found == sorted(set(values))
    assert [found[at] for at in places.tolist()] == values


@given(st.sets(st.integers(0, 255)))
def test_marked_codes_are_those_of_the_table(codes: set[int]) -> None:
    assert set(np.flatnonzero(neighbours.marked(codes)).tolist()) == codes


@given(st.lists(st.integers(0, 9)), st.sets(st.integers(0, 40)))
def test_rows_are_among_known_numbers_as_in_python(rows: list[int], known: set[int]) -> None:
    values = np.array(rows, np.uint64)
    assert neighbours.among(values, known).tolist() == [one in known for one in rows]
    assert neighbours.among(values, dict.fromkeys(known)).tolist() == [one in known for one in rows]


def test_a_number_beyond_63_bits_is_no_neighbour_of_it() -> None:
    values = np.array([2**64 - 1, 2**64 - 2], np.uint64)
    assert neighbours.among(values, {2**64 - 1}).tolist() == [True, False]


def test_what_is_known_is_not_gone_through_for_a_few_rows() -> None:
    class Large(set[int]):
        def __iter__(self) -> Iterator[int]:
            raise AssertionError("all that is known was looked at")

    assert neighbours.among(np.array([3, 200]), Large(range(100))).tolist() == [True, False]
