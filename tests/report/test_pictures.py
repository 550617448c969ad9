"""Maps have positions, and lines have points enough to be lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallystick.arrow.schemas import RECORDS
from tallystick.report.data import PLACES, ReportData, load
from tallystick.report.pictures import Stripe, lines, stripes
from tests.report.conftest import write_table


def _record(offset: int, length: int, outcome: str = "valid") -> dict[str, Any]:
    place = {"system": "derby", "log": "/e/d", "file": "/e/d/log1.dat"}
    return place | {"offset": offset, "length": length, "outcome": outcome}


@pytest.mark.parametrize(
    ("records", "places"),
    [
        ([], "-" * PLACES),
        ([(0, 100)], "v" * PLACES),
        ([(50, 1)], "-" * 60 + "vv" + "-" * 58),
        ([(0, 10), (10, 5), (90, 10)], "v" * 18 + "-" * 90 + "v" * 12),
        ([(0, 100), (50, 25, "corrupt")], "v" * 60 + "c" * 30 + "v" * 30),
        ([(0, 50, "stale"), (0, 25), (99, 900, "torn")], "v" * 30 + "s" * 30 + "-" * 58 + "tt"),
    ],
)
def test_a_map_shows_the_gravest_record_at_each_place(
    tables: Path, records: list[tuple[Any, ...]], places: str
) -> None:
    write_table(tables, "records", RECORDS, [_record(*one) for one in records])
    assert load(tables).maps == {"/e/d/log1.dat": places}


def test_stripes_are_where_records_are() -> None:
    assert list(stripes("--vvc-")) == [Stripe(2, 2, "valid"), Stripe(4, 1, "corrupt")]


@pytest.mark.parametrize("points", range(5))
def test_fewer_than_three_points_are_no_line(points: int) -> None:
    rows = [
        {"clock": "boot_ms", "bucket": 60 * n, "transactions": n,
         "latency_p50": None, "group_records_avg": None}
        for n in range(points)
    ]  # fmt: skip
    found = lines(ReportData(profile={"/e/d": rows}))
    assert [len(one.points.split()) for one in found] == ([points] if points >= 3 else [])
