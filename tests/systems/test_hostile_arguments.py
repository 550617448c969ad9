"""Whatever a caller passes to a live log is that caller's error, or is in the log as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.hostile_calls import try_odd_arguments
from tests.systems.hostile_logs import LOGS


@pytest.mark.parametrize(
    "share", [pytest.param(0.05, id="sample"), pytest.param(1, id="all", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("name", LOGS)
def test_an_odd_argument_is_refused_to_its_caller_alone_or_stored_byte_for_byte(
    name: str, share: float, tmp_path: Path
) -> None:
    try_odd_arguments(LOGS[name], tmp_path, share)
