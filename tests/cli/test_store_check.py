"""``tallystick store check``: what it looks at, and that it makes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick import Journal, PageStore
from tests.cli.conftest import Run
from tests.kit import untouched


def _derby(folder: Path) -> None:
    (folder / "log").mkdir()
    (folder / "log" / "log.ctrl").write_bytes(b"\0" * 48)


def _journal(folder: Path) -> None:
    with Journal(folder) as log:
        log.append(b"x")


def _lost_pages(folder: Path) -> None:
    PageStore(folder).close()
    (folder / "pages").unlink()


MADE: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "a database": _derby,
    "a journal": _journal,
    "its log": _lost_pages,
}


@pytest.mark.parametrize("what", MADE)
def test_a_folder_without_a_page_store_is_not_made_one(run: Run, tmp_path: Path, what: str) -> None:
    MADE[what](tmp_path)
    with untouched(tmp_path):
        said = run("store", "check", tmp_path)
    assert said.code == 2
    assert "SAFE" not in said.out


@pytest.mark.parametrize("system", ["tally", "h2"])
def test_a_store_is_checked(run: Run, tmp_path: Path, system: str) -> None:
    PageStore(tmp_path, system=system).close()
    assert run("store", "check", tmp_path).code == 0
