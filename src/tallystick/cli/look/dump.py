"""``tallystick dump PATH``: every record, counted, in context, as it comes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import click

from tallystick.cli.answers import body_text, end_listing, listed
from tallystick.cli.filtering import filter_options, wanted_of
from tallystick.cli.options import Command, as_json, paths_argument, read_options, reading_options
from tallystick.cli.output import WIDTH, Printer, Unbroken, notice, print_json_lines
from tallystick.investigate.records import Counts, Seen, follow, seen_records, statistics
from tallystick.records import Finding, Outcome

BODY_MAX = 64
"""Characters of a body, or hex digits of one that is no text, that a person is shown."""
_STYLES = {
    Outcome.TORN: "yellow",
    Outcome.CORRUPT: "bold red",
    Outcome.STALE: "dim",
    Outcome.UNUSED: "dim",
}


@click.command(cls=Command)
@paths_argument
@as_json
@click.option("--salvage", is_flag=True, help="Also what lies after damage, marked as such.")
@click.option("--stats", is_flag=True, help="Counts of each log instead of the records.")
@click.option("-C", "--context", type=click.IntRange(0), default=0, help="Records around each.")
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on as records come, till Ctrl-C.")
@filter_options
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    as_json: bool,
    salvage: bool,
    stats: bool,
    context: int,
    follows: bool,
    **options: Any,
) -> None:
    """Print every record of every log below PATHS, in log order.

    With --json one object a line, binary as hex. Exit code 1 if a record is damaged or
    something could not be read.
    """
    if (stats, context > 0, follows).count(True) > 1 or (follows and salvage):
        raise click.UsageError(
            "--follow, --stats and --context exclude each other, and --follow --salvage"
        )
    problems: list[Finding] = []
    wanted = wanted_of(options)
    read = read_options(**options)
    if stats:
        found = statistics(paths, wanted, salvage=salvage, options=read, problems=problems)
        damaged = _count(found, as_json=as_json)
        end_listing(ctx, problems, damaged=damaged)
    elif follows:
        with suppress(KeyboardInterrupt):  # as a person ends it
            _print(follow(paths, wanted, options=read, tell=notice), as_json=as_json)
        ctx.exit(0)
    records = seen_records(
        paths, wanted, context=context, salvage=salvage, options=read, problems=problems
    )
    damaged = _print(records, as_json=as_json)
    end_listing(ctx, problems, damaged=damaged)


def _print(records: Iterable[Seen], *, as_json: bool) -> bool:
    """Print records; return whether one is damaged."""
    out, file, damaged, record = Printer(streams=True), None, False, None
    for one in records:
        record = one.record
        damaged = damaged or record.outcome is Outcome.CORRUPT
        if as_json:
            print_json_lines([record.to_dict()], streams=True)
            continue
        if record.file != file:
            file = record.file
            out.line(Unbroken(f"{record.system}  {file}"), style="bold")
        out.line(*_pieces(one), style=_STYLES.get(record.outcome, "") if one.fits else "dim")
    if record is None and not as_json:
        out.line("No record", style="bold")
    return damaged


def _pieces(seen: Seen) -> list[str]:
    """Return a line of a record, in which no name parts from its value."""
    record = seen.record
    pieces = [
        f"{record.offset:>10} {record.length:>6}  {record.outcome.value:<7} {record.type:<16}"
    ]
    for piece in (
        f"{name} {value}" if name == "body" else Unbroken(f"{name} {value}")
        for name, value in (
            ("seq", record.sequence),
            ("time", seen.time),
            ("tx", record.transaction),
            ("gtrid", record.gtrid and record.gtrid.hex()),
            ("id", record.record_id),
            ("of", ", ".join(record.resources) or None),
            ("body", _body(record.body)),
            ("salvaged", "yes" if record.attributes.get("salvaged") else None),
            ("near", None if seen.fits else "yes"),
        )
        if value is not None
    ):
        pieces += ["  ", piece]
    return pieces


def _body(body: bytes | None) -> str | None:
    if body is None:
        return None
    text = body_text(body)
    return text if len(text) <= BODY_MAX else f"{text[:BODY_MAX]}... ({len(body):,} bytes)"


def _count(found: Iterable[Counts], *, as_json: bool) -> bool:
    """Print counts; return whether a record that was counted is damaged."""
    out, damaged = Printer(), False
    for one in found:
        damaged = damaged or one.damaged > 0
        said = one.to_dict()
        if as_json:
            print_json_lines([said], streams=True)
            continue
        out.line(Unbroken(f"{one.system}  {one.log}"), style="bold")
        states, first = one.transactions, one.first
        facts = {
            "records": f"{said['records']:,} in {one.bytes:,} bytes: {listed(one.kinds)}",
            "damaged": f"{one.damaged:,} of them" if one.damaged else None,
            "transactions": None if states is None else listed(states),
            "times": "none" if first is None else f"{said['first']} to {said['last']}",
        }
        for name, value in facts.items():
            text = "" if value is None else f"  {name:<14}{value}"
            for line in textwrap.wrap(
                text, WIDTH, subsequent_indent=" " * 16, break_long_words=False
            ):
                out.line(line)
    return damaged
