"""PageLog by the document's rules: sections, sizes, undo, in doubt, opening and giving up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.errors import (
    CorruptLogError,
    IncompleteLogError,
    LogClosedError,
    LogWriteError,
    RecordTooLargeError,
)
from tallystick.records import State
from tallystick.systems.h2.engine.opening import EngineResult
from tallystick.systems.h2.engine.recovery import ALLOCATE_STAGE, REDO_STAGE, UNDO_STAGE, used_pages
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import Type, encode_free_log, encode_prepare
from tallystick.systems.h2.format.numbers import encode_var_int, encode_var_long, var_long_size
from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog
from tallystick.systems.h2.read.scan import Scan, whole_entries
from tallystick.testing.spans import check_tiling
from tests.roles.contract_undo_redo_log import Store
from tests.systems.h2.kit import fixture, reading_of

SIZE = 512
ROW = encode_row([1, "one"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "db.h2.db"
    PageStoreFile.create(str(path), page_size=SIZE).close()
    return path


@pytest.fixture
def store(path: Path) -> Iterator[PageStoreFile]:
    with PageStoreFile(str(path)) as store:
        yield store


@pytest.fixture
def log(store: PageStoreFile) -> PageLog:
    log = PageLog(store, batch=8)
    log.open_for_writing()
    return log


def types(path: Path) -> list[str]:
    return [record.type for record in reading_of(path).records() if record.type != "NOOP"]


def test_records_are_read_back_as_they_were_logged(path: Path, log: PageLog) -> None:
    log.add_undo(4, log.store.read_page(4))
    log.add_undo(900, None)
    log.log_add_or_remove_row(3, 16, 1, ROW)
    log.log_add_or_remove_row(3, 16, 2, None)
    log.log_truncate(3, 17)
    log.commit(3).wait()
    log.prepare_commit(4, "branch").wait()
    log.checkpoint().wait()
    log.close()
    wanted = "UNDO UNDO ADD REMOVE TRUNCATE COMMIT PREPARE_COMMIT CHECKPOINT"
    assert types(path) == wanted.split()
    (file,) = reading_of(path).files()
    check_tiling(file)


def test_prepare_is_alone_on_its_page_and_a_section_begins_a_page(path: Path, log: PageLog) -> None:
    log.log_add_or_remove_row(3, 16, 1, ROW)
    log.prepare_commit(3, "branch")
    log.checkpoint()
    log.commit(4).wait()
    log.close()
    places = {record.type: record.offset % SIZE for record in reading_of(path).records()}
    assert places["PREPARE_COMMIT"] == places["COMMIT"] == layout.DATA_START
    pages = [r.offset // SIZE for r in reading_of(path).records() if r.type != "NOOP"]
    assert len(pages) == len(set(pages))


def test_longest_name_is_accepted_and_a_longer_one_logs_nothing(path: Path, log: PageLog) -> None:
    room = SIZE - layout.DATA_START
    longest = "x" * (room - 1 - len(encode_prepare(3, "x" * 200)) + 200)
    with pytest.raises(RecordTooLargeError, match="too long"):
        log.prepare_commit(3, longest + "x")
    log.prepare_commit(3, longest).wait()
    log.close()
    assert types(path) == ["PREPARE_COMMIT"]


def test_undo_is_logged_once_per_section(path: Path, log: PageLog) -> None:
    assert not log.get_undo(4)
    for _ in range(2):
        log.add_undo(4, bytes(SIZE))
    assert log.get_undo(4)
    log.checkpoint().wait()
    assert not log.get_undo(4)
    with pytest.raises(RecordTooLargeError, match="exactly one page"):
        log.add_undo(5, b"short")
    log.close()
    assert types(path) == ["UNDO", "CHECKPOINT"]


def test_sections_positions_and_sizes(log: PageLog) -> None:
    assert (log.log_section_id, log.log_first_section_id, log.log_pos) == (0, 0, 0)
    sizes = [log.size]
    for number in range(30):
        log.log_add_or_remove_row(3, 16, number, ROW)
        log.commit(3).wait()
        sizes.append(log.size)
    assert sizes == sorted(sizes)
    assert log.log_pos == 30
    log.checkpoint().wait()
    assert (log.log_section_id, log.log_pos) == (1, 0)
    log.remove_until(0)
    assert log.log_first_section_id == 0
    log.remove_until(1)
    assert log.log_first_section_id == 1
    assert log.size < sizes[-1]
    log.close()


def test_sections_with_uncommitted_changes_are_kept(path: Path, log: PageLog) -> None:
    log.log_add_or_remove_row(9, 16, 1, ROW)
    for number in range(40):
        log.log_add_or_remove_row(3, 16, 100 + number, ROW)
        log.commit(3).wait()
    log.checkpoint().wait()
    log.remove_until(log.log_section_id)
    assert log.log_first_section_id == 0
    log.commit(9).wait()
    log.checkpoint().wait()
    log.remove_until(log.log_section_id)
    assert log.log_first_section_id == 2
    log.close()
    assert "ADD" not in types(path)


def test_recovery_gives_images_and_committed_rows(log: PageLog) -> None:
    image = log.store.read_page(4)
    log.add_undo(4, image)
    log.flush().wait()
    log.store.write_page(4, bytes((17,)) + b"z" * (SIZE - 1))
    log.log_add_or_remove_row(3, 16, 1, ROW)
    log.commit(3).wait()
    log.log_add_or_remove_row(5, 16, 2, ROW)
    log.flush().wait()
    log.close()
    again = PageLog(log.store)
    found = Store()
    assert not again.recover(UNDO_STAGE)
    assert again.recover(ALLOCATE_STAGE)
    assert not again.recover(REDO_STAGE, found)
    again.recover_end()
    assert log.store.read_page(4) == image
    assert found.rows == {(16, 1): ROW}


@pytest.mark.parametrize("commit", [True, False])
def test_in_doubt_is_kept_until_decided_and_decided_in_place(
    path: Path, log: PageLog, commit: bool
) -> None:
    log.log_add_or_remove_row(3, 16, 1, ROW)
    log.prepare_commit(3, "branch").wait()
    log.close()
    again = PageLog(log.store)
    again.recover(UNDO_STAGE)
    (doubtful,) = again.get_in_doubt_transactions()
    assert (doubtful.session, doubtful.name, doubtful.state) == (3, "branch", State.PREPARED)
    with pytest.raises(IncompleteLogError, match="in doubt"):
        again.open_for_writing()
    before = path.read_bytes()
    again.set_in_doubt_transaction_state(3, doubtful.page, commit=commit)
    after = path.read_bytes()
    changed = {at // SIZE for at in range(len(before)) if before[at] != after[at]}
    assert len(changed) == 1
    assert types(path) == ["ADD", "COMMIT" if commit else "ROLLBACK"]
    (transaction,) = reading_of(path).transactions()
    assert transaction.state is (State.COMMITTED if commit else State.ROLLED_BACK)
    with pytest.raises(KeyError):
        again.set_in_doubt_transaction_state(3, doubtful.page, commit=commit)


@pytest.mark.parametrize("commit", [True, False])
def test_a_log_that_is_carried_on_keeps_nothing_for_what_was_decided_in_it(
    log: PageLog, commit: bool
) -> None:
    log.log_add_or_remove_row(3, 16, 1, ROW)
    log.prepare_commit(3, "branch").wait()
    (one,) = log.get_in_doubt_transactions()
    log.set_in_doubt_transaction_state(3, one.page, commit=commit)
    assert log.is_settled
    log.close()
    again = PageLog(log.store)
    again.open_for_writing(carry=True)
    assert again.is_settled
    again.close()


def test_new_log_frees_the_old_one_and_never_uses_a_key_again(path: Path, log: PageLog) -> None:
    first = log.store.header
    for number in range(20):
        log.log_add_or_remove_row(3, 16, number, ROW)
        log.commit(3).wait()
    log.close()
    again = PageLog(log.store, batch=8)
    again.open_for_writing()
    assert again.store.header.log_key > first.log_key + 1
    again.commit(3).wait()
    again.close()
    assert types(path) == ["COMMIT"]
    assert not [one for one in reading_of(path).records(salvage=True) if "why" in one.attributes]


def test_a_log_that_is_carried_over_stays_off_every_page_under_undo(log: PageLog) -> None:
    """Its first trunk too: stage 0 would write an old image over it."""
    mine = used_pages(log.open_for_reading())
    under_undo = [page for page in range(5, 60) if page not in mine]
    for page in under_undo:
        log.add_undo(page, None)
    log.log_add_or_remove_row(3, 16, 1, ROW)
    log.commit(3).wait()
    log.close()
    again = PageLog(log.store, batch=8)
    again.open_for_writing(carry=True)
    assert not used_pages(again.open_for_reading()) & set(under_undo)
    again.close()


def test_log_at_the_end_stays_after_every_other_page(log: PageLog) -> None:
    log.close()
    count = log.store.page_count
    again = PageLog(log.store, batch=8)
    again.open_for_writing(at_end=True)
    assert again.min_page_id >= count
    again.close()


def test_free_leaves_a_file_that_was_closed_in_order(path: Path, log: PageLog) -> None:
    log.commit(3).wait()
    log.free()
    log.store.close()
    assert path.stat().st_size == layout.PAGE_COUNT_MIN * SIZE
    engine = reading_of(path).verdict().engine
    assert engine["records"] == []
    assert engine["recovery"]["opened"]
    with pytest.raises(LogClosedError):
        log.commit(3)


# -- the numbers that the description's calls take ------------------------------------------------


def logged(log: PageLog, sections: int = 3) -> list[int]:
    """Log a row in each of some sections; return the data pages at which the sections begin."""
    starts = []
    for number in range(sections):
        starts.append(log.store.header.first_data if number == 0 else log._state.starts[number])
        log.log_add_or_remove_row(3, 16, number, ROW)
        log.commit(3).wait()
        log.checkpoint().wait()
    log.close()
    return starts


def test_a_log_is_read_by_the_numbers_given(log: PageLog) -> None:
    head = log.store.header
    starts = logged(log)
    again = PageLog(log.store)
    same = again.open_for_reading(head.log_key, head.first_trunk, head.first_data)
    assert same.data_pages == again.open_for_reading().data_pages
    later = again.open_for_reading(new_first_data_page=starts[2])
    assert later.data_pages == same.data_pages[same.data_pages.index(starts[2]) :]
    found = Store()
    again.recover(UNDO_STAGE)
    again.recover(REDO_STAGE, found)
    assert found.rows == {(16, 2): ROW}


@pytest.mark.parametrize("numbers", [(99, None, None), (None, 4, None), (None, -1, None),
                                     (None, 1 << 20, None), (None, None, 4)])  # fmt: skip
def test_numbers_that_lead_to_no_log_are_refused(
    path: Path, log: PageLog, numbers: tuple[int | None, int | None, int | None]
) -> None:
    logged(log)
    before = path.read_bytes()
    with pytest.raises(CorruptLogError, match="lead to no log"):
        PageLog(log.store).open_for_reading(*numbers)
    assert path.read_bytes() == before


def test_the_pages_of_the_headers_log_stay_while_another_is_read(log: PageLog) -> None:
    """A crash before the new header must find the header's log whole; its keys are taken."""
    logged(log, sections=12)
    named = used_pages(stream := PageLog(log.store).open_for_reading())
    key = stream.chain.trunks[-1].key
    assert key > log.store.header.log_key + 1
    log.store.load_free_list()
    again = PageLog(log.store, batch=8)
    again.open_for_reading(0, 0, 0)
    again.open_for_writing()
    assert not used_pages(again.open_for_reading()) & named
    assert again.store.header.log_key > key
    again.close()


