"""One file of a pair put over the other: which one was in use is not known any more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tallystick import explain
from tallystick.records import Answer
from tallystick.systems.bitronix.format.layout import COMMITTING, MEGABYTE
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.protocol import ReadOptions

FILES = ("btm1.tlog", "btm2.tlog")


def _answer(folder: Path) -> tuple[Answer, str]:
    (verdict,) = explain(folder).logs
    return verdict.judgement.answer, verdict.judgement.reason


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    with DiskJournal(str(tmp_path), max_log_size=MEGABYTE) as log:
        log.log_forced(COMMITTING, b"global", ("one", "two")).wait()
    return tmp_path


def test_a_closed_pair_is_safe(journal: Path) -> None:
    assert _answer(journal) == (Answer.SAFE, "closed-header")


@pytest.mark.parametrize("names", [FILES, FILES[::-1]])
def test_of_two_files_with_one_time_neither_is_proved_to_be_the_last(
    journal: Path, names: tuple[str, str]
) -> None:
    shutil.copyfile(journal / names[0], journal / names[1])
    assert _answer(journal) == (Answer.CANNOT_TELL, "same-time")


@pytest.mark.parametrize("names", [("BTM1.TLOG", "BTM2.TLOG"), ("BTM1.TLOG", "btm2.tlog")])
def test_files_in_large_letters_are_not_those_that_the_manager_asks_for(
    names: tuple[str, str], journal: Path
) -> None:
    """2.1.4 and 3.0 make a new journal of two, and refuse to start with one of them."""
    for usual, name in zip(FILES, names, strict=True):
        (journal / usual).rename(journal / name)
    assert _answer(journal) == (Answer.CANNOT_TELL, "beside-the-log")
    (alone,) = explain(journal, options=ReadOptions(log_only=True)).logs
    assert alone.judgement.answer is Answer.SAFE


def test_names_of_another_kind_are_a_setting(journal: Path) -> None:
    for usual, name in zip(FILES, ("PART1.BTM", "PART2.BTM"), strict=True):
        (journal / usual).rename(journal / name)
    assert _answer(journal) == (Answer.SAFE, "closed-header")


COPIES = (
    "{} (1).tlog", "{} - Copy.tlog", "{} - Copy (2).tlog", "{} copy.tlog", "Copy of {}.tlog",
    "{}-old.tlog", "old-{}.tlog", "{}.tlog.bak", "{}.tlog.1", "{}.tlog.20240131",
    "{}_20240131.tlog",
)  # fmt: skip


@pytest.mark.parametrize("which", ["btm1", "btm2"])
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_beside_both_files_is_named_and_no_journal(
    name: str, which: str, journal: Path
) -> None:
    """2.1.4 and 3.0 open the names in their settings alone; a file alone would be refused."""
    copy = journal / name.format(which)
    shutil.copyfile(journal / f"{which}.tlog", copy)
    assert _answer(journal) == (Answer.SAFE, "closed-header")
    found = explain(journal)
    assert found.exit_code == 0
    assert any(copy.name in one.message for one in found.problems)
    (asked,) = explain(copy).logs
    assert asked.judgement.answer is Answer.REFUSES


def test_copies_of_both_files_are_one_journal_that_no_manager_opens(journal: Path) -> None:
    for one in FILES:
        shutil.copyfile(journal / one, journal / one.replace(".tlog", " (1).tlog"))
    assert _answer(journal) == (Answer.SAFE, "closed-header")


@pytest.mark.parametrize("name", ["btm3.tlog", "btm11.tlog", "audit-btm1.tlog"])
def test_a_file_under_a_name_of_its_own_is_a_journal_that_lacks_one(
    name: str, journal: Path
) -> None:
    shutil.copyfile(journal / FILES[0], journal / name)
    answers = [one.judgement.answer for one in explain(journal).logs]
    assert sorted(answers) == [Answer.REFUSES, Answer.SAFE]


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("which", ["btm1", "btm2"])
def test_a_copy_in_the_place_of_a_file_is_not_what_the_manager_asks_for(
    name: str, which: str, journal: Path
) -> None:
    """Neither 2.1.4 nor 3.0 starts with one file."""
    (journal / f"{which}.tlog").rename(journal / name.format(which))
    found = _answer(journal)[0]
    assert found in (Answer.CANNOT_TELL, Answer.REFUSES)
