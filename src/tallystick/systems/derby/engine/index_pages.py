"""Pages of an index, and whether they lead to each other as one tree.

In: rows of pages. Out: `Node`s by the number of their page.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tallystick.errors import LogFormatError
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.container_pages import (
    CHECKSUM_SIZE,
    read_page_header,
    rows_at,
)
from tallystick.systems.derby.format.page_rows import Field, Row, read_row

UNREADABLE = LogFormatError, struct.error, IndexError, KeyError
"""What reading the rows of a page may raise."""
_LEAF = (133).to_bytes(2)
"""What the first row of an index page begins with, which describes the page."""
_KIND, _LEFT, _RIGHT, _CHILD = 0, 1, 2, 7
"""Fields of that row; the last one is the first page below, if the page is no leaf."""
_ROOT, _NONE = 1, -1
"""The number of an index's first page, and what stands for no page."""

Described = Mapping[int, Field]
"""The first row of an index page: its fields by column."""


class Node(NamedTuple):
    """A page of an index: its neighbours, and the pages below it in their order."""

    left: int
    right: int
    children: tuple[int, ...]


def is_leaf(described: Described) -> bool:
    """Return whether a page of an index that its first row describes is a leaf."""
    return described[_KIND].data == _LEAF


def child_of(row: Row) -> int:
    """Return the page below to which a row of a branch leads."""
    return int.from_bytes(row.fields[-1].data or b"")


def node_of(described: Described, below: Iterable[int]) -> Node:
    """Return a page by its first row, and by the pages to which the others lead."""
    left, right = (int.from_bytes(described[at].data or b"", signed=True) for at in (_LEFT, _RIGHT))
    if is_leaf(described):
        return Node(left, right, ())
    return Node(left, right, (int.from_bytes(described[_CHILD].data or b""), *below))


def rows_of_index(page: memoryview) -> tuple[Described, list[int]] | None:
    """Return the first row of a page, and where its others lead; None of one not in use.

    Raises:
        LogFormatError, struct.error, IndexError: it cannot be read.
    """
    header = read_page_header(page)
    if not header.has_rows or not header.rows:
        return None
    first, *others = rows_at(page)
    data = bytes(page[:-CHECKSUM_SIZE])
    described = dict(enumerate(read_row(Cursor(data, first)).fields))
    if is_leaf(described):
        return described, []
    return described, [child_of(read_row(Cursor(data, at))) for at in others]


def is_tree(nodes: Mapping[int, Node], changed: Collection[int] = ()) -> bool:
    """Return whether pages lead from the first one to each that is in use.

    Of pages that are ``changed`` before the index is used nothing is held against the others: a
    leaf among them may get other neighbours, or be given back. True also where one of these may
    lead to others.
    """
    # What is a leaf stays one: only the first page becomes more, and what is taken anew.
    if _ROOT in changed or any(one not in nodes or nodes[one].children for one in changed):
        return True
    found, row = set[int](), [_ROOT]
    while row:
        for left, number, right in zip((_NONE, *row), row, (*row[1:], _NONE), strict=False):
            node, leads = nodes.get(number), (left, right)
            if number in found or node is None:
                return False
            if number not in changed and (node.left, node.right) != leads:
                return False
            found.add(number)
        row = [child for number in row for child in nodes[number].children]
    return nodes.keys() - found <= set(changed)