@pytest.mark.parametrize("at_end", [False, True])
def test_the_log_begins_at_the_trunk_page_given(log: PageLog, at_end: bool) -> None:
    logged(log)
    again = PageLog(log.store, batch=8)
    page = log.store.allocate(log.store.page_count - 30)
    again.open_for_writing(page, at_end)
    assert again.store.header.first_trunk == page
    assert again.min_page_id == (page if at_end else 0)
    mine = used_pages(again.open_for_reading())
    assert (min(mine) == page) is at_end
    again.log_add_or_remove_row(3, 16, 1, ROW)
    again.commit(3).wait()
    again.close()
    assert not PageLog(log.store).recover(UNDO_STAGE)


UNDER_UNDO = 200


@pytest.mark.parametrize("page", [-1, 0, 3, 4, "log", "list", "table", UNDER_UNDO, 1 << 20])
def test_a_page_that_can_be_no_trunk_is_refused(path: Path, log: PageLog, page: int | str) -> None:
    log.add_undo(UNDER_UNDO, None)
    log.prepare_commit(3, "branch").wait()
    store = log.store
    store.grow(5000)
    named = {"log": store.header.first_trunk, "list": store.free_list_pages[1], "table": 150}
    log.close()
    listed_as_used(store, [150])
    before = path.read_bytes()
    again = PageLog(store, batch=8)
    again.recover(UNDO_STAGE, Store())
    with pytest.raises(LogWriteError, match="cannot be the first trunk page"):
        again.open_for_writing(named.get(str(page), page), carry=True)  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert [one.name for one in again.get_in_doubt_transactions()] == ["branch"]


