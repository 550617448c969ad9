"""``tallystick rows PATH``: rows as the applications know them."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import click

from tallystick.cli.answers import body_text, end_listing
from tallystick.cli.filtering import COLLECTION_HELP, filter_options, wanted_of
from tallystick.cli.options import (
    Command,
    as_json,
    form_of,
    output_option,
    output_target,
    paths_argument,
    read_options,
    reading_options,
)
from tallystick.cli.output import WIDTH, Printer, Unbroken, say
from tallystick.investigate.keys import other_value
from tallystick.investigate.rows import FORMS, export_rows, row_dicts
from tallystick.printable import counted, printable
from tallystick.reading.filters import Filter
from tallystick.records import Fate, Finding, Kind
from tallystick.systems.protocol import LOST

VALUE_MAX = 200
"""Characters of a value that a person is shown."""
_INDENT = "    "
_WRAPPER = textwrap.TextWrapper(
    WIDTH, initial_indent=_INDENT, subsequent_indent=f"{_INDENT}  ", break_on_hyphens=False
)
"""Ids have hyphens, and to look for places to break there takes longer than all else."""
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


def fate_options(command: Any) -> Any:
    """Add an option for each fate of a row."""
    for one in reversed(_FATES):
        flag = f"--{one.value.replace('_', '-')}"
        command = click.option(flag, one.value, is_flag=True, help=_HELP[one])(command)
    return command


def fates(options: dict[str, Any]) -> frozenset[Fate]:
    """Take these options out of all options, and return the fates that are asked for."""
    return frozenset(one for one in _FATES if options.pop(one.value))


@click.command(cls=Command)
@paths_argument
@fate_options
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
    paths: tuple[str, ...],
    as_json: bool,
    form: str | None,
    output: str | None,
    **options: Any,
) -> None:
    """Print rows of every log below PATHS: in doubt, lost, committed, undone.

    A restart drops lost rows, and leaves rows in doubt to their coordinator. Of a coordinator a
    row is a decision, and the table its resource. All that is asked for must fit, of several
    outcomes one. --json is --to jsonl.
    """
    wanted = wanted_of(options, fates(options))
    form = form_of(form, as_json=as_json)
    problems: list[Finding] = []
    if form is None and output is None:
        found = row_dicts(paths, wanted, options=read_options(**options), problems=problems)
        show_rows(found, wanted.key)
    else:
        _write(paths, form or "csv", output, wanted, options, problems)
    end_listing(ctx, problems)


def _write(
    paths: tuple[str, ...],
    form: str,
    output: str | None,
    wanted: Filter,
    options: dict[str, Any],
    problems: list[Finding],
) -> None:
    read = read_options(**options)
    target = output_target(form, output)
    count = export_rows(paths, form, target, wanted, options=read, problems=problems)
    if output is not None:
        say(f"{counted(count, 'row')} in {output}", err=True)


def show_rows(found: Iterable[Mapping[str, Any]], key: str | None) -> None:
    """Print rows by transaction, and how many there are; those are marked that have another key."""
    out, counts = Printer(streams=True), Counter[str]()
    log = transaction = None
    for row in found:
        counts[row["fate"]] += 1
        if (row["system"], row["log"]) != log:
            log, transaction = (row["system"], row["log"]), None
            out.line(Unbroken(f"{row['system']}  {row['log']}"), style="bold")
        about = row["fate"], row["transaction"], row["gtrid"], row["commit_sequence"]
        if about != transaction:
            transaction = about
            _show_transaction(out, row)
        for line in row_lines(row):
            out.line(line)
        if key is not None and (other := other_value(key, row["values"] or {})):
            column, value = other
            out.line(f"      the same row: its {column} is {_value(value)} here", style="yellow")
    said = ", ".join(f"{count:,} {fate.replace('_', ' ')}" for fate, count in counts.items())
    out.line(f"{counted(counts.total(), 'row')}: {said}" if said else "No row", style="bold")


def _show_transaction(out: Printer, row: Mapping[str, Any]) -> None:
    fate = row["fate"]
    number = "" if row["transaction"] is None else f"  transaction {row['transaction']}"
    if number and row["commit_sequence"]:
        number += f"@{row['commit_sequence']}"  # a log may use the number again
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
    text = printable(": ".join(part for part in (named, ", ".join(said)) if part))
    if len(text) <= WIDTH - len(_INDENT) and text.isprintable():
        return [f"{_INDENT}{text.rstrip()}"]  # as `textwrap` does, whose cost is most of a row
    return _WRAPPER.wrap(text)


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return f"(cannot be had: {_cut(str(value.get(LOST, value)))})"
    text = _cut(str(value))
    # Without quotes it would look as no value does, or as nothing at all.
    return text if text.strip(" ").lower() not in ("", "null") else f"'{text}'"


def _cut(text: str) -> str:
    more = len(text) - VALUE_MAX
    return f"{text[:VALUE_MAX]}... ({counted(more, 'character')} more)" if more > 0 else text
