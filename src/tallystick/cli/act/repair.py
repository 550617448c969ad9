"""``tallystick repair PATH --to COPY``: a mended copy."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from tallystick.cli.answers import ANSWER_STYLES, listed
from tallystick.cli.interrupts import ended_by_signals
from tallystick.cli.options import (
    Command,
    NewPath,
    as_json,
    path_argument,
    read_options,
    reading_options,
)
from tallystick.cli.output import WIDTH, Printer, Unbroken, place, print_json, progress
from tallystick.printable import counted, shell_quoted
from tallystick.records import Answer, Finding
from tallystick.rescue import MendedLog, Repair, repair
from tallystick.rescue.mending import shown_bytes
from tallystick.systems.answers import DECIDES_FIRST

LISTED_MAX = 20
"""Changes, and answers, that a person is shown; ``--json`` has all of them."""


@click.command(cls=Command)
@path_argument
@click.option("--to", "copy", type=NewPath(), required=True, help="The copy; must not exist.")
@as_json
@reading_options
@click.pass_context
def command(ctx: click.Context, /, path: str, copy: str, as_json: bool, **options: Any) -> None:
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


def _show(out: Printer, found: Repair) -> None:
    for mend in found.mends[:LISTED_MAX]:
        where = Unbroken(place(mend.file, mend.offset))
        out.line((where, "bold"), f", {counted(len(mend.after), 'byte')}")
        out.line(f"  before {shown_bytes(mend.before)}")
        out.line(f"  after  {shown_bytes(mend.after)}")
        wrapped(out, f"Proof: {mend.why}")
    _more(out, len(found.mends))
    for own in found.own_logs[:LISTED_MAX]:
        out.line((Unbroken(_in_copy(found, own.path)), "bold"), f": {own.text}")
    _more(out, len(found.own_logs))
    shown = sorted((one for one in found.logs if _is_told(one)), key=_gravity)
    for log in shown[:LISTED_MAX]:
        where = Unbroken(f"{log.system}  {_in_copy(found, log.path)}")
        out.line((where, "bold"))
        same = log.before == log.after
        answers = (("before", log.before), ("after ", log.after))
        for title, one in (("still ", log.after),) if same else answers:
            if one is not None:
                out.line(f"  {title} ", (one.words, ANSWER_STYLES[one.answer]))
                wrapped(out, one.text, "    ")
        _show_left(out, log.left)
    _more(out, len(shown))
    others = found.left[sum(len(log.left) for log in found.logs) :]
    for name, findings in groupby(others, lambda one: f"{one.system}  {one.log}".strip()):
        out.line((Unbroken(name), "bold"))
        _show_left(out, list(findings))
    left = f"; {counted(len(found.left), 'piece')} of damage left" if found.left else ""
    if found.mends:
        words = Counter(log.after.words for log in sorted(found.logs, key=_gravity))
        copy = "" if found.whole else f"; the copy: {listed(words)}"
        out.line(f"Mended in {counted(len(found.mends), 'place')}{left}{copy}", style="bold")
        out.line(Unbroken(f"    tallystick explain {shell_quoted(found.copy)}"), style="bold")
    else:
        _show_unmended(out, found)


def _in_copy(found: Repair, path: str) -> str:
    return os.path.normpath(Path(found.copy, path))


def _show_unmended(out: Printer, found: Repair) -> None:
    """Print what `explain` does not call safe, and that nothing is mended in it."""
    for one in found.unmended[:LISTED_MAX]:
        name = Unbroken(f"{one.system}  {one.path}") if one.system else "All logs together"
        out.line((one.judgement.words, ANSWER_STYLES[one.judgement.answer]), "  ", name)
        wrapped(out, one.judgement.text)
    _more(out, len(found.unmended))
    if found.left:
        why = "no other bytes prove what is damaged"
    elif found.unmended:
        why = "no mend that is known would change this"
    else:
        why = "nothing is damaged"
    out.line(f"Nothing to mend: {why}. No copy was made", style="bold")
    if found.unmended:
        out.line(Unbroken(f"    tallystick explain {shell_quoted(found.path)}"), style="bold")


def _is_told(log: MendedLog) -> bool:
    return bool(log.left) or log.before != log.after or log.after.answer is not Answer.SAFE


def _gravity(log: MendedLog) -> int:
    return DECIDES_FIRST.index(log.after.answer)


def _show_left(out: Printer, left: Sequence[Finding]) -> None:
    for finding in left[:LISTED_MAX]:
        out.finding(finding)
    _more(out, len(left))


def wrapped(out: Printer, text: str, indent: str = "  ") -> None:
    """Print a text in lines of a terminal's width."""
    for line in textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    ):  # fmt: skip
        out.line(line)


def _more(out: Printer, count: int) -> None:
    if count > LISTED_MAX:
        out.line(f"  and {count - LISTED_MAX:,} more (--json lists all)", style="dim")
