"""``tallystick doctor COORDINATOR``: a coordinator and its databases, before anything happens."""

from __future__ import annotations

import re
import textwrap

import click

from tallystick.cli.act.indoubt import OPTION, resource_option
from tallystick.cli.addresses import GivenPath, by_name
from tallystick.cli.options import Command, as_json
from tallystick.cli.output import WIDTH, Printer, print_json
from tallystick.indoubt.doctor import Check, Level, examine

_INDENT = " " * 9
_COMMENT = re.compile(r"  (?=--|#)")


def _print_check(out: Printer, check: Check) -> None:
    """Print what was found, in lines of 80 columns, and what to type, whose commands stay whole."""
    text = f"{check.subject}  {check.what}: {check.found}"
    first, *more = textwrap.wrap(
        text, WIDTH - len(_INDENT), break_long_words=False, break_on_hyphens=False
    )
    out.line((f"{check.level.value:9}", _STYLES[check.level]), first)
    fits = len(_INDENT + check.type_next) <= WIDTH
    typed = [check.type_next] if fits else _COMMENT.split(check.type_next, maxsplit=1)
    for line in (*more, *typed):
        if line:
            out.line(_INDENT + line)


_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


@click.command(cls=Command, name="doctor")
@click.argument("coordinator", type=GivenPath(exists=True, file_okay=False))
@resource_option
@as_json
@click.pass_context
def command(
    ctx: click.Context, coordinator: str, resources: tuple[str, ...], *, as_json: bool
) -> None:
    """Check the directory of a COORDINATOR and its databases, and say what to type.

    Connections, TLS, rights, limits, durability, identities, renamed resources, clocks, disk.
    Writes nothing. Exit code 1 if there is a problem; a warning is none.
    """
    checks = examine(coordinator, by_name(resources, OPTION))
    if as_json:
        print_json([check.to_dict() for check in checks])
    else:
        out = Printer()
        for check in checks:
            _print_check(out, check)
    ctx.exit(1 if any(check.level is Level.PROBLEM for check in checks) else 0)
