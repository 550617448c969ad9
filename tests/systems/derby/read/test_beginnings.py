"""Rows are the same at the end of a log, wherever the log begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures import fixture_dir
from tests.sweeps import Sweep
from tests.systems.derby.read.beginnings import Beginnings

DATABASES = (
    "derby_databases/inplace-compressed",
    "derby_databases/hard-upgraded-and-back",
    "typed/d-number-again/db",
)


@pytest.mark.parametrize("case", DATABASES)
def test_rows_at_the_end_do_not_depend_on_where_the_log_begins(case: str, sweep: Sweep) -> None:
    kind, _, path = case.partition("/")
    log = Beginnings(Path(fixture_dir(kind), path))
    expected = log.rows()
    assert expected
    for place in sweep.of(log.places[::5], 4):
        assert log.rows(place) == expected, place
