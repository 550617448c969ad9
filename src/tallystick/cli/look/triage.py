"""``tallystick triage PATHS``: one screen over all logs, the gravest where a person looks first.

That is the end of a terminal, and the beginning of a file.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from typing import Any

import click

from tallystick.cli.answers import ANSWER_STYLES, print_estate, print_problems, stake_text
from tallystick.cli.options import Command, as_json, paths_argument, reading_options, reply
from tallystick.cli.output import WIDTH, Draft, PrintedTexts, Printer, Unbroken
from tallystick.printable import counted, shell_quoted
from tallystick.reading import triage
from tallystick.reading.databases import Database, strangers
from tallystick.reading.survey import NO_LOG
from tallystick.reading.triaging import Triage, TriagedLog
from tallystick.records import Answer, Finding, Severity

LISTED_MAX, SAFE_LISTED_MAX = 5, 2
BESIDE_ESTATE_MAX = 3
"""Logs with one answer that a person is shown, and safe ones; beside what all of them say
together, and no safe ones: that must fit on a screen. ``--all`` shows all of them."""


@click.command(cls=Command)
@paths_argument
@click.option("--all", "every", is_flag=True, help="Show every log, not the first of each answer.")
@as_json
@reading_options
def command(paths: tuple[str, ...], every: bool, as_json: bool, **options: Any) -> None:
    """Show every log below PATHS by its answer, with the next command to type.

    The gravest comes last at a terminal, whose end is what stays in sight, and first in a file or
    a pipe; the last line counts the answers. Several paths are judged together. Exits as explain
    does: with 0 only if every log is safe and its verdicts agree.
    """
    reply(triage, paths, partial(_show, every=every), as_json=as_json, **options)


def _show(out: Printer, answer: Triage, *, every: bool) -> None:
    """Print blocks of lines; at a terminal so few logs that they fit, the gravest block last."""
    most = LISTED_MAX
    blocks = _blocks(answer, most, every=every, gravest_last=out.rows is not None)
    while out.rows and not every and most and _rows_of(out, blocks) + 2 > out.rows:
        most -= 1
        blocks = _blocks(answer, most, every=every, gravest_last=True)
    for block in blocks if out.rows is None else reversed(blocks):
        block.print_to(out)
    counts = Counter(one.judgement.words for one in _one_of_each(answer.logs))
    unread = sum(one.severity is not Severity.INFO for one in answer.problems)
    said = [f"{count:,} {words}" for words, count in counts.items()]
    out.line(", ".join([*said, *([f"{unread:,} not read"] if unread else [])]), style="bold")


def _blocks(answer: Triage, most: int, *, every: bool, gravest_last: bool) -> list[Draft]:
    """Return what is to be shown, the gravest first."""
    printed, estate, drafts = PrintedTexts(), answer.estate, [Draft()]
    if estate is not None:
        print_estate(drafts[-1], estate, gravest_last=gravest_last)
        for line in estate.lines:
            printed.is_new(line.judgement.text)
    notes = [one for one in answer.problems if one.severity is Severity.INFO]
    unread, hidden = [one for one in answer.problems if one not in notes], 0
    for words, logs in groupby(answer.logs, lambda one: one.judgement.words):
        group = _one_of_each(logs)
        answered = group[0].judgement.answer
        if answered in (Answer.CANNOT_TELL, Answer.SAFE):
            drafts.append(_unread(unread))
            unread = []
        shown = len(group) if every else min(most, _listed_max(answered, alone=estate is None))
        hidden += max(len(group) - shown, 0)
        if not shown and answered is Answer.SAFE:
            continue  # the line of counts has them
        drafts.append(draft := Draft())
        kinds = _counted(one.database.kind for one in group)
        draft.line((words, ANSWER_STYLES[answered]), f"  {kinds}")
        for one in group[:shown]:
            _show_log(draft, one, printed, "" if estate is None else estate.command)
        rest = len(group) - shown
        if rest > 0 and shown:
            draft.line(f"  and {rest:,} more", style="dim")
    drafts += [_unread(unread), Draft()]
    if hidden:
        drafts[-1].line(Unbroken(f"    {answer.command}"), style="dim")
    print_problems(drafts[-1], notes, strangers(answer.others, answer.databases))
    return drafts


def _rows_of(out: Printer, blocks: Iterable[Draft]) -> int:
    return sum(out.rows_of(one.lines) for one in blocks)


def _one_of_each(logs: Iterable[TriagedLog]) -> list[TriagedLog]:
    """Return the first log of each database."""
    found: dict[Database, TriagedLog] = {}
    for one in logs:
        found.setdefault(one.database, one)
    return list(found.values())


def _counted(kinds: Iterable[str]) -> str:
    return ", ".join(counted(n, kind) for kind, n in Counter(kinds).items())


def _listed_max(answered: Answer, *, alone: bool) -> int:
    if answered is Answer.SAFE:
        return SAFE_LISTED_MAX if alone else 0
    return LISTED_MAX if alone else BESIDE_ESTATE_MAX


def _unread(problems: list[Finding]) -> Draft:
    """Return what could not be read, of which nothing can be told."""
    draft = Draft()
    if problems:
        found = any(one.code == NO_LOG for one in problems)
        text = "  no log was found" if found else f"  {len(problems):,} not read"
        draft.line(("CANNOT TELL", ANSWER_STYLES[Answer.CANNOT_TELL]), text)
    for one in problems:
        draft.finding(one)
    return draft


def _show_log(out: Printer, one: TriagedLog, printed: PrintedTexts, command: str) -> None:
    """Print a log in two lines of text at most, its path, and what to type if that is its own."""
    doubt = f"{one.in_doubt:,} in doubt" if one.in_doubt else ""
    differ = "" if one.verdicts_agree else "its engine and its bytes differ"
    alone = "the log alone" if one.alone else ""
    about = ", ".join(part for part in (stake_text(one.judgement), doubt, differ, alone) if part)
    why = one.judgement.text.partition(". ")[0].rstrip(".")
    parts = [about, why] if printed.is_new(one.judgement.text) else [about or why]
    for line in textwrap.wrap(
        f"{one.system}: {'. '.join(filter(None, parts))}.", WIDTH, initial_indent="  ",
        subsequent_indent="    ", max_lines=2, placeholder=" ...", break_long_words=False,
    ):  # fmt: skip
        out.line(line)
    if one.command == command:
        out.line(Unbroken(f"    {shell_quoted(one.path)}"), style="dim")
    else:
        out.line(Unbroken(f"    {one.command}"), style="bold")