def listed_as_used(store: PageStoreFile, pages: list[int]) -> None:
    """Mark pages in the free list on disk, as the engine does with those of its log."""
    for page in pages:
        first = layout.FREE_LIST_ROOT
        content = bytearray(store.file.pread(SIZE, first * SIZE))
        content[layout.FREE_LIST_START + (page - first >> 3)] |= 1 << (page - first & 7)
        store.write_page(first, bytes(content))


def test_a_decision_for_a_page_without_the_prepare_is_refused(path: Path, log: PageLog) -> None:
    log.prepare_commit(3, "branch").wait()
    log.prepare_commit(5, "other").wait()
    one, other = log.get_in_doubt_transactions()
    log.flush().wait()
    before = path.read_bytes()
    for page in (other.page, one.page + 9, 0, -1):
        with pytest.raises(LogWriteError, match="no prepare record of session 3"):
            log.set_in_doubt_transaction_state(3, page, commit=True)
    assert path.read_bytes() == before
    log.set_in_doubt_transaction_state(3, one.page, commit=True)
    assert [one.session for one in log.get_in_doubt_transactions()] == [5]
    log.close()


# -- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["committed-512", "types-4096", "v1.3.176-types-2048"])
def test_a_row_factory_gets_key_and_values_of_every_row_of_the_engine(case: str) -> None:
    result = fixture(case)._result
    assert isinstance(result, EngineResult)
    file = result.file
    assert file.stream is not None
    rows = 0
    for entry in Scan(file.stream, file.zone).entries():
        if entry.code != Type.ADD or entry.fault:
            continue
        record = file.stream.raw(entry.start, entry.length)
        at = entry.length - len(entry.row) - var_long_size(entry.key)
        at -= len(encode_var_int(len(entry.row)))
        made, end = PageLog.read_row(lambda *row: row, record, at, file.zone)
        assert made == (entry.key, entry.values)
        assert end == len(record)
        rows += 1
    assert rows >= 4


