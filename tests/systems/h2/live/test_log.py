"""PageLog by the document's rules: sections, sizes, undo, in doubt, opening and giving up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.errors import (
    IncompleteLogError,
    LogClosedError,
    RecordTooLargeError,
)
from tallystick.records import State
from tallystick.systems.h2.engine.recovery import ALLOCATE_STAGE, REDO_STAGE, UNDO_STAGE, used_pages
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import encode_prepare
from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog
from tallystick.testing.spans import check_tiling
from tests.roles.contract_undo_redo_log import Store
from tests.systems.h2.kit import reading_of

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
    assert (log.section_id, log.first_section_id, log.position) == (0, 0, 0)
    sizes = [log.size]
    for number in range(30):
        log.log_add_or_remove_row(3, 16, number, ROW)
        log.commit(3).wait()
        sizes.append(log.size)
    assert sizes == sorted(sizes)
    assert log.position == 30
    log.checkpoint().wait()
    assert (log.section_id, log.position) == (1, 0)
    log.remove_until(0)
    assert log.first_section_id == 0
    log.remove_until(1)
    assert log.first_section_id == 1
    assert log.size < sizes[-1]
    log.close()


def test_sections_with_uncommitted_changes_are_kept(path: Path, log: PageLog) -> None:
    log.log_add_or_remove_row(9, 16, 1, ROW)
    for number in range(40):
        log.log_add_or_remove_row(3, 16, 100 + number, ROW)
        log.commit(3).wait()
    log.checkpoint().wait()
    log.remove_until(log.section_id)
    assert log.first_section_id == 0
    log.commit(9).wait()
    log.checkpoint().wait()
    log.remove_until(log.section_id)
    assert log.first_section_id == 2
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
    again.set_in_doubt_transaction_state(3, commit=commit)
    after = path.read_bytes()
    changed = {at // SIZE for at in range(len(before)) if before[at] != after[at]}
    assert len(changed) == 1
    assert types(path) == ["ADD", "COMMIT" if commit else "ROLLBACK"]
    (transaction,) = reading_of(path).transactions()
    assert transaction.state is (State.COMMITTED if commit else State.ROLLED_BACK)
    with pytest.raises(KeyError):
        again.set_in_doubt_transaction_state(3, commit=commit)


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
    assert again.minimum_page >= count
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
