"""``tallystick convert``, ``repair``, ``salvage`` and ``bundle``: made of a log, and beside it."""

from __future__ import annotations

import os
import signal
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from tallystick.cli.output import (
    ANSWER_STYLES,
    WIDTH,
    Printer,
    as_json,
    key_from_hex,
    listed,
    path_argument,
    place,
    print_json,
    progress,
    read_options,
    reading_options,
    say,
)
from tallystick.convert.command import CONVERTIBLE, convert
from tallystick.printable import counted, shell_quoted
from tallystick.records import Answer, Finding
from tallystick.rescue import MendedLog, Repair, bundle, repair, salvage
from tallystick.rescue.mending import shown_bytes
from tallystick.rescue.salvaging import FORMS
from tallystick.systems.answers import DECIDES_FIRST
from tallystick.systems.registry import systems_with

LISTED_MAX = 20
"""Changes, and answers, that a person is shown; ``--json`` has all of them."""
NAMED = 3
"""Of each kind of what has no counterpart so many are named, unless all are asked for."""
SYSTEMS = sorted({name for role in CONVERTIBLE for name in systems_with(role)})


@click.command()
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option("--to", type=click.Choice(SYSTEMS), required=True, help="System of the new log.")
@click.option(
    "--service",
    is_flag=True,
    help="Make TARGET the folder of the service that opens such a log.",
)
@click.option("--node", help="Node of a coordinator, with --service, if SOURCE does not tell it.")
@click.option("--force", is_flag=True, help="Convert what can be believed of a damaged log.")
@click.option("--encryption-key-to", help="Key that the new log is encrypted with, as hex.")
@click.option("--verbose", is_flag=True, help="Name all that has no counterpart.")
@as_json
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: str,
    target: str,
    to: str,
    service: bool,
    node: str | None,
    force: bool,
    encryption_key_to: str | None,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Make the log at SOURCE into a new log of another system in the folder TARGET.

    SOURCE is only read, and has to be closed. TARGET gets its name when it is whole, and holds
    what SOURCE holds. What is over is counted; what the other format cannot say is counted and
    named, and then the exit code is 1.
    """
    key_to = key_from_hex(encryption_key_to, "--encryption-key-to")
    with ended_by_signals():
        report = convert(
            source, target, to, force=force, options=read_options(**options), key_to=key_to,
            service=service, node=node,
        )  # fmt: skip
    if as_json:
        print_json(report.to_dict())
    else:
        out = Printer()
        out.line(f"{report.source_system} {report.role} → {report.target_system}: {report.target}")
        for what, count in sorted(report.carried.items()):
            out.line(f"  carried over: {count:,} {what}")
        for what, count in sorted(report.over.items()):
            out.line(f"  over: {count:,} {what}", style="dim")
        for what, count in sorted(report.left.items()):
            out.line(f"  without counterpart: {count:,} {what}")
            for name in report.named[what][: None if verbose else NAMED]:
                out.line(f"    {name}", style="dim")
            if count > NAMED and not verbose:
                out.line(f"    and {count - NAMED:,} more; --verbose names all", style="dim")
        for note in report.notes:
            out.line(f"  note: {note}")
        out.line(f"  {report.next}")
    ctx.exit(int(report.left.total() > 0))


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let signals during the block end the process as an exception does: it cleans up."""
    before = {one: signal.signal(one, _end) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


@click.command()
@path_argument
@click.option("--to", "copy", type=click.Path(), required=True, help="The copy; must not exist.")
@as_json
@reading_options
@click.pass_context
def repair_command(
    ctx: click.Context, /, path: str, copy: str, as_json: bool, **options: Any
) -> None:
    """Copy the logs below PATH, and mend in the copy what other bytes prove.

    Mended are a page 0, a header copy or a header in force of H2, Derby's control files, the
    headers of a Bitronix journal and what opening it mends, block headers of CloudTran, headers of
    native logs. PATH is only read, and has to be closed. Exit code: 0 mended and every log of the
    copy is safe; 1 something is left, or nothing could be mended, and then nothing is written.
    """
    with ended_by_signals(), progress("Mending"):
        found = repair(path, copy, options=read_options(**options))
    if as_json:
        print_json(found.to_dict())
    else:
        _show(Printer(), found)
    ctx.exit(found.exit_code)


@click.command()
@path_argument
@click.option("--to", "target", type=click.Path(), required=True,
              help="File or folder to make; must not exist.")  # fmt: skip
@click.option("--as", "form", type=click.Choice(FORMS), required=True, help="What it is made for.")
@as_json
@reading_options
@click.pass_context
def salvage_command(
    ctx: click.Context, /, path: str, target: str, form: str, as_json: bool, **options: Any
) -> None:
    """Write what can be read of the logs below PATH as something that loads.

    h2-script is a script that H2 runs; derby-import a folder of files, with the calls that import
    them; journal a new log of the same system, with all that can be believed.
    Tables are as of the end of the log, with commits that a restart drops; rows in doubt are left.
    Of a table its columns are made, not its indexes and constraints. Exits with 1 if anything is
    left.
    """
    with ended_by_signals(), progress("Salvaging"):
        found = salvage(path, target, form, options=read_options(**options))
    if as_json:
        print_json(found.to_dict())
    elif not found.target:
        _wrapped(Printer(), str(found), "")
    else:
        out = Printer()
        for what, counts in (("brought", found.brought), ("left", found.left)):
            for name, count in counts.items():
                _wrapped(out, f"{what}: {count:,} {name}")
        for note in found.notes:
            out.line(f"  note: {note}")
        out.line(f"Written: {found.target}", style="bold")
        _wrapped(out, found.next)
    ctx.exit(found.exit_code)


@click.command()
@path_argument
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), required=True, help="The zip to write."
)
@reading_options
def bundle_command(path: str, output: str, **options: Any) -> None:
    """Pack what a ticket about the logs below PATH needs into a zip, without secrets.

    In it are versions, what triage and explain say as JSON and as text, and each file with its size
    and digests of its first and last 4 KiB. Bodies of records, keys and passwords never are; hosts
    and users of URLs are masked, paths begin at PATH. The same logs give the same zip.
    """
    with ended_by_signals(), progress("Packing"):
        count = bundle(path, output, options=read_options(**options))
    say(f"{counted(count, 'file')} in {output}", err=True)


