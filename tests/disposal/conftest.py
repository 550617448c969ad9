"""A log file to dispose of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disposal.kit import CONTENT


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "log" / "translog-1.ctlog"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path
