"""Assign logs to resource names by co-occurrence: no log states which is which.

A coordinator's record names its resources ("jdbc/orders"), a resource's log holds branches of
global ids. In: patterns (names in a decision to commit, logs with a branch, how often). Out:
the pairs of the cheapest one-to-one assignment, without those that another assignment of
the same cost makes differently. What is ambiguous stays unassigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tallystick.systems.protocol import ResourceTraits
from tallystick.systems.registry import resource_traits

MESSAGING = ("jms", "queue", "topic", "mq")
"""Words in a resource name that stand for messages."""

_NEVER = 1_000_000_000
"""A pair that no transaction has together; also what leaving a name without a log costs."""

_AGAINST = 10_000
"""A branch in a log whose name the decision lacks: contradicts the pair."""

_ABSENT = 10
"""A named resource without a branch in the log: its log may have moved on."""

_ABSENT_READ_ONLY = 5
"""The same in a log in which a branch that changed nothing leaves no record."""

_UNLIKE = 1
"""The words of the name do not fit what the log holds."""

_ELSEWHERE = 2
"""No folder of the log has the name: ``orders`` is likelier in ``/shop/orders`` than beside it."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Global transactions with the same names and the same logs, and their number."""

    names: frozenset[str]
    logs: frozenset[str]
    count: int


def assign(patterns: Iterable[Pattern], systems: Mapping[str, str]) -> dict[str, str]:
    """Log by resource name; ``systems`` has the system of each log."""
    known = list(patterns)
    names = sorted({name for pattern in known for name in pattern.names})
    logs = sorted({log for pattern in known for log in pattern.logs})
    # A further column per name keeps an assignment possible: the name stays without a log.
    costs = [
        [_cost(name, log, known, systems.get(log, "")) for log in logs] + [_NEVER] * len(names)
        for name in names
    ]
    best = cheapest(costs)
    total = _total(costs, best)
    return {
        names[row]: logs[column]
        for row, column in enumerate(best)
        if costs[row][column] < _NEVER and _total_without(costs, row, column) > total
    }


def cheapest(costs: Sequence[Sequence[int]]) -> list[int]:
    """Return the column of each row in the cheapest assignment; rows must not outnumber columns.

    The Hungarian method: rows join one by one along cheapest augmenting paths, with potentials of
    rows and columns that keep every reduced cost at zero or above.
    """
    # Rows and columns count from 1: column 0 is where the row waits that joins, row 0 is no row.
    rows, columns = len(costs), len(costs[0]) if costs else 0
    row_price, column_price = [0] * (rows + 1), [0] * (columns + 1)
    row_of, before = [0] * (columns + 1), [0] * (columns + 1)
    for row in range(1, rows + 1):
        row_of[0] = row
        column = 0
        slack, used = [_NEVER * 1_000] * (columns + 1), [False] * (columns + 1)
        while row_of[column]:
            used[column] = True
            at = row_of[column]
            for other in range(1, columns + 1):
                reduced = costs[at - 1][other - 1] - row_price[at] - column_price[other]
                if not used[other] and reduced < slack[other]:
                    slack[other], before[other] = reduced, column
            column = min((c for c in range(1, columns + 1) if not used[c]), key=slack.__getitem__)
            step = slack[column]
            for other in range(columns + 1):
                if used[other]:
                    row_price[row_of[other]] += step
                    column_price[other] -= step
                else:
                    slack[other] -= step
        # A free column is reached: back along the path each column takes the row of the one before.
        while column:
            row_of[column] = row_of[before[column]]
            column = before[column]
    return [row_of.index(row, 1) - 1 for row in range(1, rows + 1)]


def _total(costs: Sequence[Sequence[int]], columns: Sequence[int]) -> int:
    return sum(row[column] for row, column in zip(costs, columns, strict=True))


def _total_without(costs: Sequence[Sequence[int]], row: int, column: int) -> int:
    """Return the cost of the best assignment that excludes this pair."""
    other = [list(line) for line in costs]
    other[row][column] = _NEVER * 2
    return _total(other, cheapest(other))


def _cost(name: str, log: str, patterns: list[Pattern], system: str) -> int:
    together = against = absent = 0
    for pattern in patterns:
        named, logged = name in pattern.names, log in pattern.logs
        together += pattern.count * (named and logged)
        against += pattern.count * (logged and not named)
        absent += pattern.count * (named and not logged)
    if not together:
        return _NEVER
    traits = resource_traits(system)
    weight = _ABSENT_READ_ONLY if traits.read_only_unlogged else _ABSENT
    cost = against * _AGAINST + absent * weight + _UNLIKE * (not _fits_traits(name, traits))
    return min(cost + _ELSEWHERE * (not _is_in_folder_of(name, log)), _NEVER - 1)


def _is_in_folder_of(name: str, log: str) -> bool:
    return name.rpartition("/")[2].lower() in log.lower().split("/")


def _fits_traits(name: str, traits: ResourceTraits) -> bool:
    messages = any(word in name.lower() for word in MESSAGING)
    return messages == traits.messages
