"""``tallystick triage PATH``: one screen over all logs, gravest first."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import click

from tallystick.cli.output import (
    ANSWER_STYLES,
    Printer,
    as_json,
    path_argument,
    print_json,
    print_problems,
    progress,
    read_options,
    reading_options,
    stake_text,
)
from tallystick.reading import triage
from tallystick.reading.triaging import Triage, TriagedLog
from tallystick.records import Answer

LISTED_MAX, SAFE_LISTED_MAX = 5, 2
"""Logs with one answer that a person is shown, and safe ones; ``--json`` has all of them."""


@click.command()
@path_argument
@as_json
@reading_options
@click.pass_context
def command(ctx: click.Context, /, path: str, as_json: bool, **options: Any) -> None:
    """Show every log below PATH by its answer, gravest first, with the next command to type.

    Exits with 0 only if every log is safe.
    """
    with progress("Reading") as tell:
        answer = triage(path, options=read_options(**options), progress=tell)
    if as_json:
        print_json(answer.to_dict())
    else:
        _show(Printer(), answer)
    ctx.exit(answer.exit_code)


def _show(out: Printer, answer: Triage) -> None:
    for words, logs in groupby(answer.logs, lambda one: one.judgement.words):
        group = list(logs)
        answered = group[0].judgement.answer
        shown = SAFE_LISTED_MAX if answered is Answer.SAFE else LISTED_MAX
        style = ANSWER_STYLES[answered]
        out.line((words, style), f"  {len(group):,} log{'s' if len(group) > 1 else ''}")
        for one in group[:shown]:
            _show_log(out, one)
        if (rest := len(group) - shown) > 0:
            out.line(f"  and {rest:,} more (tallystick triage --json lists all)", style="dim")
    print_problems(out, answer.problems, answer.others)


def _show_log(out: Printer, one: TriagedLog) -> None:
    doubt = f"{one.in_doubt:,} in doubt" if one.in_doubt else ""
    about = ", ".join(part for part in (stake_text(one.judgement), doubt) if part)
    reason = one.judgement.reason.replace("-", " ")
    out.line(f"  {one.system}: {reason}" + (f"; {about}" if about else ""))
    out.line(f"    {one.command}", style="bold")
