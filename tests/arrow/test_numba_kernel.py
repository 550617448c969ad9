"""Compiled functions and the files in which they are kept."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

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
