"""Trees find the leaf of a key, whatever has happened to the leaf that a read before it found."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.services.page_store import PageStore
from tallystick.services.page_store.pages.layout import KEY_MAX, KEY_MIN
from tallystick.services.page_store.pages.tree import Tree

ROW = bytes(300)
"""Twelve of them fill a leaf."""
READ = (0, 599, 505, 500, 5)
"""Keys, of which two are in the first leaf, which is never freed."""


def rows_of(tree: Tree) -> dict[int, bytes]:
    rows, following = tree.batch(KEY_MIN, 1 << 20, 1 << 30)
    assert following is None
    return dict(rows)


def split(tree: Tree) -> None:
    for key in range(501, 600):
        tree.set(key, ROW)


def free(tree: Tree) -> None:
    for key in range(300, 700, 10):
        tree.delete(key)


def free_and_use_again(tree: Tree) -> None:
    free(tree)
    for key in range(2000, 2400, 10):
        tree.set(key, ROW)


def remove_every_row(tree: Tree) -> None:
    for key in rows_of(tree):
        tree.delete(key)


def clear(tree: Tree) -> None:
    tree.clear()


def evict(tree: Tree) -> None:
    tree._cache.trim()


@pytest.mark.parametrize(
    "change", [split, free, free_and_use_again, remove_every_row, clear, evict]
)
def test_a_key_that_was_read_is_changed_in_its_leaf_of_now(
    tmp_path: Path, change: Callable[[Tree], None]
) -> None:
    with PageStore(tmp_path, cache_bytes=0) as store:
        store.create_table("t")
        tree: Tree = store._transactions.tables.tree(store.table_id("t"))  # type: ignore[assignment]
        for key in range(0, 1000, 10):
            tree.set(key, ROW)
        for key in READ:
            assert tree.get(key) == (ROW if key % 10 == 0 else None)
        change(tree)
        expected = rows_of(tree)
        for key in READ:
            tree.set(key, b"changed")
            expected[key] = b"changed"
        assert rows_of(tree) == dict(sorted(expected.items()))
        assert store.check() == []


@pytest.mark.parametrize("seed", range(5))
def test_any_mixture_of_reads_and_changes_is_that_of_a_dictionary(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    keys = [*range(300), KEY_MIN, KEY_MAX]
    with PageStore(tmp_path, cache_bytes=0) as store:
        store.create_table("t")
        tree: Tree = store._transactions.tables.tree(store.table_id("t"))  # type: ignore[assignment]
        expected: dict[int, bytes] = {}
        for step in range(4000):
            key = chance.choice(keys)
            chosen = chance.randrange(10 if step % 1000 < 500 else 5)
            if chosen < 2:
                assert tree.delete(key) == (expected.pop(key, None) is not None)
            elif chosen < 5:
                assert tree.get(key) == expected.get(key)
            elif chosen < 9:
                expected[key] = bytes([step % 251]) * chance.choice((3, 300, 900, 9000))
                tree.set(key, expected[key])
            else:
                tree._cache.trim()
        assert rows_of(tree) == dict(sorted(expected.items()))
        assert store.check() == []
