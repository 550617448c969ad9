"""The shared parts of B+ trees: paths, edges, walks, loops, and where a leaf is split."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tallystick.errors import CorruptLogError
from tallystick.storage.btree import DEPTH_MAX, Descent, middle


@dataclass
class Inner:
    keys: list[int]
    children: list[int]


@dataclass
class Leaf:
    keys: list[int] = field(default_factory=list)


TREE: dict[int, Inner | Leaf] = {
    1: Inner([10], [2, 3]),
    2: Inner([5], [4, 5]),
    3: Leaf([10, 11]),
    4: Leaf([1]),
    5: Leaf([5, 6]),
}


def descent(nodes: Mapping[int, Inner | Leaf], parents: list[int] | None = None) -> Descent:
    def node(number: int, parent: int) -> Inner | Leaf:
        if parents is not None:
            parents.append(parent)
        return nodes[number]

    return Descent(1, node, Inner, bisect_right, lambda: CorruptLogError("it loops"))


@pytest.mark.parametrize(("key", "path"), [(0, [1, 2, 4]), (5, [1, 2, 5]), (10, [1, 3])])
def test_path_leads_to_the_leaf_of_a_key(key: int, path: list[int]) -> None:
    parents: list[int] = []
    assert descent(TREE, parents).path(key) == path
    assert parents == [0, *path[:-1]]


@pytest.mark.parametrize(("first", "leaf"), [(True, 4), (False, 5)])
def test_edge_is_the_first_or_last_leaf_below_a_child(first: bool, leaf: int) -> None:
    assert descent(TREE).edge([1], 2, first=first) == [1, 2, leaf]


def test_walk_yields_every_node_parents_first_and_trims_before_each() -> None:
    trims: list[int] = []
    numbers = [n for n, _ in descent(TREE).walk(len(TREE), lambda: trims.append(1))]
    assert numbers == [1, 2, 4, 5, 3]
    assert len(trims) == len(TREE)


def test_loops_are_corrupt_not_endless() -> None:
    loop = descent({1: Inner([], [1])})
    with pytest.raises(CorruptLogError, match="it loops"):
        loop.path(7)
    with pytest.raises(CorruptLogError, match="it loops"):
        loop.edge([1], 1, first=True)
    with pytest.raises(CorruptLogError, match="it loops"):
        list(loop.walk(DEPTH_MAX, lambda: None))


@pytest.mark.parametrize(
    ("sizes", "at"),
    [([5], 0), ([1, 1], 1), ([9, 1], 1), ([1, 9], 1), ([1, 1, 1, 1], 1), ([1, 1, 1, 9], 3)],
)
def test_middle_leaves_an_entry_on_either_side(sizes: list[int], at: int) -> None:
    assert middle(sizes) == at
