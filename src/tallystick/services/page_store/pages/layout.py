"""The pages of a page store: bytes <-> nodes; pure functions, no I/O.

In: a page of `PAGE_SIZE` bytes. Out: its node, or `CorruptLogError` naming the page. All numbers
are little-endian. Every page but the unused ones begins with a head of 16 bytes:

    offset size content
    0      1    kind: 1 meta, 2 leaf, 3 inner, 4 overflow, 5 free. Never 0, which is how H2's
                log knows a page that was empty
    1      1    0
    2      2    number of entries (leaf, inner); bytes of data (overflow)
    4      4    CRC-32 of the page number (8 bytes), the 4 bytes before and the rest of the page
    8      8    link: next leaf, first child, next overflow page, next free page; 0 none

    meta        8 page count, 8 first free page, 8 catalogue root, 8 store id,
                8 mark of the section of the log that began with the pages as they are, 0 in pages
                of earlier releases
    leaf        entries: 8 key (signed), 4 length, 8 overflow page or 0; then rows back to back
    inner       entries: 8 key (signed), 8 child; keys below the first are in the linked child

A row longer than `INLINE_MAX` is in a chain of overflow pages. An all-zero page is unused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tallystick.storage.btree import damaged_page
from tallystick.storage.crc import crc32

PAGE_SIZE = 4096
HEAD = struct.Struct("<BxHIQ")
CHECKED = struct.Struct("<QBxH")
"""Page number and the first bytes of the head: what the checksum covers first."""
LINK = struct.Struct("<Q")
META = struct.Struct("<QQQQQ")
LEAF_ENTRY = struct.Struct("<qIQ")
INNER_ENTRY = struct.Struct("<qQ")
_LINK = HEAD.size - LINK.size
"""Offset of the link: from here on the checksum covers everything."""

BODY_SIZE = PAGE_SIZE - HEAD.size
"""Bytes of a page after its head."""
INLINE_MAX = BODY_SIZE // 4 - LEAF_ENTRY.size
"""Longest row kept in its leaf, in bytes, so that every leaf holds at least four."""
INNER_MAX = BODY_SIZE // INNER_ENTRY.size
"""Most entries of an inner node."""
KEY_MIN = -(1 << 63)
KEY_MAX = (1 << 63) - 1
ROW_MAX = 64 << 20
"""Longest row, in bytes."""


class PageKind(IntEnum):
    """The first byte of a page in use."""

    META = 1
    LEAF = 2
    INNER = 3
    OVERFLOW = 4
    FREE = 5


@dataclass(slots=True)
class Meta:
    """Page 0: page count, free pages, the catalogue's root, the store's id, the section's mark."""

    page_count: int
    first_free: int
    catalogue: int
    store_id: int
    mark: int = 0


@dataclass(slots=True)
class Leaf:
    """Rows in order of their keys. A row is its bytes, or the first page of a long one."""

    keys: list[int] = field(default_factory=list)
    rows: list[bytes | Overflow] = field(default_factory=list)
    next: int = 0

    def size(self) -> int:
        """Return the bytes that the entries take."""
        inline = sum([len(row) for row in self.rows if isinstance(row, bytes)])
        return LEAF_ENTRY.size * len(self.rows) + inline


@dataclass(slots=True)
class Inner:
    """``children[0]`` holds keys below ``keys[0]``, ``children[i + 1]`` those from ``keys[i]``."""

    keys: list[int]
    children: list[int]


@dataclass(frozen=True, slots=True)
class Overflow:
    """The first page and the length, in bytes, of a long row."""

    page: int
    length: int


@dataclass(slots=True)
class Chunk:
    """One page of a long row."""

    data: bytes
    next: int = 0


@dataclass(slots=True)
class Free:
    """A page on the list of free pages."""

    next: int = 0


Node = Meta | Leaf | Inner | Chunk | Free


def entry_size(row: bytes | Overflow) -> int:
    """Return the bytes of a leaf that an entry with this row takes."""
    return LEAF_ENTRY.size + (len(row) if isinstance(row, bytes) else 0)


def encode(number: int, node: Node) -> bytes:
    """Return the page of a node, checksum included."""
    kind, count, link, body = _ENCODERS[type(node)](node)
    assert len(body) <= BODY_SIZE, "a node larger than its page"
    body = body.ljust(BODY_SIZE, b"\0")
    crc = crc32(LINK.pack(link), crc32(CHECKED.pack(number, kind, count)))
    return HEAD.pack(kind, count, crc32(body, crc), link) + body


