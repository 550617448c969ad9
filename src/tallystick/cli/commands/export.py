"""``tallystick export PATH --to jsonl|parquet|arrow``: a table of all logs into one file."""

from __future__ import annotations

import sys
from typing import Any

import click

from tallystick.cli.output import path_argument, read_options, reading_options, say, say_finding
from tallystick.printable import counted
from tallystick.reading.export import FORMATS, export
from tallystick.reading.results import is_severe
from tallystick.records import Finding

TABLES = ("records", "logs", "files", "transactions", "changes", "findings")


@click.command()
@path_argument
@click.option("--to", "form", type=click.Choice(FORMATS), required=True, help="Form of the output.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="File; standard output if left out."
)
@click.option("--table", type=click.Choice(TABLES), default="records", show_default=True)
@click.option("--salvage", is_flag=True, help="Also records after damage, marked as such.")
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    path: str,
    form: str,
    output: str | None,
    table: str,
    salvage: bool,
    **options: Any,
) -> None:
    """Write a table of every log below PATH as JSON lines, Parquet or an Arrow stream."""
    if output is None and form != "jsonl" and sys.stdout.isatty():
        raise click.UsageError(f"{form} is binary: name a file with --output")
    problems: list[Finding] = []
    rows = export(
        path,
        form,
        output if output is not None else sys.stdout.buffer,
        table=table,
        salvage=salvage,
        options=read_options(**options),
        problems=problems,
    )
    for problem in problems:
        say_finding(problem)
    if output is not None:
        say(f"{counted(rows, 'row')} of {table} in {output}", err=True)
    no_log = any(problem.code == "no-log" for problem in problems)
    ctx.exit(2 if no_log else int(any(map(is_severe, problems))))
