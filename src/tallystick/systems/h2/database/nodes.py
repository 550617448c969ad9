"""Table pages of a page store file as nodes: bytes <-> nodes; pure functions, no I/O.

In: a page and its number. Out: its node, or `CorruptLogError` naming the page. All numbers are
big-endian; *vI* and *vL* are the variable-length ones of `format.numbers`. Every node but the free
list begins with type (1), checksum (2), parent page (4, 0 for a root):

    leaf      table vI, columns vI, entries (2), first overflow page (4, not with type + 16), then
              per entry key vL and offset (2); rows from the end of the page down, in that order
    inner     table vI, row count below (4, -1 not known), entries (2), last child (4), then per
              entry child (4) and the largest key below it, vL
    chunk     next page (4) and data to the end, or, with type + 16, length (2) and data
    free list type (1), checksum (2), then a bit per page from itself on, lowest first

The parent of a chunk is the page before it. A leaf with a row that is too long for a page holds
only this row, as much of it as fits. Other pages are `EnginePage`, of no table of ours, or `Empty`.
Source: docs/formats/h2.md, "Table pages", and files that the engine wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from tallystick.roles import Codec
from tallystick.storage.btree import damaged_page
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.numbers import (
    decode_var_int,
    encode_var_int,
    encode_var_long,
    var_long_size,
)
from tallystick.systems.h2.format.table_pages import FIELDS_START, decode_leaf, decode_node

UNKNOWN_COUNT = -1
KEY_SIZE_MAX = 10
_SHORT = struct.Struct(">H")
_INT = struct.Struct(">i")
_INNER = struct.Struct(">ihi")
_LOG_PAGES = (layout.EMPTY, layout.STREAM_TRUNK, layout.STREAM_DATA)


@dataclass(slots=True)
class Leaf:
    """Rows (values without their count) in order of their keys.

    ``overflow`` is the first overflow page of its only row, 0 if every row is complete.
    """

    table: int
    columns: int
    parent: int = 0
    keys: list[int] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    overflow: int = 0

    def size(self) -> int:
        """Return the bytes that the page needs."""
        entries = _SHORT.size * len(self.keys) + sum(map(var_long_size, self.keys))
        return leaf_head(self.table, self.columns) + entries + sum(map(len, self.rows))


@dataclass(slots=True)
class Inner:
    """``children[i]`` holds keys up to ``keys[i]``, the last one all above."""

    table: int
    keys: list[int]
    children: list[int]
    parent: int = 0
    row_count: int = UNKNOWN_COUNT

    def size(self) -> int:
        """Return the bytes that the page needs."""
        entries = _INT.size * len(self.keys) + sum(map(var_long_size, self.keys))
        return FIELDS_START + len(encode_var_int(self.table)) + _INNER.size + entries


@dataclass(slots=True)
class Chunk:
    """One overflow page of a long row, and no chunk of `runs`; ``next`` is 0 for the last one."""

    data: bytes
    parent: int
    next: int = 0


@dataclass(slots=True)
class FreeList:
    """A bit for each page from this one on: in use or not."""

    bits: bytearray


@dataclass(frozen=True, slots=True)
class Empty:
    """A page without content, or of a log."""


@dataclass(frozen=True, slots=True)
class EnginePage:
    """A page of a kind that is not decoded: an index of the engine."""

    page: bytes


def empty_index(number: int, page_size: int) -> EnginePage:
    """Return the root of an index without rows: type, parent 0, index vI, no entries."""
    head = layout.PAGE_HEADER.pack(layout.BTREE_LEAF | layout.LAST, 0, 0, 0)
    return EnginePage((head + encode_var_int(number)).ljust(page_size, b"\0"))


Node = Leaf | Inner | Chunk | FreeList | Empty | EnginePage


def codec(page_size: int) -> Codec:
    """Return the codec for pages of this size."""
    return Codec(page_size, partial(encode, page_size), partial(decode, page_size))


def leaf_head(table: int, columns: int) -> int:
    """Return the bytes before the first entry of a leaf without overflow pages."""
    return FIELDS_START + len(encode_var_int(table)) + len(encode_var_int(columns)) + _SHORT.size


def entry_size(key: int, row: bytes) -> int:
    """Return the bytes that an entry and its row take."""
    return var_long_size(key) + _SHORT.size + len(row)


def chunk_capacity(page_size: int, *, last: bool) -> int:
    """Return the bytes of a row that an overflow page holds."""
    return page_size - FIELDS_START - (_SHORT.size if last else _INT.size)


# -- encode ---------------------------------------------------------------------------------


def encode(page_size: int, number: int, node: Node) -> bytes:
    """Return the page of a node, with its checksum."""
    body = _ENCODERS[type(node)](page_size, node)
    assert len(body) <= page_size, "a node larger than its page"
    return layout.seal(bytearray(body.ljust(page_size, b"\0")), number)


def _head(kind: int, parent: int) -> bytes:
    return layout.PAGE_HEADER.pack(kind, 0, 0, parent)


def _encode_leaf(page_size: int, leaf: Leaf) -> bytes:
    kind = layout.DATA_LEAF if leaf.overflow else layout.DATA_LEAF | layout.LAST
    parts = [_head(kind, leaf.parent), encode_var_int(leaf.table), encode_var_int(leaf.columns)]
    parts.append(_SHORT.pack(len(leaf.keys)))
    if leaf.overflow:
        parts.append(_INT.pack(leaf.overflow))
    offset = page_size
    for key, row in zip(leaf.keys, leaf.rows, strict=True):
        offset -= len(row)
        parts += (encode_var_long(key), _SHORT.pack(offset & 0xFFFF))
    head = b"".join(parts)
    return head + bytes(offset - len(head)) + b"".join(reversed(leaf.rows))


def _encode_inner(_page_size: int, inner: Inner) -> bytes:
    parts = [_head(layout.DATA_NODE | layout.LAST, inner.parent), encode_var_int(inner.table)]
    parts.append(_INNER.pack(inner.row_count, len(inner.keys), inner.children[-1]))
    for key, child in zip(inner.keys, inner.children, strict=False):
        parts += (_INT.pack(child), encode_var_long(key))
    return b"".join(parts)


def _encode_chunk(_page_size: int, chunk: Chunk) -> bytes:
    if chunk.next:
        return _head(layout.DATA_OVERFLOW, chunk.parent) + _INT.pack(chunk.next) + chunk.data
    head = _head(layout.DATA_OVERFLOW | layout.LAST, chunk.parent)
    return head + _SHORT.pack(len(chunk.data)) + chunk.data


def _encode_free_list(_page_size: int, free_list: FreeList) -> bytes:
    return bytes((layout.FREE_LIST, 0, 0)) + free_list.bits


_ENCODERS: dict[type, Callable[[int, Any], bytes]] = {
    Leaf: _encode_leaf,
    Inner: _encode_inner,
    Chunk: _encode_chunk,
    FreeList: _encode_free_list,
    EnginePage: lambda _page_size, page: page.page,
    Empty: lambda _page_size, _empty: b"",
}


# -- decode ---------------------------------------------------------------------------------


def decode(page_size: int, number: int, page: bytes) -> Node:
    """Return the node in a page. Raises `CorruptLogError`."""
    if len(page) != page_size:
        raise damaged_page(number, page_size, f"{page_size} bytes", f"{len(page)} bytes")
    if page[0] in _LOG_PAGES:
        return Empty()
    if not layout.checksum_ok(page, number):
        raise damaged_page(number, page_size, "its checksum", "another")
    decoder = _DECODERS.get(page[0] & ~layout.LAST)
    if decoder is None:
        return EnginePage(page)
    try:
        return decoder(page)
    except (IndexError, ValueError, struct.error) as error:
        raise damaged_page(number, page_size, "a node", f"type {page[0]}, {error}") from error


def _parent(page: bytes) -> int:
    (_, _, _, parent) = layout.PAGE_HEADER.unpack_from(page)
    return int(parent)


def _decode_leaf(page: bytes) -> Leaf:
    table, _ = decode_var_int(page, FIELDS_START)
    found = decode_leaf(page)
    if not page[0] & layout.LAST and (len(found.keys) != 1 or found.overflow <= 0):
        raise ValueError(f"{len(found.keys)} rows, one of them too long")
    limits = [len(page), *found.offsets]
    if any(offset > end for end, offset in pairwise(limits)):
        raise ValueError("rows in another order than their keys")
    if limits[-1] < found.end:
        raise ValueError("rows that reach into the entries")
    rows = [page[offset:end] for end, offset in pairwise(limits)]
    return Leaf(table, found.columns, _parent(page), found.keys, rows, found.overflow)


def _decode_inner(page: bytes) -> Inner:
    table, at = decode_var_int(page, FIELDS_START)
    _, count, _ = _INNER.unpack_from(page, at)
    if count < 0:
        raise ValueError(f"{count} entries")
    found = decode_node(page)
    if min(found.children) <= layout.META_ROOT:
        raise ValueError("a child that is no page of a table")
    return Inner(table, found.keys, found.children, _parent(page), found.row_count)


def _decode_chunk(page: bytes) -> Chunk:
    if page[0] & layout.LAST:
        (count,) = _SHORT.unpack_from(page, FIELDS_START)
        data = page[FIELDS_START + _SHORT.size :]
        if count > len(data):
            raise ValueError("more data than fits")
        return Chunk(data[:count], _parent(page))
    (following,) = _INT.unpack_from(page, FIELDS_START)
    if following <= layout.META_ROOT:
        raise ValueError("a row that goes on nowhere")
    return Chunk(page[FIELDS_START + _INT.size :], _parent(page), following)


def _decode_free_list(page: bytes) -> FreeList:
    return FreeList(bytearray(page[layout.FREE_LIST_START :]))


_DECODERS: dict[int, Callable[[bytes], Node]] = {
    layout.DATA_LEAF: _decode_leaf,
    layout.DATA_NODE: _decode_inner,
    layout.DATA_OVERFLOW: _decode_chunk,
    layout.FREE_LIST: _decode_free_list,
}
