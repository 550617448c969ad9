"""``tallystick salvage PATH --to TARGET``: what can be read, as something that loads."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.act.repair import wrapped
from tallystick.cli.interrupts import ended_by_signals
from tallystick.cli.options import (
    Command,
    NewPath,
    as_json,
    path_argument,
    read_options,
    reading_options,
)
from tallystick.cli.output import Printer, Unbroken, print_json, progress
from tallystick.printable import counted_kind
from tallystick.rescue import salvage
from tallystick.rescue.salvaging import FORMS


@click.command(cls=Command)
@path_argument
@click.option("--to", "target", type=NewPath(), required=True,
              help="File or folder to make; must not exist.")  # fmt: skip
@click.option("--as", "form", type=click.Choice(FORMS), required=True, help="What it is made for.")
@as_json
@reading_options
@click.pass_context
def command(
    ctx: click.Context, /, path: str, target: str, form: str, as_json: bool, **options: Any
) -> None:
    """Write what can be read of the logs below PATH as something that loads.

    h2-script is a script that H2 runs; derby-import a folder of files, with the calls that import
    them; parquet a folder with a file for each table; journal a new log of the same system, with
    all that can be believed; artemis-xml the messages that wait in Artemis, for artemis data imp.
    Tables are as of the end of the log, with commits that a restart drops; rows in doubt are left.
    Of a table its columns are made, not its indexes and constraints. Exits with 1 if anything is
    left.
    """
    with ended_by_signals(), progress("Salvaging"):
        found = salvage(path, target, form, options=read_options(**options))
    if as_json:
        print_json(found.to_dict())
    elif not found.target:
        wrapped(Printer(), str(found), "")
    else:
        out = Printer()
        for what, counts in (("brought", found.brought), ("left", found.left)):
            for name, count in counts.items():
                wrapped(out, f"{what}: {counted_kind(count, name)}")
        for note in found.notes:
            out.line(f"  note: {note}")
        out.line("Written: ", Unbroken(found.target), style="bold")
        out.line(Unbroken(f"  {found.next}"))
    ctx.exit(found.exit_code)
