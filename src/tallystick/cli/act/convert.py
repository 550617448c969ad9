"""``tallystick convert SOURCE TARGET``: a log of one system as a log of another."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.addresses import GivenPath
from tallystick.cli.interrupts import ended_by_signals
from tallystick.cli.options import (
    Command,
    NewPath,
    as_json,
    key_from_hex,
    read_options,
    reading_options,
)
from tallystick.cli.output import Printer, Unbroken, print_json
from tallystick.convert.command import CONVERTIBLE, convert
from tallystick.printable import counted_kind
from tallystick.systems.registry import systems_with

NAMED = 3
"""Of each kind of what has no counterpart so many are named, unless all are asked for."""
SYSTEMS = sorted({name for role in CONVERTIBLE for name in systems_with(role)})


@click.command(cls=Command)
@click.argument("source", type=GivenPath())
@click.argument("target", type=NewPath())
@click.option("--to", type=click.Choice(SYSTEMS), required=True, help="System of the new log.")
@click.option(
    "--service",
    is_flag=True,
    help="Make TARGET the folder of the service that opens such a log.",
)
@click.option("--node", help="Node of a coordinator, with --service, if SOURCE does not tell it.")
@click.option("--force", is_flag=True, help="Convert what can be believed of a damaged log.")
@click.option("--encryption-key-to", help="Key that the new log is encrypted with, as hex.")
@click.option("--verbose", is_flag=True, help="Name all that has no counterpart.")
@as_json
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: str,
    target: str,
    to: str,
    service: bool,
    node: str | None,
    force: bool,
    encryption_key_to: str | None,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Make the log at SOURCE into a new log of another system in the folder TARGET.

    SOURCE is only read, and has to be closed. TARGET gets its name when it is whole, and holds
    what SOURCE holds. What is over is counted; what the other format cannot say is counted and
    named, and then the exit code is 1.
    """
    key_to = key_from_hex(encryption_key_to, "--encryption-key-to")
    with ended_by_signals():
        report = convert(
            source, target, to, force=force, options=read_options(**options), key_to=key_to,
            service=service, node=node,
        )  # fmt: skip
    if as_json:
        print_json(report.to_dict())
    else:
        out = Printer()
        head = f"{report.source_system} {report.role} → {report.target_system}: "
        out.line(head, Unbroken(report.target))
        for what, count in sorted(report.carried.items()):
            out.line(f"  carried over: {counted_kind(count, what)}")
        for what, count in sorted(report.over.items()):
            out.line(f"  over: {counted_kind(count, what)}", style="dim")
        for what, count in sorted(report.left.items()):
            out.line(f"  without counterpart: {counted_kind(count, what)}")
            for name in report.named[what][: None if verbose else NAMED]:
                out.line(f"    {name}", style="dim")
            if count > NAMED and not verbose:
                out.line(f"    and {count - NAMED:,} more; --verbose names all", style="dim")
        for note in report.notes:
            out.line(f"  note: {note}")
        out.line(f"  {report.next}")
    ctx.exit(int(report.left.total() > 0))
