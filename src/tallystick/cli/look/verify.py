"""``tallystick verify PATH``: findings only, for scripts."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.answers import gravity_of
from tallystick.cli.options import Command, as_json, paths_argument, read_options, reading_options
from tallystick.cli.output import Printer, Unbroken, print_json_lines, progress
from tallystick.reading import verify


@click.command(cls=Command, name="verify")
@paths_argument
@as_json
@reading_options
@click.pass_context
def command(ctx: click.Context, /, paths: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Print the findings of every log below PATHS, and nothing where all is well.

    With --json one object a line.
    """
    with progress("Verifying") as tell:
        answer = verify(paths, options=read_options(**options), progress=tell)
    if as_json:
        print_json_lines(finding.to_dict() for finding in answer.findings)
    else:
        out = Printer()
        # At a terminal the gravest comes last, where it stays in sight.
        order = answer.findings if out.rows is None else sorted(answer.findings, key=gravity_of)
        for finding in order:
            out.finding(finding)
            if finding.file is None and finding.log and finding.log not in finding.message:
                out.line("      ", Unbroken(f"in {finding.log}"), style="dim")
    ctx.exit(answer.exit_code)
