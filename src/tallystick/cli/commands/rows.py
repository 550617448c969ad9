"""``tallystick rows``, ``history``, ``asof`` and ``diff``: rows as the applications know them."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import click

from tallystick.cli.filtering import (
    COLLECTION_HELP,
    filter_options,
    filter_options_but_key,
    moment_of,
    wanted_of,
)
from tallystick.cli.output import (
    WIDTH,
    Printer,
    as_json,
    body_text,
    end_listing,
    listed,
    output_option,
    output_target,
    path_argument,
    place,
    print_json_lines,
    read_options,
    reading_options,
    say,
)
from tallystick.investigate.asof import Known, Moment, RowThen, asof
from tallystick.investigate.diff import Difference, Side, diff
from tallystick.investigate.rows import FORMS, export_rows, row_dicts
from tallystick.printable import counted, printable
from tallystick.reading.filters import Filter
from tallystick.records import Fate, Finding, Kind
from tallystick.systems.protocol import LOST

VALUE_MAX = 200
"""Characters of a value that a person is shown."""
STYLES = {
    "in_doubt": "bold yellow", "lost": "bold red", "undone": "dim", "unknown": "yellow",
}  # fmt: skip
_FATES = (Fate.IN_DOUBT, Fate.LOST, Fate.COMMITTED, Fate.UNDONE)
_HELP = {
    Fate.IN_DOUBT: "Rows of prepared transactions.",
    Fate.LOST: "Committed rows that a restart drops.",
    Fate.COMMITTED: "Rows that a restart keeps.",
    Fate.UNDONE: "Rows rolled back, or of transactions that have not ended.",
}


def _fate_options(command: Any) -> Any:
    for one in reversed(_FATES):
        flag = f"--{one.value.replace('_', '-')}"
        command = click.option(flag, one.value, is_flag=True, help=_HELP[one])(command)
    return command


def _fates(options: dict[str, Any]) -> frozenset[Fate]:
    return frozenset(one for one in _FATES if options.pop(one.value))


@click.command()
@path_argument
@_fate_options
@click.option("--table", "--collection", "collection", help=COLLECTION_HELP)
@filter_options
@as_json
@click.option("--to", "form", type=click.Choice(FORMS), help="Form of the output, instead of text.")
@output_option
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    path: str,
    as_json: bool,
    form: str | None,
    output: str | None,
    **options: Any,
) -> None:
    """Print rows of every log below PATH: in doubt, lost, committed, undone.

    A restart drops lost rows, and leaves rows in doubt to their coordinator. Of a coordinator a
    row is a decision, and the table its resource. All that is asked for must fit, of several
    outcomes one. --json is --to jsonl.
    """
    wanted = wanted_of(options, _fates(options))
    form = "jsonl" if as_json and form is None else form
    problems: list[Finding] = []
    if form is None and output is None:
        _show(row_dicts(path, wanted, options=read_options(**options), problems=problems))
    else:
        _write(path, form or "csv", output, wanted, options, problems)
    end_listing(ctx, problems)


@click.command()
@path_argument
@click.argument("key")
@_fate_options
@click.option("--table", "--collection", "collection", help=COLLECTION_HELP)
@filter_options_but_key
@as_json
@reading_options
@click.pass_context
def history_command(ctx: click.Context, /, path: str, as_json: bool, **options: Any) -> None:
    """Print every change of a row below PATH, those that did not last marked.

    KEY is its key as the log has it, or COLUMN=VALUE. Changes come as their transactions ended,
    those that have not ended last.
    """
    problems: list[Finding] = []
    wanted = wanted_of(options, _fates(options))
    found = row_dicts(path, wanted, options=read_options(**options), problems=problems)
    if as_json:
        print_json_lines(found, streams=True)
    else:
        _show(found)
    end_listing(ctx, problems)


def _write(
    path: str,
    form: str,
    output: str | None,
    wanted: Filter,
    options: dict[str, Any],
    problems: list[Finding],
) -> None:
    read = read_options(**options)
    if output is None and form == "jsonl":
        print_json_lines(row_dicts(path, wanted, options=read, problems=problems), streams=True)
        return
    target = output_target(form, output)
    count = export_rows(path, form, target, wanted, options=read, problems=problems)
    if output is not None:
        say(f"{counted(count, 'row')} in {output}", err=True)


def _show(found: Iterable[Mapping[str, Any]]) -> None:
    """Print rows by transaction, and how many there are."""
    out, counts = Printer(streams=True), Counter[str]()
    log = transaction = None
    for row in found:
        counts[row["fate"]] += 1
        if (row["system"], row["log"]) != log:
            log, transaction = (row["system"], row["log"]), None
            out.line(f"{row['system']}  {row['log']}", style="bold")
        about = row["fate"], row["transaction"], row["gtrid"], row["commit_sequence"]
        if about != transaction:
            transaction = about
            _show_transaction(out, row)
        for line in row_lines(row):
            out.line(line)
    said = ", ".join(f"{count:,} {fate.replace('_', ' ')}" for fate, count in counts.items())
    out.line(f"{counted(counts.total(), 'row')}: {said}" if said else "No row", style="bold")


def _show_transaction(out: Printer, row: Mapping[str, Any]) -> None:
    fate = row["fate"]
    number = "" if row["transaction"] is None else f"  transaction {row['transaction']}"
    time = f"  {row['time']}" if isinstance(row["time"], str) else ""
    out.line((f"  {Fate(fate).words}", STYLES.get(fate, "green")), f"{number}{time}")
    if row["gtrid"] is not None:
        out.line(f"    {row['gtrid']}")  # whole: it has to be copied


def row_lines(row: Mapping[str, Any]) -> list[str]:
    """Return a row in lines of a terminal."""
    said = [f"{name} {_value(value)}" for name, value in (row["values"] or {}).items()]
    body = row["after"] or row["before"]
    if body is not None and not (said and row["collection"]):  # no column tells what is in it
        said.append(_cut(body_text(bytes.fromhex(body))))
    key = None if row["kind"] == Kind.DECISION else row["key"]  # it is the global transaction
    named = " ".join(part for part in (row["kind"], row["collection"], key) if part)
    return textwrap.wrap(
        printable(f"{named}: {', '.join(said)}" if said else named), WIDTH, initial_indent="    ",
        subsequent_indent="      ",
    )  # fmt: skip


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return f"(cannot be had: {_cut(str(value.get(LOST, value)))})"
    return _cut(str(value))


def _cut(text: str) -> str:
    more = len(text) - VALUE_MAX
    return f"{text[:VALUE_MAX]}... ({counted(more, 'character')} more)" if more > 0 else text


_KNOWN = {
    Known.PART: "in part: other columns were last written before the log began",
    Known.NOTHING: "it was there: it is changed later, and the log has no image of before",
}


@click.command()
@path_argument
@click.option("--time", metavar="TIME", callback=moment_of, help="After all commits up to it.")
@click.option("--lsn", type=int, help="After all commits up to this one.")
@click.option("--before", metavar="TX", help="Before a transaction: its number, or its global id.")
@click.option("--table", "--collection", "table", help=COLLECTION_HELP)
@as_json
@reading_options
@click.pass_context
def asof_command(
    ctx: click.Context, /, path: str, table: str | None, as_json: bool, **options: Any
) -> None:
    """Print the rows below PATH as they were at a moment, and what of them cannot be known.

    Rows that were last written before the log began are known where the database is beside it.
    """
    moment = Moment(*(options.pop(name) for name in ("time", "lsn", "before")))
    if [moment.time, moment.lsn, moment.before].count(None) != 2:
        raise click.UsageError("name one moment: --time, --lsn or --before")
    problems: list[Finding] = []
    found = asof(path, moment, table, options=read_options(**options), problems=problems)
    if as_json:
        print_json_lines((one.to_dict() for one in found), streams=True)
    else:
        _show_then(found)
    end_listing(ctx, problems)


def _show_then(found: Iterable[RowThen]) -> None:
    out, counts, log = Printer(streams=True), Counter[str](), ("", "")
    for one in found:
        counts[one.known] += 1
        if (one.system, one.log) != log:
            log = one.system, one.log
            out.line(f"{one.system}  {one.log}", style="bold")
        row = one.to_dict() | {"kind": "", "after": one.image and one.image.hex(), "before": None}
        for line in row_lines(row):
            out.line(line)
        if one.known is not Known.WHOLE:
            out.line(f"      {_KNOWN[one.known]}", style="yellow")
    out.line(f"{counted(counts.total(), 'row')}: {listed(counts)}", style="bold")
    out.line(
        "Rows that no record is about: only the database beside the log tells them.", style="dim"
    )


@click.command()
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@as_json
@reading_options
@click.pass_context
def diff_command(ctx: click.Context, /, a: str, b: str, as_json: bool, **options: Any) -> None:
    """Tell where two copies of a log, or of a folder of logs, part, and what each has alone.

    Exit code 1 if they differ.
    """
    problems: list[Finding] = []
    found = diff(a, b, options=read_options(**options), problems=problems)
    out, differ = Printer(), False
    for one in found:
        differ = differ or not one.same
        if as_json:
            print_json_lines([one.to_dict()], streams=True)
        else:
            _show_difference(out, one)
    end_listing(ctx, problems, damaged=differ)


def _show_difference(out: Printer, one: Difference) -> None:
    out.line(f"{one.system}  {one.sides[0].log or one.sides[1].log}", style="bold")
    both = f"{counted(one.records, 'record')} and {counted(one.rows, 'row')}"
    if one.same:
        out.line(f"  the same: {both}")
        return
    out.line(f"  in both: {both}")
    if one.last is not None:
        out.line(f"  they part after {place(one.last.file, one.last.offset)}")
    for name, side in zip("AB", one.sides, strict=True):
        _show_side(out, name, side)


def _show_side(out: Printer, name: str, side: Side) -> None:
    if side.log is None:
        out.line(f"  {name}: has no such log", style="bold red")
        return
    if side.earlier:
        out.line(f"  {name}: {counted(side.earlier, 'record')} from before the other one begins")
    ends = f"; transactions: {listed(side.ends)}" if side.ends else ""
    out.line((f"  {name} alone: {counted(side.records, 'record')}{ends}", "yellow"))
    out.line(f"    {counted(side.rows.total(), 'row')}: {listed(side.rows)}")
    for row in side.shown:
        shown = row.to_dict() | {"kind": f"{row.fate.words} {row.change.kind}"}
        for line in row_lines(shown):
            out.line(line)
