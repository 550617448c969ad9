"""Charts of the report, as plotly figures without colours of paper and text.

In: `ReportData`. Out: figures by name, as plain JSON values; the page paints them in the
colours of its theme. A chart without anything to show is left out.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

try:
    import plotly.graph_objects as go
except ImportError as error:
    from tallystick.errors import MissingExtraError

    raise MissingExtraError("plotly", "report") from error

from tallystick.printable import printable
from tallystick.records import Clock, State
from tallystick.report.data import OUTCOMES, SEVERITIES, ReportData

# Okabe and Ito's palette: readable with every kind of colour vision, on white and on black.
_GREEN, _BLUE, _SKY, _ORANGE = "#009E73", "#0072B2", "#56B4E9", "#E69F00"
_RED, _PINK, _YELLOW, _GREY = "#D55E00", "#CC79A7", "#F0E442", "#999999"

LABEL_MAX = 30
"""Characters of a label beside a row; the hover text has the whole path."""

COLOURS = {
    State.COMMITTED: _GREEN,
    State.COMMITTING: _ORANGE,
    State.PREPARED: _RED,
    State.UNDECIDED: _PINK,
    State.ACTIVE: _SKY,
    State.ROLLED_BACK: _BLUE,
    State.ROLLING_BACK: _BLUE,
    State.HEURISTIC: _RED,
    State.PENDING: _YELLOW,
    State.INCOMPLETE: _RED,
    State.UNKNOWN: _GREY,
}

OUTCOME_COLOURS = {
    "valid": _GREEN,
    "torn": _ORANGE,
    "corrupt": _RED,
    "stale": _SKY,
    "unused": _GREY,
}

SEVERITY_COLOURS = {"loss": _RED, "damage": _ORANGE, "warning": _YELLOW, "info": _SKY}


OVER_TIME = {
    "rate": ("transactions", "transactions per minute"),
    "latency": ("latency_p50", "seconds (median)"),
    "groups": ("group_records_avg", "records per transaction"),
}
"""Charts over time: the column of the profile, and what its axis says."""

_DATES = range(-62_135_596_800, 253_402_300_800)
"""Seconds since 1970 of the years that a date can have, 1 to 9999; a damaged clock has others."""
_WALL = frozenset({Clock.WALL_MS.value, Clock.WALL_US.value, Clock.WALL_NS.value})


def charts(data: ReportData) -> dict[str, dict[str, Any]]:
    """Return every chart that has something to show."""
    made = {
        "states": _states(data),
        "segments": _segments(data),
        "severities": _severities(data),
    }
    for name, (column, title) in OVER_TIME.items():
        made[name] = _over_time(data, column, title, wall=True)
        made[f"{name}-since-start"] = _over_time(data, column, title, wall=False)
    return {name: json.loads(figure.to_json()) for name, figure in made.items() if figure.data}


def labels(paths: Sequence[str]) -> list[str]:
    """Paths below their common folder, cut at the front where they are long."""
    if len(set(paths)) < 2:
        return [path.rstrip("/").rpartition("/")[2] for path in paths]
    root = os.path.commonpath(paths)
    below = [os.path.relpath(path, root) for path in paths]
    return ["…" + text[1 - LABEL_MAX :] if len(text) > LABEL_MAX else text for text in below]


def shown(text: str) -> str:
    """Return text of a log that the chart library shows as it is: it knows tags and entities."""
    return html.escape(printable(text), quote=False)


def _states(data: ReportData) -> go.Figure:
    logs = data.telling
    figure = _figure("transactions", stacked=True, rows=len(logs))
    for state in State:
        counts = [data.states[key][state.value] for key in logs]
        if any(counts):
            figure.add_bar(
                y=list(range(len(logs))),
                x=counts,
                customdata=[shown(log) for _, log in logs],
                name=state.value.replace("_", " "),
                orientation="h",
                marker_color=COLOURS[state],
                hovertemplate="%{x} %{fullData.name}<br>%{customdata}<extra></extra>",
            )
    _name_rows(figure, labels([log for _, log in logs]))
    return figure


def _segments(data: ReportData) -> go.Figure:
    files = data.files
    figure = _figure("share of the file's bytes", stacked=True, rows=len(files))
    for outcome in OUTCOMES:
        if any(row[outcome] for row in files):
            figure.add_bar(
                y=list(range(len(files))),
                x=[100 * row[outcome] / row["size"] if row["size"] else 0 for row in files],
                customdata=[
                    [row[outcome], shown(row["file"]), shown(row["why"] or "")] for row in files
                ],
                name=outcome,
                orientation="h",
                marker_color=OUTCOME_COLOURS[outcome],
                hovertemplate=(
                    "%{customdata[0]:,} bytes %{fullData.name}<br>%{customdata[1]}"
                    "<br>%{customdata[2]}<extra></extra>"
                ),
            )
    names = labels([row["file"] for row in files])
    marks = [" (redundant)" if row["redundant"] else "" for row in files]
    _name_rows(figure, [name + mark for name, mark in zip(names, marks, strict=True)])
    figure.update_xaxes(ticksuffix=" %", range=[0, 100])
    return figure


def _name_rows(figure: go.Figure, names: list[str]) -> None:
    """Names beside the rows; they are numbered, so that equal names stay apart."""
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=[shown(name) for name in names])


def _severities(data: ReportData) -> go.Figure:
    figure = _figure("findings", rows=len(data.severities))
    known = [severity for severity in SEVERITIES if data.severities[severity]]
    if known:
        figure.add_bar(
            y=known,
            x=[data.severities[severity] for severity in known],
            customdata=[data.at_risk[severity] for severity in known],
            orientation="h",
            marker_color=[SEVERITY_COLOURS[severity] for severity in known],
            hovertemplate="%{x} of %{y}<br>%{customdata:,} bytes at risk<extra></extra>",
        )
    return figure


def _over_time(data: ReportData, column: str, title: str, *, wall: bool) -> go.Figure:
    """Return logs with times of day, or those that count from a start: they share no axis."""
    figure = _figure("time (UTC)" if wall else "seconds of the log's own clock", rows=8)
    rows = [row for row in data.profile if row[column] is not None]
    rows = [row for row in rows if (row["clock"] in _WALL) is wall]
    rows = [row for row in rows if not wall or row["bucket"] in _DATES]
    logs = sorted({row["log"] for row in rows})
    for log, name in zip(logs, labels(logs), strict=True):
        points = [row for row in rows if row["log"] == log]
        buckets = [row["bucket"] for row in points]
        figure.add_scatter(
            x=[datetime.fromtimestamp(one, UTC) for one in buckets] if wall else buckets,
            y=[row[column] for row in points],
            name=shown(name),
            meta=shown(log),
            mode="lines+markers",
            hovertemplate="%{y}<br>%{fullData.meta}<extra></extra>",
        )
    figure.update_yaxes(title_text=title, rangemode="tozero", autorange=True)
    return figure


def _figure(x_title: str, *, stacked: bool = False, rows: int = 1) -> go.Figure:
    """Return an empty figure, high enough for its rows, in no colours of its own."""
    figure = go.Figure()
    figure.update_layout(
        barmode="stack" if stacked else "group",
        height=110 + 26 * max(rows, 2),
        margin={"l": 10, "r": 10, "t": 10, "b": 40},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    figure.update_xaxes(title_text=x_title, automargin=True)
    figure.update_yaxes(automargin=True, autorange="reversed")
    return figure
