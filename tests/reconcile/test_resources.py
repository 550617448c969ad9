"""Names matched to logs: what the patterns prove, what they leave open."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.reconcile.resources import Pattern, assign, cheapest

A, B, C = "jdbc/a", "jdbc/b", "jms/c"
DERBY, H2, ARTEMIS = "/derby", "/h2", "/artemis"
SYSTEMS = {DERBY: "derby", H2: "h2", ARTEMIS: "jboss"}
RIGHT = {A: DERBY, B: H2, C: ARTEMIS}


def pattern(names: str, logs: str, count: int = 1) -> Pattern:
    """Written short: names by letter, logs by first letter."""
    return Pattern(
        frozenset(name for name in (A, B, C) if name[-1] in names),
        frozenset(log for log in SYSTEMS if log[1] in logs),
        count,
    )


CASES = {
    "one-phase-tells-the-only-name": ([pattern("abc", "dha", 9), pattern("a", "d")], RIGHT),
    "read-only-votes-leave-nothing-in-derby": (
        [pattern("abc", "dha", 9), pattern("ac", "a", 5)],
        RIGHT,
    ),
    "absences-of-an-emptied-log-do-not-mislead": (
        [pattern("abc", "dha", 3), pattern("abc", "da", 90), pattern("a", "d", 2)],
        RIGHT,
    ),
    "equal-claims-stay-open": ([pattern("ab", "dh", 9)], {}),
    "words-break-a-tie": ([pattern("bc", "ha", 9)], {B: H2, C: ARTEMIS}),
    "a-log-that-never-occurs-is-nobodys": ([pattern("ab", "d", 9), pattern("a", "d")], {A: DERBY}),
    "nothing-known": ([], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_names_and_logs(name: str) -> None:
    patterns, expected = CASES[name]
    assert assign(patterns, SYSTEMS) == expected


def test_folders_break_a_tie() -> None:
    stock, orders = "/shop/stock/log", "/shop/orders"
    once = Pattern(frozenset({"stock", "jdbc/orders"}), frozenset({stock, orders}), 1)
    assert assign([once], {stock: "tally", orders: "tally"}) == {
        "stock": stock,
        "jdbc/orders": orders,
    }


@given(
    st.integers(1, 4).flatmap(
        lambda rows: st.integers(rows, 5).flatmap(
            lambda columns: st.lists(
                st.lists(st.integers(0, 50), min_size=columns, max_size=columns),
                min_size=rows,
                max_size=rows,
            )
        )
    )
)
def test_the_cheapest_assignment_costs_what_trying_all_finds(costs: list[list[int]]) -> None:
    found = cheapest(costs)
    assert len(set(found)) == len(found)
    best = min(
        sum(row[column] for row, column in zip(costs, columns, strict=True))
        for columns in itertools.permutations(range(len(costs[0])), len(costs))
    )
    assert sum(row[column] for row, column in zip(costs, found, strict=True)) == best
