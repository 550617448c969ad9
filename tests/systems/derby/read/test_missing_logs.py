"""A database whose log is gone is judged, also where nothing else names it.

What each case says of the original is what Derby 10.10, 10.14 and 10.16 did with it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tallystick
from tallystick.reading import triage
from tallystick.records import Answer
from tests.systems.derby.databases import killed, odd_parts, verdict_of


@pytest.mark.parametrize("left", [(), ("README_DO_NOT_TOUCH_FILES.txt",)])
def test_a_log_without_files_is_begun_anew(left: tuple[str, ...], tmp_path: Path) -> None:
    """It boots, and has nothing that was committed since the last checkpoint."""
    copy = killed(tmp_path)
    for file in (copy / "log").iterdir():
        file.unlink()
    for name in left:
        (copy / "log" / name).write_text("do not touch")
    found = verdict_of(copy)
    assert (found.judgement.answer, found.judgement.reason) == (Answer.CANNOT_TELL, "new-log")
    assert found.path == str(copy / "log")
    assert found.surroundings is not None
    assert found.surroundings.path == str(copy)


def test_a_folder_of_the_log_that_is_missing_is_not_made(tmp_path: Path) -> None:
    """It does not boot: XSLAQ."""
    copy = killed(tmp_path)
    shutil.rmtree(copy / "log")
    found = verdict_of(copy)
    assert (found.judgement.answer, found.judgement.reason) == (Answer.REFUSES, "part-refused")
    assert [(one.part, one.there) for one in odd_parts(found)] == [("log", False)]


def test_a_database_without_a_log_is_not_passed_over_beside_one_that_is_whole(
    tmp_path: Path,
) -> None:
    (tmp_path / "whole").mkdir()
    copy = killed(tmp_path)
    shutil.copytree(copy, tmp_path / "whole" / "db")
    shutil.rmtree(copy / "log")
    answers = {one.path: one.judgement.answer for one in tallystick.explain(tmp_path).logs}
    assert answers == {
        str(copy / "log"): Answer.REFUSES,
        str(tmp_path / "whole" / "db" / "log"): Answer.SAFE,
    }
    assert triage(tmp_path).exit_code == 1


def test_settings_without_data_are_no_database(tmp_path: Path) -> None:
    copy = killed(tmp_path)
    shutil.rmtree(copy / "log")
    shutil.rmtree(copy / "seg0")
    assert tallystick.explain(copy).logs == []
