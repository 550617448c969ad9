"""Files that a broker never reads again are named as what they are, and are no logs."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

import tallystick
from tallystick.reading import verify
from tallystick.records import Answer
from tests.fixtures import fixture_dir
from tests.systems.jboss.build import add, file_name, image


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(fixture_dir("brokers") / "whole", tmp_path / "data"))


def damaged() -> bytes:
    content = bytearray(image("g3", 7, [add(1, bytes(100)), add(2)], 4096))
    content[60] ^= 1
    content[40] ^= 1
    return bytes(content)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (f"journal/attic/{file_name('g3', 7)}", "found damaged at a start"),
        (f"journal/oldreplica.2/{file_name('g3', 7)}", "an earlier life as a backup"),
        ("history/activemq-data-20261125120000-7.amq", "kept for replay"),
    ],
)
def test_they_are_named_and_do_not_make_a_broker_damaged(
    place: str, words: str, data: Path
) -> None:
    before = [one.path for one in tallystick.explain(data).logs]
    path = data / place
    path.parent.mkdir()
    path.write_bytes(damaged())
    explained, triaged, verified = tallystick.explain(data), tallystick.triage(data), verify(data)
    assert {explained.exit_code, triaged.exit_code, verified.exit_code} == {0}
    for findings in (explained.problems, triaged.problems, verified.findings):
        assert [one.message for one in findings if words in one.message]
    assert [one.path for one in tallystick.explain(data).logs] == before
    (asked,) = tallystick.explain(path.parent).logs
    assert asked.path == str(path.parent)
    (asked,) = tallystick.explain(path).logs


@pytest.mark.parametrize("end", [".cmp", ".tmp"])
def test_files_that_a_broker_did_not_finish_are_no_copies(end: str, tmp_path: Path) -> None:
    """A full disk, or a crash in a compaction, leaves them as all that there is."""
    content = image("g3", 7, [add(1, bytes(100))], 4096)
    (tmp_path / f"{file_name('g3', 7)}{end}").write_bytes(content)
    found = tallystick.explain(tmp_path)
    assert len(found.logs) == 1
    assert not [one for one in found.problems if "copies" in one.message]


@pytest.mark.parametrize(
    "name",
    ["activemq-data-1.amq.bak", "activemq-data-1.amq~", "activemq-data-1.amq.2026-11-28.orig"],
)
@pytest.mark.parametrize("given", [".", "journal"])
def test_a_copy_beside_a_data_file_is_none_of_a_journal(name: str, given: str, data: Path) -> None:
    """Artemis 2.40 lists what ends in .amq."""
    before = [one.path for one in tallystick.explain(data / given).logs]
    (data / "journal" / name).write_bytes(damaged())
    explained = tallystick.explain(data / given)
    assert ([one.path for one in explained.logs], explained.exit_code) == (before, 0)
    (told,) = explained.problems
    assert f"1 file whose names no broker lists ({name})" in told.message
    assert len(tallystick.explain(data / "journal" / name).logs) == 1


def test_a_copy_of_a_lock_among_those_of_data_files_makes_no_journal(data: Path) -> None:
    (data / "journal/activemq-data-1.amq.bak").write_bytes(damaged())
    (data / "journal/serverlock.1.bak").write_bytes(b"")
    explained = tallystick.explain(data)
    (told,) = explained.problems
    assert ("2 files whose names no broker lists" in told.message, explained.exit_code) == (True, 0)


def test_another_folder_of_that_name_may_be_given(data: Path) -> None:
    shutil.move(data / "journal", data.parent / "attic")
    assert len(tallystick.explain(data.parent / "attic").logs) == 1


def test_files_of_hornetq_beside_those_of_artemis_are_told_apart(tmp_path: Path) -> None:
    """Artemis 2.40 starts with its own, and with no message of HornetQ's."""
    for source, extension in (("g3", "amq"), ("g3", "hq")):
        for number, items in ((1, [add(1)]), (2, [])):
            content = image(source, number, items, 4096)
            (tmp_path / f"{extension}-data-{number}.{extension}").write_bytes(content)
    rows = tallystick.triage(tmp_path).logs
    assert len({one.path for one in rows}) == len({one.command for one in rows}) == 2
    for one in rows:
        (log,) = tallystick.explain(shlex.split(one.command)[-1]).logs
        assert log.judgement.answer is Answer.SAFE
    found = [one for one in verify(tmp_path).findings if one.code == "older-generation"]
    assert [Path(one.file or "").name for one in found] == ["hq-data-1.hq"]
    assert found[0].message.startswith("Artemis, whose files lie in the same folder, never reads")
