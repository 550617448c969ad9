"""Figures as shapes that a page draws without any script.

In: what stands at the places of a file; buckets of time. Out: numbers for inline SVG: stripes of a
map, points of a line. A line of fewer than three points is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from tallystick.reading.filters import TIME_OF_DAY
from tallystick.records import Clock
from tallystick.report.data import OUTCOMES, POINTS_MIN, ReportData, Row

WIDTH, HEIGHT = 200, 40
"""Of a line, in units of its own."""

SERIES = {
    "transactions": "transactions a minute",
    "latency_p50": "median commit, seconds",
    "group_records_avg": "records a transaction",
}
"""What is drawn over time: the column of the profile, and its name."""

_DATES = range(-62_135_596_800, 253_402_300_800)
"""Seconds since 1970 of the years that a date can have, 1 to 9999; a damaged clock has others."""


@dataclass(frozen=True, slots=True)
class Stripe:
    """Bytes of a file with one outcome, from place ``at`` for ``width`` places of the map."""

    at: int
    width: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of one log over time: its points, its ends and its greatest value."""

    log: str
    name: str
    points: str
    begin: str
    end: str
    most: str


def stripes(places: str) -> Iterator[Stripe]:
    """Yield what stands where in a file, without places that no record is at."""
    names, at = {outcome[0]: outcome for outcome in OUTCOMES}, 0
    for letter, run in groupby(places):
        width = len(list(run))
        if letter in names:
            yield Stripe(at, width, names[letter])
        at += width


def lines(data: ReportData) -> list[Line]:
    """Return what is drawn over time, log by log."""
    made = [
        _line(log, name, [row for row in rows if row[column] is not None], column)
        for log, rows in data.profile.items()
        for column, name in SERIES.items()
    ]
    return [one for one in made if one is not None]


def _line(log: str, name: str, rows: Sequence[Row], column: str) -> Line | None:
    wall = any(Clock(row["clock"]) in TIME_OF_DAY for row in rows)
    if wall:
        rows = [row for row in rows if row["bucket"] in _DATES]
    if len(rows) < POINTS_MIN:
        return None
    begin, end = rows[0]["bucket"], rows[-1]["bucket"]
    most = max(row[column] for row in rows)
    points = (
        f"{(row['bucket'] - begin) * WIDTH / ((end - begin) or 1):.1f},"
        f"{HEIGHT - row[column] * HEIGHT / (most or 1):.1f}"
        for row in rows
    )
    return Line(log, name, " ".join(points), _time(begin, wall), _time(end, wall), f"{most:,.4g}")


def _time(bucket: int, wall: bool) -> str:
    if wall:
        return datetime.fromtimestamp(bucket, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{bucket:,} s after its clock began"
