"""The integrity check finds planted damage: every bit of every page, every wrong field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError
from tallystick.services.page_store import PageStore
from tallystick.services.page_store.pages.layout import (
    BODY_SIZE,
    PAGE_SIZE,
    Chunk,
    Free,
    Inner,
    Leaf,
    Meta,
    Node,
    Overflow,
    decode,
    encode,
)
from tallystick.services.page_store.pages.space import OWN_PAGES, OwnPages
from tallystick.services.page_store.pages.tables import Tables
from tallystick.services.page_store.recovery import SIDE, NoUndo, side_content
from tallystick.storage.files import File
from tallystick.storage.local import LOCAL
from tests.services.page_store.rows import put_rows

Pages = dict[int, Node]


def made(folder: Path) -> Pages:
    """A store with pages of every kind: meta, leaves, inner, a long row, free ones."""
    with PageStore(folder) as store:
        put_rows(store, PAGE_SIZE)
    content = (folder / "pages").read_bytes()
    places = range(0, len(content), PAGE_SIZE)
    pages = {
        at // PAGE_SIZE: decode(at // PAGE_SIZE, content[at : at + PAGE_SIZE]) for at in places
    }
    assert {type(node) for node in pages.values()} == {Meta, Leaf, Inner, Chunk, Free}
    return pages


def is_sound(file: File) -> bool:
    try:
        cache = OwnPages(file, NoUndo(), 16, OWN_PAGES, steal=False)
        return not Tables(cache).check()
    except CorruptLogError:
        return False


def flips(content: bytes, step: int) -> Iterator[tuple[int, bytes]]:
    """Yield pages with one flipped bit: every bit of the head, of the rest every so many."""
    for bit in range(len(content) * 8):
        place = bit // 8
        if bit % step == 0 or place % PAGE_SIZE < 16:
            yield place, bytes([content[place] ^ 1 << bit % 8])


def find_all(folder: Path, step: int) -> int:
    made(folder)
    file, tried = LOCAL.open(str(folder / "pages")), 0
    content = file.pread(1 << 20, 0)
    assert is_sound(file)
    for place, damaged in flips(content, step):
        file.pwrite(damaged, place)
        assert not is_sound(file), f"a flipped bit of byte {place} went unnoticed"
        file.pwrite(content[place : place + 1], place)
        tried += 1
    file.close()
    return tried


def test_a_flipped_bit_of_any_page_is_found(tmp_path: Path) -> None:
    assert find_all(tmp_path, 97) > 8000


@pytest.mark.soak
def test_every_flipped_bit_of_every_page_is_found(tmp_path: Path) -> None:
    print(find_all(tmp_path, 1))  # noqa: T201 - the figures of the run


# -- wrong fields under a good checksum -------------------------------------------------------


def meta(pages: Pages) -> Meta:
    node = pages[0]
    assert isinstance(node, Meta)
    return node


def root(pages: Pages) -> Inner:
    node = pages[2]
    assert isinstance(node, Inner)
    return node


def leaf(pages: Pages) -> Leaf:
    node = pages[root(pages).children[1]]
    assert isinstance(node, Leaf)
    return node


def long_row(pages: Pages) -> tuple[Leaf, int, Overflow]:
    for node in pages.values():
        for index, row in enumerate(node.rows if isinstance(node, Leaf) else ()):
            if isinstance(row, Overflow):
                assert isinstance(node, Leaf)
                return node, index, row
    raise AssertionError("no long row")


def set_long_row(pages: Pages, *, page: int = 0, length: int = 0) -> None:
    node, index, row = long_row(pages)
    node.rows[index] = Overflow(row.page + page, row.length + length)


def chunk(pages: Pages) -> Chunk:
    node = pages[long_row(pages)[2].page]
    assert isinstance(node, Chunk)
    return node


def free(pages: Pages) -> Free:
    node = pages[meta(pages).first_free]
    assert isinstance(node, Free)
    return node


def shift(make: Callable[[Pages], Node], name: str, by: int) -> Callable[[Pages], None]:
    def change(pages: Pages) -> None:
        node = make(pages)
        setattr(node, name, getattr(node, name) + by)

    return change


def shift_in(make: Callable[[Pages], Leaf | Inner], name: str, at: int, by: int) -> object:
    def change(pages: Pages) -> None:
        getattr(make(pages), name)[at] += by

    return change


# Not covered: content (keys and rows), the store's random number, and the link of the last page of
# a long row, which is not followed.
FIELDS = {
    "meta.page_count, one more": shift(meta, "page_count", 1),
    "meta.page_count, one less": shift(meta, "page_count", -1),
    "meta.first_free, another": shift(meta, "first_free", 1),
    "meta.first_free, none": lambda pages: setattr(meta(pages), "first_free", 0),
    "meta.catalogue": shift(meta, "catalogue", 2),
    "inner.keys, first": shift_in(root, "keys", 0, 1),
    "inner.keys, last": shift_in(root, "keys", -1, 1),
    "inner.children, first": shift_in(root, "children", 0, 1),
    "inner.children, last": shift_in(root, "children", -1, -1),
    "leaf.keys, out of order": shift_in(leaf, "keys", 0, 2),
    "leaf.keys, of another leaf": shift_in(leaf, "keys", -1, 50),
    "leaf.next, another": shift(leaf, "next", 1),
    "leaf.next, none": lambda pages: setattr(leaf(pages), "next", 0),
    "leaf.overflow.page": lambda pages: set_long_row(pages, page=1),
    "leaf.overflow.length, shorter": lambda pages: set_long_row(pages, length=-1),
    "leaf.overflow.length, longer": lambda pages: set_long_row(pages, length=1),
    "leaf.overflow.length, a page": lambda pages: set_long_row(pages, length=-BODY_SIZE),
    "overflow.data": lambda pages: setattr(chunk(pages), "data", b"short"),
    "overflow.next": shift(chunk, "next", 1),
    "free.next, another": shift(free, "next", 1),
    "free.next, none": lambda pages: setattr(free(pages), "next", 0),
    "a page of another kind": lambda pages: pages.update({root(pages).children[0]: Free()}),
}  # fmt: skip


@pytest.mark.sampled(11)
@pytest.mark.parametrize("field", FIELDS)
def test_a_wrong_field_is_found(tmp_path: Path, field: str) -> None:
    pages = made(tmp_path)
    change = FIELDS[field]
    assert callable(change)
    change(pages)
    content = b"".join(encode(number, node) for number, node in pages.items())
    (tmp_path / "pages").write_bytes(content)
    file = LOCAL.open(str(tmp_path / "pages"))
    assert not is_sound(file)
    file.close()


def test_a_side_file_of_any_length_is_complete_or_refused(tmp_path: Path) -> None:
    pages = made(tmp_path)
    whole = side_content({1: encode(1, pages[1])})
    for length in [*range(40), len(whole) // 2, len(whole) - 1]:
        (tmp_path / SIDE).write_bytes(whole[:length])
        with pytest.raises(CorruptLogError, match="side file"):
            PageStore(tmp_path)
    (tmp_path / SIDE).write_bytes(whole)
    with PageStore(tmp_path) as store:
        assert not store.check()
