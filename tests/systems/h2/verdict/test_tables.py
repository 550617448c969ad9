"""Damage to what the engine keeps without a checksum: large objects, rows of pages, the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.records import Answer
from tallystick.systems.h2.engine.catalog import contradictions
from tallystick.systems.h2.engine.large_objects import Blocks, hash_of
from tallystick.systems.h2.engine.opening import (
    SYNTAX_ERROR,
    EngineResult,
    Opening,
    _check_catalog,
)
from tallystick.systems.h2.engine.redo import Redo
from tallystick.systems.h2.engine.tables import (
    INDEX_KIND,
    TABLE_KIND,
    MetaRow,
    Tables,
    UndonePages,
)
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import (
    TABLE_META,
    encode_add,
    encode_commit,
    encode_remove,
    encode_truncate,
)
from tallystick.systems.h2.format.numbers import encode_var_int
from tallystick.systems.h2.format.table_pages import decode_leaf
from tallystick.systems.h2.format.values.encode import Plain, encode_row
from tallystick.systems.h2.format.values.types import Value
from tallystick.systems.h2.reader import H2Reading
from tests.fixtures import fixture_dir
from tests.systems.h2.kit import opened, reading_of
from tests.systems.h2.verdict.test_damage import base, codes, reading, with_log

LOB_MAP, LOB_DATA, TABLE = 6, 10, 16
BYTES = bytes(range(256)) * 3
COMMIT = encode_commit(3)


def block(data: bytes, key: int = 7) -> bytes:
    return encode_add(3, LOB_DATA, key, encode_row([key, 0, data]))


def entry(found: int, key: int = 7) -> bytes:
    return encode_add(3, LOB_MAP, key, encode_row([1, key, 0, found, key]))


WHOLE = block(BYTES) + entry(hash_of(BYTES))
OTHER = block(BYTES[1:] + b"x") + entry(hash_of(BYTES))
CHANGED = encode_remove(3, LOB_DATA, 7) + block(b"new")


def test_hash_is_that_of_java() -> None:
    assert hash_of(b"") == 1
    assert hash_of(b"\x01\x02\xff") == 31 * (31 * (31 + 1) + 2) - 1
    assert hash_of(bytes(1000)) == (31**1000 + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize(
    ("body", "damaged"),
    [
        (WHOLE + COMMIT, False),
        (OTHER + COMMIT, True),
        (OTHER, False),  # never committed
        (block(BYTES) + entry(hash_of(BYTES), key=8) + COMMIT, False),  # another block's
        (WHOLE + CHANGED + COMMIT, True),
        (WHOLE + COMMIT + CHANGED, False),
        (OTHER + encode_truncate(3, LOB_DATA) + block(BYTES) + COMMIT, False),
    ],
)
def test_block_of_a_large_object_is_held_against_its_hash(
    body: bytes, damaged: bool, tmp_path: Path
) -> None:
    one = with_log(body, tmp_path)
    assert ("large-object-damaged" in codes(one)) is damaged
    assert (one.verdict().judgement.reason == "damaged") is damaged


@pytest.mark.parametrize("values", [[], [7], [7, 0]])
@pytest.mark.parametrize("table", [LOB_DATA, LOB_MAP])
def test_row_of_large_objects_with_too_few_values_is_damage(
    table: int, values: list[Plain], tmp_path: Path
) -> None:
    body = WHOLE + encode_remove(3, table, 7) + encode_add(3, table, 7, encode_row(values))
    assert with_log(body + COMMIT, tmp_path).verdict().judgement.answer is not Answer.SAFE


def test_block_of_a_large_object_that_is_a_text_is_damage(tmp_path: Path) -> None:
    """The text is no hexadecimal one, as that of a binary value is."""
    text = encode_add(3, LOB_DATA, 7, encode_row([7, 0, "no block"]))
    one = with_log(WHOLE + encode_remove(3, LOB_DATA, 7) + text + COMMIT, tmp_path)
    assert "large-object-damaged" in codes(one)
    assert one.verdict().judgement.answer is not Answer.SAFE


CLOB_IN_T = encode_remove(3, 0, TABLE) + encode_add(
    3, 0, TABLE, encode_row([TABLE, 0, 0, "CREATE CACHED TABLE PUBLIC.T(ID INT, NAME CLOB)"])
)
STORED = bytes.fromhex("10fdffffff0f100103")
"""A value: the large object 1 of table 16, 3 letters."""
NAMED = encode_add(3, TABLE, 77, bytes((2,)) + encode_row([77])[1:] + STORED)


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        (WHOLE + NAMED + COMMIT, ()),
        (NAMED + COMMIT, (1,)),
        (block(BYTES) + NAMED + COMMIT, (1,)),  # which blocks it has is not known
        (entry(hash_of(BYTES)) + NAMED + COMMIT, (1,)),
        (WHOLE + entry(hash_of(BYTES), key=8) + NAMED + COMMIT, (1,)),  # one of two
        (WHOLE + NAMED + encode_remove(3, LOB_MAP, 7) + COMMIT, (1,)),
        (NAMED + encode_remove(3, TABLE, 77) + COMMIT, ()),
        (COMMIT + NAMED, ()),  # never committed
    ],
)
def test_large_objects_that_rows_name_are_looked_for(
    body: bytes, missing: tuple[int, ...], tmp_path: Path
) -> None:
    """As in a copy whose pages are of two times: H2 1.4.200 opens it and fails at such rows."""
    one = with_log(CLOB_IN_T + body, tmp_path)
    assert isinstance(one._result, EngineResult)
    assert one._result.opening.missing_objects == missing
    assert ("large-object-damaged" in codes(one)) is bool(missing)
    assert (one.verdict().judgement.reason == "damaged") is bool(missing)


@pytest.mark.parametrize(
    ("gone", "missing"), [((), []), ((LOB_MAP, 2), [2]), ((LOB_DATA, 1), [2]), ((15, 4), [])]
)
def test_large_objects_that_rows_on_pages_name_are_looked_for(
    gone: tuple[int, int] | tuple[()], missing: list[int]
) -> None:
    result = reading_of(fixture_dir("typed") / "h-reopened/x.h2.db")._result
    assert isinstance(result, EngineResult)
    assert result.redo is not None
    removed = [one for one in result.redone() if (one.table, one.key) == gone]
    tables, names = result.redo.tables, result.opening.tables.names
    redo = Redo(tables, result.redo.stream, result.redo.zone, {})
    for one in removed:
        redo.apply(one)
    blocks = Blocks(tables, (), names, removed)
    assert blocks.missing(redo.stored_objects(removed)) == missing


INSTANT, NUMBER = bytes((24, 0, 0, 0)), bytes((39,))
"""A value of a type that 1.3.176 does not know, and one that every version knows."""


@pytest.mark.parametrize(
    ("value", "whole", "answer"),
    [
        (NUMBER, False, Answer.REFUSES),
        (INSTANT, True, Answer.REFUSES),
        (INSTANT, False, Answer.CANNOT_TELL),  # 1.3.176 opened such a file without what follows
    ],
)
@pytest.mark.parametrize("table", [0, TABLE])
def test_error_after_damage_that_versions_read_differently_proves_no_refusal(
    value: bytes, whole: bool, answer: Answer, table: int, tmp_path: Path
) -> None:
    row = bytes((3, 71)) + b"new" + value + NUMBER + (b"" if whole else b"\0\0")
    missing = encode_add(4, 99, 1, encode_row([1])) + encode_commit(4)
    one = with_log(encode_add(3, table, 5, row) + missing, tmp_path)
    assert "table not found" in one.verdict().engine["recovery"]["error"]
    assert one.verdict().judgement.answer is answer


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (bytes((26, 18, 0)), Answer.CANNOT_TELL),  # an interval of no kind: 1.3.176 opened it
        (bytes((24, 0, 0, 0, 12)) + encode_var_int(-1), Answer.CANNOT_TELL),
        (bytes((12,)) + encode_var_int(-1), Answer.REFUSES),
    ],
)
def test_error_of_a_value_that_versions_read_differently_proves_no_refusal(
    value: bytes, answer: Answer, tmp_path: Path
) -> None:
    one = with_log(encode_add(3, TABLE, 5, bytes((2,)) + value) + COMMIT, tmp_path)
    assert not one.verdict().engine["recovery"]["opened"]
    assert one.verdict().judgement.answer is answer


# -- rows of a page -------------------------------------------------------------------------------


def leaf_of(data: bytes) -> int:
    """Return the page with the rows of the table."""
    file = opened(data)
    assert file.pages is not None
    tables = Tables(UndonePages(file.pages), file.zone)
    tables.open_meta()
    return tables.meta[TABLE].root


def damaged_leaf(change: Callable[[bytearray], object], tmp_path: Path) -> H2Reading:
    data = base("clean-512")
    page = leaf_of(bytes(data))
    part = data[page * 512 : page * 512 + 512]
    change(part)
    data[page * 512 : page * 512 + 512] = part
    return reading(bytes(data), tmp_path)


def swapped_keys(page: bytearray) -> None:
    """Let the first two keys change places."""
    first, second = decode_leaf(bytes(page)).keys[:2]
    at = page.index(bytes((first,)), 11)
    other = page.index(bytes((second,)), at + 3)
    page[at], page[other] = second, first


def unknown_type(page: bytearray) -> None:
    page[decode_leaf(bytes(page)).offsets[1]] = 0xC8


def longer_text(page: bytearray) -> None:
    """Let the text of a row reach into the row after it."""
    leaf = decode_leaf(bytes(page))
    begin, end = leaf.offsets[1], leaf.offsets[0]
    at = next(at for at in range(begin, end) if 68 <= page[at] < 100)
    page[at] += 1


def other_letter(page: bytearray) -> None:
    page[decode_leaf(bytes(page)).offsets[0] - 1] ^= 1


@pytest.mark.parametrize("change", [swapped_keys, unknown_type, longer_text])
def test_page_whose_rows_do_not_fit_is_damaged(
    change: Callable[[bytearray], object], tmp_path: Path
) -> None:
    one = damaged_leaf(change, tmp_path)
    assert "table-page-damaged" in codes(one)
    assert one.verdict().judgement.answer is Answer.CANNOT_TELL


def test_value_that_was_altered_cannot_be_seen(tmp_path: Path) -> None:
    assert damaged_leaf(other_letter, tmp_path).verdict().judgement.answer is Answer.SAFE


# -- statements of the catalog --------------------------------------------------------------------

CREATE = 'CREATE CACHED TABLE "T"(\n    "A" INT)'


@pytest.mark.parametrize(
    ("sql", "error", "odd"),
    [
        (CREATE, 0, False),
        (CREATE.replace("\n    ", "\0\0\0\x01 "), 0, True),  # H2 opened it and lost nothing
        (CREATE.replace('"A', '"A\0'), 0, False),  # inside a name
        (CREATE.replace("\n", "\r\n\t"), 0, False),
        (CREATE.replace('A"', "A"), SYNTAX_ERROR, False),
        (CREATE.replace('A"', "A --"), 0, True),  # a comment begins, perhaps outside of the quotes
    ],
)
def test_statement_of_the_catalog_is_refused_only_where_no_parser_takes_it(
    sql: str, error: int, odd: bool
) -> None:
    opening = Opening(catalog={16: (None, None, None, Value("VARCHAR", sql))})
    _check_catalog(opening)
    assert (opening.error_code, bool(opening.odd_sql)) == (error, odd)


# -- pages of indexes, and pages that the file does not have -------------------------------------


def test_page_of_an_index_with_another_parent_is_damaged(tmp_path: Path) -> None:
    data = base("clean-512")
    file = opened(bytes(data))
    assert file.pages is not None
    tables = Tables(UndonePages(file.pages), file.zone)
    tables.open_meta()
    page = next(one.root for one in tables.meta.values() if one.kind == INDEX_KIND and one.root)
    part = data[page * 512 : page * 512 + 512]
    part[layout.PARENT_OFFSET + 3] = 9
    data[page * 512 : page * 512 + 512] = layout.seal(part, page)
    one = reading(bytes(data), tmp_path)
    assert "table-page-damaged" in codes(one)
    assert one.verdict().judgement.answer is Answer.CANNOT_TELL


# -- the free list --------------------------------------------------------------------------------

PAGE = 512
LISTED = (PAGE - layout.FREE_LIST_START) * 8
"""Pages that one page of the free list is about."""


def with_second_list(data: bytearray, content: bytes) -> bytes:
    """Return the file, grown to where the second page of the free list begins."""
    second = layout.FREE_LIST_ROOT + LISTED
    data += bytes(PAGE * (second + 1) - len(data))
    data[second * PAGE :] = content.ljust(PAGE, content[-1:])
    return bytes(data)


@pytest.mark.parametrize(
    ("content", "damaged"),
    [
        (b"\0", False),  # never written
        (b"J", True),  # H2 1.3.176: wrong checksum, before it first writes
        (
            bytes(layout.seal(bytearray((layout.FREE_LIST, 0, 0, 1)).ljust(PAGE, b"\0"), 4075)),
            False,
        ),
        (bytes(layout.seal(bytearray((layout.DATA_LEAF,)).ljust(PAGE, b"\0"), 4075)), True),
    ],
)
def test_every_page_of_the_free_list_must_be_one(
    content: bytes, damaged: bool, tmp_path: Path
) -> None:
    one = reading(with_second_list(base("clean-512"), content), tmp_path)
    assert ("table-page-damaged" in codes(one)) is damaged
    assert (one.verdict().judgement.answer is Answer.CANNOT_TELL) is damaged


@pytest.mark.parametrize("kind", [TABLE_KIND, INDEX_KIND])
@pytest.mark.parametrize("zeroed", [False, True])
def test_page_in_use_that_the_free_list_calls_free_is_not_safe(
    kind: int, zeroed: bool, tmp_path: Path
) -> None:
    """The engine gives such a page to other rows, and zeroes it at its next checkpoint."""
    data = base("clean-512")
    file = opened(bytes(data))
    assert file.pages is not None
    tables = Tables(UndonePages(file.pages), file.zone)
    tables.open_meta()
    root = next(one.root for one in tables.meta.values() if one.kind == kind and one.root)
    begin = PAGE * layout.FREE_LIST_ROOT
    page = bytearray(PAGE) if zeroed else data[begin : begin + PAGE]
    if not zeroed:
        at = root - layout.FREE_LIST_ROOT
        page[layout.FREE_LIST_START + (at >> 3)] ^= 1 << (at & 7)
    data[begin : begin + PAGE] = page if zeroed else layout.seal(page, layout.FREE_LIST_ROOT)
    one = reading(bytes(data), tmp_path)
    assert "table-page-damaged" in codes(one)
    assert one.verdict().judgement.answer is Answer.CANNOT_TELL


@pytest.mark.parametrize(("root", "damaged"), [(9_999, True), (8, False)])
def test_table_whose_root_page_the_file_does_not_have_is_not_safe(
    root: int, damaged: bool, tmp_path: Path
) -> None:
    """H2 1.3.176 does not open a file that was cut before such a page."""
    row = encode_row([77, 0, 77, root, "OFF,0,,", "0"])
    one = with_log(encode_add(3, TABLE_META, 78, row) + COMMIT, tmp_path)
    assert ("table-page-damaged" in codes(one)) is damaged


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (encode_row(["x"])[1:], Answer.REFUSES),
        (bytes((65,)), Answer.CANNOT_TELL),  # true, which is 1
        (bytes((101, 0xAB)), Answer.CANNOT_TELL),  # a byte
    ],
)
def test_value_of_the_page_index_that_versions_convert_proves_no_refusal(
    value: bytes, answer: Answer, tmp_path: Path
) -> None:
    row = bytes((6,)) + value + encode_row([0, 78, 8, "OFF,0,,", "0"])[1:]
    one = with_log(encode_add(3, TABLE_META, 78, row) + COMMIT, tmp_path)
    assert not one.verdict().engine["recovery"]["opened"]
    assert one.verdict().judgement.answer is answer


@pytest.mark.parametrize(
    ("items", "answer", "code"),
    [
        ([7, 0, 7], Answer.REFUSES, "does-not-open"),
        ([], Answer.REFUSES, "does-not-open"),
        ([7, 0, 7, None, "", "0"], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 0, 7, "x", "", "0"], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 0, 7, -9, "", "0"], Answer.CANNOT_TELL, "table-page-damaged"),
        ([7, 0, 7, 8, "OFF,0,,", "0"], Answer.SAFE, None),
        ([7, 1, 16, 8, "OFF,0,,", "0"], Answer.SAFE, None),
        ([7, 1, 7, 8, "OFF,0,,", "0"], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 0, 16, 8, "OFF,0,,", "0"], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 0, 7, 8, "ENGLISH,2,temp,,true,false", "0/1,2"], Answer.SAFE, None),
        ([7, 1, 16, 0, "OFF,0,,d,true", "0"], Answer.SAFE, None),
        ([7, 1, 16, 8, "OFF,0,,d,true", "0"], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 1, 16, 0, "OFF,0,,,true", "0"], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 0, 7, 0, "OFF,0,,d,true", "0"], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 0, 7, 8, "OFF,0,,"], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 0, 7, 8, "OFF,0,,", "0", 9], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 3, 7, 8, "OFF,0,,", "0"], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 0, 7, 8, "OFF,x,,", "0"], Answer.CANNOT_TELL, "catalog-damaged"),
        ([7, 0, 7, 8, "OFF,0,,", "0;1"], Answer.CANNOT_TELL, "catalog-damaged"),
    ],
)
def test_row_of_the_page_index_is_taken_before_it_is_committed(
    items: list[Plain], answer: Answer, code: str | None, tmp_path: Path
) -> None:
    """H2 1.4.200 and 1.3.176 do not open a row without a fourth column, of any session."""
    one = with_log(encode_add(3, TABLE_META, 78, encode_row(items)) + encode_commit(4), tmp_path)
    found = one.verdict().judgement
    assert found.answer is answer, found
    assert code is None or code in codes(one)


@pytest.mark.parametrize("odd", [[None, 0, -1, 8], [77, None, -1, 8], [77, 0, -1, " 8 "]])
def test_row_of_the_page_index_that_the_engine_reads_all_the_same_is_not_refused(
    odd: list[Plain], tmp_path: Path
) -> None:
    """H2 1.4.200 and 1.3.176 take null for 0, trim a text, and open the first of these."""
    row = encode_row([*odd, "OFF,0,,", "0"])
    one = with_log(encode_add(3, TABLE_META, 78, row) + COMMIT, tmp_path)
    assert one.verdict().judgement.answer is Answer.CANNOT_TELL
    assert "catalog-damaged" in codes(one)


def test_row_of_a_session_that_no_engine_has_is_damaged(tmp_path: Path) -> None:
    """Bytes of 0xFF after the type of a row: one key swallows the rows that stood there."""
    row = encode_add(-1, 77, -1, encode_row([1]))
    one = with_log(row + COMMIT, tmp_path)
    assert "damaged-row" in codes(one)
    assert one.verdict().judgement.answer is Answer.CANNOT_TELL


# -- the catalog against the page index -----------------------------------------------------------

TABLE_17 = MetaRow(17, TABLE_KIND, 17, 40, columns=2)
INDEX_18 = MetaRow(18, INDEX_KIND, 17, 41, 1, 1)
KEYS_19 = MetaRow(19, INDEX_KIND, 17, 0, 0, 1)


def statement(index: int, kind: int, sql: str) -> tuple[Value | None, ...]:
    numbers = (Value("INTEGER", str(one)) for one in (index, 0, kind))
    return (*numbers, Value("VARCHAR", sql))


CACHED = statement(17, 0, "CREATE CACHED TABLE T(ID INT)")
ON_V = statement(18, 1, "CREATE INDEX IX ON T(V)")
OWN_KEYS = statement(19, 1, "CREATE PRIMARY KEY P ON T(ID)")
VIEW = statement(30, 0, "CREATE FORCE VIEW V AS SELECT 1")
ALSO_18 = statement(18, 5, "ALTER TABLE T ADD CONSTRAINT C")
MEMORY = statement(17, 0, "CREATE MEMORY TABLE T(ID INT)")
LINKED = statement(30, 0, "CREATE LINKED TABLE L")


@pytest.mark.parametrize(
    ("meta", "catalog", "said"),
    [
        ([TABLE_17, INDEX_18, KEYS_19], [CACHED, ON_V, OWN_KEYS, VIEW], ""),
        ([TABLE_17, INDEX_18], [ON_V], "table 17 has no statement"),
        ([replace(TABLE_17, temporary=True)], [], ""),
        ([], [CACHED], "table 17 has no pages"),
        ([TABLE_17, INDEX_18], [CACHED], "index 18 has no statement"),
        ([TABLE_17], [CACHED, ON_V], "index 18 has no pages"),
        ([TABLE_17], [MEMORY, ON_V], ""),
        ([TABLE_17], [CACHED, LINKED, ON_V], ""),
        (
            [TABLE_17, INDEX_18],
            [CACHED, ON_V, ALSO_18],
            "id 18",
        ),
        ([TABLE_17, replace(KEYS_19, root=40)], [CACHED, OWN_KEYS], "page 40 is the root of two"),
        ([replace(TABLE_17, root=50)], [CACHED], "page 50 is the root"),
        ([replace(TABLE_17, root=4)], [CACHED], "page 4 is the root"),
        ([INDEX_18], [ON_V], "index 18 is of table 17"),
        ([INDEX_18, replace(KEYS_19, parent=18)], [ON_V, OWN_KEYS], "index 19 is of table 18"),
        ([], [statement(9, 6, "ALTER TABLE T")], "a row of the catalog"),
        ([], [statement(9, 7, "CREATE ROLE R")], ""),
        ([], [VIEW[:3]], "a row of the catalog"),
        ([], [(None, *VIEW[1:])], "a row of the catalog"),
    ],
)
def test_catalog_and_page_index_have_the_same_tables(
    meta: list[MetaRow], catalog: list[tuple[Value | None, ...]], said: str
) -> None:
    found = list(contradictions({row.index: row for row in meta}, catalog, {50}))
    assert bool(found) is bool(said)
    assert not said or any(said in one for one in found)


def test_statement_that_is_removed_without_its_table_is_damage(tmp_path: Path) -> None:
    """Of H2's record of the removal of the table one bit of its session had been flipped."""
    row = encode_row([77, 0, 77, 8, "OFF,0,,", "0"])
    one = with_log(encode_add(3, TABLE_META, 78, row) + COMMIT, tmp_path)
    assert "catalog-damaged" in codes(one)
    assert one.verdict().judgement.answer is Answer.CANNOT_TELL


def test_key_of_the_page_index_is_that_of_its_row(tmp_path: Path) -> None:
    row = encode_row([77, 0, 77, 8, "OFF,0,temp,", "0"])
    found = [
        "damaged-row" in codes(with_log(encode_add(3, TABLE_META, key, row) + COMMIT, tmp_path))
        for key in (78, 79)
    ]
    assert found == [False, True]


def test_index_of_a_table_that_is_not_there_ends_redo(tmp_path: Path) -> None:
    row = encode_row([77, 1, 76, 8, "OFF,0,,", "0"])
    result = with_log(encode_add(3, TABLE_META, 78, row) + COMMIT, tmp_path)._result
    assert isinstance(result, EngineResult)
    assert result.opening.partial.endswith("table not found: 76")


@pytest.mark.parametrize("case", ["h-dc2", "h-clob", "h-ts-1.3.176"])
def test_a_database_that_is_killed_before_its_first_checkpoint_is_safe(case: str) -> None:
    """Its free list and the root of its page index are zeros, as the log says they were."""
    reading = reading_of(fixture_dir("typed") / case)
    assert (reading.judgement.answer, reading.judgement.reason) == (Answer.SAFE, "flushed-end")
    assert reading.findings() == []
