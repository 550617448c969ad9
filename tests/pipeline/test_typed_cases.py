"""Tables of the real engines: their typed feed, applied, is what `SELECT` showed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures import fixture_dir
from tests.pipeline.applied import applied, feed_of, rows_shown

CASES = sorted(
    one.name
    for one in fixture_dir("typed").iterdir()
    if one.name.startswith(("dec", "h-dc", "h-drop"))
)


def _path(case: str) -> Path:
    folder = fixture_dir("typed") / case
    return folder / ("db" if (folder / "db").is_dir() else "x.h2.db")


@pytest.mark.parametrize("case", CASES)
def test_the_typed_feed_applied_is_what_select_showed(case: str) -> None:
    folder, path = fixture_dir("typed") / case, _path(case)
    schema = "APP" if path.name == "db" else "PUBLIC"
    with (folder / "rows").open(encoding="utf-8") as lines:
        shown = rows_shown(lines)
    for table, (heads, rows) in shown.items():
        assert applied(feed_of(path, f"{schema}.{table.upper()}"), heads) == rows
    assert shown
