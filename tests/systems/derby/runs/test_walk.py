"""The compiled walk is plain Python where numba is absent, and gives the same columns."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest

from tallystick.arrow.byte_kernels import Bytes
from tallystick.systems.derby.format.layout import HEADER_SIZE
from tallystick.systems.derby.runs import walk
from tests.systems.derby.logs import log_bytes


@pytest.fixture(scope="module")
def plain() -> ModuleType:
    """The module as it is without numba."""
    spec = importlib.util.spec_from_file_location("plain_walk", walk.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "numba", None)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("heads", [True, False])
def test_plain_functions_give_the_same_columns(plain: ModuleType, heads: bool) -> None:
    data = np.frombuffer(log_bytes("xa-indoubt"), np.uint8)
    compiled, interpreted = (_walked(module, data, heads=heads) for module in (walk, plain))
    assert compiled == interpreted
    assert compiled[0] == 285
    assert compiled[3] == walk.ENDED


def _walked(
    module: ModuleType, data: Bytes, *, heads: bool
) -> tuple[int, int, int, int, list[list[int]]]:
    programs, rows = (walk.HEADS, walk.HEAD_COLUMNS) if heads else (walk.BODIES, walk.BODY_COLUMNS)
    columns = np.zeros((rows, 1000), np.int64)
    large = np.zeros((walk.LARGE_COLUMNS, 1000), np.int64)
    covered = 0 if heads else len(data)
    count, checks, position, _, how = module.walk(
        data, 1, HEADER_SIZE, covered, len(data), columns, programs, large
    )
    return count, checks, position, how, columns[:, :count].tolist()


@pytest.mark.sampled(15)
@pytest.mark.parametrize("heads", [True, False])
@pytest.mark.parametrize("module", ["compiled", "plain"])
@pytest.mark.parametrize(
    "cut", [1, 12, 16, 25, 26, 40, 61, 75, 90, 100, 190], ids=lambda cut: f"cut-at-{cut}"
)
def test_cut_files_stop_the_walk_before_the_cut_record(
    plain: ModuleType, module: str, cut: int, heads: bool
) -> None:
    """The bytes after the cut are there, as those of another file would be; they are not read."""
    whole = np.frombuffer(log_bytes("xa-indoubt"), np.uint8)
    found = _walked(
        walk if module == "compiled" else plain, whole[: HEADER_SIZE + cut], heads=heads
    )
    assert found[:4] == (0, 0, HEADER_SIZE, walk.STUCK)
