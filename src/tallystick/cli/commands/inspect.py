"""``tallystick inspect PATH``: a summary of every log below PATH."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from tallystick.cli.output import (
    as_json,
    console,
    finding_text,
    listed,
    path_argument,
    print_json,
    print_problems,
    progress,
    read_options,
    reading_options,
)
from tallystick.reading import inspect
from tallystick.reading.results import Inspection, Summary


@click.command()
@path_argument
@as_json
@reading_options
@click.pass_context
def command(ctx: click.Context, /, path: str, as_json: bool, **options: Any) -> None:
    """Summarise every log below PATH: files, records, transactions, findings."""
    with progress("Reading") as tell:
        answer = inspect(path, options=read_options(**options), progress=tell)
    if as_json:
        print_json(answer.to_dict())
    else:
        _show(console(), answer)
    ctx.exit(answer.exit_code)


def _show(out: Console, answer: Inspection) -> None:
    for log in answer.logs:
        _show_log(out, log)
    print_problems(out, answer.problems, answer.others)


def _show_log(out: Console, log: Summary) -> None:
    out.print(f"[bold]{log.title}[/] {log.format}", markup=True)
    out.print(f"  {log.path}" + (f" ({log.name})" if log.name else ""), markup=False)
    out.print(
        f"  files         {log.files}, {sum(log.bytes.values()):,} bytes: {listed(log.bytes)}"
    )
    out.print(f"  records       {listed(log.records)}")
    out.print(f"  transactions  {listed(log.transactions)}")
    for finding in log.findings:
        out.print(finding_text(finding))
    out.print()
