"""A database whose log is gone is judged, also where nothing else names it.

What each case says of the original is what Derby 10.10, 10.14 and 10.16 did with it.
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
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


def test_a_link_in_its_place_that_leads_to_nothing_is_no_folder(tmp_path: Path) -> None:
    """It does not boot: XSLAQ."""
    copy = killed(tmp_path)
    (copy / "log").rename(tmp_path / "gone")
    (copy / "log").symlink_to("moved/log")
    found = verdict_of(copy)
    assert (found.judgement.answer, found.judgement.reason) == (Answer.REFUSES, "part-refused")
    assert "a link to moved/log, which is not there" in found.judgement.text


def test_a_log_on_another_disk_is_read_through_its_link(tmp_path: Path) -> None:
    copy = killed(tmp_path)
    (copy / "log").rename(tmp_path / "elsewhere")
    (copy / "log").symlink_to(tmp_path / "elsewhere")
    found = verdict_of(copy)
    assert (found.path, found.judgement.answer) == (f"{copy}/log", Answer.SAFE)
    (copy / "service.properties").unlink()
    assert verdict_of(copy).judgement.answer is Answer.REFUSES


def test_a_linked_log_is_its_databases_where_the_tree_has_both(tmp_path: Path) -> None:
    """Without service.properties it does not boot, whatever is given: XJ004."""
    copy = killed(tmp_path)
    (copy / "log").rename(tmp_path / "moved")
    (copy / "log").symlink_to("../moved")
    (copy / "service.properties").unlink()
    for given in (tmp_path, copy, [copy, tmp_path / "moved"], [tmp_path / "moved", copy]):
        (found,) = tallystick.explain(given).logs
        assert (found.path, found.judgement.answer) == (f"{copy}/log", Answer.REFUSES)


def test_two_databases_with_one_log_are_both_judged(tmp_path: Path) -> None:
    copy = killed(tmp_path)
    other = Path(shutil.copytree(copy, tmp_path / "other"))
    shutil.rmtree(other / "log")
    (other / "log").symlink_to("../db/log")
    (other / "service.properties").unlink()
    answers = {one.path: one.judgement.answer for one in tallystick.explain(tmp_path).logs}
    assert answers == {f"{copy}/log": Answer.SAFE, f"{other}/log": Answer.REFUSES}


def test_a_number_that_begins_with_a_zero_is_none_of_a_log_file(tmp_path: Path) -> None:
    """It boots with a new log, and has nothing since the last checkpoint."""
    copy = killed(tmp_path)
    (copy / "log/log1.dat").rename(copy / "log/log01.dat")
    assert verdict_of(copy).judgement.answer is not Answer.SAFE


@pytest.mark.parametrize("name", ["log/log1.dat", "seg0/c490.dat"])
def test_one_packed_file_among_others_is_not_found_by_a_boot(name: str, tmp_path: Path) -> None:
    """Of the log it has 500 of 800 rows; of a table it does not boot: 40XD2."""
    copy = killed(tmp_path)
    with (copy / name).open("rb") as plain, gzip.open(copy / f"{name}.gz", "wb") as packed:
        packed.write(plain.read())
    (copy / name).unlink()
    found = verdict_of(copy).judgement
    assert found.answer is not Answer.SAFE
    assert found.decided_by == "whether it is unpacked before the start"
    assert f"does not find {Path(name).name}.gz" in found.text


def test_a_folder_of_files_that_a_log_links_to_is_none_of_its_own(tmp_path: Path) -> None:
    copy = killed(tmp_path)
    (tmp_path / "disk").mkdir()
    (copy / "log/log1.dat").rename(tmp_path / "disk/log1.dat")
    (copy / "log/log1.dat").symlink_to("../../disk/log1.dat")
    found = verdict_of(tmp_path)
    assert (found.path, found.judgement.answer) == (f"{copy}/log", Answer.SAFE)


def _name_device(database: Path, device: str) -> None:
    """Have the settings of a database begin with the device of its log."""
    settings = database / "service.properties"
    text = settings.read_text(encoding="latin-1")
    settings.write_text(f"logDevice={device}\n{text}", encoding="latin-1")


@pytest.mark.parametrize("device", [False, True])
def test_a_log_in_the_place_that_its_database_does_not_name_is_not_read(
    device: bool, tmp_path: Path
) -> None:
    """Derby boots with the log on the device alone; without one it does not boot: XSLAB."""
    copy = killed(tmp_path)
    _name_device(copy, f"{tmp_path}/device")
    assert verdict_of(copy / "log").judgement.answer is Answer.REFUSES
    if device:
        shutil.copytree(copy / "log", tmp_path / "device" / "log")
        inside = verdict_of(copy / "log").judgement
        assert (inside.answer, inside.decided_by) == (
            Answer.CANNOT_TELL, f"{tmp_path}/device/log",
        )  # fmt: skip
    found = tallystick.explain(copy)
    assert [one.path for one in found.logs] == [f"{tmp_path}/device/log"]
    answer = Answer.SAFE if device else Answer.REFUSES
    assert [one.judgement.answer for one in found.logs] == [answer]
    assert [one.code for one in found.problems] == ["put-aside"]


@pytest.mark.parametrize(("device", "answer"), [("disk", Answer.CANNOT_TELL), ("", Answer.REFUSES)])
def test_a_device_that_is_named_from_where_the_engine_starts_is_looked_for_there(
    device: str, answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derby boots where it starts beside ``disk``; an empty name is ``/log``, wherever it does."""
    copy = killed(tmp_path)
    _name_device(copy, device)
    (tmp_path / "disk").mkdir()
    (copy / "log").rename(tmp_path / "disk" / "log")
    found = verdict_of(copy)
    assert found.judgement.answer is answer
    monkeypatch.chdir(tmp_path)
    assert verdict_of(copy).judgement.answer is (Answer.SAFE if device else answer)


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


