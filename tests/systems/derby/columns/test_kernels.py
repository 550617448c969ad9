"""The compiled scan is plain Python where numba is absent, and gives the same columns."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest

from tallystick.arrow.byte_kernels import Bytes
from tallystick.systems.derby.columns import kernels
from tallystick.systems.derby.columns.batches import CONTENTS
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import HEADER_SIZE
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
    compiled, interpreted = (_scan(module, data) for module in (kernels, plain))
    assert compiled == interpreted
    assert compiled[0] == 285


def _scan(module: ModuleType, data: Bytes) -> tuple[int, int, int, list[list[int]]]:
    columns = np.zeros((kernels.COLUMNS, 1000), np.int64)
    large = np.zeros((kernels.LARGE_COLUMNS, 1000), np.int64)
    count, checks, position, _, how = module.scan_records(
        data, 1, HEADER_SIZE, 0, len(data), columns, CONTENTS, large
    )
    assert how == kernels.ENDED
    return count, checks, position, columns[:, :count].tolist()


@pytest.mark.parametrize("module", ["compiled", "plain"])
@pytest.mark.parametrize(
    "cut", [1, 12, 16, 25, 26, 40, 61, 75, 90, 100, 190], ids=lambda cut: f"cut-at-{cut}"
)
def test_cut_files_stop_the_scan_before_the_cut_record(
    plain: ModuleType, module: str, cut: int
) -> None:
    """The bytes after the cut are there, as those of another file would be; they are not read."""
    whole = np.frombuffer(log_bytes("xa-indoubt"), np.uint8)
    columns = np.zeros((kernels.COLUMNS, 1000), np.int64)
    large = np.zeros((kernels.LARGE_COLUMNS, 1000), np.int64)
    scan = (kernels if module == "compiled" else plain).scan_records
    data = whole[: HEADER_SIZE + cut]
    count, checks, position, _, how = scan(
        data, 1, HEADER_SIZE, 0, len(data), columns, CONTENTS, large
    )
    assert (count, checks, position, how) == (0, 0, HEADER_SIZE, kernels.STUCK)


def test_table_of_operations_follows_from_the_types_of_their_fields() -> None:
    assert CONTENTS[:, operations.INSERT].tolist() == [kernels.HAS_RECORD_ID, 0]
    assert CONTENTS[:, operations.UPDATE_ROW].tolist() == [kernels.HAS_RECORD_ID, 1]
    assert CONTENTS[:, operations.SET_RESERVED_SPACE].tolist() == [kernels.HAS_RECORD_ID, 1]
    assert CONTENTS[:, operations.BEGIN].tolist() == [kernels.HAS_GLOBAL_ID, 4]
    assert CONTENTS[:, operations.END].tolist() == [kernels.HAS_GLOBAL_ID, 0]
    assert CONTENTS[:, operations.PURGE].tolist() == [kernels.NO_ID, 0]
    assert CONTENTS[:, 1].tolist() == [kernels.UNKNOWN, kernels.UNKNOWN]
