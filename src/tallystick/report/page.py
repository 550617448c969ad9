"""Render one self-contained HTML page: no external requests, no external scripts.

In: the folder of the tables. Out: one HTML file with its charts, styles and scripts inside.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tallystick import __version__
from tallystick.errors import LogWriteError, MissingExtraError
from tallystick.printable import printable
from tallystick.report.data import LINES_MAX, ROWS_MAX, SEVERITIES, ReportData, load
from tallystick.storage.local import LOCAL, write_anew

ROWS_SHOWN = 40
"""Rows of a list that are shown at first."""

RESOLUTIONS = {
    "commit": "commit",
    "rollback": "roll back",
    "foreign": "leave to its coordinator",
    "heuristic_mismatch": "mend by hand",
}
"""What is due, in words; in this order on the page."""


def write_report(tables: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Write the report on the tables in a folder; returns its absolute path.

    Raises `LogUnreadableError` where tables are missing, `LogWriteError` where the page cannot
    be written.
    """
    text = render(load(Path(tables)), str(tables))
    path = Path(target).absolute()
    partial = path.with_name(path.name + ".partial")
    try:
        LOCAL.mkdir(str(path.parent))
        with write_anew(partial) as out:
            out.write(text.encode())
        partial.replace(path)
    except OSError as error:
        raise LogWriteError(f"cannot write the report: {error.strerror}", file=str(path)) from error
    return path


def render(data: ReportData, tables: str) -> str:
    """Return the page as text."""
    try:
        import jinja2
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtraError(str(error.name), "report") from error
    from tallystick.report.charts import charts

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tallystick.report", "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["hex"] = lambda value: bytes(value).hex() if value is not None else ""
    environment.filters["words"] = lambda value: (value or "").replace("_", " ")
    environment.filters["dashed"] = lambda value: value.replace("-", " ")
    figures = charts(data)
    return environment.get_template("report.html.j2").render(
        data=data,
        tables=tables,
        version=__version__,
        now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        due=sum(data.resolutions.values()) - data.resolutions["none"],
        severe=data.severities["loss"] + data.severities["damage"],
        resolutions=RESOLUTIONS,
        severities=SEVERITIES,
        rows_max=ROWS_MAX,
        rows_shown=ROWS_SHOWN,
        lines_max=LINES_MAX,
        figures=sorted(figures),
        figures_json=_script_safe(figures),
        plotly=get_plotlyjs(),
    )


def _shown(value: Any) -> Any:
    """Escape control characters and marks of direction in what logs said, not in our scripts."""
    return printable(value) if type(value) is str else value


def _script_safe(value: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    return json.dumps(value).replace("<", "\\u003c").replace("\u2028", "\\u2028")
