"""What services make is their owner's alone, whatever the umask allows, and follows no link."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.errors import TallystickError
from tests.fuzz.services import TARGETS


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Return what below a folder others may read, or write, or list."""
    found = [path for path in folder.rglob("*") if not path.is_symlink()]
    assert found
    return [str(path) for path in found if path.stat().st_mode & 0o077]


@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize("target", TARGETS)
def test_everything_that_a_service_makes_is_its_owners_alone(target: str, tmp_path: Path) -> None:
    shared_memory = set(Path("/dev/shm").glob("*tally*"))
    TARGETS[target].make(tmp_path)
    TARGETS[target].use(tmp_path)
    assert open_to_others(tmp_path) == []
    new = set(Path("/dev/shm").glob("*tally*")) - shared_memory
    assert [str(path) for path in new if path.stat().st_mode & 0o077] == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", TARGETS)
def test_no_file_of_a_service_is_written_through_a_link(target: str, tmp_path: Path) -> None:
    """Each file in turn is a link to a file elsewhere, which stays as it is."""
    made = tmp_path / "made"
    made.mkdir()
    TARGETS[target].make(made)
    names = [path.relative_to(made) for path in sorted(made.rglob("*")) if path.is_file()]
    assert names
    for number, name in enumerate(names):
        work = tmp_path / str(number)
        shutil.copytree(made, work)
        elsewhere = tmp_path / f"elsewhere{number}"
        (work / name).rename(elsewhere)
        (work / name).symlink_to(elsewhere)
        before = elsewhere.read_bytes()
        with contextlib.suppress(TallystickError):
            TARGETS[target].use(work)
        assert elsewhere.read_bytes() == before, name
