"""``tallystick history PATH KEY``: every change of a row."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.answers import end_listing
from tallystick.cli.filtering import COLLECTION_HELP, filter_options_but_key, wanted_of
from tallystick.cli.look.rows import fate_options, fates, show_rows
from tallystick.cli.options import Command, as_json, paths_argument, read_options, reading_options
from tallystick.cli.output import print_json_lines
from tallystick.investigate.rows import row_dicts
from tallystick.records import Finding


@click.command(cls=Command)
@paths_argument
@click.argument("key")
@fate_options
@click.option("--table", "--collection", "collection", help=COLLECTION_HELP)
@filter_options_but_key
@as_json
@reading_options
@click.pass_context
def command(ctx: click.Context, /, paths: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Print every change of a row below PATHS, those that did not last marked.

    KEY is its key as the log has it, or COLUMN=VALUE. Changes come as their transactions ended,
    those that have not ended last.
    """
    problems: list[Finding] = []
    wanted = wanted_of(options, fates(options))
    found = row_dicts(paths, wanted, options=read_options(**options), problems=problems)
    if as_json:
        print_json_lines(found, streams=True)
    else:
        show_rows(found, wanted.key)
    end_listing(ctx, problems)
