"""``tallystick dump PATH``: every record."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.output import (
    Printer,
    as_json,
    path_argument,
    print_json_lines,
    read_options,
    reading_options,
    say_finding,
)
from tallystick.reading import scan
from tallystick.reading.results import is_severe
from tallystick.records import Finding, Outcome, Record

BODY_MAX = 32
"""Bytes of a body that a person is shown."""

_STYLES = {
    Outcome.TORN: "yellow",
    Outcome.CORRUPT: "bold red",
    Outcome.STALE: "dim",
    Outcome.UNUSED: "dim",
}


@click.command()
@path_argument
@as_json
@click.option("--salvage", is_flag=True, help="Also what lies after damage, marked as such.")
@reading_options
@click.pass_context
def command(ctx: click.Context, /, path: str, as_json: bool, salvage: bool, **options: Any) -> None:
    """Print every record of every log below PATH, in log order.

    With --json one object a line, binary as hex. Exit code 1 if a record is damaged or
    something could not be read.
    """
    problems: list[Finding] = []
    damaged = [False]
    records = _watched(
        scan(path, salvage=salvage, options=read_options(**options), problems=problems), damaged
    )
    if as_json:
        print_json_lines((record.to_dict() for record in records), streams=True)
    else:
        _show(records)
    for problem in problems:
        say_finding(problem)
    ctx.exit(_exit_code(problems, damaged[0]))


def _watched(records: Any, damaged: list[bool]) -> Any:
    for record in records:
        damaged[0] = damaged[0] or record.outcome is Outcome.CORRUPT
        yield record


def _exit_code(problems: list[Finding], damaged: bool) -> int:
    if any(problem.code == "no-log" for problem in problems):
        return 2
    return int(damaged or any(map(is_severe, problems)))


def _show(records: Any) -> None:
    out = Printer(streams=True)
    file = None
    for record in records:
        if record.file != file:
            file = record.file
            out.line(f"{record.system}  {file}", style="bold")
        out.line(_line(record), style=_STYLES.get(record.outcome, ""))


def _line(record: Record) -> str:
    parts = [f"{record.offset:>10} {record.length:>6}  {record.outcome.value:<7} {record.type:<16}"]
    parts += [
        f"{name} {value}"
        for name, value in (
            ("seq", record.sequence),
            ("time", record.time),
            ("tx", record.transaction),
            ("gtrid", record.gtrid and record.gtrid.hex()),
            ("id", record.record_id),
            ("of", ", ".join(record.resources) or None),
            ("body", _body(record.body)),
            ("salvaged", "yes" if record.attributes.get("salvaged") else None),
        )
        if value is not None
    ]
    return "  ".join(parts)


def _body(body: bytes | None) -> str | None:
    if body is None:
        return None
    dots = f"... ({len(body):,} bytes)" if len(body) > BODY_MAX else ""
    return body[:BODY_MAX].hex() + dots
