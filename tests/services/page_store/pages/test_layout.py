"""Pages of a page store: every flipped byte is found, and no forged page hangs a reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import CorruptLogError, TallystickError
from tallystick.services.page_store import PageStore
from tallystick.services.page_store.pages.layout import (
    BODY_SIZE,
    INLINE_MAX,
    INNER_MAX,
    KEY_MAX,
    KEY_MIN,
    PAGE_SIZE,
    Chunk,
    Free,
    Inner,
    Leaf,
    Meta,
    Node,
    Overflow,
    PageKind,
    decode,
    encode,
)

NODES: dict[str, Node] = {
    "meta": Meta(7, 3, 1, 99),
    "leaf": Leaf([-5, 1, 9], [b"a", Overflow(4, 9000), b"c" * INLINE_MAX], 6),
    "inner": Inner([-1, 5], [2, 3, 4]),
    "overflow": Chunk(b"data" * 100, 5),
    "free": Free(2),
}

_keys = st.integers(KEY_MIN, KEY_MAX)
_pages = st.integers(0, (1 << 64) - 1)
_rows = st.one_of(
    st.binary(max_size=300), st.builds(Overflow, st.integers(1, 1 << 40), st.integers(0, 1 << 20))
)
_leaves = st.lists(st.tuples(_keys, _rows), max_size=10).map(
    lambda pairs: Leaf([key for key, _ in pairs], [row for _, row in pairs], 3)
)
_inners = st.lists(st.tuples(_keys, _pages), max_size=INNER_MAX).map(
    lambda pairs: Inner([key for key, _ in pairs], [1, *(child for _, child in pairs)])
)
_nodes = st.one_of(
    st.builds(Meta, _pages, _pages, _pages, _pages),
    _leaves,
    _inners,
    st.builds(Chunk, st.binary(max_size=BODY_SIZE), _pages),
    st.builds(Free, _pages),
)


@given(_pages, _nodes)
def test_a_node_comes_back_from_its_page_which_never_begins_with_zero(
    number: int, node: Node
) -> None:
    page = encode(number, node)
    assert len(page) == PAGE_SIZE
    assert page[0] in set(PageKind)
    assert 0 not in set(PageKind), "a page that begins with 0 is an empty one for the H2 log"
    assert decode(number, page) == node


@pytest.mark.parametrize("kind", NODES)
def test_every_flipped_byte_is_corrupt(kind: str) -> None:
    page = encode(7, NODES[kind])
    for place in range(PAGE_SIZE):
        damaged = bytearray(page)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(CorruptLogError, match="page 7"):
            decode(7, bytes(damaged))


def test_a_page_in_the_place_of_another_is_corrupt() -> None:
    with pytest.raises(CorruptLogError):
        decode(8, encode(7, NODES["leaf"]))


@given(st.binary(max_size=PAGE_SIZE))
def test_random_bytes_are_corrupt(start: bytes) -> None:
    with pytest.raises(CorruptLogError):
        decode(1, start.ljust(PAGE_SIZE, b"\1"))


# -- wrong pages with good checksums ---------------------------------------------------------

# The store below: 0 meta, 1 catalogue, 2 root of "t" (inner), its leaves, pages of a long row.


def _find(pages: dict[int, Node], kind: type) -> int:
    return next(number for number, node in pages.items() if isinstance(node, kind) and number > 2)


def _loop_of_leaves(pages: dict[int, Node]) -> None:
    for node in pages.values():
        if isinstance(node, Leaf) and node.next:
            node.next = _find(pages, Leaf)


def _loop_of_empty_leaves(pages: dict[int, Node]) -> None:
    number = _find(pages, Leaf)
    pages[number] = Leaf(next=number)


def _loop_of_inner_nodes(pages: dict[int, Node]) -> None:
    pages[2] = Inner(list(range(INNER_MAX)), [2] * (INNER_MAX + 1))


def _loop_of_free_pages(pages: dict[int, Node]) -> None:
    meta = pages[0]
    assert isinstance(meta, Meta)
    meta.first_free = _find(pages, Chunk)
    pages[meta.first_free] = Free(meta.first_free)


def _loop_of_a_long_row(pages: dict[int, Node]) -> None:
    number = _find(pages, Chunk)
    pages[number] = Chunk(b"x", number)


def _endless_row(pages: dict[int, Node]) -> None:
    leaf = pages[_find(pages, Leaf)]
    assert isinstance(leaf, Leaf)
    leaf.rows[0] = Overflow(_find(pages, Chunk), 60 << 20)


def _child_far_away(pages: dict[int, Node]) -> None:
    root = pages[2]
    assert isinstance(root, Inner)
    root.children[0] = (1 << 64) - 1


def _many_pages(pages: dict[int, Node]) -> None:
    meta = pages[0]
    assert isinstance(meta, Meta)
    meta.page_count = 1 << 60


def _keys_of_another_leaf(pages: dict[int, Node]) -> None:
    root = pages[2]
    assert isinstance(root, Inner)
    root.keys[0] -= 3


def _leaves_left_out(pages: dict[int, Node]) -> None:
    leaf = pages[_find(pages, Leaf)]
    assert isinstance(leaf, Leaf)
    leaf.next = 0


def _no_meta(pages: dict[int, Node]) -> None:
    pages[0] = Leaf()


def _no_catalogue(pages: dict[int, Node]) -> None:
    pages[1] = Leaf([1], [b"short"])


WRONG = [
    _loop_of_leaves, _loop_of_empty_leaves, _loop_of_inner_nodes, _loop_of_free_pages,
    _loop_of_a_long_row, _endless_row, _child_far_away, _many_pages, _keys_of_another_leaf,
    _leaves_left_out, _no_meta, _no_catalogue,
]  # fmt: skip


def _made(folder: Path) -> dict[int, Node]:
    with PageStore(folder) as store:
        store.create_table("t")
        with store.begin() as tx:
            for key in range(60):
                tx.table("t")[key] = b"%d" % key + bytes(500)
            tx.table("t")[100] = bytes(3 * PAGE_SIZE)
    content = (folder / "pages").read_bytes()
    return {
        place // PAGE_SIZE: decode(place // PAGE_SIZE, content[place : place + PAGE_SIZE])
        for place in range(0, len(content), PAGE_SIZE)
    }


@pytest.mark.sampled(6)
@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__.strip("_"))
def test_wrong_pages_are_reported_and_nothing_hangs(
    tmp_path: Path, change: Callable[[dict[int, Node]], None]
) -> None:
    pages = _made(tmp_path)
    change(pages)
    (tmp_path / "pages").write_bytes(b"".join(encode(n, node) for n, node in pages.items()))
    try:
        store = PageStore(tmp_path)
    except CorruptLogError:
        return
    assert store.check()
    try:
        with store.begin() as tx:
            rows = dict(tx.table("t").range())
            tx.table("t")[1] = bytes(9000)
    except TallystickError:
        pass
    else:
        assert all(int(row.strip(b"\0") or b"100") == key for key, row in rows.items())
    store._close_files()
