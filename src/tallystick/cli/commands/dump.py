"""``tallystick dump PATH`` and ``export PATH --to FORM``: every record, or a table, of all logs."""

from __future__ import annotations

from typing import Any

import click

from tallystick.cli.filtering import COLLECTION_HELP, filter_options, wanted_of
from tallystick.cli.output import (
    Printer,
    as_json,
    end_listing,
    output_option,
    output_target,
    path_argument,
    print_json_lines,
    read_options,
    reading_options,
    say,
)
from tallystick.investigate.export import FORMATS, export
from tallystick.printable import counted
from tallystick.reading import scan
from tallystick.records import Finding, Outcome, Record

BODY_MAX = 32
"""Bytes of a body that a person is shown."""
TABLES = ("records", "logs", "files", "transactions", "changes", "findings")

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
@filter_options
@reading_options
@click.pass_context
def command(ctx: click.Context, /, path: str, as_json: bool, salvage: bool, **options: Any) -> None:
    """Print every record of every log below PATH, in log order.

    With --json one object a line, binary as hex. Exit code 1 if a record is damaged or
    something could not be read.
    """
    problems: list[Finding] = []
    damaged, wanted = [False], wanted_of(options)
    read = read_options(**options)
    records = _watched(
        scan(path, wanted, salvage=salvage, options=read, problems=problems), damaged
    )
    if as_json:
        print_json_lines((record.to_dict() for record in records), streams=True)
    else:
        _show(records)
    end_listing(ctx, problems, damaged=damaged[0])


@click.command()
@path_argument
@click.option("--to", "form", type=click.Choice(FORMATS), required=True, help="Form of the output.")
@output_option
@click.option("--table", type=click.Choice(TABLES), default="records", show_default=True)
@click.option("--salvage", is_flag=True, help="Also records after damage, marked as such.")
@click.option("--collection", help=COLLECTION_HELP)
@filter_options
@reading_options
@click.pass_context
def export_command(
    ctx: click.Context,
    /,
    path: str,
    form: str,
    output: str | None,
    table: str,
    salvage: bool,
    **options: Any,
) -> None:
    """Write a table of every log below PATH as JSON lines, CSV, Parquet or an Arrow stream."""
    problems: list[Finding] = []
    wanted = wanted_of(options)
    rows = export(
        path,
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


def _watched(records: Any, damaged: list[bool]) -> Any:
    for record in records:
        damaged[0] = damaged[0] or record.outcome is Outcome.CORRUPT
        yield record


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