def _upper(*below: str) -> Callable[[Path], None]:
    """Give what lies below these folders, or the database, names in large letters."""

    def change(database: Path) -> None:
        chosen = [one for place in below for one in (database / place).rglob("*")]
        for one in sorted(chosen, key=lambda one: -len(one.parts)):
            one.rename(one.with_name(one.name.upper()))

    return change


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (_upper("."), "LOG.CTRL"),  # XJ004
        (_upper("log"), "LOG.CTRL"),  # a new log
        (lambda database: (database / "seg0").rename(database / "SEG0"), "SEG0"),  # XSAI2
    ],
)
def test_files_in_large_letters_are_found_and_not_taken_for_the_engines_own(
    change: Callable[[Path], object], name: str, tmp_path: Path
) -> None:
    """As a copy through a file system has them that does not tell large letters from small."""
    copy = killed(tmp_path)
    change(copy)
    found = verdict_of(copy)
    assert (found.judgement.answer, found.judgement.reason) == (
        Answer.CANNOT_TELL, "beside-the-log",
    )  # fmt: skip
    assert [one.part for one in odd_parts(found)] == ["file names"]
    assert f"not for {name}" in found.judgement.text


def test_a_copy_in_large_letters_beside_the_log_is_none_of_it(tmp_path: Path) -> None:
    copy = killed(tmp_path)
    shutil.copy(copy / "log" / "log1.dat", copy / "log" / "LOG1.DAT")
    assert verdict_of(copy).judgement.answer is Answer.SAFE


def _folder(path: Path) -> None:
    path.mkdir()


def _link_to_nothing(path: Path) -> None:
    path.symlink_to("/unmounted/disk/file")


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


IN_THE_WAY = [_folder, _link_to_nothing, _link_to_itself, os.mkfifo]


@pytest.mark.parametrize("make", IN_THE_WAY)
def test_no_boot_writes_a_mirror_where_something_else_stands(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    """XSLAE, or it waits for ever, as of the pipe."""
    copy = killed(tmp_path)
    (mirror := copy / "log/logmirror.ctrl").unlink()
    assert verdict_of(copy).judgement.answer is Answer.SAFE
    make(mirror)
    found = verdict_of(copy)
    assert found.judgement.answer is Answer.REFUSES
    assert [one.part for one in odd_parts(found)] == ["logmirror.ctrl"]


def test_a_control_file_that_is_a_folder_is_no_missing_one(tmp_path: Path) -> None:
    copy = killed(tmp_path)
    (copy / "log/log.ctrl").unlink()
    assert verdict_of(copy).judgement.answer is not Answer.REFUSES
    (copy / "log/log.ctrl").mkdir()
    assert verdict_of(copy).judgement.answer is Answer.REFUSES


@pytest.mark.parametrize("make", IN_THE_WAY)
def test_a_boot_that_cannot_write_its_lock_opens_the_database_without_redo(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    """To read only: a prepared branch was gone."""
    copy = killed(tmp_path)
    make(copy / "db.lck")
    found = verdict_of(copy)
    assert found.judgement.answer is Answer.CANNOT_TELL
    assert [one.part for one in odd_parts(found)] == ["db.lck"]


def test_a_boot_that_waits_at_a_pipe_does_not_open_the_database_to_read_only(
    tmp_path: Path,
) -> None:
    """10.14 reads who has the database open from it."""
    copy = killed(tmp_path)
    os.mkfifo(copy / "db.lck")
    (part,) = odd_parts(verdict_of(copy))
    assert part.answer is Answer.CANNOT_TELL
    assert "waits for ever" in part.why
    assert "to read only" not in part.why


@pytest.mark.parametrize(
    ("number", "zeros", "named"),
    [(2, True, ["log2.dat"]), (3, True, []), (2, False, [])],
    ids=["the next file", "one after it", "a log that ends with its file"],
)
def test_a_folder_where_a_boot_looks_for_more_of_the_log_stops_it(
    number: int, zeros: bool, named: list[str], tmp_path: Path
) -> None:
    """FileNotFoundException, where the boot comes to zeros; it boots the others."""
    copy = killed(tmp_path)
    if not zeros:
        log = copy / "log/log1.dat"
        log.write_bytes(log.read_bytes().rstrip(b"\0"))
    (copy / f"log/log{number}.dat").mkdir()
    found = verdict_of(copy)
    assert [one.part for one in odd_parts(found)] == named
    assert (found.judgement.answer is Answer.REFUSES) is bool(named)


@pytest.mark.parametrize("name", ["db.lck", "log/logmirror.ctrl"])
def test_a_link_through_which_a_boot_makes_its_file_is_in_no_way(name: str, tmp_path: Path) -> None:
    copy = killed(tmp_path)
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(tmp_path / "made by the boot")
    assert verdict_of(copy).judgement.answer is Answer.SAFE
