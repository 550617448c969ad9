"""Files of which parts are of another time: copied while the engine wrote, or put back in part.

In: databases of H2 in which a page is another one. Out: the answers. The engine does not open such
a file, or opens an older one without a word (tests/interop/differential).
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tallystick.records import Answer
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import Trunk
from tallystick.systems.h2.format.numbers import decode_var_int
from tallystick.systems.h2.format.table_pages import FIELDS_START
from tallystick.systems.h2.reader import H2Reading
from tests.systems.h2.kit import opened
from tests.systems.h2.verdict.test_damage import base, reading

CLOSED = "clean-512"


def page_of(data: bytearray, kind: int) -> tuple[int, bytearray, int]:
    """The last page of a type, its bytes, and where the fields after its id begin."""
    pages = opened(bytes(data)).pages
    assert pages is not None
    number = [*pages.of_type(kind)][-1]
    page = bytearray(pages.page(number))
    return number, page, decode_var_int(page, FIELDS_START)[1]


def with_page(data: bytearray, number: int, page: bytearray, tmp_path: Path) -> H2Reading:
    size = len(page)
    data[number * size : (number + 1) * size] = layout.seal(page, number)
    return reading(bytes(data), tmp_path)


def problem_of(one: H2Reading) -> str:
    assert (one.judgement.answer, one.judgement.reason) == (Answer.CANNOT_TELL, "damaged")
    (found,) = (one for one in one.findings() if one.code == "table-page-damaged")
    return found.message


def test_a_node_that_counts_other_rows_than_are_below_it_is_damage(tmp_path: Path) -> None:
    """Of the catalogue it keeps 1.3.176 from opening: "rowcount remaining=-1 SYS"."""
    data = base(CLOSED)
    number, page, at = page_of(data, layout.DATA_NODE)
    (count,) = struct.unpack_from(">i", page, at)
    struct.pack_into(">i", page, at, count + 1)
    text = problem_of(with_page(data, number, page, tmp_path))
    assert f"it counts {count + 1} rows, and {count} are below it" in text


def test_a_node_that_does_not_know_its_rows_is_as_a_kill_leaves_it(tmp_path: Path) -> None:
    data = base(CLOSED)
    number, page, at = page_of(data, layout.DATA_NODE)
    struct.pack_into(">i", page, at, -1)
    assert with_page(data, number, page, tmp_path).judgement.answer is Answer.SAFE


@pytest.mark.parametrize(("more", "text"), [(1, "entries"), (-1, "-1 entries")])
def test_an_index_of_another_time_than_its_table_is_damage(
    more: int, text: str, tmp_path: Path
) -> None:
    data = base(CLOSED)
    number, page, at = page_of(data, layout.BTREE_LEAF | layout.LAST)
    (count,) = struct.unpack_from(">h", page, at)
    struct.pack_into(">h", page, at, count + more)
    assert text in problem_of(with_page(data, number, page, tmp_path))


def test_a_tree_without_end_is_damage_and_no_error(tmp_path: Path) -> None:
    """Of an index: nodes with one child each, more of them than Python can go down."""
    data = bytes(base(CLOSED))
    number, root, at = page_of(bytearray(data), layout.BTREE_LEAF | layout.LAST)
    size, first = len(root), len(data) // len(root)
    pages = bytearray(data)
    for place in range(2000):
        own = first + place - 1 if place else number
        page = bytearray(root[:at].ljust(size, b"\0"))
        page[0] = layout.BTREE_NODE
        above = 0 if place == 0 else number if place == 1 else own - 1
        struct.pack_into(">i", page, layout.PARENT_OFFSET, above)
        struct.pack_into(">ihi", page, at, -1, 0, first + place)
        if place:
            pages += layout.seal(page, own)
        else:
            pages[number * size : (number + 1) * size] = layout.seal(page, own)
    one = reading(bytes(pages), tmp_path)
    assert one.judgement.answer is Answer.CANNOT_TELL
    assert "does not end" in " ".join(found.message for found in one.findings())


@pytest.mark.parametrize("later", [1, 7])
def test_a_page_of_a_later_log_than_the_header_leads_to_is_told(later: int, tmp_path: Path) -> None:
    data = bytes(base("committed-512"))
    pages = opened(data).pages
    assert pages is not None
    header = pages.headers()[0]
    assert header is not None
    number, key = pages.page_count, header.log_key + later
    data += layout.encode_trunk(Trunk(number, 0, key, 0, (number + 1,)), pages.page_size)
    data += layout.encode_data(number + 1, number, key, b"\2", pages.page_size)
    one = reading(data, tmp_path).judgement
    assert (one.answer, one.reason) == (Answer.CANNOT_TELL, "later-log")
    assert f"Page {number} is of a later log" in one.text


def test_pages_of_an_earlier_log_are_left_where_they_are(tmp_path: Path) -> None:
    data = bytes(base("committed-512"))
    pages = opened(data).pages
    assert pages is not None
    number = pages.page_count
    data += layout.encode_trunk(Trunk(number, 0, 0, 0, (number + 1,)), pages.page_size)
    data += layout.encode_data(number + 1, number, 0, b"\2", pages.page_size)
    assert reading(data, tmp_path).judgement.answer is Answer.SAFE
