"""The compiled walk is plain Python where numba is absent, and gives the same columns."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.derby.columns import kernels
from tallystick.systems.derby.columns.batches import OPERATION_IDS
from tests.systems.derby.logs import log_bytes


@pytest.fixture(scope="module")
def plain() -> ModuleType:
    """The module as it is without numba."""
    spec = importlib.util.spec_from_file_location("plain_kernels", kernels.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "numba", None)
        spec.loader.exec_module(module)
    return module


def test_plain_functions_give_the_same_columns(plain: ModuleType) -> None:
    data = np.frombuffer(log_bytes("xa-indoubt"), np.uint8)
    compiled, interpreted = (_walk(module, data) for module in (kernels, plain))
    assert compiled == interpreted
    assert compiled[0] == 285


def _walk(module: ModuleType, data: kernels.Bytes) -> tuple[int, int, int, list[list[int]]]:
    columns = np.zeros((kernels.COLUMNS, 1000), np.int64)
    large = np.zeros((5, 1000), np.int64)
    count, checks, position, how = module.walk(
        data, 1, 24, len(data), columns, OPERATION_IDS, module.CRC_TABLES, large
    )
    assert how == kernels.ENDED
    return count, checks, position, columns[:, :count].tolist()


@given(st.binary(max_size=200))
def test_crc_in_slices_is_the_common_one(data: bytes) -> None:
    array = np.frombuffer(data, np.uint8)
    assert kernels.crc_of(array, 0, len(array), kernels.CRC_TABLES) == zlib.crc32(data)


def test_views_hold_short_bytes_and_point_to_long_ones(plain: ModuleType) -> None:
    data = np.frombuffer(bytes(range(100)), np.uint8)
    starts, sizes = np.array([3, 10, 50]), np.array([12, 13, 0])
    for module in (kernels, plain):
        views = np.zeros((3, 16), np.uint8)
        module.put_views(data, starts, sizes, views)
        assert views[0].tobytes() == b"\x0c\0\0\0" + bytes(range(3, 15))
        assert (
            views[1].tobytes() == b"\x0d\0\0\0" + bytes(range(10, 14)) + b"\0" * 4 + b"\x0a\0\0\0"
        )
        assert not views[2].any()
