"""Compiled functions and the files in which they are kept."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallystick
from tallystick.arrow import numba_kernel
from tallystick.arrow.numba_kernel import _own_folder

SOURCE = """
from tallystick.arrow.numba_kernel import kernel

@kernel
def total(data):
    result = 0
    for place in range(data.size):
        result += data[place]
    return result
"""


def _as_another_process(path: Path) -> Any:
    """Return the function as a process has it that has just imported it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.total


def test_only_what_no_earlier_process_has_compiled_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summed_once.py"
    path.write_text(SOURCE)
    told: list[str] = []
    for _ in range(2):
        monkeypatch.setattr(numba_kernel, "_said", set())
        with numba_kernel.noticed(told.append):
            assert _as_another_process(path)(np.ones(100, np.uint8)) == 100
            assert _as_another_process(path)(np.ones(100, np.uint8)) == 100
    (line,) = told
    assert "summed_once for this machine, once" in line


def test_processes_that_compile_at_the_same_moment_never_get_each_others_code(
    tmp_path: Path,
) -> None:
    path = tmp_path / "summed.py"
    path.write_text(SOURCE)
    one, other = _as_another_process(path), _as_another_process(path)
    files, others = one._cache._cache_file, other._cache._cache_file
    late: list[Callable[[], None]] = []
    write = files._save_data
    files._save_data = lambda *given: late.append(lambda: write(*given))
    others._load_index = dict  # it has read the index before the first one has written it
    octets, words = np.ones(100, np.uint8), np.ones(100, np.int64)
    assert one(octets) == other(words) == 100
    (finish,) = late
    finish()
    for data in (octets, words):
        later = _as_another_process(path)
        assert later(data) == 100
        assert len(later.signatures) == 1


LATER = """
import numpy
from tallystick.arrow import numba_kernel
import summed_together
told = []
with numba_kernel.noticed(told.append):
    print("begun", flush=True)
    print(summed_together.total(numpy.ones(7, numpy.int64)), told)
"""


def test_what_one_process_compiles_another_one_waits_for_and_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summed_together.py"
    path.write_text(SOURCE)
    with path.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        paths = (str(tmp_path), str(Path(tallystick.__file__).parents[1]))
        later = subprocess.Popen(
            [sys.executable, "-c", LATER],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert later.stdout is not None
        assert later.stdout.readline() == "begun\n"
        monkeypatch.setattr(numba_kernel, "_lock", lambda _: None)  # it is held for this process
        monkeypatch.syspath_prepend(tmp_path)
        assert importlib.import_module(path.stem).total(np.ones(7, np.int64)) == 7
    printed, _ = later.communicate(timeout=60)
    assert printed == "7 []\n"


def test_whoever_holds_a_source_file_for_ever_delays_a_compilation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summed_in_vain.py"
    path.write_text(SOURCE)
    monkeypatch.setattr(numba_kernel, "_LONGEST_WAIT_S", 0.1)
    with path.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        assert _as_another_process(path)(np.ones(7, np.int64)) == 7
    assert numba_kernel._locked == set()


NOBODY = 65534
CHILD = f"""
import os, tempfile
import numba, numpy
import tallystick.arrow.numba_kernel
numba.njit(lambda one: one)(1)  # what Python itself needs may be open to root alone
if os.geteuid() == 0:  # no permission binds root
    os.setuid({NOBODY})
import summed
print(summed.total(numpy.ones(7, numpy.int64)))
"""


@pytest.fixture
def installed() -> Iterator[Path]:
    """Return a folder with a module of kernels, and ``tmp``, the only folder that can be written.

    Every user can come to it, unlike to pytest's.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "summed.py").write_text(SOURCE)
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o1777)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


def test_a_user_without_a_home_has_kernels_compiled_and_kept_in_a_folder_of_its_own(
    installed: Path,
) -> None:
    environment = {
        "HOME": "/nonexistent", "TMPDIR": f"{installed}/tmp", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join((str(installed), str(Path(tallystick.__file__).parents[1]))),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "7", "")
    (own,) = (installed / "tmp").iterdir()
    assert own.stat().st_mode & 0o777 == 0o700
    assert list(own.rglob("*.nbi"))


def test_where_no_cache_can_be_kept_kernels_are_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba.core import caching

    (tmp_path / "summed.py").write_text(SOURCE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert _as_another_process(tmp_path / "summed.py")(np.ones(7, np.int64)) == 7


def test_a_cache_that_cannot_be_read_or_written_fails_no_call(tmp_path: Path) -> None:
    path = tmp_path / "summed.py"
    path.write_text(SOURCE)
    total = _as_another_process(path)
    total._cache._cache_file._index_path = str(tmp_path)  # a folder: neither opens
    assert total(np.ones(7, np.int64)) == 7


@pytest.mark.parametrize(
    ("around", "mode", "used"),
    [
        (0o1777, None, True), (0o1777, 0o700, True), (0o755, 0o700, True), (0o1777, 0o770, False),
        (0o1777, 0o777, False), (0o777, 0o700, False), (0o775, None, False),
    ],
)  # fmt: skip
def test_code_is_kept_only_in_a_folder_that_no_other_user_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, around: int, mode: int | None, used: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"tallystick-numba-{os.geteuid()}"
    if mode is not None:
        folder.mkdir()
        folder.chmod(mode)
    tmp_path.chmod(around)
    assert _own_folder() == (folder if used else None)


def test_code_is_not_kept_where_a_link_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / f"tallystick-numba-{os.geteuid()}").symlink_to(elsewhere)
    assert _own_folder() is None
