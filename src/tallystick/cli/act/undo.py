"""``tallystick undo PATH`` and ``redo``: what takes a transaction back, or brings it in again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tallystick.cli.answers import end_listing
from tallystick.cli.options import (
    Command,
    as_json,
    output_option,
    path_argument,
    read_options,
    reading_options,
)
from tallystick.cli.output import print_json_lines, print_script, say
from tallystick.investigate import undo as undoing
from tallystick.investigate.export import json_lines, refuse_input, write_whole
from tallystick.investigate.undo import Reversal
from tallystick.printable import counted
from tallystick.records import Finding


def _reversal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.pass_context, reading_options, output_option, as_json,
        click.option(
            "--transaction",
            required=True,
            metavar="ID",
            help="Its number in its log, or the beginning of its global id.",
        ),
        path_argument,
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(cls=Command)
@_reversal_options
def undo_command(ctx: click.Context, /, **options: Any) -> None:
    """Print statements that take a committed transaction back.

    SQL for H2 and Derby, operations on records for journals, decisions for coordinators; with a
    warning for each later change of the same row. Nothing is run. The exit code is 1 if the old
    row of one cannot be told.
    """
    _print_reversals(ctx, undoing.undo, **options)


@click.command(cls=Command)
@_reversal_options
def redo_command(ctx: click.Context, /, **options: Any) -> None:
    """Print statements that bring in a lost or undone transaction again.

    As undo does, in the order of the transaction. Nothing is run.
    """
    _print_reversals(ctx, undoing.redo, **options)


def _print_reversals(
    ctx: click.Context,
    make: Callable[..., list[Reversal]],
    path: str,
    transaction: str,
    as_json: bool,
    output: str | None,
    **given: Any,
) -> None:
    options, problems = read_options(**given), list[Finding]()
    if output is not None:
        refuse_input(output, path, options)
    found = make(path, transaction, options=options, problems=problems)
    dicts = [one.to_dict() for one in found]
    text = "\n".join(one.text for one in found)
    if output is not None:
        write_whole(
            output, lambda out: json_lines(out, dicts) if as_json else out.write(text.encode())
        )
        acts = sum(len(one.acts) for one in found)
        say(f"{counted(acts, 'change')} in {output}; nothing was run", err=True)
    elif as_json:
        print_json_lines(dicts)
    else:
        print_script(text)
    end_listing(ctx, problems, damaged=any(one.exit_code for one in found))
