"""Tables of the real engines: their typed feed, applied, is what `SELECT` showed."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tallystick.pipeline.planning import find
from tallystick.systems.protocol import Catalogued, ReadOptions
from tallystick.systems.registry import system
from tests.fixtures import fixture_dir
from tests.pipeline.applied import applied, feed_of, histories, rows_shown

CASES = sorted(one.name for one in fixture_dir("typed").iterdir())
WITHOUT_KEY = "h-days-1.4.199"
"""The case whose table has no primary key."""


def _path(case: str) -> Path:
    folder = fixture_dir("typed") / case
    return folder / ("db" if (folder / "db").is_dir() else "x.h2.db")


@pytest.mark.sampled(10)
@pytest.mark.parametrize("case", CASES)
def test_the_typed_feed_applied_is_what_select_showed(case: str) -> None:
    folder, path = fixture_dir("typed") / case, _path(case)
    schema = "APP" if path.name == "db" else "PUBLIC"
    with (folder / "rows").open(encoding="utf-8") as lines:
        shown = rows_shown(lines)
    names = [f"{schema}.{table.removeprefix('PUBLIC.').upper()}" for table in shown]
    for (heads, rows), found in zip(shown.values(), histories(path, names), strict=True):
        assert applied(found, heads) == rows
    assert shown


@pytest.mark.parametrize("case", CASES)
def test_the_primary_key_is_that_of_the_catalogue(case: str) -> None:
    """Tables that are dropped and whose number is given again are among them."""
    (source,) = find((str(_path(case)),)).logs
    reading = system(source.system).read(source, ReadOptions())
    assert isinstance(reading, Catalogued)
    keys = {one.name: one.key for one in reading.collections()}
    users = {key for name, key in keys.items() if name.startswith(("APP.", "PUBLIC."))}
    assert users == {("ID",) if case != WITHOUT_KEY else ()}


def test_a_table_that_is_made_again_begins_empty() -> None:
    """So a stream that has given the rows of the one before takes them back."""
    feed = feed_of(_path("d-made-again"), "APP.T")
    assert [one["_change_type"] for one in feed] == ["truncate", "insert"]


def test_a_row_from_before_the_log_is_known_where_h2_deletes_or_changes_it() -> None:
    rows = feed_of(_path("h-reopened"), "PUBLIC.T")
    old = {row["ID"]: row for row in rows if row["_change_type"] in ("delete", "update_preimage")}
    assert [old[at]["V"] for at in (1, 2, 4)] == ["one", "two", "four"]
    assert [old[at]["E"] for at in (1, 2, 4)] == ["a", "b", "a"]
    assert (old[1]["C"], old[2]["C"], len(old[4]["C"])) == ("uno", None, 5000)


def test_a_date_that_spark_cannot_hold_is_rescued_alone() -> None:
    far, near = feed_of(_path("h-dates-far"), "PUBLIC.T")
    assert (far["ID"], far["DA"], far["_rescued"]) == (1, None, '{"DA": "10000-01-01"}')
    assert (near["ID"], near["DA"], near["_rescued"]) == (2, datetime.date(2020, 1, 1), None)
