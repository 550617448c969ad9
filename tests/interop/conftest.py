"""The original systems, in Java."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.interop.java import be_quick
from tests.memory import ROOM, memory

be_quick()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is room: engines sync often, and no machine is killed."""
    with TemporaryDirectory(dir=memory(ROOM) or tmp_path, ignore_cleanup_errors=True) as made:
        yield Path(made)
