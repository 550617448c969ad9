"""Pages of tables, and what a prepare says: byte for byte."""

from __future__ import annotations

import struct

import pytest

from tallystick.systems.h2.format.entries import encode_prepare
from tallystick.systems.h2.format.layout import LAST
from tallystick.systems.h2.format.table_pages import (
    DataLeaf,
    DataNode,
    decode_index_children,
    decode_leaf,
    decode_node,
)


def page(kind: int, text: str) -> bytes:
    """A page of a kind: 7 bytes, and the fields."""
    return bytes((kind,)) + bytes(6) + bytes.fromhex(text)


LEAF = "8101 03 0002 00000009  07 ffff 8801 0020"
NODE = "8101 00000005 0002 00000009  00000003 07 00000004 8801"
INDEX = "00000005 0002 00000009  00000003 0011 00000004 0022"


@pytest.mark.parametrize(("kind", "overflow"), [(1, 9), (1 | LAST, 0)])
def test_a_leaf_has_its_keys_and_where_their_rows_are(kind: int, overflow: int) -> None:
    raw = page(kind, LEAF if overflow else LEAF.replace("00000009", ""))
    assert decode_leaf(raw) == DataLeaf(raw, 3, overflow, [7, 136], [65535, 32])


def test_a_node_has_a_child_more_than_keys() -> None:
    assert decode_node(page(2, NODE)) == DataNode([7, 136], [3, 4, 9], 5)
    unknown = page(2, NODE.replace("00000005", "ffffffff"))
    assert decode_node(unknown).row_count == -1


def test_an_index_node_has_a_child_more_than_rows() -> None:
    assert decode_index_children(bytes.fromhex("0000" + INDEX), 2) == (3, 4, 9)


def test_pages_that_are_cut_or_count_below_nothing_are_errors() -> None:
    errors = (IndexError, struct.error)
    for raw in (page(1, LEAF), page(2, NODE)):
        for cut in range(7, len(raw)):
            with pytest.raises(errors):
                (decode_leaf if raw[0] == 1 else decode_node)(raw[:cut])
    index = bytes.fromhex(INDEX)
    for cut in range(len(index) - 2):  # the last row's own place is not read
        with pytest.raises(errors):
            decode_index_children(index[:cut], 0)
    with pytest.raises(errors):
        decode_leaf(page(1, LEAF.replace("0002", "ffff", 1)))
    with pytest.raises(errors):
        decode_index_children(bytes.fromhex(INDEX.replace("0002", "ffff")), 0)


def test_a_prepare_names_its_session_and_its_transaction() -> None:
    assert encode_prepare(300, "X\u00e9").hex() == "03ac020258c329"