@pytest.mark.parametrize("cut", [0, 1, 3, -1])
def test_a_row_that_is_cut_is_refused(cut: int) -> None:
    row = encode_var_long(-7) + encode_var_int(len(ROW)) + ROW
    assert PageLog.read_row(lambda key, values: (key, len(values)), row) == ((-7, 2), len(row))
    with pytest.raises(CorruptLogError, match="row"):
        PageLog.read_row(lambda *_: None, row[:cut])


def test_a_row_with_surplus_bytes_is_refused() -> None:
    row = encode_var_long(1) + encode_var_int(len(ROW) + 1) + ROW + b"x"
    with pytest.raises(CorruptLogError, match="as long as"):
        PageLog.read_row(lambda *_: None, row)


# -- FREE_LOG -----------------------------------------------------------------------------------


def freed_pages(log: PageLog) -> list[tuple[int, ...]]:
    entries = whole_entries(log.open_for_reading())
    return [entry.pages for entry in entries if entry.code == Type.FREE_LOG]


@pytest.mark.parametrize("carry", [False, True])
def test_marks_of_old_log_pages_in_the_free_list_are_freed_in_the_log(
    log: PageLog, carry: bool
) -> None:
    store = log.store
    old = used_pages(log.open_for_reading())
    spare = log.open_for_reading().chain.trunks[-1].next
    log.log_add_or_remove_row(3, 16, 1, ROW)
    log.commit(3).wait()
    log.close()
    marked = sorted(old)[1:4]
    listed_as_used(store, [*marked, spare])
    again = PageLog(store, batch=8)
    again.open_for_writing(carry=carry)
    again.close()
    assert freed_pages(PageLog(store)) == [(*marked, spare)]


