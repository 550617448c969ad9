"""``tallystick explain PATH``: per log what a restart would do, and what it would not say."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Any, NoReturn

import click

from tallystick.cli.addresses import GivenPath
from tallystick.cli.answers import (
    ANSWER_STYLES,
    CALM,
    LISTED_MAX,
    print_findings,
    print_held_back,
    print_logs,
    print_problems,
    print_redo,
    print_surroundings,
    stake_text,
)
from tallystick.cli.options import Command, as_json, read_options, reading_options, reply
from tallystick.cli.output import (
    STYLES,
    Draft,
    PrintedTexts,
    Printer,
    Unbroken,
    complain,
    place,
    print_json,
)
from tallystick.cli.phrases import phrase
from tallystick.reading import explain
from tallystick.reading.databases import restarted, strangers
from tallystick.reading.discovery import path_of
from tallystick.reading.engine_errors import LookedUp, like_codes, look_up
from tallystick.reading.results import Explanation, amount, counts, headline, is_severe
from tallystick.reading.triaging import GRAVEST_FIRST
from tallystick.records import Answer, Difference, Finding, Severity, State, Verdict

SHORT = 40
"""Characters of a phrase that may stand in a text more than once: it is no fact of its own."""


@click.command(cls=Command)
@click.argument("paths", nargs=-1, type=GivenPath())
@click.option(
    "--error", metavar="TEXT", help="Say what an error of an original means: its code or message."
)
@click.option("--log-only", is_flag=True, help="Judge the log alone, not what is beside it.")
@as_json
@reading_options
def command(paths: tuple[str, ...], error: str | None, as_json: bool, **options: Any) -> None:
    """Say what a restart would keep, undo, leave in doubt and silently lose.

    Per log below PATHS: the answer about its database or broker, with what a restart opens besides
    the log; the verdict of the log's own engine, the strict one from the bytes alone, and where
    the two part.

    With --error what an error of an original means, as XSDB4, 90030 or a message with one in it;
    with PATHS, too, which databases below them show that error.
    """
    if error is not None:
        _explain_error(*_in_order(error, paths), as_json=as_json, **options)
    if not paths:
        raise click.UsageError("Missing argument 'PATHS...'.")
    reply(partial(explain, whole=as_json), paths, _show, as_json=as_json, **options)


def _in_order(text: str, paths: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the text of an error and the paths, also where a path was given for the error."""
    if os.path.lexists(text):
        for at, one in enumerate(paths):
            if not os.path.lexists(one) and look_up(one).errors:
                return one, (path_of(text), *paths[:at], *paths[at + 1 :])
    return text, paths


def _explain_error(text: str, paths: tuple[str, ...], *, as_json: bool, **options: Any) -> NoReturn:
    found = look_up(text, paths or None, read_options(**options))
    if as_json:
        print_json(found.to_dict())
    elif not found.errors:
        complain(_unknown_error(text, found), found.exit_code)
    else:
        _show_errors(Printer(), found, paths)
    raise SystemExit(found.exit_code)


def _unknown_error(text: str, found: LookedUp) -> str:
    """Return what is said of a text without a known code: near ones, or how many there are."""
    codes = {code.lower(): code for code in found.known}
    words = like_codes(text)
    alike = [codes[one] for word in words or [text] for one in _near(word, codes)]
    counts = ", ".join(f"{len(codes):,} of {system}" for system, codes in found.codes.items())
    near = ", ".join(dict.fromkeys(alike))
    meant = f"did you mean {near}?" if near else f"known are {counts}"
    what = " or ".join(words) or "that"
    return f"no error of an original is known by {what}; {meant} (--json lists all)"


def _near(word: str, codes: Iterable[str]) -> list[str]:
    return get_close_matches(word.lower(), codes)


def _show_errors(out: Printer, found: LookedUp, paths: tuple[str, ...]) -> None:
    for system, one in found.errors:
        out.line((one.code, "bold"), f"  {system}: {one.meaning}")
        out.line(f"  {one.advice}", style="italic")
    for path, judgement, shows in found.answers:
        what = "shows it" if shows else "does not show it"
        words = (judgement.words, ANSWER_STYLES[judgement.answer])
        out.line(words, "  ", Unbroken(path), f" {what}: {judgement.text}")
    if paths and not found.answers:
        of = " or ".join(dict.fromkeys(system for system, _ in found.errors))
        out.line(f"No log of {of} is there to look at: ", Unbroken(", ".join(paths)))
    print_problems(out, found.unread, [])
    if found.repair:
        out.line("What other bytes prove is mended in a copy by:")
        for command in found.repair.split("\n"):
            out.line(Unbroken(f"    {command}"), style="bold")


