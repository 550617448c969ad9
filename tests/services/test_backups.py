"""A backup to where something is, what it copies above all, is refused, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick import Journal, PageStore
from tallystick.errors import LogUnreadableError, LogWriteError
from tests.kit import untouched

OPENED: dict[str, Callable[[Path], Any]] = {
    "journal": Journal,
    "shared journal": lambda path: Journal(path, shared=True),
    "page store": PageStore,
    "page store, h2": lambda path: PageStore(path, system="h2"),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "target", ["log", "log/copy", "log/log/copy", "log/../log/copy", "link/copy"]
)
@pytest.mark.parametrize("kind", OPENED)
def test_a_backup_inside_its_own_log_is_refused_and_writes_nothing(
    kind: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("log")
    with OPENED[kind](tmp_path / "log") as log:
        names = sorted(tmp_path.rglob("*"))
        with pytest.raises(LogWriteError, match="inside the log that is copied"):
            log.backup(target)
        assert sorted(tmp_path.rglob("*")) == names
        log.backup("log copy")
    with untouched(tmp_path / "log"):
        OPENED[kind](tmp_path / "log copy").close()


@pytest.mark.parametrize("target", ["full", "."])
@pytest.mark.parametrize("kind", OPENED)
def test_a_backup_to_a_folder_with_other_files_is_refused_and_writes_nothing(
    kind: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with OPENED[kind](tmp_path / "log") as log:
        names = sorted(tmp_path.rglob("*"))
        with pytest.raises(LogWriteError, match="absent or empty"):
            log.backup(target)
        assert sorted(tmp_path.rglob("*")) == names
        with pytest.raises(LogUnreadableError, match="cannot be the name"):
            log.backup("no\0name")
        with pytest.raises(ValueError, match="a path is empty"):
            log.backup("")
        with pytest.raises(ValueError, match="is a URL"):
            log.backup("s3://bucket/copy")
