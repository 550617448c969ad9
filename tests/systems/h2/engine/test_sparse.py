"""Maps from row keys in little memory do what a dict does."""

from __future__ import annotations

import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.h2.engine.sparse import KeyStates, Numbers

KEYS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-20, 600)
NUMBERS = st.integers(-(1 << 63) + 1, (1 << 63) - 1)
MANY = 10_000
KEY_MAX = (1 << 63) - 1


@given(st.lists(st.tuples(KEYS, st.booleans())))
def test_a_key_is_there_or_not_as_was_said_last(said: list[tuple[int, bool]]) -> None:
    states, expected = KeyStates(), dict(said)
    for key, present in said:
        states.set(key, present=present)
    for key in expected.keys() | {one + 1 for one in expected}:
        assert states.get(key) is expected.get(key)


@given(st.lists(st.tuples(KEYS, NUMBERS | st.none())))
def test_a_number_is_that_of_its_key(said: list[tuple[int, int | None]]) -> None:
    numbers, expected = Numbers(), dict[int, int]()
    for key, number in said:
        if number is None:
            numbers.discard(key)
            expected.pop(key, None)
        else:
            numbers.set(key, number)
            expected[key] = number
    assert dict(numbers.items()) == expected
    assert all(numbers.get(key) == expected.get(key) for key, _ in said)
    numbers.clear()
    assert list(numbers.items()) == []


def test_keys_that_follow_each_other_take_few_bytes() -> None:
    states, numbers = KeyStates(), Numbers()
    for key in range(MANY):
        states.set(key, present=True)
        numbers.set(key, key)
    words, arrays = states._words, numbers._arrays
    assert sys.getsizeof(words) + sum(map(sys.getsizeof, words.values())) < MANY
    assert sys.getsizeof(arrays) + sum(map(sys.getsizeof, arrays.values())) < 24 * MANY


@given(st.lists(st.dictionaries(KEYS, st.booleans()), max_size=4))
def test_keys_said_at_once_are_as_those_said_one_by_one(said: list[dict[int, bool]]) -> None:
    states, expected = KeyStates(), dict[int, bool]()
    for part in said:
        keys = np.array(sorted(part), np.int64)
        states.set_each(keys, np.array([part[key] for key in sorted(part)], bool))
        expected |= part
    asked = sorted({*expected, *(min(one + 1, KEY_MAX) for one in expected)})
    found = states.each(np.array(asked, np.int64)).tolist()
    assert found == [int(expected.get(key, -1)) for key in asked]