def _show(out: Printer, answer: Explanation) -> None:
    blocks: list[Draft] = []
    for verdict, findings in zip(answer.logs, answer.findings, strict=True):
        blocks.append(draft := Draft(-GRAVEST_FIRST.index(verdict.judgement.answer)))
        _show_log(draft, verdict, findings)
    unread = any(map(is_severe, answer.problems))
    blocks.append(draft := Draft(-GRAVEST_FIRST.index(Answer.CANNOT_TELL) if unread else CALM))
    print_problems(draft, answer.problems, strangers(answer.others, answer.databases))
    print_logs(out, answer.estate, blocks)


def _show_log(out: Printer, verdict: Verdict, findings: list[Finding]) -> None:
    one, printed = verdict.judgement, PrintedTexts()
    answer = (one.words, ANSWER_STYLES[one.answer])
    around = verdict.surroundings
    out.line(answer, f"  {verdict.system}  ", Unbroken(restarted(verdict)), f"  ({verdict.format})")
    out.line(f"  {headline(verdict)}", style="bold")
    printed.is_new(one.text)
    out.line(f"  Why: {one.text}")
    if stake := stake_text(one):
        out.line(f"  At stake: {stake}")
    if one.decided_by:
        out.line(f"  What would decide it: {one.decided_by}")
    if around is not None:
        print_surroundings(out, around, printed)
    own = verdict.log_judgement
    if (own.answer, own.reason, own.at_stake) != (one.answer, one.reason, one.at_stake):
        printed.is_new(own.text)
        out.line(f"  The log alone: {own.words}: {own.text}")
    print_held_back(out, verdict.strict.get("held_back"))
    print_redo(out, verdict.strict)
    for difference in verdict.differences[:LISTED_MAX]:
        _show_difference(out, difference, printed)
    _show_rest(out, len(verdict.differences))
    pending = State.PENDING.value in counts(verdict.strict.get("transactions"))
    title = "Pending" if pending else "In doubt"
    _show_list(out, title, verdict.strict.get("in_doubt"), printed)
    _show_list(out, "A restart would lose without a word", verdict.strict.get("lost"), printed)
    print_findings(out, findings, printed)
    records = counts(verdict.strict.get("records"))
    read = ", ".join(f"{count:,} {name}" for name, count in records.items()) or "no record"
    out.line(f"  Read: {read}", style="dim")
    out.line()


def _show_list(out: Printer, title: str, values: Any, printed: PrintedTexts) -> None:
    if not amount(values):
        return
    entries = iter(_entries(values))
    shown = list(islice((entry for entry in entries if printed.is_new(entry)), LISTED_MAX))
    if shown:
        out.line(f"  {title}:", style="bold")
    for entry in shown:
        out.line(f"    {entry}")
    # What is not shown is counted alone: there may be very many.
    _show_rest(out, len(shown) + sum(1 for _ in entries))


def _show_rest(out: Printer, count: int) -> None:
    if count > LISTED_MAX:
        out.line(f"    and {count - LISTED_MAX:,} more (--json lists all)", style="dim")


def _entries(values: Any) -> list[str]:
    if isinstance(values, dict):
        return [f"{name}: {phrase(value)}" for name, value in values.items() if value]
    if isinstance(values, list | tuple | set | frozenset):
        return [phrase(value) for value in values]
    return [phrase(values)]


def _show_difference(out: Printer, difference: Difference, printed: PrintedTexts) -> None:
    severity = Severity(difference.severity)
    out.line(f"  {severity.value} {difference.what}", style=STYLES[severity])
    for title, text in (
        ("", difference.meaning),
        ("its own engine: ", difference.engine),
        ("the bytes:      ", difference.strict),
    ):
        if printed.is_new(text) or len(text) < SHORT:
            out.line(f"      {title}{text}")
    if difference.file is not None:
        where = place(difference.file, difference.offset)
        out.line(Unbroken(f"      evidence: {where}"), style="dim")
