"""``tallystick runbook PATH``: what to type for each branch in doubt, to be signed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from tallystick.cli.act.indoubt import exit_code, gather, opened, paths_argument, resource_option
from tallystick.cli.options import Command, as_json, reading_options
from tallystick.cli.output import Printer, Unbroken, notice, print_json
from tallystick.indoubt.runbook import acts_of, runbook


@click.command(cls=Command, name="runbook")
@paths_argument
@resource_option
@as_json
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    resources: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Print what to type for each branch in doubt: Markdown, to be followed and signed.

    Per branch the statement of its engine with the whole id, the evidence, and a line to sign;
    first what a start of a coordinator would lose. Exits as 'indoubt list'.
    """
    report = gather(ctx, paths, resources, options)
    live = opened(ctx, resources)
    if as_json:
        acts = {
            one.gtrid.hex(): [asdict(act) for act in acts_of(one, live)]
            for one in report.transactions
        }
        print_json({**report.to_dict(), "acts": acts})
    else:
        out, lines = Printer(), list(runbook(report, paths, live))
        for line in lines:
            out.line(Unbroken(line))  # it has its own breaks, and what is typed has none
        if out.rows is not None and len(lines) >= out.rows:
            notice("the gravest stands at the beginning, above; > runbook.md writes all to a file")
    ctx.exit(exit_code(report))
