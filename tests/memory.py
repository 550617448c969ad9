"""Where files are in memory: for what depends on no disk, as syncs cost nothing there.

A plugin of pytest. The files of a test are in memory where there is room: no test has a machine
lose its power, and what a process that is killed has written is with the kernel in either place.
Those of `ON_DISK` are on a disk, as everything is with TALLYSTICK_DISK=1.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

ROOM: Final = 8 << 30
"""Bytes that are free there before what makes files of hundreds of megabytes goes there."""

ON_DISK: Final = "tests/storage/"
"""Where tests are of what hands files to a disk."""

_FAILED = pytest.StashKey[bool]()


def memory(room: int = 0) -> str | None:
    """Return a folder whose files are in memory, for ``dir=`` of `tempfile`.

    None, which is the usual folder, where there is none, or no more free bytes than ``room``.
    """
    place = Path("/dev/shm")
    if "TALLYSTICK_DISK" in os.environ or not place.is_dir():
        return None
    return str(place) if shutil.disk_usage(place).free > room else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember what failed."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder of the test's own; what it leaves is kept on the disk where the test failed."""
    place = None if request.node.nodeid.startswith(ON_DISK) else memory(ROOM)
    if place is None:
        yield tmp_path
        return
    with TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as made:
        path = Path(made) / "test"  # some write beside it
        path.mkdir()
        yield path
        if request.node.stash.get(_FAILED, False):
            with suppress(OSError):  # sockets, and what went meanwhile
                shutil.copytree(path, tmp_path / "left", symlinks=True)
