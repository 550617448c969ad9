"""Folders that are made are durable, whoever has made them; a whole one is made or none."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.errors import LogClosedError
from tallystick.storage.local import LocalFileSystem, made_whole
from tests.interrupts import bytecodes_of, handlers, interrupted


def test_a_folder_that_a_killed_process_has_made_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fs = LocalFileSystem()
    monkeypatch.setattr(fs, "sync_dir", synced.append)
    (tmp_path / "log").mkdir()  # and the process ends before it syncs
    fs.mkdir(str(tmp_path / "log"))
    assert synced == [str(tmp_path)]
    fs.mkdir(str(tmp_path / "log" / "deep" / "deeper"))
    assert synced[1:] == [str(tmp_path), str(tmp_path / "log"), str(tmp_path / "log" / "deep")]


def test_a_parent_that_may_not_be_read_is_no_reason_to_refuse_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    fs = LocalFileSystem()
    monkeypatch.setattr(fs, "sync_dir", refuse)
    (tmp_path / "log").mkdir()
    fs.mkdir(str(tmp_path / "log"))


def test_a_folder_that_is_made_whole_is_durable_with_those_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(LocalFileSystem, "sync_dir", lambda _, path: synced.append(path))
    above = tmp_path / "a" / "b"
    with made_whole(above / "copy") as unfinished:
        (unfinished / "file").touch()
    assert synced == [str(one) for one in (unfinished, above, tmp_path / "a", tmp_path)]


@pytest.mark.long
def test_a_folder_that_is_not_made_whole_is_removed_wherever_a_signal_arrives(
    tmp_path: Path,
) -> None:
    target = tmp_path / "copy"

    def make() -> None:
        with made_whole(target) as unfinished:
            (unfinished / "file").touch()

    points = bytecodes_of(make)
    with handlers():
        for point in range(points):
            shutil.rmtree(target, ignore_errors=True)
            interrupted(make, point, signal.SIGINT)
            assert list(tmp_path.iterdir()) in ([], [target]), point


@pytest.mark.parametrize(
    "call",
    [
        lambda fs, path: fs.open(path),
        lambda fs, path: fs.create(path + "/below"),
        lambda fs, path: fs.size(path),
        lambda fs, path: fs.rename(path, path + ".new"),
        lambda fs, path: fs.remove(path),
        lambda fs, path: fs.sync_dir(path),
        lambda fs, path: fs.lock(path + "/lock"),
        lambda fs, path: LocalFileSystem().open(fs.through(path)),
    ],
    ids=["open", "create", "size", "rename", "remove", "sync_dir", "lock", "through"],
)
def test_an_error_in_a_folder_that_is_held_names_the_whole_path(
    call: Callable[[LocalFileSystem, str], object], tmp_path: Path
) -> None:
    path = str(tmp_path / "absent")
    fs = LocalFileSystem().hold(str(tmp_path))
    with pytest.raises(FileNotFoundError) as caught:
        call(fs, path)
    assert str(caught.value.filename).startswith(path)
    fs.close()


def test_what_is_appended_is_whole_where_the_system_takes_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    file = LocalFileSystem().open_to_append(str(tmp_path / "notes"))
    with monkeypatch.context() as patched:
        patched.setattr("os.write", lambda fd, data: write(fd, bytes(data)[:3]))
        file.pwrite(b"first\n", 0)
        file.pwrite(b"second\n", 0)
    file.close()
    assert (tmp_path / "notes").read_bytes() == b"first\nsecond\n"


def test_what_is_appended_may_be_synced_by_another_thread_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    file = LocalFileSystem().open_to_append(str(tmp_path / "notes"))

    def write_and_sync(fd: int, data: memoryview) -> int:
        written = write(fd, data)
        file.datasync()  # as in another thread, before the writer goes on
        return written

    with monkeypatch.context() as patched:
        patched.setattr("os.write", write_and_sync)
        file.pwrite(b"note\n", 0)
    file.close()
    with pytest.raises(LogClosedError):
        file.datasync()