def _show(out: Printer, found: Repair) -> None:
    for mend in found.mends[:LISTED_MAX]:
        out.line((place(mend.file, mend.offset), "bold"), f", {counted(len(mend.after), 'byte')}")
        out.line(f"  before {shown_bytes(mend.before)}")
        out.line(f"  after  {shown_bytes(mend.after)}")
        _wrapped(out, f"Proof: {mend.why}")
    _more(out, len(found.mends))
    shown = sorted((one for one in found.logs if _is_told(one)), key=_gravity)
    for log in shown[:LISTED_MAX]:
        out.line((f"{log.system}  {os.path.normpath(Path(found.copy, log.path))}", "bold"))
        same = log.before == log.after
        answers = (("before", log.before), ("after ", log.after))
        for title, one in (("still ", log.after),) if same else answers:
            if one is not None:
                out.line(f"  {title} ", (one.words, ANSWER_STYLES[one.answer]))
                _wrapped(out, one.text, "    ")
        _show_left(out, log.left)
    _more(out, len(shown))
    others = found.left[sum(len(log.left) for log in found.logs) :]
    for name, findings in groupby(others, lambda one: f"{one.system}  {one.log}".strip()):
        out.line((name, "bold"))
        _show_left(out, list(findings))
    left = f"; {counted(len(found.left), 'piece')} of damage left" if found.left else ""
    if found.mends:
        words = Counter(log.after.words for log in sorted(found.logs, key=_gravity))
        copy = "" if found.whole else f"; the copy: {listed(words)}"
        out.line(f"Mended in {counted(len(found.mends), 'place')}{left}{copy}", style="bold")
        out.line(f"    tallystick explain {shell_quoted(found.copy)}", style="bold")
    else:
        why = "no other bytes prove what is damaged" if left else "nothing is damaged"
        out.line(f"Nothing to mend: {why}. No copy was made", style="bold")


def _is_told(log: MendedLog) -> bool:
    return bool(log.left) or log.before != log.after or log.after.answer is not Answer.SAFE


def _gravity(log: MendedLog) -> int:
    return DECIDES_FIRST.index(log.after.answer)


def _show_left(out: Printer, left: Sequence[Finding]) -> None:
    for finding in left[:LISTED_MAX]:
        out.finding(finding)
    _more(out, len(left))


def _wrapped(out: Printer, text: str, indent: str = "  ") -> None:
    for line in textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    ):  # fmt: skip
        out.line(line)


def _more(out: Printer, count: int) -> None:
    if count > LISTED_MAX:
        out.line(f"  and {count - LISTED_MAX:,} more (--json lists all)", style="dim")
