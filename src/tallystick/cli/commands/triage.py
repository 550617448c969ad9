"""``tallystick triage PATH``: one screen over all logs, gravest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from typing import Any

import click

from tallystick.cli.output import (
    ANSWER_STYLES,
    Printer,
    as_json,
    path_argument,
    print_estate,
    print_problems,
    reading_options,
    reply,
    stake_text,
)
from tallystick.printable import shell_quoted
from tallystick.reading import triage
from tallystick.reading.databases import Database, strangers
from tallystick.reading.survey import NO_LOG
from tallystick.reading.triaging import Triage, TriagedLog
from tallystick.records import Answer, Finding, Severity

LISTED_MAX, SAFE_LISTED_MAX = 5, 2
BESIDE_ESTATE_MAX = 3
"""Logs with one answer that a person is shown, and safe ones; beside what all of them say
together, and no safe ones: that must fit on a screen. ``--all`` shows all of them."""


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
    told = ""
    if answer.estate is not None:
        print_estate(out, answer.estate)
        told = answer.estate.command
    notes = [one for one in answer.problems if one.severity is Severity.INFO]
    unread, hidden = [one for one in answer.problems if one not in notes], 0
    for words, logs in groupby(answer.logs, lambda one: one.judgement.words):
        group = _one_of_each(logs)
        answered = group[0].judgement.answer
        if answered in (Answer.CANNOT_TELL, Answer.SAFE):
            _show_unread(out, unread)
            unread = []
        most = _listed_max(answered, alone=answer.estate is None)
        shown = len(group) if every else most
        style = ANSWER_STYLES[answered]
        out.line((words, style), f"  {_counted(one.database.kind for one in group)}")
        for one in group[:shown]:
            _show_log(out, one, told)
        rest = len(group) - shown
        hidden += max(rest, 0)
        if rest > 0 and shown:
            out.line(f"  and {rest:,} more", style="dim")
    if hidden:
        out.line(f"    tallystick triage --all {shell_quoted(answer.path)}", style="dim")
    _show_unread(out, unread)
    print_problems(out, notes, strangers(answer.others, answer.databases))


def _one_of_each(logs: Iterable[TriagedLog]) -> list[TriagedLog]:
    """Return the first log of each database."""
    found: dict[Database, TriagedLog] = {}
    for one in logs:
        found.setdefault(one.database, one)
    return list(found.values())


def _counted(kinds: Iterable[str]) -> str:
    return ", ".join(f"{n:,} {kind}{'s' if n > 1 else ''}" for kind, n in Counter(kinds).items())


def _listed_max(answered: Answer, *, alone: bool) -> int:
    if answered is Answer.SAFE:
        return SAFE_LISTED_MAX if alone else 0
    return LISTED_MAX if alone else BESIDE_ESTATE_MAX


def _show_unread(out: Printer, problems: list[Finding]) -> None:
    """Print what could not be read, of which nothing can be told."""
    if not problems:
        return
    found = any(one.code == NO_LOG for one in problems)
    text = "  no log was found" if found else f"  {len(problems):,} not read"
    out.line(("CANNOT TELL", ANSWER_STYLES[Answer.CANNOT_TELL]), text)
    for one in problems:
        out.finding(one)


def _show_log(out: Printer, one: TriagedLog, told: str) -> None:
    doubt = f"{one.in_doubt:,} in doubt" if one.in_doubt else ""
    differ = "" if one.verdicts_agree else "verdicts differ"
    about = ", ".join(part for part in (stake_text(one.judgement), doubt, differ) if part)
    reason = one.judgement.reason.replace("-", " ")
    out.line(f"  {one.system}: {reason}" + (f"; {about}" if about else ""))
    if one.command == told:
        out.line(f"    {shell_quoted(one.path)}", style="dim")
    else:
        out.line(f"    {one.command}", style="bold")