def decode(number: int, page: bytes) -> Node:
    """Return the node in a page. Raises `CorruptLogError`."""
    if len(page) != PAGE_SIZE:
        raise damaged_page(number, PAGE_SIZE, f"{PAGE_SIZE} bytes", f"{len(page)} bytes")
    kind, count, stored, link = HEAD.unpack_from(page)
    covered = crc32(CHECKED.pack(number, kind, count))
    if page[1] or crc32(memoryview(page)[_LINK:], covered) != stored:
        raise damaged_page(number, PAGE_SIZE, "its checksum", "another")
    try:
        return _DECODERS[kind](page, count, link)
    except (KeyError, struct.error, ValueError) as error:
        found = f"kind {kind} with {count} entries"
        raise damaged_page(number, PAGE_SIZE, "a node", found) from error


def _encode_meta(node: Meta) -> tuple[int, int, int, bytes]:
    body = META.pack(node.page_count, node.first_free, node.catalogue, node.store_id, node.mark)
    return PageKind.META, 0, 0, body


def _encode_leaf(node: Leaf) -> tuple[int, int, int, bytes]:
    rows, places = node.rows, [0] * len(node.rows)
    lengths = [len(row) if isinstance(row, bytes) else row.length for row in rows]
    bodies = [row for row in rows if isinstance(row, bytes)]
    if len(bodies) < len(rows):
        places = [0 if isinstance(row, bytes) else row.page for row in rows]
    entries = map(LEAF_ENTRY.pack, node.keys, lengths, places)
    return PageKind.LEAF, len(node.keys), node.next, b"".join([*entries, *bodies])


def _encode_inner(node: Inner) -> tuple[int, int, int, bytes]:
    pairs = zip(node.keys, node.children[1:], strict=True)
    body = b"".join(INNER_ENTRY.pack(key, child) for key, child in pairs)
    return PageKind.INNER, len(node.keys), node.children[0], body


def _encode_chunk(node: Chunk) -> tuple[int, int, int, bytes]:
    return PageKind.OVERFLOW, len(node.data), node.next, node.data


def _encode_free(node: Free) -> tuple[int, int, int, bytes]:
    return PageKind.FREE, 0, node.next, b""


def _decode_meta(page: bytes, _count: int, _link: int) -> Meta:
    return Meta(*META.unpack_from(page, HEAD.size))


def _decode_leaf(page: bytes, count: int, link: int) -> Leaf:
    end = HEAD.size + count * LEAF_ENTRY.size
    if end > PAGE_SIZE:
        raise ValueError("more entries than fit")
    leaf = Leaf(next=link)
    for key, length, overflow in LEAF_ENTRY.iter_unpack(page[HEAD.size : end]):
        leaf.keys.append(key)
        if overflow:
            if length > ROW_MAX:
                raise ValueError("a row longer than any")
            leaf.rows.append(Overflow(overflow, length))
            continue
        if end + length > PAGE_SIZE:
            raise ValueError("a row reaches beyond its page")
        leaf.rows.append(page[end : end + length])
        end += length
    return leaf


def _decode_inner(page: bytes, count: int, link: int) -> Inner:
    end = HEAD.size + count * INNER_ENTRY.size
    if end > PAGE_SIZE:
        raise ValueError("more entries than fit")
    pairs = list(INNER_ENTRY.iter_unpack(page[HEAD.size : end]))
    return Inner([key for key, _ in pairs], [link, *(child for _, child in pairs)])


def _decode_chunk(page: bytes, count: int, link: int) -> Chunk:
    if count > BODY_SIZE:
        raise ValueError("more data than fits")
    return Chunk(page[HEAD.size : HEAD.size + count], link)


def _decode_free(_page: bytes, _count: int, link: int) -> Free:
    return Free(link)


_ENCODERS: dict[type, Callable[[Any], tuple[int, int, int, bytes]]] = {
    Meta: _encode_meta,
    Leaf: _encode_leaf,
    Inner: _encode_inner,
    Chunk: _encode_chunk,
    Free: _encode_free,
}
_DECODERS: dict[int, Callable[[bytes, int, int], Node]] = {
    PageKind.META: _decode_meta,
    PageKind.LEAF: _decode_leaf,
    PageKind.INNER: _decode_inner,
    PageKind.OVERFLOW: _decode_chunk,
    PageKind.FREE: _decode_free,
}
