"""``tallystick convert SOURCE TARGET --to SYSTEM``: a log of another system, nothing lost."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.output import Printer, as_json, print_json, read_options, reading_options
from tallystick.convert.command import CONVERTIBLE, convert
from tallystick.systems.registry import systems_with

SYSTEMS = sorted({name for role in CONVERTIBLE for name in systems_with(role)})


@click.command()
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option("--to", type=click.Choice(SYSTEMS), required=True, help="System of the new log.")
@click.option("--force", is_flag=True, help="Convert what can be believed of a damaged log.")
@as_json
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: str,
    target: str,
    to: str,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Make the log at SOURCE into a new log of another system in the folder TARGET.

    SOURCE is only read, and has to be closed. TARGET gets its name when it is whole. What is
    over, and what the other format cannot say, is counted. Exit code 1 if the log held
    transactions that could not be carried whole.
    """
    report = convert(source, target, to, force=force, options=read_options(**options))
    if as_json:
        print_json(report.to_dict())
    else:
        out = Printer()
        out.line(f"{report.source_system} {report.role} → {report.target_system}: {report.target}")
        for what, count in sorted(report.carried.items()):
            out.line(f"  carried over: {count:,} {what}")
        for what, count in sorted(report.left.items()):
            if count:
                out.line(f"  without counterpart: {count:,} {what}", style="dim")
    ctx.exit(int(report.left["transactions with holes"] > 0))
