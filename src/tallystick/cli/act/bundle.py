"""``tallystick bundle PATH -o ticket.zip``: what a ticket needs."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.answers import end_listing
from tallystick.cli.interrupts import ended_by_signals
from tallystick.cli.options import Command, NewPath, paths_argument, read_options, reading_options
from tallystick.cli.output import progress, say
from tallystick.printable import counted
from tallystick.records import Finding
from tallystick.rescue import bundle


@click.command(cls=Command)
@paths_argument
@click.option(
    "-o", "--output", type=NewPath(dir_okay=False), required=True, help="The zip to write."
)
@reading_options
@click.pass_context
def command(ctx: click.Context, /, paths: tuple[str, ...], output: str, **options: Any) -> None:
    """Pack what a ticket about the logs below PATHS needs into a zip, without secrets.

    In it are versions, what triage and explain say as JSON and as text, and each file with its size
    and digests of its first and last 4 KiB. Bodies of records, keys and passwords never are; hosts
    and users of URLs are masked, paths begin at PATH, of several at PATH1 and so on. The same logs
    give the same zip. Files that cannot be read are in it by name, and are said: exit code 1.
    """
    problems: list[Finding] = []
    with ended_by_signals(), progress("Packing"):
        count = bundle(paths, output, options=read_options(**options), problems=problems)
    say(f"{counted(count, 'file')} in {output}", err=True)
    end_listing(ctx, problems)
