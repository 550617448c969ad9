"""Steps find what a page decoded anew would: also where its keys are out of order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.h2.engine import steps
from tallystick.systems.h2.engine.steps import Steps
from tallystick.systems.h2.format.table_pages import DataLeaf, DataNode

KEYS = st.lists(st.integers(-5, 5) | st.sampled_from([-(1 << 63), (1 << 63) - 1]), max_size=8)


@given(KEYS, st.integers(-6, 6))
def test_a_leaf_has_the_keys_that_it_lists(keys: list[int], key: int) -> None:
    leaf = DataLeaf(b"", 1, 0, keys, [0] * len(keys))
    assert Steps().put(9, 0, leaf).has(key) == (key in keys)


@given(KEYS, st.integers(-6, 6))
def test_a_node_leads_to_the_child_of_the_first_key_that_is_not_smaller(
    keys: list[int], key: int
) -> None:
    children = list(range(len(keys) + 1))
    first = next((at for at, limit in enumerate(keys) if key <= limit), len(keys))
    assert Steps().put(9, 0, DataNode(keys, children, 1)).child(key) == first


def test_the_pages_used_last_are_kept_as_long_as_they_are_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "NUMBERS_MAX", 12)
    kept = Steps()
    for page in (1, 2, 3):
        kept.put(page, 0, DataLeaf(b"", 1, 0, [1, 2, 3, 4], [0] * 4))
    assert kept.get(1, 0) is not None
    kept.put(4, 0, DataLeaf(b"", 1, 0, [5], [0]))
    assert [page for page in range(1, 5) if kept.get(page, 0)] == [1, 3, 4]
    assert kept.get(1, 7) is None, "a page that another one names is another step"


@given(KEYS, st.lists(st.integers(-6, 6)).map(sorted))
def test_keys_asked_at_once_are_found_as_one_by_one(keys: list[int], asked: list[int]) -> None:
    leaf = Steps().put(9, 0, DataLeaf(b"", 1, 0, keys, [0] * len(keys)))
    node = Steps().put(9, 0, DataNode(keys, list(range(len(keys) + 1)), 1))
    queries = np.array(asked, np.int64)
    assert leaf.has_each(queries).tolist() == [leaf.has(key) for key in asked]
    found = [child for child, begin, end in node.parts(queries) for _ in range(begin, end)]
    assert found == [node.child(key) for key in asked]
