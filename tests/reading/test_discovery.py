"""`discovery`: logs by content, what is no log, and what could not be read."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallystick import Journal
from tallystick.errors import LogUnreadableError
from tallystick.reading.discovery import Discovery, discover
from tallystick.storage import source
from tallystick.systems import protocol
from tallystick.systems.protocol import Folder, LogReading, LogSource, ReadOptions, System
from tests.fixtures import fixture_dir


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


@pytest.mark.parametrize("typed", ["{name}", "./{name}", "{above}//{name}", "{above}/./{name}"])
def test_a_file_is_found_however_its_path_is_typed(
    tree: Path, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log, *_) = discover(tree, known=SYSTEMS).logs
    file = Path(log.files[0])
    monkeypatch.chdir(file.parent)
    found = discover(typed.format(name=file.name, above=file.parent), known=SYSTEMS)
    assert [Path(one).name for log in found.logs for one in log.files] == [
        Path(one).name for one in log.files
    ]


def test_a_file_that_is_no_log_is_the_only_one_named(tree: Path) -> None:
    found = discover(tree / "a/notes.txt", known=SYSTEMS)
    assert found.logs == []
    assert found.others == [str(tree / "a/notes.txt")]


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LogUnreadableError, match="vanished"):
        discover(tmp_path / "gone", known=SYSTEMS)


def test_a_link_to_nothing_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(LogUnreadableError, match="link to nowhere, which is not there"):
        discover(str(tmp_path / "link"))


def test_a_link_to_itself_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(LogUnreadableError, match="link to link, which leads in a circle"):
        discover(str(tmp_path / "link"))


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


def test_what_is_no_file_is_named_and_never_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a named pipe"), (Path(os.devnull), "a device")):
        with pytest.raises(LogUnreadableError, match=kind):
            discover(path)


def test_a_log_below_very_many_folders_is_found(tmp_path: Path) -> None:
    here, depth, pair = Path.cwd(), 1200, ("btm1.tlog.gz", "btm2.tlog.gz")
    os.chdir(tmp_path)
    try:
        for _ in range(depth):
            Path("d").mkdir()
            os.chdir("d")
        for name in pair:
            shutil.copy(fixture_dir("bitronix") / "wide" / name, name)
        found = discover(tmp_path)
        for name in pair:
            Path(name).unlink()
        for _ in range(depth):  # `shutil.rmtree` calls itself, and cannot
            os.chdir("..")
            Path("d").rmdir()
    finally:
        os.chdir(here)
    assert [len(one.files) for one in found.logs] == [2]


def test_the_only_numbered_file_of_a_log_is_part_of_it_where_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the log would be one whose files are gone."""
    database = tmp_path / "db"
    shutil.copytree(fixture_dir("derby") / "halted", database)
    refused = next(database.rglob("log1.dat*"))
    real = source.read_head

    def read_head(path: str, size: int) -> bytes:
        if Path(path) == refused:
            raise source.unreadable(path, PermissionError(13, "Permission denied"))
        return real(path, size)

    monkeypatch.setattr(protocol.source, "read_head", read_head)
    (log,) = discover(database).logs
    assert str(refused) in log.files


@pytest.mark.parametrize("name", [".btm1.tlog.Ab12cd", ".btm1.tlog.swp"])
def test_what_a_copy_or_an_editor_has_not_finished_is_no_log(name: str, tmp_path: Path) -> None:
    for number in (1, 2):
        packed = fixture_dir("bitronix") / "crash-mid-commit" / f"btm{number}.tlog.gz"
        with source.open_source(str(packed)) as one:
            (tmp_path / f"btm{number}.tlog").write_bytes(one.data)
    (tmp_path / name).write_bytes((tmp_path / "btm1.tlog").read_bytes()[:100_000])
    found = discover(tmp_path)
    assert [one.system for one in found.logs] == ["bitronix"]
    assert found.others == [f"{tmp_path}/{name}"]
