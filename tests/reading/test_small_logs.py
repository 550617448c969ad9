"""Judging logs of less than a megabyte loads neither NumPy nor numba, whatever their system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.reading.discovery import discover
from tallystick.services.journal import Journal
from tallystick.storage.source import source_size
from tests.fixtures import fixture_dir
from tests.sweeps import Sweep

SMALL_MAX = 1 << 20
FOLDERS = 5
HISTORIC = ("bitronix", "cloudtran", "derby", "h2", "jboss")
ASK = """
import sys
from contextlib import suppress
from tallystick.errors import TallystickError
from tallystick.reading.survey import explain, inspect, verify
from tallystick.reading.triaging import triage

for path in sys.argv[1:]:
    for ask in (explain, triage, inspect, verify):
        with suppress(TallystickError):
            ask(path)
        for module in ("numpy", "numba"):
            assert module not in sys.modules, (ask.__name__, path, module)
"""


def small_folders(root: Path) -> list[Path]:
    """Return the folders below a root whose logs are small, unpacked and all together."""
    folders = sorted({path.parent for path in root.rglob("*") if path.is_file()})
    return [one for one in folders if 0 < _size(one) < SMALL_MAX]


def _size(folder: Path) -> int:
    try:
        return sum(source_size(file) for log in discover(folder).logs for file in log.files)
    except LogUnreadableError:
        return SMALL_MAX


def ask_about(folders: list[Path]) -> None:
    subprocess.run([sys.executable, "-c", ASK, *map(str, folders)], check=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", HISTORIC)
def test_small_logs_are_judged_without_numpy_and_numba(system: str, sweep: Sweep) -> None:
    folders = small_folders(fixture_dir(system))
    assert folders
    ask_about(sweep.of(folders, FOLDERS))


def test_a_small_native_log_is_judged_without_numpy_and_numba(tmp_path: Path) -> None:
    with Journal(str(tmp_path / "journal")) as journal:
        for number in range(200):
            journal.add(number, bytes(100))
    ask_about([tmp_path])
