"""``tallystick asof PATH``: the rows at a moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import click

from tallystick.cli.answers import end_listing, listed
from tallystick.cli.filtering import COLLECTION_HELP, last_moment_of
from tallystick.cli.look.rows import row_lines
from tallystick.cli.options import Command, as_json, paths_argument, read_options, reading_options
from tallystick.cli.output import Printer, Unbroken, print_json_lines
from tallystick.investigate.asof import Known, Moment, RowThen, asof
from tallystick.printable import counted
from tallystick.records import Finding
from tallystick.systems.registry import system

_KNOWN = {
    Known.PART: "in part: other columns were last written before the log began",
    Known.NOTHING: "it was there: it is changed later, and the log has no image of before",
}


@click.command(cls=Command)
@paths_argument
@click.option(
    "--time",
    metavar="TIME",
    callback=last_moment_of,
    help="After all commits up to it; a day, minute ... is meant to its end.",
)
@click.option("--lsn", type=int, help="After all commits up to this one.")
@click.option(
    "--before", metavar="TX", help="Before a transaction: number, NUMBER@COMMIT, global id."
)
@click.option("--table", "--collection", "table", help=COLLECTION_HELP)
@as_json
@reading_options
@click.pass_context
def command(
    ctx: click.Context, /, paths: tuple[str, ...], table: str | None, as_json: bool, **options: Any
) -> None:
    """Print the rows below PATHS as they were at a moment, and what of them cannot be known.

    Rows that were last written before the log began are known where the database is beside it.
    """
    moment = Moment(*(options.pop(name) for name in ("time", "lsn", "before")))
    if [moment.time, moment.lsn, moment.before].count(None) != 2:
        raise click.UsageError("name one moment: --time, --lsn or --before")
    problems: list[Finding] = []
    found = asof(paths, moment, table, options=read_options(**options), problems=problems)
    if as_json:
        print_json_lines((one.to_dict() for one in found), streams=True)
    else:
        _show_then(found)
    end_listing(ctx, problems)


def _show_then(found: Iterable[RowThen]) -> None:
    out, counts, log, of_database = Printer(streams=True), Counter[str](), ("", ""), False
    for one in found:
        counts[one.known] += 1
        if (one.system, one.log) != log:
            log = one.system, one.log
            of_database = of_database or system(one.system).dialect is not None
            out.line(Unbroken(f"{one.system}  {one.log}"), style="bold")
        row = one.to_dict() | {"kind": "", "after": one.image and one.image.hex(), "before": None}
        for line in row_lines(row):
            out.line(line)
        if one.known is not Known.WHOLE:
            out.line(f"      {_KNOWN[one.known]}", style="yellow")
    said = f"{counted(counts.total(), 'row')}: {listed(counts)}" if counts else "No row"
    out.line(said, style="bold")
    if of_database:
        out.line(
            "Rows that no record is about: only the database beside the log tells them.",
            style="dim",
        )
