"""`discovery`: logs by content, what is no log, and what could not be read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallystick import Journal
from tallystick.errors import LogUnreadableError
from tallystick.reading.discovery import Discovery, discover
from tallystick.systems.protocol import Folder, LogReading, LogSource, ReadOptions, System


@dataclass(frozen=True, kw_only=True)
class Marked(System):
    """A system whose logs are the files that begin with its mark; one log per folder."""

    mark: bytes

    def detect(self, folder: Folder) -> list[LogSource]:
        files = tuple(e.path for e in folder.entries if e.head.startswith(self.mark))
        return [LogSource(self.name, folder.path, files)] if files else []

    def read(self, source: LogSource, options: ReadOptions) -> LogReading:
        raise AssertionError(f"detection reads no log: {source}, {options}")


SYSTEMS: tuple[System, ...] = tuple(
    Marked(name=name, title=name, detector="", reader="", mark=mark)
    for name, mark in (("one", b"ONE"), ("two", b"TWO"))
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, content in {
        "a/1.log": b"ONE...",
        "a/2.log": b"ONE...",
        "a/notes.txt": b"hello",
        "b/deep/x.dat": b"TWO...",
        "b/mixed": b"ONE",
        "b/mixed2": b"TWO",
        "empty": b"",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def _logs(found: Discovery, root: Path) -> list[tuple[str, str, int]]:
    return [
        (log.system, str(Path(log.path).relative_to(root)), len(log.files)) for log in found.logs
    ]


def test_each_log_of_a_mixed_tree_is_found_once(tree: Path) -> None:
    found = discover(tree, known=SYSTEMS)
    assert _logs(found, tree) == [
        ("one", "a", 2),
        ("one", "b", 1),
        ("two", "b", 1),
        ("two", "b/deep", 1),
    ]
    assert not found.problems


def test_what_is_no_log_is_said_to_be_none(tree: Path) -> None:
    found = discover(tree, known=SYSTEMS)
    assert found.others == [str(tree / "empty"), str(tree / "a/notes.txt")]


def test_a_file_stands_for_its_log(tree: Path) -> None:
    found = discover(tree / "a/2.log", known=SYSTEMS)
    assert _logs(found, tree) == [("one", "a", 2)]
    assert found.others == []


def test_a_file_that_is_no_log_is_the_only_one_named(tree: Path) -> None:
    found = discover(tree / "a/notes.txt", known=SYSTEMS)
    assert found.logs == []
    assert found.others == [str(tree / "a/notes.txt")]


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LogUnreadableError, match="vanished"):
        discover(tmp_path / "gone", known=SYSTEMS)


def test_an_unreadable_file_is_a_finding_and_stops_nothing(tree: Path) -> None:
    (tree / "a/0.gz").write_bytes(b"not packed at all")
    found = discover(tree, known=SYSTEMS)
    assert [problem.file for problem in found.problems] == [str(tree / "a/0.gz")]
    assert len(found.logs) == 4


def test_a_broken_link_is_a_finding(tree: Path) -> None:
    (tree / "link").symlink_to(tree / "nowhere")
    found = discover(tree, known=SYSTEMS)
    assert [problem.code for problem in found.problems] == ["unreadable"]


def test_devices_and_pipes_are_never_opened(tree: Path) -> None:
    os.mkfifo(tree / "a/pipe")
    found = discover(tree, known=SYSTEMS)
    assert str(tree / "a/pipe") not in found.others


def test_a_remote_tree_is_searched_like_a_local_one() -> None:
    import fsspec

    for name, content in {"x/1.log": b"ONE", "x/y/2.log": b"TWO", "x/z": b"?"}.items():
        with fsspec.open(f"memory://tree/{name}", "wb") as stream:
            stream.write(content)
    found = discover("memory://tree/x", known=SYSTEMS)
    assert [(log.system, log.path) for log in found.logs] == [
        ("one", "memory:///tree/x"),
        ("two", "memory:///tree/x/y"),
    ]
    alone = discover("memory://tree/x/1.log", known=SYSTEMS)
    assert [log.files for log in alone.logs] == [("memory:///tree/x/1.log",)]
    assert alone.others == []


def test_a_folder_whose_path_is_too_long_is_a_problem_and_not_passed_over(tmp_path: Path) -> None:
    Journal(tmp_path / "log").close()
    deep = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("a" * 200, dir_fd=deep)
        below = os.open("a" * 200, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    found = discover(tmp_path)
    assert len(found.logs) == 1
    assert [one.code for one in found.problems] == ["unreadable"]
    assert "too long" in found.problems[0].message
