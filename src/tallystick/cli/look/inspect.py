"""``tallystick inspect PATH``: what is in each log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from tallystick.cli.answers import (
    CALM,
    LISTED_MAX,
    gravity_of,
    listed,
    print_findings,
    print_held_back,
    print_logs,
    print_problems,
    print_surroundings,
)
from tallystick.cli.options import Command, as_json, paths_argument, reading_options, reply
from tallystick.cli.output import Draft, Printer, Unbroken
from tallystick.reading import inspect
from tallystick.reading.results import Inspection, Summary, is_severe
from tallystick.records import Finding


@click.command(cls=Command)
@paths_argument
@as_json
@reading_options
def command(paths: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Summarise every log below PATHS: files, records, transactions, findings."""
    reply(inspect, paths, _show, as_json=as_json, **options)


def _show(out: Printer, answer: Inspection) -> None:
    blocks: list[Draft] = []
    for log in answer.logs:
        blocks.append(draft := Draft(_gravity(log.findings)))
        _show_log(draft, log)
    unread = any(map(is_severe, answer.problems))
    blocks.append(draft := Draft(_gravity(answer.problems) if unread else CALM))
    print_problems(draft, answer.problems, answer.others)
    print_logs(out, answer.estate, blocks)


def _gravity(findings: Iterable[Finding]) -> int:
    return max((gravity_of(one) for one in findings), default=0)


def _show_log(out: Printer, log: Summary) -> None:
    out.line((log.title, "bold"), f" {log.format}")
    out.line(Unbroken(f"  {log.path}"), f" ({log.name})" if log.name else "")
    out.line(f"  files         {log.files}, {sum(log.bytes.values()):,} bytes: {listed(log.bytes)}")
    out.line(f"  records       {listed(log.records)}")
    out.line(f"  transactions  {listed(log.transactions)}")
    print_held_back(out, log.held_back)
    if log.surroundings is not None:
        print_surroundings(out, log.surroundings)
    print_findings(out, log.findings, each=LISTED_MAX)
    out.line()
