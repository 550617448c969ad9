"""The whole pipeline over the example estate: all tables, the report, and a summary.

In: ``examples/estate``, or the paths given as arguments. Out: ``out/tables``, ``out/report.html``
and, on the terminal, what was found, what is in doubt, and what a restart would do.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tallystick.answers import headline
from tallystick.cli.output import console
from tallystick.cli.summary import show_summary
from tallystick.pipeline.runner import Run
from tallystick.pipeline.session import start
from tallystick.reading import explain
from tallystick.report import write_report

HERE = Path(__file__).parent
OUT = HERE.parent / "out"


def main(sources: list[str]) -> None:
    """Run everything over ``sources``."""
    out = console()
    out.print(Text("1. What a restart of each system would do, from its log alone", "bold"))
    for source in sources:
        show_restarts(out, source)
    out.print(Text("\n2. All logs together, through Spark", "bold"))
    spark = start("local[*]")
    try:
        summary = Run(sources, str(OUT / "tables"))(spark)
    finally:
        spark.stop()
    show_summary(out, summary, str(OUT / "tables"))
    report = write_report(OUT / "tables", OUT / "report.html")
    out.print(Text(f"\n3. Look at it: {report.as_uri()}", "bold"))


def show_restarts(out: Console, source: str) -> None:
    """One line per log: what its own recovery would do."""
    answer = explain(source)
    for verdict in answer.logs:
        place = Path(verdict.path).relative_to(source) if verdict.path != source else "."
        out.print(Text(f"  {verdict.system:<9} {place}"))
        style = "bold red" if verdict.differences else ""
        out.print(Text(f"            {headline(verdict)}", style))


if __name__ == "__main__":
    main(sys.argv[1:] or [str(HERE / "estate")])