def test_marks_that_a_carried_image_restores_are_freed(log: PageLog) -> None:
    """On disk the marks are gone already; stage 0 puts them back."""
    store = log.store
    marked = sorted(used_pages(log.open_for_reading()))[:2]
    clear = store.read_page(layout.FREE_LIST_ROOT)
    listed_as_used(store, marked)
    log.add_undo(layout.FREE_LIST_ROOT, store.read_page(layout.FREE_LIST_ROOT))
    log.flush().wait()
    store.write_page(layout.FREE_LIST_ROOT, clear)
    log.close()
    again = PageLog(store, batch=8)
    again.open_for_writing(carry=True)
    again.close()
    assert freed_pages(PageLog(store)) == [tuple(marked)]


def test_marks_are_freed_again_when_the_section_that_freed_them_goes(log: PageLog) -> None:
    store = log.store
    marked = sorted(used_pages(log.open_for_reading()))[-3:]
    log.close()
    listed_as_used(store, marked)
    again = PageLog(store, batch=8)
    again.open_for_writing()
    assert freed_pages(PageLog(store)) == [tuple(marked)]
    for number in range(30):
        again.log_add_or_remove_row(3, 16, number, ROW)
        again.commit(3).wait()
    again.checkpoint().wait()
    again.remove_until(again.log_section_id)
    again.close()
    assert freed_pages(PageLog(store)) == [tuple(marked)]


@pytest.mark.parametrize("others", [(), (200, 201)])
def test_a_page_of_the_old_log_is_freed_once_only_and_last(
    log: PageLog, others: tuple[int, ...]
) -> None:
    """Freed twice, it could be a table's by the second time: H2 kept such a page out while it was
    the log's own, and lost rows where the carried log freed it earlier."""
    store = log.store
    marked = sorted(used_pages(log.open_for_reading()))[1:4]
    log._open_writer().put(encode_free_log([*marked, *others]))
    log.log_add_or_remove_row(3, 16, 1, ROW)
    log.commit(3).wait()
    log.close()
    listed_as_used(store, marked)
    again = PageLog(store, batch=8)
    again.open_for_writing(carry=True)
    again.close()
    assert freed_pages(PageLog(store)) == [*([others] if others else []), tuple(marked)]


def test_a_log_of_our_own_has_nothing_to_free(log: PageLog) -> None:
    logged(log)
    again = PageLog(log.store, batch=8)
    again.open_for_writing(carry=True)
    again.close()
    assert freed_pages(PageLog(log.store)) == []
