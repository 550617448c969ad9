"""Pages of tables: data leaves and data nodes.

In: a page. Out: its keys, and the offsets of its rows or its children.

    data leaf      table id vI, column count vI, entry count i2, first overflow page i4 unless it
                   is the last page of its rows, then (key vL, offset i2) per entry; rows at offsets
    data node      table id vI, row count i4, entry count i2, rightmost child i4,
                   then (child i4, key vL) per entry
    index node     index id vI, row count i4, entry count i2, rightmost child i4,
                   then (child i4, offset of its row i2) per entry
    data overflow  next page i4 and bytes to the end, or (last) byte count i2 and bytes
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.numbers import decode_var_int, decode_var_long

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
FIELDS_START = layout.PAGE_HEADER.size


@dataclass(slots=True)
class DataLeaf:
    """A data leaf: keys and the offsets of their rows; ``end`` is that of its entries."""

    page: bytes | memoryview
    columns: int
    overflow: int
    keys: list[int]
    offsets: list[int]
    end: int = field(default=0, compare=False)


@dataclass(slots=True)
class DataNode:
    """A data node: one child more than keys; a negative ``row_count`` is unknown."""

    keys: list[int]
    children: list[int]
    row_count: int


def decode_leaf(page: bytes | memoryview) -> DataLeaf:
    """Decode a data leaf.

    Raises:
        IndexError: the page ends too early.
        struct.error: the same.
    """
    _, at = decode_var_int(page, FIELDS_START)
    columns, at = decode_var_int(page, at)
    (count,) = _SHORT.unpack_from(page, at)
    if count < 0:
        raise IndexError
    at += 2
    overflow = 0
    if not page[0] & layout.LAST:
        (overflow,) = _INT.unpack_from(page, at)
        at += 4
    keys, offsets = [], []
    for _ in range(count):
        key, at = decode_var_long(page, at)
        (offset,) = _SHORT.unpack_from(page, at)
        at += 2
        keys.append(key)
        offsets.append(offset & 0xFFFF)
    return DataLeaf(page, columns, overflow, keys, offsets, at)


def decode_node(page: bytes | memoryview) -> DataNode:
    """Decode a data node; raises as `decode_leaf` does."""
    _, at = decode_var_int(page, FIELDS_START)
    (row_count,) = _INT.unpack_from(page, at)
    (count,) = _SHORT.unpack_from(page, at + 4)
    (rightmost,) = _INT.unpack_from(page, at + 6)
    at += 10
    keys, children = [], []
    for _ in range(count):
        (child,) = _INT.unpack_from(page, at)
        key, at = decode_var_long(page, at + 4)
        children.append(child)
        keys.append(key)
    return DataNode(keys, [*children, rightmost], row_count)


def decode_index_children(page: bytes | memoryview, at: int) -> tuple[int, ...]:
    """Return the children of an index node, of which the fields after the index id are at ``at``.

    Raises:
        IndexError: the page ends too early.
        struct.error: the same.
    """
    (count,) = _SHORT.unpack_from(page, at + 4)
    (rightmost,) = _INT.unpack_from(page, at + 6)
    if count < 0:
        raise IndexError
    first = at + 10
    step = _INT.size + _SHORT.size
    entries = (_INT.unpack_from(page, first + step * number)[0] for number in range(count))
    return (*entries, rightmost)
