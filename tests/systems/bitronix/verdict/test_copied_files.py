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
