"""``tallystick triage PATH``: one screen over all logs, gravest first."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import Any

import click

from tallystick.cli.output import (
    ANSWER_STYLES,
    Printer,
    as_json,
    path_argument,
    print_problems,
    reading_options,
    reply,
    stake_text,
)
from tallystick.reading import triage
from tallystick.reading.triaging import Triage, TriagedLog, shell_quoted
from tallystick.records import Answer

LISTED_MAX, SAFE_LISTED_MAX = 5, 2
"""Logs with one answer that a person is shown, and safe ones; ``--all`` shows all of them."""


@click.command()
@path_argument
@click.option("--all", "every", is_flag=True, help="Show every log, not the first of each answer.")
@as_json
@reading_options
def command(path: str, every: bool, as_json: bool, **options: Any) -> None:
    """Show every log below PATH by its answer, gravest first, with the next command to type.

    Exits as explain does: with 0 only if every log is safe and its verdicts agree.
    """
    reply(triage, path, partial(_show, every=every), as_json=as_json, **options)


def _show(out: Printer, answer: Triage, *, every: bool) -> None:
    for words, logs in groupby(answer.logs, lambda one: one.judgement.words):
        group = list(logs)
        answered = group[0].judgement.answer
        most = SAFE_LISTED_MAX if answered is Answer.SAFE else LISTED_MAX
        shown = len(group) if every else most
        style = ANSWER_STYLES[answered]
        out.line((words, style), f"  {len(group):,} log{'s' if len(group) > 1 else ''}")
        for one in group[:shown]:
            _show_log(out, one)
        if (rest := len(group) - shown) > 0:
            out.line(f"  and {rest:,} more:", style="dim")
            out.line(f"    tallystick triage --all {shell_quoted(answer.path)}", style="dim")
    print_problems(out, answer.problems, answer.others)


def _show_log(out: Printer, one: TriagedLog) -> None:
    doubt = f"{one.in_doubt:,} in doubt" if one.in_doubt else ""
    differ = "" if one.verdicts_agree else "verdicts differ"
    about = ", ".join(part for part in (stake_text(one.judgement), doubt, differ) if part)
    reason = one.judgement.reason.replace("-", " ")
    out.line(f"  {one.system}: {reason}" + (f"; {about}" if about else ""))
    out.line(f"    {one.command}", style="bold")
