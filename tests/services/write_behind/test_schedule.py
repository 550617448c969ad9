"""The schedule keeps the order of each key, whatever fails, is delayed or discarded."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.roles import PersistEntry
from tallystick.services.write_behind.schedule import Key, Schedule, keys_of
from tests.services.write_behind.kit import put


def entry(number: int, *keys: str) -> PersistEntry:
    return PersistEntry(number, ("a",), tuple(put(key.encode()) for key in keys))


def schedule(*keys: str, strict: bool = False) -> Schedule:
    made = Schedule(strict)
    for number, names in enumerate(keys, 1):
        made.add([entry(number, *names)])
    return made


def numbers(batch: list[PersistEntry]) -> list[int]:
    return [one.number for one in batch]


def test_batch_takes_a_chain_on_one_key_in_order() -> None:
    assert numbers(schedule("a", "a", "b", "a").take(10, 0.0)) == [1, 2, 3, 4]


def test_second_batch_leaves_out_what_the_first_holds() -> None:
    made = schedule("a", "b", "a", "c")
    first = made.take(1, 0.0)
    assert numbers(made.take(10, 0.0)) == [2, 4]
    made.done(first)
    assert numbers(made.take(10, 0.0)) == [3]


def test_transaction_on_keys_of_two_batches_waits_for_both() -> None:
    made = schedule("a", "b", "ab", "c")
    one, two = made.take(1, 0.0), made.take(1, 0.0)
    assert numbers(made.take(10, 0.0)) == [4]
    made.done(one)
    assert made.take(10, 0.0) == []
    made.done(two)
    assert numbers(made.take(10, 0.0)) == [3]


def test_failed_batch_comes_again_in_order() -> None:
    made = schedule("a", "ab", "b")
    made.put_back(made.take(10, 0.0))
    assert numbers(made.take(10, 0.0)) == [1, 2, 3]


def test_transaction_set_aside_blocks_its_keys_only() -> None:
    made = schedule("a", "a", "b")
    (first,) = made.take(1, 0.0)
    made.put_back([first])
    made.set_aside(made.waiting[1])
    assert numbers(made.take(10, 0.0)) == [3]
    assert made.retry(1)
    assert numbers(made.take(10, 0.0)) == [1, 2]


def test_discarded_transaction_frees_its_keys() -> None:
    made = schedule("a", "ab", "b")
    made.discard(1)
    assert numbers(made.take(10, 0.0)) == [2, 3]


def test_transaction_discarded_in_a_batch_does_not_return() -> None:
    made = schedule("a", "a")
    batch = made.take(1, 0.0)
    made.discard(1)
    made.put_back(batch)
    assert numbers(made.take(10, 0.0)) == [2]


def test_delayed_transaction_is_taken_after_its_delay() -> None:
    made = schedule("a", "b")
    (first,) = made.take(1, 0.0)
    made.put_back([first])
    made.delay(made.waiting[1], 5.0)
    assert numbers(made.take(10, 0.0)) == [2]
    assert made.next_delay_end() == 5.0
    assert numbers(made.take(10, 5.0)) == [1]


def test_transaction_marked_alone_gets_a_batch_of_its_own() -> None:
    made = schedule("a", "b", "c")
    made.waiting[2].alone = True
    assert numbers(made.take(10, 0.0)) == [1]
    assert numbers(made.take(10, 0.0)) == [2]
    assert numbers(made.take(10, 0.0)) == [3]


def test_strict_schedule_lets_nothing_overtake() -> None:
    made = schedule("a", "b", "c", strict=True)
    first = made.take(1, 0.0)
    assert made.take(10, 0.0) == []
    made.done(first)
    assert numbers(made.take(10, 0.0)) == [2, 3]


def test_single_schedule_keeps_order_without_queues_until_something_fails() -> None:
    made = Schedule(single=True)
    for number, name in enumerate("abab", 1):
        made.add([entry(number, name)])
    batch = made.take(2, 0.0)
    assert numbers(batch) == [1, 2]
    made.put_back(batch)
    first = made.take(1, 0.0)
    assert numbers(first) == [1]
    made.put_back(first)
    made.use_queues()
    made.set_aside(made.waiting[1])
    assert numbers(made.take(10, 0.0)) == [2, 4]
    assert made.newly_stuck == [1, 3]


def test_transaction_discarded_in_a_batch_does_not_return_to_a_single_schedule() -> None:
    made = Schedule(single=True)
    made.add([entry(1, "a"), entry(2, "b")])
    made.use_queues()
    first, second = made.take(10, 0.0)
    made.discard(2)
    made.done([first])
    made.put_back([second])
    assert not made.has_ready()
    assert made.take(10, 0.0) == []


def test_single_schedule_without_queues_drops_what_is_discarded() -> None:
    made = Schedule(single=True)
    made.add([entry(number, "a") for number in range(1, 5)])
    batch = made.take(2, 0.0)
    made.discard(1)
    made.discard(4)
    made.put_back(batch)
    assert numbers(made.take(10, 0.0)) == [2, 3]


def test_transactions_after_one_set_aside_are_stuck_and_reported() -> None:
    made = schedule("a", "b", "ab", "bc", "d")
    made.set_aside(made.waiting[1])
    assert made.newly_stuck == [1, 3, 4]
    made.add([entry(6, "c")])
    made.add([entry(7, "e")])
    assert made.newly_stuck == [1, 3, 4, 6]
    made.discard(3)
    assert made.find_stuck() == [1]
    made.retry(1)
    assert made.find_stuck() == []


@given(
    st.lists(st.sets(st.sampled_from("abcde"), min_size=0, max_size=3), max_size=40),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_every_transaction_is_applied_once_and_in_order_per_key(
    keys: list[set[str]], seed: int, single: bool
) -> None:
    rng = random.Random(seed)
    made = Schedule(single=single)
    waiting = list(enumerate(keys, 1))
    out: list[list[PersistEntry]] = []
    applied: list[int] = []
    added: set[int] = set()
    discarded: set[int] = set()
    for _ in range(100_000):
        choice = rng.random()
        if waiting and choice < 0.3:
            number, names = waiting.pop(0)
            made.add([entry(number, *names)])
            added.add(number)
        elif choice < 0.6 and not (single and out) and (batch := made.take(rng.randint(1, 4), 0.0)):
            _check_batch(batch, out)
            out.append(batch)
        elif out and choice < 0.8:
            batch = out.pop(rng.randrange(len(out)))
            made.done(batch)
            applied += numbers(batch)
        elif out and choice < 0.9:
            made.put_back(out.pop(rng.randrange(len(out))))
        elif out and choice < 0.95:
            batch = out.pop(rng.randrange(len(out)))
            made.put_back(batch)
            made.use_queues()
            if batch[0].number in made.waiting:
                made.set_aside(made.waiting[batch[0].number])
        elif choice < 0.98:
            for number in [one.number for one in made.waiting.values() if one.aside]:
                assert made.retry(number)
            made.find_stuck()
        elif choice > 0.99 and added - {*applied, *discarded}:
            number = rng.choice(sorted(added - {*applied, *discarded}))
            made.discard(number)
            made.find_stuck()
            discarded.add(number)
        _check_stuck(made)
        if not waiting and not out and not made.waiting and not made.has_ready():
            break
    else:
        pytest.fail("the schedule does not come to an end")
    assert len(applied) == len(set(applied))
    assert set(applied) | discarded == set(range(1, len(keys) + 1))
    for name in "abcde":
        own = [number for number in applied if name in keys[number - 1]]
        assert own == sorted(own)


def _check_batch(batch: list[PersistEntry], out: list[list[PersistEntry]]) -> None:
    held = {key for other in out for one in other for key in keys_of(one)}
    assert not held & {key for one in batch for key in keys_of(one)}
    assert numbers(batch) == sorted(numbers(batch))


def _check_stuck(made: Schedule) -> None:
    """Check that exactly those set aside, and later ones on their keys, are stuck."""
    held: set[Key] = set()
    for one in made.waiting.values():
        stuck = one.aside or bool(held & one.keys)
        assert one.stuck == stuck or one.taken
        held |= one.keys if stuck else frozenset()
