"""What a restart drops without a word: a finding with evidence and next step, commits counted."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.reading.results import headline
from tallystick.records import Answer, Finding, Severity
from tallystick.systems.h2.engine.opening import EngineResult
from tallystick.systems.h2.engine.report import engine_part
from tallystick.systems.h2.engine.tables import Tables, UndonePages
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import (
    TABLE_META,
    encode_add,
    encode_commit,
    encode_remove,
    encode_truncate,
)
from tallystick.systems.h2.format.numbers import encode_var_int
from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.h2.verdict.losses import Loss, lost_with
from tests.fixtures import cases
from tests.systems.h2.kit import fixture
from tests.systems.h2.verdict.test_damage import (
    NEW_ROW,
    TABLE,
    base,
    check_everything,
    flipped,
    reading,
    sealed,
    with_log,
)

SIZE = 512
COMMITS = 34
"""Commits in the log of the fixture committed-512."""
LOST = 23
"""Of these commits those of which the tables lack a row: the engine opens an empty T."""
COMMITS_LISTED = 49
"""The same and those in its dropped section."""
INDEX = 19
"""An index with entries in the fixture reopened-2048."""
EARLY_ENDS = ("header-names-no-log", "header-drops-log", "file-cut-short", "table-page-empty")


def severe(one: H2Reading) -> list[Finding]:
    return [each for each in one.findings() if each.severity in (Severity.LOSS, Severity.DAMAGE)]


def tables_of(one: H2Reading) -> tuple[bytearray, Tables]:
    """Return the bytes of a file and its tables as they are before recovery."""
    result = one._result
    assert isinstance(result, EngineResult)
    assert result.file.pages is not None
    tables = Tables(UndonePages(result.file.pages), result.file.zone)
    tables.open_meta()
    return bytearray(result.file.pages.data), tables


def headers(
    data: bytearray, copies: tuple[int, ...], size: int = SIZE, **changed: int
) -> bytearray:
    """Return the file with these fields in copies of the header, which get a right CRC-32."""
    for copy in copies:
        place = slice(copy * size, (copy + 1) * size)
        found = layout.decode_variable_header(bytes(data[place]))
        assert found is not None
        data[place] = layout.encode_variable_header(replace(found, **changed), size)
    return data


HEADERS: list[dict[str, int]] = [
    {"log_key": 4},
    {"first_trunk": 100_000},
    {"first_trunk": 0},
    {"first_trunk": 4},
    {"first_data": 4},
    {"first_data": 0},
]


@pytest.mark.parametrize("changed", HEADERS, ids=str)
def test_a_header_that_leads_to_no_log_loses_what_the_other_copy_leads_to(
    changed: dict[str, int], tmp_path: Path
) -> None:
    one = reading(bytes(headers(base(), (1,), **changed)), tmp_path)
    (loss,) = severe(one)
    assert loss.code == "header-drops-log"
    assert (loss.offset, loss.severity) == (SIZE, Severity.LOSS)
    assert f"drops {COMMITS} commits" in loss.message
    assert "header page 2 in the place of page 1" in (loss.advice or "")
    assert one.verdict().strict["lost"]["records"] == COMMITS
    assert headline(one.verdict()).endswith(f"silently lose {LOST}.")
    check_everything(one)


@pytest.mark.parametrize(
    ("more", "known"),
    [
        (b"", True),
        (encode_truncate(3, TABLE) + encode_commit(3), False),
        (encode_remove(3, TABLE_META, TABLE + 1) + encode_commit(3), False),
    ],
)
def test_rows_that_were_removed_with_their_table_come_back_uncounted(
    more: bytes, known: bool, tmp_path: Path
) -> None:
    body = more + encode_add(3, TABLE, 77, NEW_ROW) + encode_commit(3)
    whole = with_log(body, tmp_path)._result
    assert isinstance(whole, EngineResult)
    assert whole.file.pages is not None
    one = reading(bytes(headers(bytearray(whole.file.pages.data), (1,), first_data=0)), tmp_path)
    assert one.judgement.answer is Answer.LOSES
    assert (one.judgement.at_stake.rows is not None) is known


@pytest.mark.parametrize("dropped", [True, False])
def test_rows_of_a_table_that_was_made_and_dropped_are_no_loss(
    dropped: bool, tmp_path: Path
) -> None:
    """No restart has anything of it: neither one that reads this log, nor one that does not."""
    made, number = encode_row([999, 0, -1, 300, "OFF,0,,", "0"]), 999
    rows = [(TABLE_META, number + 1, made), (number, 77, NEW_ROW), (number, 78, NEW_ROW)]
    body = b"".join(encode_add(3, *one) + encode_commit(3) for one in rows)
    if dropped:
        body += encode_remove(3, TABLE_META, number + 1) + encode_commit(3)
    whole = with_log(body, tmp_path)._result
    assert isinstance(whole, EngineResult)
    assert whole.file.pages is not None
    one = reading(bytes(headers(bytearray(whole.file.pages.data), (1,), first_data=0)), tmp_path)
    assert (one.judgement.answer is Answer.LOSES) is not dropped
    assert one.judgement.answer is not Answer.SAFE


def test_pages_after_the_end_that_a_flush_has_left_may_be_of_another_log(tmp_path: Path) -> None:
    """A part of a split file of another database: H2 has everything."""
    data = base()
    stream = reading(bytes(data), tmp_path)._result.file.stream  # type: ignore[union-attr]
    assert stream is not None
    pages = stream.chain.trunks[0].data_pages
    last = next(at for at, one in enumerate(pages) if not data[one * SIZE])
    for page in pages[last + 1 : last + 3]:
        source = pages[last - 3] * SIZE
        data[page * SIZE : (page + 1) * SIZE] = data[source : source + SIZE]
        sealed(data, page)
    one = reading(bytes(data), tmp_path)
    assert {found.code for found in severe(one)} == {"log-page-damaged"}
    assert one.judgement.answer is Answer.CANNOT_TELL


@pytest.mark.parametrize(
    ("tables", "lost"), [((2, 6, 10), False), ((2, 6, 10, TABLE), True), ((TABLE,), True)]
)
def test_what_the_engine_alone_has_committed_of_large_objects_is_no_loss(
    tables: tuple[int, ...], lost: bool, tmp_path: Path
) -> None:
    """It stores an object before the row that has it, by commits that it tells nobody of."""
    body = b"".join(encode_add(3, one, 77, NEW_ROW) + encode_commit(3) for one in tables)
    whole = with_log(body, tmp_path)._result
    assert isinstance(whole, EngineResult)
    assert whole.file.pages is not None
    one = reading(bytes(headers(bytearray(whole.file.pages.data), (1,), first_data=0)), tmp_path)
    assert (one.judgement.answer is Answer.LOSES) is lost
    assert one.judgement.answer is not Answer.SAFE


def test_the_copy_that_is_used_is_the_one_that_is_named(tmp_path: Path) -> None:
    one = reading(bytes(flipped(headers(base(), (2,), first_data=4), 600)), tmp_path)
    assert "header page 2 is whole but leads to no log" in severe(one)[1].message


@pytest.mark.parametrize("changed", HEADERS, ids=str)
def test_headers_that_both_lead_to_no_log_are_never_calm(
    changed: dict[str, int], tmp_path: Path
) -> None:
    one = reading(bytes(headers(base(), (1, 2), **changed)), tmp_path)
    (found,) = severe(one)
    listed = "first_data" in changed
    assert found.code == ("header-drops-log" if listed else "header-names-no-log")
    assert one.verdict().strict["lost"]["records"] == (COMMITS_LISTED if listed else 0)
    assert found.advice
    check_everything(one)


def test_a_header_without_a_log_is_no_damage(tmp_path: Path) -> None:
    one = reading(bytes(headers(base(), (1,), first_trunk=0, first_data=0)), tmp_path)
    assert not severe(one)


def next_trunk(trunk: int, following: int) -> bytearray:
    data = base("large-log-512")
    at = trunk * SIZE + layout.TRUNK_HEADER.size - 6
    struct.pack_into(">i", data, at, following)
    return sealed(data, trunk)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("following", [5, 129, 512, 100_000])
def test_a_chain_of_trunks_that_leads_astray_loses_the_trunks_behind_it(
    following: int, tmp_path: Path
) -> None:
    one = reading(bytes(next_trunk(512, following)), tmp_path)
    commits = [
        sum(record.type == "COMMIT" for record in each.records())
        for each in (fixture("large-log-512"), one)
    ]
    assert commits[1] < commits[0]
    (loss,) = [each for each in severe(one) if each.code == "lost-behind-damage"]
    lost = one.verdict().strict["lost"]["records"]
    # The pages begin inside a record, and the end of the one before is lost with it.
    assert commits[0] - commits[1] - 3 <= lost <= commits[0] - commits[1]
    assert f"at least {lost} commits" in loss.message
    check_everything(one)


@pytest.mark.parametrize("pages", [60, 200, 1200])
def test_a_file_that_was_cut_says_so(pages: int, tmp_path: Path) -> None:
    one = reading(bytes(base("large-log-512")[: pages * SIZE]), tmp_path)
    assert "file-cut-short" in {each.code for each in severe(one)}
    check_everything(one)


def test_a_zeroed_table_page_is_a_loss_where_an_index_has_its_rows(tmp_path: Path) -> None:
    data, tables = tables_of(fixture("reopened-2048"))
    headers(data, (1, 2), 2048, first_trunk=0, first_data=0)  # whose log has an image of it
    root = tables.meta[tables.meta[INDEX].parent].root
    data[root * 2048 : (root + 1) * 2048] = bytes(2048)
    one = reading(bytes(data), tmp_path)
    (loss,) = [each for each in severe(one) if each.severity is Severity.LOSS]
    assert (loss.code, loss.offset) == ("table-page-empty", root * 2048)
    assert one.verdict().judgement.answer is Answer.LOSES


def test_a_zeroed_table_page_may_have_had_no_row(tmp_path: Path) -> None:
    """Nothing tells where the table has no index: H2 opens an empty one, as it may have been."""
    one = with_log(encode_add(3, TABLE, 77, NEW_ROW) + encode_commit(3), tmp_path)
    data, tables = tables_of(one)
    root = tables.meta[TABLE].root
    data[root * SIZE : (root + 1) * SIZE] = bytes(SIZE)
    one = reading(bytes(data), tmp_path)
    assert one.verdict().engine["recovery"]["opened"] is True
    (damage,) = severe(one)
    assert (damage.code, damage.offset) == ("table-page-zeroed", root * SIZE)
    assert one.verdict().judgement.answer is Answer.CANNOT_TELL


def test_commits_behind_the_end_of_redo_are_counted(tmp_path: Path) -> None:
    body = encode_add(3, TABLE, 77, NEW_ROW) + encode_commit(3)
    for session in range(4, 53):
        row = encode_row([100 + session, "new"])
        body += encode_add(session, TABLE, 100 + session, row) + encode_commit(session)
    body += encode_add(60, TABLE, 500, NEW_ROW)
    result = with_log(body, tmp_path)._result
    assert isinstance(result, EngineResult)
    result.opening.partial, result.opening.redone_before = "file corrupted", 3
    assert lost_with(result, "partial-redo") == Loss(commits=49, rows=49)
    engine = engine_part(result)
    assert [each["redo"] for each in engine["records"] if each["type"] == "ADD"].count(True) == 1
    assert [one["end"] for one in engine["stage_ends"]][1] == "quiet: file corrupted"


def test_records_that_hide_the_rest_are_counted(tmp_path: Path) -> None:
    body = encode_add(3, 16, 1, b"\x01\xc8") + encode_commit(3) * 400
    one = with_log(body, tmp_path)
    (loss,) = [each for each in severe(one) if each.code == "log-cut-short"]
    lost = one.verdict().strict["lost"]["records"]
    assert 100 < lost < 400
    assert f"at least {lost} commits" in loss.message


@pytest.mark.parametrize("case", cases("h2"))
def test_no_sound_file_is_called_lost(case: str) -> None:
    codes = {each.code for each in fixture(case).findings()}
    assert codes.isdisjoint(EARLY_ENDS) or case == "truncated-2048"


# -- how far the opening came ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "records"),
    [
        (lambda data: flipped(data, 3), 0),
        (lambda data: flipped(data, 52, 7), 3),
        (lambda data: flipped(data, 53, 7), 0),
    ],
    ids=["magic", "write version 4", "read version 4"],
)
def test_records_that_the_engine_did_not_read_are_not_listed(
    damage: Callable[[bytearray], bytearray], records: int, tmp_path: Path
) -> None:
    """As 1.4.200: with write version 4 it fails at the first image it would write."""
    one = reading(bytes(damage(base())), tmp_path)
    engine = one.verdict().engine
    assert len(engine["records"]) == records
    assert engine["stage_ends"] == []
    assert engine["last_section"] == (1 if records else None)
    assert not any(record.attributes.get("redo") for record in one.records())
    assert not any(record.attributes.get("applied_in_stage0") for record in one.records())
    assert len(list(one.records())) > records
    check_everything(one)


def test_rows_after_a_failure_of_redo_are_not_called_redone(tmp_path: Path) -> None:
    rows = [(3, 77), (3, 7), (3, 78)]
    body = b"".join(encode_add(session, TABLE, key, NEW_ROW) for session, key in rows)
    engine = with_log(body + encode_commit(3), tmp_path).verdict().engine
    assert engine["recovery"]["error_code"] == 23505
    assert [one["stage"] for one in engine["stage_ends"]] == [0]
    assert [one["redo"] for one in engine["records"] if one["type"] == "ADD"] == [
        True,
        False,
        False,
    ]


def test_a_file_cut_before_its_tables_has_no_row_redone(tmp_path: Path) -> None:
    engine = reading(bytes(base()[: 60 * SIZE]), tmp_path).verdict().engine
    assert engine["recovery"]["error_code"] == 90030
    assert not any(one.get("redo") or one.get("freed") for one in engine["records"])


def test_an_error_in_stage_0_leaves_no_finished_stage(tmp_path: Path) -> None:
    body = encode_add(3, TABLE, 77, NEW_ROW) + encode_commit(3)
    body += encode_add(3, TABLE, 78, encode_var_int(-1))
    engine = with_log(body, tmp_path).verdict().engine
    assert engine["stage_ends"] == []
    assert not any(one.get("redo") for one in engine["records"])


def half_restored(tmp_path: Path) -> H2Reading:
    """Return a log whose image of the table's page ends after a wrong parent and table."""
    head = bytes((layout.DATA_LEAF | layout.LAST, 0, 0, 0, 0, 0, 9, 99))
    image = bytes((len(head) - 1,)) + head + b"\x3f\xff"
    _, tables = tables_of(with_log(b"", tmp_path))
    page = encode_var_int(tables.meta[TABLE].root)
    return with_log(b"\x01" + page + encode_var_int(len(image)) + image, tmp_path)


def test_a_half_restored_page_fails_as_the_engine_does(tmp_path: Path) -> None:
    """The index that a page names is looked up before its parent is."""
    recovery = half_restored(tmp_path).verdict().engine["recovery"]
    assert recovery["error_code"] == 90030
    assert "index not found 99" in recovery["error"]
