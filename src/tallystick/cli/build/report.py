"""``tallystick report DIR``: pages made from the tables."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.cli.options import Command, NewPath, as_json
from tallystick.cli.output import print_json, say


@click.command(cls=Command)
@click.argument("tables", metavar="DIR", type=click.Path())
@click.option("-o", "--output", type=NewPath(dir_okay=False), help="The page; DIR/report.html.")
@as_json
def command(tables: str, output: str | None, as_json: bool) -> None:
    """Write one self-contained HTML page from the tables in DIR."""
    from tallystick.report import write_report

    path = write_report(tables, output or Path(tables) / "report.html")
    if as_json:
        print_json({"report": str(path)})
    else:
        say(str(path), err=not path.is_file())
