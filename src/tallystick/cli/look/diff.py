"""``tallystick diff A B``: what two copies have in common, and what each has alone."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.addresses import GivenPath
from tallystick.cli.answers import end_listing, listed
from tallystick.cli.look.rows import row_lines
from tallystick.cli.options import Command, as_json, read_options, reading_options
from tallystick.cli.output import Printer, Unbroken, place, print_json_lines
from tallystick.investigate.diff import Difference, Side, diff
from tallystick.printable import counted
from tallystick.records import Finding


@click.command(cls=Command)
@click.argument("a", type=GivenPath())
@click.argument("b", type=GivenPath())
@as_json
@reading_options
@click.pass_context
def command(ctx: click.Context, /, a: str, b: str, as_json: bool, **options: Any) -> None:
    """Tell where two copies of a log, or of a folder of logs, part, and what each has alone.

    Exit code 1 if they differ.
    """
    problems: list[Finding] = []
    found = diff(a, b, options=read_options(**options), problems=problems)
    out, differ = Printer(), False
    for one in found:
        differ = differ or not one.same
        if as_json:
            print_json_lines([one.to_dict()], streams=True)
        else:
            _show_difference(out, one)
    end_listing(ctx, problems, damaged=differ)


def _show_difference(out: Printer, one: Difference) -> None:
    out.line(Unbroken(f"{one.system}  {one.sides[0].log or one.sides[1].log}"), style="bold")
    both = f"{counted(one.records, 'record')} and {counted(one.rows, 'row')}"
    if one.same:
        out.line(f"  the same: {both}")
        return
    out.line(f"  in both: {both}")
    if one.last is not None:
        out.line("  they part after ", Unbroken(place(one.last.file, one.last.offset)))
    for name, side in zip("AB", one.sides, strict=True):
        _show_side(out, name, side)


def _show_side(out: Printer, name: str, side: Side) -> None:
    if side.log is None:
        out.line(f"  {name}: has no such log", style="bold red")
        return
    if side.earlier:
        out.line(f"  {name}: {counted(side.earlier, 'record')} from before the other one begins")
    ends = f"; transactions: {listed(side.ends)}" if side.ends else ""
    out.line((f"  {name} alone: {counted(side.records, 'record')}{ends}", "yellow"))
    out.line(f"    {counted(side.rows.total(), 'row')}: {listed(side.rows)}")
    for row in side.shown:
        shown = row.to_dict() | {"kind": f"{row.fate.words} {row.change.kind}"}
        for line in row_lines(shown):
            out.line(line)
