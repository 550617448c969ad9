"""``tallystick export PATH``: a table of all logs into one file."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.answers import end_listing
from tallystick.cli.filtering import COLLECTION_HELP, filter_options, wanted_of
from tallystick.cli.options import (
    Command,
    output_option,
    output_target,
    paths_argument,
    read_options,
    reading_options,
)
from tallystick.cli.output import say
from tallystick.investigate.export import FORMATS, export
from tallystick.printable import counted
from tallystick.records import Finding

TABLES = ("records", "logs", "files", "transactions", "changes", "findings")


@click.command(cls=Command)
@paths_argument
@click.option("--to", "form", type=click.Choice(FORMATS), required=True, help="Form of the output.")
@output_option
@click.option("--table", type=click.Choice(TABLES), default="records", show_default=True)
@click.option("--salvage", is_flag=True, help="Also records after damage, marked as such.")
@click.option("--collection", help=COLLECTION_HELP)
@filter_options
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    form: str,
    output: str | None,
    table: str,
    salvage: bool,
    **options: Any,
) -> None:
    """Write a table of every log below PATHS as JSON lines, CSV, Parquet or an Arrow stream."""
    problems: list[Finding] = []
    wanted = wanted_of(options)
    rows = export(
        paths,
        form,
        output_target(form, output),
        table=table,
        salvage=salvage,
        wanted=wanted,
        options=read_options(**options),
        problems=problems,
    )
    if output is not None:
        say(f"{counted(rows, 'row')} of {table} in {output}", err=True)
    end_listing(ctx, problems)
