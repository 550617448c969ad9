"""``tallystick inspect PATH``: what is in each log."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.output import (
    LISTED_MAX,
    Printer,
    as_json,
    listed,
    paths_argument,
    print_estate,
    print_findings,
    print_held_back,
    print_problems,
    print_surroundings,
    reading_options,
    reply,
)
from tallystick.reading import inspect
from tallystick.reading.results import Inspection, Summary


@click.command()
@paths_argument
@as_json
@reading_options
def command(paths: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Summarise every log below PATHS: files, records, transactions, findings."""
    reply(inspect, paths, _show, as_json=as_json, **options)


def _show(out: Printer, answer: Inspection) -> None:
    if answer.estate is not None:
        print_estate(out, answer.estate)
        out.line()
    for log in answer.logs:
        _show_log(out, log)
    print_problems(out, answer.problems, answer.others)


def _show_log(out: Printer, log: Summary) -> None:
    out.line((log.title, "bold"), f" {log.format}")
    out.line(f"  {log.path}" + (f" ({log.name})" if log.name else ""))
    out.line(f"  files         {log.files}, {sum(log.bytes.values()):,} bytes: {listed(log.bytes)}")
    out.line(f"  records       {listed(log.records)}")
    out.line(f"  transactions  {listed(log.transactions)}")
    print_held_back(out, log.held_back)
    if log.surroundings is not None:
        print_surroundings(out, log.surroundings)
    print_findings(out, log.findings, each=LISTED_MAX)
    out.line()
